"""Names of tokens: pieces that continue a word, and the patches of a picture.

A patch is named by its row and column, counted from 0 at the upper left.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from attnviz.core.attention_map import Token
from attnviz.core.errors import UsageError, is_number


def continues_word(text: str, start: int) -> bool:
    """Whether a piece that starts here continues a word, and is labelled "##ing".

    Scripts without spaces have no such pieces.
    """
    before, first = text[max(start - 1, 0) : start], text[start : start + 1]
    spaced = unicodedata.east_asian_width(first or " ") not in {"W", "F"}
    return before.isalnum() and first.isalnum() and spaced


def text_places(tokens: Sequence[Token]) -> list[int]:
    """The places of all tokens but special ones."""
    return [place for place, token in enumerate(tokens) if not token.special]


AVERAGE = Token("mean over patches", special=True)
"""The query of a picture without a class token: the mean over its patches."""


def patch_name(row: int, column: int) -> str:
    """A patch's name, such as "3,5"."""
    return f"{row},{column}"


def patch_tokens(rows: int, columns: int) -> tuple[Token, ...]:
    """One token for each patch, row by row."""
    return tuple(Token(patch_name(row, column)) for row in range(rows) for column in range(columns))


def parse_patch(text: str) -> tuple[int, int]:
    """Row and column of "3,5", or a UsageError."""
    row, comma, column = (part.strip() for part in text.partition(","))
    if not comma or not is_number(row) or not is_number(column):
        raise UsageError(f"--patch '{text}' is no patch: write ROW,COLUMN, both from 0 (3,5)")
    return int(row), int(column)


def check_patch(text: str, rows: int, columns: int) -> tuple[int, int]:
    """Row and column of a patch, or a UsageError if the picture does not have it."""
    row, column = parse_patch(text)
    if row >= rows or column >= columns:
        raise UsageError(
            f"patch {patch_name(row, column)} does not exist: the picture has {rows} × {columns}, "
            f"0,0 to {patch_name(rows - 1, columns - 1)}"
        )
    return row, column


def patch_grid(tokens: Sequence[Token]) -> tuple[int, int]:
    """The numbers of rows and of columns of the patches at the end of an axis."""
    row, column = parse_patch(tokens[-1].text)
    return row + 1, column + 1
