"""A loaded model that can be asked for the attention of a text or of a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnviz.attention_map import (
    PARTS,
    SECOND_PART,
    Attention,
    AttentionMap,
    Link,
    Projections,
    Provenance,
    Token,
)
from attnviz.errors import AttentionError, InputError, ModelError, UsageError
from attnviz.evidence import Explained, Transformed
from attnviz.hugging_face.blocks import whole
from attnviz.hugging_face.capture import Captured, capture
from attnviz.hugging_face.continuation import Continuation, as_chat, continued
from attnviz.hugging_face.exact_links import Hidden
from attnviz.hugging_face.extent import WHOLE, Extent
from attnviz.hugging_face.family import Family
from attnviz.hugging_face.generation import QUERIES, Target, generated_target, given_target
from attnviz.hugging_face.notes import notes_of
from attnviz.hugging_face.pairs import joined, tokenize_pair
from attnviz.hugging_face.quiet import quiet
from attnviz.hugging_face.tasks import Task, listening, show_decision
from attnviz.hugging_face.tokens import TokenizedText, tokenize


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceModel:
    """A pretrained model and its tokenizer, as a source of attention.

    Attributes:
        name: what it was asked for as.
        model: the transformers model, on its device, in evaluation mode.
        tokenizer: its transformers tokenizer.
        family: which of the three transformer shapes it has.
        limit: how many tokens it reads at most, None where nothing says.
        provenance: where it came from; what is made of it is added for each text.
        can_generate: True where it has a trained language-model head.
        task: what its head decides, if it has one that does.
        writes: how many tokens it writes at most; None: only a target that is missing.
        chats: True where texts are read as the user's turn of a conversation.
        extent: which part of a text's attention is read, and how finely.
    """

    name: str
    model: Any
    tokenizer: Any
    family: Family
    limit: int | None
    provenance: Provenance
    can_generate: bool = False
    task: Task | None = None
    writes: int | None = None
    chats: bool = False
    extent: Extent = WHOLE

    def attend_self(self, text: str) -> Attention:
        """A text's attention over itself; of an encoder–decoder, its encoder's.

        Raises:
            InputError: the text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the architecture gives out no attention weights.
        """
        with quiet():
            text, read, provenance = self.read_alone(text)
            with listening(self.model) as heard:
                maps, notes, kept = self.look(read)
        provenance = replace(provenance, notes=(*provenance.notes, *notes))
        attention = Attention(maps, provenance, text=text, projections=kept)
        return self.decided(attention, heard, read)

    def attend_pair(self, first: str, second: str) -> Attention:
        """The attention of two texts, read as one sequence, over themselves and each other.

        Raises:
            InputError: a text is blank, or both together are too long.
            ModelError: the model or its tokenizer does not read pairs.
            AttentionError: the architecture gives out no attention weights.
        """
        if self.family == "decoder-only":
            raise ModelError(
                f"'{self.name}' is decoder-only ({self.model.config.model_type}) and does not read "
                "sentence pairs: give one text"
            )
        with quiet():
            read = tokenize_pair(self.tokenizer, first, second)
            self.check_ids(read.ids, read.tokens, "pair")
            with listening(self.model) as heard:
                maps, notes, kept = self.look(read)
        parts = {PARTS: "pair", SECOND_PART: len(joined(first, ""))}
        provenance = replace(
            self.provenance,
            settings={**self.provenance.settings, **parts},
            notes=(*self.provenance.notes, *notes),
        )
        attention = Attention(maps, provenance, joined(first, second), projections=kept)
        return self.decided(attention, heard, read)

    def attend_cross(self, source: str, target: str | None = None) -> Attention:
        """The target's attention over the source, then each one's over itself.

        Args:
            source: what the encoder reads: the keys.
            target: what the decoder reads: the queries; None: what the model writes by itself.

        Raises:
            InputError: a text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the model has no cross-attention.
        """
        with quiet():
            read, goal, inputs = self.read_pair(source, target)
            queries, keys = len(goal.tokens), len(read.tokens)
            sides = {
                "cross": (queries, keys),
                "encoder": (keys, keys),
                "decoder": (queries, queries),
            }
            captured = capture(self.model, inputs, sides, extent=self.extent)
        tokens = {"source": read.tokens, "target": goal.tokens}
        side = {
            "cross": ("target", "source"),
            "encoder": ("source",) * 2,
            "decoder": ("target",) * 2,
        }
        maps = tuple(as_map(item, tokens, *side[item.stream]) for item in captured)
        notes = (*goal.notes, *notes_of(captured, sides))
        kept = projections_of(maps, captured)
        return Attention(
            maps, self.decoded(notes), source=source, target=goal.text, projections=kept
        )

    def explain_self(self, text: str, wanted: str | None = None) -> Explained:
        """What the model predicts from a text, with gradients; see `hugging_face.gradient`."""
        from attnviz.hugging_face.gradient import explain_self

        return explain_self(self, text, wanted)

    def explain_cross(
        self, source: str, target: str | None = None, wanted: str | None = None
    ) -> Explained:
        """Why a token of the target is written, with gradients; see `hugging_face.gradient`."""
        from attnviz.hugging_face.gradient import explain_cross

        return explain_cross(self, source, target, wanted)

    def transform_self(self, text: str) -> Transformed:
        """What each head makes of each token; see `hugging_face.norm`."""
        from attnviz.hugging_face.norm import transform_self

        return transform_self(self, text)

    def transform_cross(self, source: str, target: str | None = None) -> Transformed:
        """What each head makes of each token of a pair; see `hugging_face.norm`."""
        from attnviz.hugging_face.norm import transform_cross

        return transform_cross(self, source, target)

    def read_alone(self, text: str) -> tuple[str, TokenizedText, Provenance]:
        """A text as it is read: as a chat, or with what the model writes after it, where asked for.

        Raises:
            InputError: the text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
        """
        text = as_chat(self.tokenizer, text, self.name) if self.chats else text
        read, provenance = self.read(text, marked=self.chats), self.provenance
        if self.writes is None:
            return text, read, provenance
        whole = self.go_on(text, read)
        settings = {**provenance.settings, **whole.settings}
        notes = (*provenance.notes, *whole.notes)
        return whole.text, whole.read, replace(provenance, settings=settings, notes=notes)

    def read_pair(
        self, source: str, target: str | None
    ) -> tuple[TokenizedText, Target, dict[str, Any]]:
        """A source, the target (None: what the model writes), and both as tensors.

        Raises:
            InputError: a text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the model has no cross-attention.
        """
        if self.family != "encoder–decoder":
            raise AttentionError(
                f"'{self.name}' is {self.family} ({self.model.config.model_type}) and has no "
                "cross-attention: ask for self-attention, or use an encoder–decoder (T5, BART, "
                "Marian)"
            )
        if target is not None and self.writes is not None:
            raise UsageError("a target was given, and --generate is to write one: give one of them")
        read = self.read(source)
        inputs = self.tensors(read.inputs, self.model)
        if target is None:
            goal = self.generate(inputs)
        else:
            goal = given_target(self.model, self.tokenizer, target)
            self.check_ids(goal.ids, goal.tokens, "target")
        return read, goal, inputs | self.tensors({"decoder_input_ids": goal.ids}, self.model)

    def look(
        self, read: TokenizedText
    ) -> tuple[tuple[AttentionMap, ...], tuple[str, ...], dict[str, Projections]]:
        """The maps of what was read over itself, notes on them, and queries and keys if kept."""
        length = len(read.tokens)
        encoder = self.family == "encoder–decoder"
        stream = {"encoder-only": "self", "decoder-only": "causal"}.get(self.family, "encoder")
        part = self.model.get_encoder() if encoder else self.model
        if self.writes is not None and not encoder:
            # Its head would name every word of the vocabulary at every position, for nothing.
            part = self.model.base_model
        sides = {stream: (length, length)}
        hidden = {stream: drowning(read.tokens, causal=stream == "causal")}
        inputs = self.tensors(read.inputs, part)
        captured = capture(part, inputs, sides, extent=self.extent, hidden=hidden)
        maps = tuple(as_map(item, {"text": read.tokens}, "text", "text") for item in captured)
        return maps, notes_of(captured, sides), projections_of(maps, captured)

    def decided(self, attention: Attention, heard: Sequence[Any], read: TokenizedText) -> Attention:
        """The attention with what the model decided on the way, if it has a head for that."""
        if self.task is None or not heard:
            return attention
        return show_decision(attention, self.task, heard[0], read.tokens)

    def go_on(self, prompt: str, read: TokenizedText) -> Continuation:
        """A prompt with what the model writes after it.

        Raises:
            ModelError: the model does not go on with a text.
        """
        if self.family == "encoder–decoder":
            raise ModelError(
                f"'{self.name}' is encoder–decoder and writes a target: use 'attnviz cross TEXT'"
            )
        if not self.can_generate:
            raise ModelError(
                f"'{self.name}' has no trained language-model head: leave --generate out"
            )
        most = self.writes or 0
        return continued(self.model, self.tokenizer, prompt, read, most, self.limit)

    def read(self, text: str, *, marked: bool = False) -> TokenizedText:
        """A text's tokens, once it is certain that the model can take them.

        Raises:
            InputError: the text is blank or too long.
            ModelError: a token is not in the model's vocabulary.
        """
        read = tokenize(self.tokenizer, text, marked=marked)
        self.check_ids(read.ids, read.tokens, "text")
        return read

    def check_ids(self, ids: Sequence[int], tokens: Sequence[Token], what: str) -> None:
        """Refuse what the model would stumble over.

        Raises:
            InputError: more tokens than the model reads.
            ModelError: a token is not in the model's vocabulary.
        """
        if self.limit is not None and len(ids) > self.limit:
            raise InputError(
                f"the {what} is {len(ids):,} tokens long and '{self.name}' reads at most "
                f"{self.limit:,}: shorten it"
            )
        known = self.model.get_input_embeddings().num_embeddings
        highest, token = max(zip(ids, tokens, strict=True), key=lambda item: item[0])
        if highest >= known:
            raise ModelError(
                f"the tokenizer does not belong to the model '{self.name}': it numbers "
                f"'{token.text}' {highest}, and the model knows 0 to {known - 1}"
            )

    def tensors(self, inputs: Mapping[str, Sequence[int]], part: Any) -> dict[str, Any]:
        """Lists of numbers as a batch of one on the model's device, those that a part takes."""
        import inspect

        import torch

        taken = inspect.signature(part.forward).parameters
        return {
            name: torch.tensor([list(row)], device=self.model.device)
            for name, row in inputs.items()
            if name in taken or name in {"input_ids", "attention_mask"}
        }

    def generate(self, inputs: Mapping[str, Any]) -> Target:
        """The target that the model writes for a source.

        Raises:
            ModelError: it has no trained language-model head.
        """
        if not self.can_generate:
            raise ModelError(
                f"'{self.name}' has no language-model head to write a target with: give a target"
            )
        limit = self.limit or 1 << 20
        return generated_target(self.model, self.tokenizer, inputs, limit, self.writes)

    def decoded(self, notes: tuple[str, ...]) -> Provenance:
        """The provenance with what a reader must know of one decoder's input."""
        settings = {**self.provenance.settings, "queries": QUERIES}
        return replace(self.provenance, notes=self.provenance.notes + notes, settings=settings)


