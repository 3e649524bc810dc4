"""Pieces of words, told from whole words by the text around them."""

from __future__ import annotations

import unicodedata


def goes_on(text: str, start: int) -> bool:
    """True where a piece that starts here goes on with a word; scripts without spaces have none.

    Such a piece is labelled "##ing" for every tokenizer, as WordPiece writes it.
    """
    before, first = text[max(start - 1, 0) : start], text[start : start + 1]
    spaced = unicodedata.east_asian_width(first or " ") not in {"W", "F"}
    return before.isalnum() and first.isalnum() and spaced
