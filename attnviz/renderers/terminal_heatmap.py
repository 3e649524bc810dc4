"""One matrix as a picture in the terminal: tokens beside the rows, positions above the columns."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from attnviz.attention_map import Attention, AttentionMap, Token
from attnviz.measures import View
from attnviz.renderers import Display, Views
from attnviz.renderers.blocks import strongest
from attnviz.renderers.console import console_of, written
from attnviz.renderers.matrix import numbered_width, row_label
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.table import broken
from attnviz.renderers.terminal import legend, painted, scale_of

LARGEST_CELL, TALLEST = 4, 80
"""Pixels of a cell's side, and of the whole picture's height before it may shrink no further."""
MOST_ROWS = 240
MOST_NAMES = 60
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a matrix fits the terminal.

    Attributes:
        rows: queries that share a row of the image.
        columns: keys that share a column.
        width: columns of text that a cell takes.
        height: pixels that a cell is high; two pixels make a line where there is colour.
    """

    rows: int
    columns: int
    width: int
    height: int


class TerminalHeatmap:
    """The views of a text as heat maps."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.started = False

    def add(self, attention: Attention, views: Views) -> str:
        """The views of one text, behind a line with the text's id where several may come."""
        console = console_of(self.display)
        for view in views():
            if self.started:
                console.print()
            self.started = True
            if self.display.many:
                console.print(Text(f"{printable(attention.id)}:", style="bold"))
            for line in picture(view, self.display):
                console.print(line)
        return written(console)

    def finish(self) -> str:
        """Nothing more."""
        return ""


def picture(view: View, display: Display) -> list[Text]:
    """A view as lines: caption, ruler, labelled rows, scale, and what was left out."""
    item, colors = view.map, display.colors
    margin = numbered_width(item.query_tokens) + 1
    layout = layout_of(item, display.width - margin, colors is not None)
    limits = scale_of(item)
    image = strongest(item.weights[0, 0], layout.rows, layout.columns)
    pixels = image.repeat(layout.height, axis=0).repeat(layout.width, axis=1)
    lines = [Text(line, style="bold") for line in broken(printable(view.caption), display.width)]
    lines += [Text(printable(view.orientation), style="dim"), Text()]
    lines.append(Text(" " * margin + ruler(len(item.key_tokens), layout), style="dim"))
    labels = _labels(item.query_tokens, image.shape[0], layout, colors is not None)
    for number, line in enumerate(painted(pixels, limits, colors)):
        label = labels.get(number, Text())
        lines.append(Text.assemble(label, " " * (margin - label.cell_len), line))
    lines += [Text(), legend(item, colors, limits)]
    lines += [Text(note, style="dim") for note in _notes(item, layout, colors is not None)]
    return lines


def layout_of(item: AttentionMap, room: int, colored: bool) -> Layout:
    """Square cells as large as fit; where none fits, blocks of weights in a cell.

    Args:
        item: a map of one layer and one head.
        room: columns of text beside the labels.
        colored: whether a line can hold two rows of pixels.
    """
    queries, keys = item.weights.shape[2:]
    columns = -(-keys // max(room, 1))
    rows = max(columns if queries > 1 else 1, -(-queries // MOST_ROWS))
    across, down = -(-keys // columns), -(-queries // rows)
    side = max(min(room // across, LARGEST_CELL, TALLEST // down), 1)
    if not colored:
        return Layout(rows, columns, min(side, 2), 1)
    return Layout(rows, columns, side, side)


def ruler(keys: int, layout: Layout) -> str:
    """Positions of the keys above their columns, as many as stand apart."""
    shown = range(0, keys, layout.columns)
    digits = len(str(keys - 1))
    step = next(step for step in (*_STEPS, len(shown)) if step * layout.width > digits)
    line = ""
    for column in range(0, len(shown), step):
        line = line.ljust(column * layout.width) + str(shown[column])
    return line


def _labels(tokens: tuple[Token, ...], rows: int, layout: Layout, colored: bool) -> dict[int, Text]:
    """The label of each line that has one: the position and token of the row's first query."""
    digits = len(str(len(tokens) - 1))
    found: dict[int, Text] = {}
    for row in range(rows):
        middle = row * layout.height + (layout.height - 1) // 2
        position = row * layout.rows
        label = Text.assemble((f"{position:>{digits}} ", "dim"), row_label(tokens[position]))
        found.setdefault(middle // 2 if colored else middle, label)
    return found


def _notes(item: AttentionMap, layout: Layout, colored: bool) -> list[str]:
    """What a reader could not tell otherwise."""
    notes = []
    if layout.rows * layout.columns > 1:
        notes.append(
            f"each cell shows the strongest of {layout.rows} × {layout.columns} weights; "
            "-f tsv has every weight"
        )
    if colored and layout.height == 1 and len(item.query_tokens) > layout.rows:
        notes.append("each line is two rows and names the first")
    same = [token.text for token in item.query_tokens] == [token.text for token in item.key_tokens]
    if not same:
        keys = item.key_tokens[:MOST_NAMES]
        listed = "  ".join(f"{n} {_short(token)}" for n, token in enumerate(keys))
        more = len(item.key_tokens) - len(keys)
        notes.append(f"columns: {listed}" + (f"  and {more} more" if more else ""))
    return notes


def _short(token: Token) -> str:
    text = shorten(printable(token.text), 14)
    return text if cell_len(text) else "?"