def as_map(
    item: Captured, tokens: Mapping[str, tuple[Token, ...]], side: str, key_side: str
) -> AttentionMap:
    """Captured weights with their tokens.

    Whether it is causal is what the weights say, not the family: some decoders look ahead (prefix
    language models), and some encoders do not. Of one token only the family can tell.
    """
    stream = item.stream
    queries = item.queries or whole(len(tokens[side]))
    keys = item.keys or whole(len(tokens[key_side]))
    if stream in {"self", "causal"} and len(tokens[side]) > 1:
        first = (queries.start - keys.start) // keys.length
        stream = "self" if np.triu(item.weights, 1 + first).any() else "causal"
    return AttentionMap(
        stream,
        queries.tokens(tokens[side]),
        keys.tokens(tokens[key_side]),
        item.weights,
        layers=item.layers,
        query_side=side,
        key_side=key_side,
        blocks=(queries.length, keys.length),
        starts=(queries.start, keys.start),
        links=exact_links(item, tokens[side], tokens[key_side]),
    )


def projections_of(
    maps: Sequence[AttentionMap], captured: Sequence[Captured]
) -> dict[str, Projections]:
    """What was kept of queries and keys, by the streams of the maps that they stand behind."""
    return {
        item.stream: found.projections
        for item, found in zip(maps, captured, strict=True)
        if found.projections is not None
    }


def exact_links(
    item: Captured, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> tuple[Link, ...]:
    """The strongest links of each head of a pooled map, with their tokens."""
    return tuple(
        Link(
            queries[cell.query].text,
            keys[cell.key].text,
            cell.weight,
            layer,
            str(head),
            cell.query,
            cell.key,
        )
        for layer, heads in zip(item.layers, item.links, strict=False)
        for head, strongest in enumerate(heads)
        for cell in strongest
    )


def drowning(tokens: tuple[Token, ...], *, causal: bool) -> Hidden:
    """What would drown all other links: special tokens, oneself, and a decoder's first token."""
    special = tuple(place for place, token in enumerate(tokens) if token.special)
    keys = tuple(dict.fromkeys((*special, 0))) if causal else special
    return Hidden(special, keys, itself=True)
