"""Encode a query as tokens and model inputs: a text, a pair as one sequence, source and target."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnviz.analyses.blocks import BlockStudy, RowsOnly
from attnviz.core.attention_map import PARTS, SECOND_PART, Attention, Provenance, Token, typed_facts
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError
from attnviz.core.query import Message, Query
from attnviz.core.records import dataclass, field, replace
from attnviz.models.hugging_face.capture import capture
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
from attnviz.models.hugging_face.inputs import chat, generation, tokenization
from attnviz.models.hugging_face.load import family, imports
from attnviz.models.hugging_face.loaded_model import BOXES, LoadedModel, input_names

BETWEEN = "\n"  # separates the texts of a pair that is shown as one text; no token covers it
SEQ2SEQ_AXES = {
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
}
"""An encoder–decoder's streams, with the texts of their queries and keys."""


def axes_of(config: Any) -> dict[str, tuple[str, str]]:
    """The streams of an encoder–decoder that are weights between tokens."""
    apart = config.model_type in family.ENCODER_APART
    return {name: axes for name, axes in SEQ2SEQ_AXES.items() if not (apart and name == "encoder")}


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A query as a model reads it, and the attention that its maps will be added to."""

    part: Any  # the model, or the part that reads
    # Ids and masks by input name; for an eager pass tensors, a batch of one
    inputs: Mapping[str, Any]
    tokens: Mapping[str, tuple[Token, ...]]  # "text", or "source" and "target"
    axes: Mapping[str, tuple[str, str]]  # texts of each stream's queries and keys
    attention: Attention  # without maps
    exclusions: Mapping[str, IgnoredPositions] = field(default_factory=dict)  # by stream
    what: str = "text"  # or "picture", "recording"

    @property
    def kind(self) -> str:
        """The architecture of the part that reads."""
        return str(self.part.config.model_type)

    @property
    def sides(self) -> dict[str, tuple[int, int]]:
        return {
            stream: (len(self.tokens[queries]), len(self.tokens[keys]))
            for stream, (queries, keys) in self.axes.items()
        }

    def ids(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self.inputs["decoder_input_ids" if text == "target" else "input_ids"]
        return ids

    def studies(self, name: Callable[[Attention], Attention]) -> dict[str, BlockStudy]:
        """What measures each stream in blocks of rows, once tokens have their labels."""
        items = [
            RowsOnly(stream, self.tokens[queries], self.tokens[keys], queries, keys)
            for stream, (queries, keys) in self.axes.items()
        ]
        maps: Any = tuple(items)
        attention = name(replace(self.attention, maps=maps))
        return {item.stream: BlockStudy.of(attention, item) for item in attention.maps}

    def build_attention(
        self,
        captures: Sequence[capture.Captured],
        task: family.Task | None = None,
        logits: Any = None,
        sides: Mapping[str, tuple[int, int]] | None = None,
        studies: Mapping[str, BlockStudy] | None = None,
    ) -> Attention:
        """The attention with maps, notes, and the decision by logits (a batch of one, or None).

        `sides` are given where more was read than there are tokens for, `studies` where heads were
        measured in blocks of rows.
        """
        first = next(iter(self.axes.values()))
        maps = tuple(
            capture.as_map(item, self.tokens, *axes, len(self.attention.text_of(axes[0])))
            for item in captures
            for axes in [self.axes.get(item.stream, first)]
        )
        learned_sink = any(item.learned_sink for item in captures)
        provenance = capture.with_routes(
            self.attention.provenance,
            [item.route for item in captures],
            learned_sink=learned_sink,
        )
        notes = (*provenance.notes, *capture.capture_notes(captures, sides or self.sides))
        attention = replace(
            self.attention,
            maps=maps,
            provenance=replace(provenance, notes=notes),
            projections={
                item.stream: one.projections
                for item, one in zip(maps, captures, strict=True)
                if one.projections is not None
            },
            scores=capture.scores_of(maps, captures),
            group_sizes=capture.group_sizes_of(maps, captures),
            learned_sink=learned_sink,
            in_blocks=capture.measures_of(maps, captures, studies) if studies else (),
        )
        if task is None or logits is None or "source" in self.tokens:
            return attention
        return family.show_decision(attention, task, logits, self.tokens.get("text", ()))


def encode(source: LoadedModel, query: Query) -> EncodedQuery:
    """Encode a query, and check that the model can read it."""
    if query.kind == "self":
        return _encode_self(source, query)
    if query.kind == "pair":
        return _encode_pair(source, query.text, query.target or "")
    if query.kind == "cross":
        return _encode_cross(source, query.text, query.target)
    raise UsageError(f"'{source.name}' reads texts: it answers no query of kind '{query.kind}'")


def _encode_self(source: LoadedModel, query: Query) -> EncodedQuery:
    text = query.text
    if source.chat_template and not query.rendered:
        messages = query.messages or (Message("user", text),)
        tools = json.loads(query.tools) if query.tools else None
        turns = [one.turn for one in messages]
        text = chat.render_messages(source.tokenizer, turns, source.name, tools=tools)
    read = tokenization.tokenize(source.tokenizer, text, has_marks=source.chat_template)
    _check_ids(source, read.ids, read.tokens, "text")
    if source.max_new_tokens is None:
        return _one_sequence(source, read, text, source.provenance)
    text, read, settings, notes = generation.continue_prompt(source, text, read)
    return _one_sequence(source, read, text, _provenance(source, settings, notes))


def _encode_pair(source: LoadedModel, first: str, second: str) -> EncodedQuery:
    if source.family == "decoder-only":
        raise ModelError(
            f"'{source.name}' is decoder-only ({source.model.config.model_type}) and does not read "
            "sentence pairs: give one text"
        )
    read = tokenize_pair(source.tokenizer, first, second)
    _check_ids(source, read.ids, read.tokens, "pair")
    settings = {PARTS: "pair", SECOND_PART: len(join_pair(first, ""))}
    return _one_sequence(source, read, join_pair(first, second), _provenance(source, settings))


def _one_sequence(
    source: LoadedModel, read: tokenization.TokenizedText, text: str, provenance: Provenance
) -> EncodedQuery:
    encoder = source.family == "encoder–decoder"
    stream = {"encoder-only": "self", "decoder-only": "causal"}.get(source.family, "encoder")
    part = source.model
    if encoder and source.task is None:
        part = source.encoder
    elif encoder:
        note = "its decoder reads the text, too: those heads are neither shown nor switched off"
        provenance = replace(provenance, notes=(*provenance.notes, note))
    elif source.max_new_tokens is not None and not encoder:
        # Nothing reads the logits of a continuation: leave the language-model head out.
        part = source.model.base_model
    if BOXES in input_names(part):
        note = "it reads forms: a text stands in no place of a page, so all of its boxes are 0"
        provenance = replace(provenance, notes=(*provenance.notes, note))
    return EncodedQuery(
        part,
        read.inputs,
        {"text": read.tokens},
        {stream: ("text", "text")},
        Attention((), provenance, text=text, **typed_facts(provenance)),
        {stream: capture.ignored_positions(read.tokens, causal=stream == "causal")},
    )


def _encode_cross(source: LoadedModel, text: str, target: str | None) -> EncodedQuery:
    if source.family != "encoder–decoder":
        raise AttentionError(
            f"'{source.name}' is {source.family} ({source.model.config.model_type}) and has no "
            "cross-attention: ask for self-attention, or use an encoder–decoder (T5, BART, Marian)"
        )
    if source.task is not None:
        raise AttentionError(
            f"'{source.name}' is a classifier and writes no target: use 'attnviz self', for two "
            "texts with --pair"
        )
    if target is not None and source.max_new_tokens is not None:
        raise UsageError("a target was given, and --generate is to write one: give one of them")
    read = tokenization.tokenize(source.tokenizer, text)
    _check_ids(source, read.ids, read.tokens, "text")
    if target is None:
        decoder = generation.write_target(source, read)
    else:
        decoder = generation.shift_target(source.model, source.tokenizer, target)
        _check_ids(source, decoder.ids, decoder.tokens, "target")
    config = source.model.config
    why = family.ENCODER_APART.get(config.model_type)
    apart = () if why is None else (f"the encoder over itself is left out: {why}",)
    notes = (*decoder.notes, *apart)
    provenance = _provenance(source, {"queries": generation.QUERIES}, notes)
    attention = Attention((), provenance, source=text, target=decoder.text)
    inputs = {**read.inputs, "decoder_input_ids": decoder.ids}
    tokens = {"source": read.tokens, "target": decoder.tokens}
    return EncodedQuery(source.model, inputs, tokens, axes_of(config), attention)


def _provenance(
    source: LoadedModel, settings: Mapping[str, Any], notes: tuple[str, ...] = ()
) -> Provenance:
    own = source.provenance
    return replace(own, settings={**own.settings, **settings}, notes=(*own.notes, *notes))


def _check_ids(source: LoadedModel, ids: Sequence[int], tokens: Sequence[Token], what: str) -> None:
    if source.limit is not None and len(ids) > source.limit:
        raise InputError(
            f"the {what} is {len(ids):,} tokens long and '{source.name}' reads at most "
            f"{source.limit:,}: shorten it"
        )
    size = source.vocabulary
    highest, token = max(zip(ids, tokens, strict=True), key=lambda item: item[0])
    if highest >= size:
        raise ModelError(
            f"the tokenizer does not belong to the model '{source.name}': it numbers "
            f"'{token.text}' {highest}, and the model knows 0 to {size - 1}"
        )


def tokenize_pair(tokenizer: Any, first: str, second: str) -> tokenization.TokenizedText:
    """The tokens of two texts and their marks; offsets refer to `join_pair`.

    `sequence_ids` says which text a token belongs to, since many models (RoBERTa, T5) have no token
    types.
    """
    for text in (first, second):
        tokenization.check_text(text)
    if not tokenizer.is_fast:
        raise ModelError(
            "the model's tokenizer (written in Python) does not say which text of a pair a token "
            "is of: give one text"
        )
    with tokenization.tokenizer_errors(tokenizer), imports.quiet_native():
        options = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        encoding = tokenizer(first, second, verbose=False, **options)
        parts = encoding.sequence_ids()
        pieces = tokenization.pieces_of(tokenizer, encoding["input_ids"])
    inputs = {name: list(row) for name, row in encoding.items()}
    offsets = inputs.pop("offset_mapping")
    specials = inputs.pop("special_tokens_mask")
    if 0 not in parts or 1 not in parts:
        raise InputError("a text of the pair leaves no tokens: the tokenizer knows none of it")
    if None not in parts[parts.index(0) : parts.index(1)]:
        raise ModelError("the model's tokenizer puts no mark between two texts: give one text")
    start = len(join_pair(first, ""))
    spans = [
        (begin + start, end + start) if part == 1 else (begin, end)
        for (begin, end), part in zip(offsets, parts, strict=True)
    ]
    tokens = tokenization.label_tokens(
        pieces, spans, specials, join_pair(first, second), tokenizer.unk_token
    )
    return tokenization.TokenizedText(tokens, inputs)


def join_pair(first: str, second: str) -> str:
    """Both texts as one string, to which token offsets refer."""
    return first + BETWEEN + second
