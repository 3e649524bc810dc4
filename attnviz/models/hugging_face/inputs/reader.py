"""Two texts read as one sequence, as BERT and its kin read sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnviz.core.attention_map import Provenance, Token
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError
from attnviz.models.hugging_face.inputs.generation import (
    QUERIES,
    Continuation,
    Target,
    as_chat,
    continued,
    generated_target,
    given_target,
)
from attnviz.models.hugging_face.inputs.tokens import TokenizedText, check_text, label, tokenize
from attnviz.models.hugging_face.load.family import Family

BETWEEN = "\n"
"""What stands between the two texts where they are shown as one; no token covers it."""


def tokenize_pair(tokenizer: Any, first: str, second: str) -> TokenizedText:
    """The tokens of two texts and of the marks around them; offsets are into `joined` texts.

    Which text a token is of is asked of the tokenizer's `sequence_ids`, since many models
    (RoBERTa, T5) tell the two apart by marks alone and have no token types.

    Raises:
        InputError: a text is blank or not valid Unicode.
        ModelError: the tokenizer puts nothing between two texts, or does not say which is which.
    """
    for text in (first, second):
        check_text(text)
    if not tokenizer.is_fast:
        raise ModelError(
            "the model's tokenizer (written in Python) does not say which text of a pair a token "
            "is of: give one text"
        )
    encoded = tokenizer(
        first, second, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
    )
    parts = encoded.sequence_ids()
    inputs = {name: list(row) for name, row in encoded.items()}
    offsets = inputs.pop("offset_mapping")
    added = inputs.pop("special_tokens_mask")
    if 0 not in parts or 1 not in parts:
        raise InputError("a text of the pair leaves no tokens: the tokenizer knows none of it")
    if None not in parts[parts.index(0) : parts.index(1)]:
        raise ModelError("the model's tokenizer puts no mark between two texts: give one text")
    start = len(joined(first, ""))
    moved = [
        (begin + start, end + start) if part == 1 else (begin, end)
        for (begin, end), part in zip(offsets, parts, strict=True)
    ]
    pieces = tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    tokens = label(pieces, moved, added, joined(first, second), tokenizer.unk_token)
    return TokenizedText(tokens, inputs)


def joined(first: str, second: str) -> str:
    """Both texts as the one that offsets refer to."""
    return first + BETWEEN + second


# <reader> A loaded model and its tokenizer, as far as they read texts: tokens, checked, as
# tensors.


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reader:
    """A pretrained model and its tokenizer.

    Attributes:
        name: what it was asked for as.
        model: the transformers model, on its device, in evaluation mode.
        tokenizer: its transformers tokenizer.
        family: which of the three transformer shapes it has.
        limit: how many tokens it reads at most, None where nothing says.
        provenance: where it came from; what is made of it is added for each text.
        can_generate: True where it has a trained language-model head.
        writes: how many tokens it writes at most; None: only a target that is missing.
        chats: True where texts are read as the user's turn of a conversation.
    """

    name: str
    model: Any
    tokenizer: Any
    family: Family
    limit: int | None
    provenance: Provenance
    can_generate: bool = False
    writes: int | None = None
    chats: bool = False

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

    def read_both(self, source: str, target: str | None) -> tuple[TokenizedText, Target]:
        """A source and the target (None: what the model writes).

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
        if target is None:
            return read, self.generate(self.tensors(read.inputs, self.model))
        goal = given_target(self.model, self.tokenizer, target)
        self.check_ids(goal.ids, goal.tokens, "target")
        return read, goal

    def read_pair(
        self, source: str, target: str | None
    ) -> tuple[TokenizedText, Target, dict[str, Any]]:
        """A source, the target (None: what the model writes), and both as tensors.

        Raises:
            InputError: a text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the model has no cross-attention.
        """
        read, goal = self.read_both(source, target)
        return read, goal, self.tensors(both_inputs(read, goal), self.model)

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
        known = vocabulary_of(self.model)
        highest, token = max(zip(ids, tokens, strict=True), key=lambda item: item[0])
        if highest >= known:
            raise ModelError(
                f"the tokenizer does not belong to the model '{self.name}': it numbers "
                f"'{token.text}' {highest}, and the model knows 0 to {known - 1}"
            )

    def tensors(self, inputs: Mapping[str, Sequence[int]], part: Any) -> dict[str, Any]:
        """Lists of numbers as a batch of one on the model's device, those that a part takes."""
        import torch

        return {
            name: torch.tensor([list(row)], device=self.model.device)
            for name, row in inputs.items()
            if name in taken_by(part)
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


def both_inputs(read: TokenizedText, goal: Target) -> dict[str, list[int]]:
    """What an encoder–decoder takes of a source and a target."""
    return {**read.inputs, "decoder_input_ids": goal.ids}


def vocabulary_of(model: Any) -> int:
    """How many tokens a model numbers."""
    return len(model.get_input_embeddings().weight)


def taken_by(part: Any) -> set[str]:
    """The inputs that a model, or a part of one, takes by name."""
    import inspect

    return {*inspect.signature(part.forward).parameters, "input_ids", "attention_mask"}
