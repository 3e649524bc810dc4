"""Encode a query as tokens and model inputs: a text, a pair as one sequence, source and target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnviz.core.attention_map import PARTS, SECOND_PART, Attention, Provenance, Token, typed_facts
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError
from attnviz.core.query import Query
from attnviz.models.hugging_face.capture.capture import (
    Captured,
    as_map,
    capture_notes,
    ignored_positions,
    projections_of,
    scores_of,
    with_routes,
)
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions
from attnviz.models.hugging_face.inputs.chat import apply_chat_template
from attnviz.models.hugging_face.inputs.generation import (
    QUERIES,
    continue_prompt,
    shift_target,
    write_target,
)
from attnviz.models.hugging_face.inputs.tokenization import (
    TokenizedText,
    check_text,
    label_tokens,
    pieces_of,
    tokenize,
    tokenizer_errors,
)
from attnviz.models.hugging_face.load.imports import quiet_native
from attnviz.models.hugging_face.load.tasks import Task, show_decision
from attnviz.models.hugging_face.loaded_model import LoadedModel

BETWEEN = "\n"  # separates the texts of a pair that is shown as one text; no token covers it
SEQ2SEQ_AXES = {
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
}
"""An encoder–decoder's streams, with the texts of their queries and keys."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A query as a model reads it, and the attention that its maps will be added to."""

    part: Any  # the model, or the part that reads
    inputs: Mapping[str, Any]  # ids and masks by input name
    tokens: Mapping[str, tuple[Token, ...]]  # "text", or "source" and "target"
    axes: Mapping[str, tuple[str, str]]  # texts of each stream's queries and keys
    attention: Attention  # without maps
    ignored: Mapping[str, IgnoredPositions] = field(default_factory=dict)  # by stream

    @property
    def sides(self) -> dict[str, tuple[int, int]]:
        return {
            stream: (len(self.tokens[queries]), len(self.tokens[keys]))
            for stream, (queries, keys) in self.axes.items()
        }

    def ids(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self.inputs["decoder_input_ids" if text == "target" else "input_ids"]
        return ids

    def build_attention(
        self,
        captured: Sequence[Captured],
        task: Task | None = None,
        logits: Any = None,
        sides: Mapping[str, tuple[int, int]] | None = None,
    ) -> Attention:
        """The attention with maps, notes, and the decision by logits (a batch of one, or None).

        `sides` are given where more was read than there are tokens for.
        """
        first = next(iter(self.axes.values()))
        maps = tuple(
            as_map(item, self.tokens, *self.axes.get(item.stream, first)) for item in captured
        )
        provenance = with_routes(self.attention.provenance, [item.route for item in captured])
        notes = (*provenance.notes, *capture_notes(captured, sides or self.sides))
        attention = replace(
            self.attention,
            maps=maps,
            provenance=replace(provenance, notes=notes),
            projections=projections_of(maps, captured),
            scores=scores_of(maps, captured),
        )
        if task is None or logits is None or "source" in self.tokens:
            return attention
        return show_decision(attention, task, logits, self.tokens.get("text", ()))


def encode(loaded: LoadedModel, query: Query) -> EncodedQuery:
    """Encode a query, and check that the model can read it."""
    if query.kind == "self":
        return _encode_self(loaded, query)
    if query.kind == "pair":
        return _encode_pair(loaded, query.text, query.target or "")
    if query.kind == "cross":
        return _encode_cross(loaded, query.text, query.target)
    raise UsageError(f"'{loaded.name}' reads texts: it answers no query of kind '{query.kind}'")


def _encode_self(loaded: LoadedModel, query: Query) -> EncodedQuery:
    text = query.text
    if loaded.chat_template and not query.rendered:
        text = apply_chat_template(loaded.tokenizer, text, loaded.name)
    read = tokenize(loaded.tokenizer, text, marked=loaded.chat_template)
    _check_ids(loaded, read.ids, read.tokens, "text")
    if loaded.max_new_tokens is None:
        return _one_sequence(loaded, read, text, loaded.provenance)
    text, read, settings, notes = continue_prompt(loaded, text, read)
    return _one_sequence(loaded, read, text, _provenance(loaded, settings, notes))


def _encode_pair(loaded: LoadedModel, first: str, second: str) -> EncodedQuery:
    if loaded.family == "decoder-only":
        raise ModelError(
            f"'{loaded.name}' is decoder-only ({loaded.model.config.model_type}) and does not read "
            "sentence pairs: give one text"
        )
    read = tokenize_pair(loaded.tokenizer, first, second)
    _check_ids(loaded, read.ids, read.tokens, "pair")
    settings = {PARTS: "pair", SECOND_PART: len(join_pair(first, ""))}
    return _one_sequence(loaded, read, join_pair(first, second), _provenance(loaded, settings))


def _one_sequence(
    loaded: LoadedModel, read: TokenizedText, text: str, provenance: Provenance
) -> EncodedQuery:
    encoder = loaded.family == "encoder–decoder"
    stream = {"encoder-only": "self", "decoder-only": "causal"}.get(loaded.family, "encoder")
    part = loaded.model
    if encoder and loaded.task is None:
        part = loaded.model.get_encoder()
    elif loaded.max_new_tokens is not None and not encoder:
        # Nothing reads the logits of a continuation: leave the language-model head out.
        part = loaded.model.base_model
    return EncodedQuery(
        part,
        read.inputs,
        {"text": read.tokens},
        {stream: ("text", "text")},
        Attention((), provenance, text=text, **typed_facts(provenance)),
        {stream: ignored_positions(read.tokens, causal=stream == "causal")},
    )


def _encode_cross(loaded: LoadedModel, source: str, target: str | None) -> EncodedQuery:
    if loaded.family != "encoder–decoder":
        raise AttentionError(
            f"'{loaded.name}' is {loaded.family} ({loaded.model.config.model_type}) and has no "
            "cross-attention: ask for self-attention, or use an encoder–decoder (T5, BART, Marian)"
        )
    if target is not None and loaded.max_new_tokens is not None:
        raise UsageError("a target was given, and --generate is to write one: give one of them")
    read = tokenize(loaded.tokenizer, source)
    _check_ids(loaded, read.ids, read.tokens, "text")
    if target is None:
        decoder = write_target(loaded, read)
    else:
        decoder = shift_target(loaded.model, loaded.tokenizer, target)
        _check_ids(loaded, decoder.ids, decoder.tokens, "target")
    provenance = _provenance(loaded, {"queries": QUERIES}, decoder.notes)
    attention = Attention((), provenance, source=source, target=decoder.text)
    inputs = {**read.inputs, "decoder_input_ids": decoder.ids}
    tokens = {"source": read.tokens, "target": decoder.tokens}
    return EncodedQuery(loaded.model, inputs, tokens, SEQ2SEQ_AXES, attention)


def _provenance(
    loaded: LoadedModel, settings: Mapping[str, Any], notes: tuple[str, ...] = ()
) -> Provenance:
    own = loaded.provenance
    return replace(own, settings={**own.settings, **settings}, notes=(*own.notes, *notes))


def _check_ids(loaded: LoadedModel, ids: Sequence[int], tokens: Sequence[Token], what: str) -> None:
    if loaded.limit is not None and len(ids) > loaded.limit:
        raise InputError(
            f"the {what} is {len(ids):,} tokens long and '{loaded.name}' reads at most "
            f"{loaded.limit:,}: shorten it"
        )
    size = loaded.vocabulary
    highest, token = max(zip(ids, tokens, strict=True), key=lambda item: item[0])
    if highest >= size:
        raise ModelError(
            f"the tokenizer does not belong to the model '{loaded.name}': it numbers "
            f"'{token.text}' {highest}, and the model knows 0 to {size - 1}"
        )


def tokenize_pair(tokenizer: Any, first: str, second: str) -> TokenizedText:
    """The tokens of two texts and their marks; offsets refer to `join_pair`.

    `sequence_ids` says which text a token belongs to, since many models (RoBERTa, T5) have no token
    types.
    """
    for text in (first, second):
        check_text(text)
    if not tokenizer.is_fast:
        raise ModelError(
            "the model's tokenizer (written in Python) does not say which text of a pair a token "
            "is of: give one text"
        )
    with tokenizer_errors(tokenizer), quiet_native():
        asked = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        encoded = tokenizer(first, second, verbose=False, **asked)
        parts = encoded.sequence_ids()
        pieces = pieces_of(tokenizer, encoded["input_ids"])
    inputs = {name: list(row) for name, row in encoded.items()}
    offsets = inputs.pop("offset_mapping")
    added = inputs.pop("special_tokens_mask")
    if 0 not in parts or 1 not in parts:
        raise InputError("a text of the pair leaves no tokens: the tokenizer knows none of it")
    if None not in parts[parts.index(0) : parts.index(1)]:
        raise ModelError("the model's tokenizer puts no mark between two texts: give one text")
    start = len(join_pair(first, ""))
    moved = [
        (begin + start, end + start) if part == 1 else (begin, end)
        for (begin, end), part in zip(offsets, parts, strict=True)
    ]
    tokens = label_tokens(pieces, moved, added, join_pair(first, second), tokenizer.unk_token)
    return TokenizedText(tokens, inputs)


def join_pair(first: str, second: str) -> str:
    """Both texts as one string, to which token offsets refer."""
    return first + BETWEEN + second
