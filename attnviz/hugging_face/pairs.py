"""Two texts read as one sequence, as BERT and its kin read sentence pairs."""

from __future__ import annotations

from typing import Any

from attnviz.errors import InputError, ModelError
from attnviz.hugging_face.tokens import TokenizedText, check_text, label

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
