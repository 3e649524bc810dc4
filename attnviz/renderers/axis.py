"""The tokens of a heat map's side: how large their cells are, and which of them can be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.renderers.figure import LINE, TEXT_SIZE, points
from attnviz.renderers.fonts import DPI, Typeface
from attnviz.renderers.printable import printable, shorten

if TYPE_CHECKING:
    from attnviz.attention_map import Token

_LABEL_CELLS = 18
_SMALLEST_LABEL = 5.5
# Pixels of a long side at most; short ones come out shorter, with larger cells.
_LONGEST = 1500
# Pixels of a cell that leave room for a label beside it.
_READABLE = 22
_STEPS = (1, 2, 3, 4, 5, 10, 15, 20, 25, 50, 100, 200, 250, 500)


@dataclass(frozen=True, slots=True)
class TokenAxis:
    """How the tokens of one side are laid out.

    Attributes:
        tokens: all of them.
        texts: what each is labelled with.
        block: tokens that share one row or column of the image.
        cell: pixels of that row or column.
        size: points of the labels.
        step: every how many tokens one is labelled.
        shown: positions that are labelled.
    """

    tokens: tuple[Token, ...]
    texts: tuple[str, ...]
    block: int
    cell: int
    size: float
    step: int
    shown: tuple[int, ...]

    @property
    def pixels(self) -> int:
        """The length of the whole side."""
        return -(-len(self.tokens) // self.block) * self.cell

    @property
    def spacing(self) -> float:
        """Pixels from one token to the next."""
        return self.cell / self.block

    @property
    def pad(self) -> int:
        """Pixels between an image and its labels, more where tick marks stand between."""
        return 8 if self.step == 1 else 16

    def widest(self, face: Typeface) -> float:
        """Pixels of the longest label."""
        return max(
            face.width(self.texts[i], self.size, bold=self.tokens[i].label is not None)
            for i in self.shown
        )


def label_words(token: Token) -> tuple[str, ...]:
    """What an axis says of a token: its text and, where it has one, its label."""
    parts = (token.text, token.label) if token.label else (token.text,)
    # A very long token is cut once before any font is looked up for it, and once as drawn.
    return tuple(shorten(printable(part), _LABEL_CELLS) for part in parts)


def _label(token: Token, face: Typeface) -> str:
    """A token as an axis names it, cut where it is very long."""
    return " · ".join(shorten(face.drawable(word), _LABEL_CELLS) for word in label_words(token))


def axes_of(
    queries: tuple[Token, ...],
    keys: tuple[Token, ...],
    face: Typeface,
    longest: int = _LONGEST,
) -> tuple[TokenAxis, TokenAxis]:
    """The layout of both sides; cells of a short side may be twice as long.

    Args:
        queries: who attends, one a row.
        keys: who is attended to, one a column.
        face: what the labels are drawn with.
        longest: pixels that a side takes at most.
    """
    down, across = (-(-len(side) // longest) for side in (queries, keys))
    height = max(1, longest // (len(queries) // down + 13))
    width = max(1, longest // (len(keys) // across + 13))
    height, width = (
        min(height, max(2 * width, _READABLE)),
        min(width, max(2 * height, _READABLE)),
    )
    return _axis(queries, down, height, face), _axis(keys, across, width, face)


def _axis(tokens: tuple[Token, ...], block: int, cell: int, face: Typeface) -> TokenAxis:
    """The layout of one side: as large a type as its cells allow, then as many labels."""
    spacing = cell / block
    size = min(TEXT_SIZE, max(_SMALLEST_LABEL, 0.8 * spacing * 72 / DPI))
    line = points(LINE * size) * 0.92
    step = next((step for step in _STEPS if step * spacing >= line), len(tokens))
    texts = tuple(_label(token, face) for token in tokens)
    return TokenAxis(tokens, texts, block, cell, size, step, _shown(tokens, step, line / spacing))


def _shown(tokens: tuple[Token, ...], step: int, apart: float) -> tuple[int, ...]:
    """Positions to label: what a person labelled first, then every step-th, so far apart."""
    if step == 1:
        return tuple(range(len(tokens)))
    shown: list[int] = []
    named = (i for i, token in enumerate(tokens) if token.label)
    for position in (*named, *range(0, len(tokens), step)):
        if all(abs(position - other) >= apart for other in shown):
            shown.append(position)
    return tuple(sorted(shown))


def label_angle(columns: TokenAxis, face: Typeface) -> int:
    """How far labels of columns are turned: upright if they fit, slanted if their lines do."""
    spacing = columns.step * columns.spacing
    if columns.widest(face) + points(0.5 * columns.size) <= spacing:
        return 0
    return 45 if spacing >= points(LINE * columns.size) * 1.3 else 90


def thinning_notes(rows: TokenAxis, columns: TokenAxis) -> tuple[str, ...]:
    """What the picture leaves out."""
    notes = []
    if rows.step == columns.step > 1:
        notes.append(f"every {_ordinal(rows.step)} token is named")
    else:
        for axis, what in ((rows, "query"), (columns, "key")):
            if axis.step > 1:
                notes.append(f"every {_ordinal(axis.step)} {what} is named")
    if max(rows.block, columns.block) > 1:
        notes.append(f"each pixel shows the strongest of {rows.block} × {columns.block} weights")
    return ("; ".join(notes),) if notes else ()


def _ordinal(count: int) -> str:
    """The number as a rank: 2nd, 3rd, 4th."""
    return f"{count}" + {2: "nd", 3: "rd"}.get(count, "th")
