"""One matrix, or every head, as a picture in the terminal: half blocks in colour, else shades."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.measures import View
from attnviz.renderers import Display, Views
from attnviz.renderers.blocks import strongest
from attnviz.renderers.colors import NO_VALUE, Limits, beyond, color_of, hex_of, no_value, scale_of
from attnviz.renderers.printable import UNKNOWN, printable, shorten, two_digits
from attnviz.renderers.text.console import TextRenderer, paragraph
from attnviz.renderers.text.table import SHADE_STEPS, level, numbered_width, row_label, shade

UPPER = "▀"
GAP = "│"
"""What stands for infinity, where no cell is, if there is no colour to leave out."""
RAMP_WIDTH = 16
# Of the 16 colours: light to dark where the scale goes up, and warm where it goes below 0.
_SHARES = ("bright_white", "bright_cyan", "bright_blue", "blue", "black")
_NEGATIVE = ("bright_white", "bright_yellow", "yellow", "bright_red", "red")
# Of the 256: picked one by one, since the nearest of them to a smooth scale jump in hue.
_SHARES_256 = (231, 189, 153, 111, 68, 32, 26, 25, 18, 17)
_NEGATIVE_256 = (231, 230, 223, 215, 208, 172, 166, 130, 94, 52)


def painted(image: NDArray[np.float32], limits: Limits, colors: str | None) -> list[Text]:
    """An image as lines of text, a column a pixel."""
    if colors is None:
        return [
            Text("".join(GAP if value == np.inf else shade(value, limits) for value in row))
            for row in image.tolist()
        ]
    if len(image) % 2:
        image = np.concatenate([image, np.full((1, image.shape[1]), np.inf, dtype=image.dtype)])
    lines = []
    for upper, lower in zip(image[::2].tolist(), image[1::2].tolist(), strict=True):
        line = Text()
        for above, below in zip(upper, lower, strict=True):
            line.append(*_half_block(_ink(above, limits, colors), _ink(below, limits, colors)))
        lines.append(line)
    return lines


def legend(item: AttentionMap, colors: str | None, limits: Limits) -> Text:
    """The scale: a ramp where colours run smoothly, else each step and where it begins."""
    text = Text(style="dim")
    unseen = no_value(item, "grey" if colors else UNKNOWN)
    unit = "; ".join(filter(None, (printable(item.unit), beyond(item, limits), unseen)))
    if colors in ("truecolor", "256"):
        text.append(f"{two_digits(limits[0]) if limits[0] else '0'} ")
        for value in np.linspace(*limits, RAMP_WIDTH).tolist():
            text.append(" ", style=Style(bgcolor=_ink(value, limits, colors)))
        return text.append(f" {two_digits(limits[1])} {unit}")
    signs = (-1, 1) if limits[0] < 0 else (1,)
    for sign in signs:
        for step in SHADE_STEPS:
            value = sign * step * limits[1]
            if colors is None:
                text.append(shade(value, limits))
            else:
                text.append("  ", style=Style(bgcolor=_ink(value, limits, colors)))
            text.append(f" {'from' if sign > 0 else 'to'} {two_digits(value)}  ")
    return text.append(unit)


def _ink(value: float, limits: Limits, colors: str) -> str | None:
    if value == np.inf:
        return None
    if value != value:
        return {"standard": "bright_black", "256": "color(250)"}.get(colors, hex_of(NO_VALUE))
    if colors == "standard":
        return (_NEGATIVE if value < 0 else _SHARES)[level(value, limits)]
    if colors == "256":
        ramp = _NEGATIVE_256 if value < 0 else _SHARES_256
        return f"color({ramp[min(round(abs(value) / limits[1] * 9), 9)]})"
    return hex_of(color_of(value, limits))


@lru_cache(maxsize=4096)
def _half_block(above: str | None, below: str | None) -> tuple[str, Style | str]:
    if above is None and below is None:
        return " ", ""
    if above is None:
        return "▄", Style(color=below)
    return UPPER, Style(color=above, bgcolor=Color.parse(below) if below else None)


LARGEST_CELL, TALLEST = 4, 80
"""Pixels of a cell's side, and of the whole picture's height before it may shrink no further."""
MOST_ROWS = 240
MOST_NAMES = 60
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True)
class Layout:
    """How weights fit the terminal.

    `rows` of queries and `columns` of keys share a cell, which takes `width` columns of text and
    `height` pixels, two of which make a line where there is colour.
    """

    rows: int
    columns: int
    width: int
    height: int


class TerminalHeatmap(TextRenderer):
    """The views of a text as heat maps."""

    def parts(self, attention: Attention, views: Views) -> Iterator[list[Text]]:
        """Each view of the text."""
        return (picture(view, self.display) for view in views() if not view.second)


def picture(view: View, display: Display) -> list[Text]:
    """A view as lines: caption, ruler, labelled rows, scale, and what was left out."""
    item, colors = view.map, display.colors
    margin = numbered_width(item.query_tokens) + 1
    layout = layout_of(item, display.width - margin, colored=colors is not None)
    limits = scale_of(item)
    image = strongest(item.weights[0, 0], layout.rows, layout.columns)
    pixels = image.repeat(layout.height, axis=0).repeat(layout.width, axis=1)
    lines = paragraph(printable(view.caption), display.width, "bold", between=" · ")
    lines += [Text(printable(view.orientation), style="dim"), Text()]
    lines.append(Text(" " * margin + ruler(len(item.key_tokens), layout), style="dim"))
    labels = _labels(item.query_tokens, image.shape[0], layout, colored=colors is not None)
    for number, line in enumerate(painted(pixels, limits, colors)):
        label = labels.get(number, Text())
        lines.append(Text.assemble(label, " " * (margin - label.cell_len), line))
    lines += [Text(), legend(item, colors, limits)]
    lines += [Text(note, style="dim") for note in _notes(item, layout, colored=colors is not None)]
    return lines


def layout_of(item: AttentionMap, room: int, *, colored: bool) -> Layout:
    """Square cells as large as fit; where none fits, blocks of weights in a cell."""
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


def _labels(
    tokens: tuple[Token, ...], rows: int, layout: Layout, *, colored: bool
) -> dict[int, Text]:
    digits = len(str(len(tokens) - 1))
    found: dict[int, Text] = {}
    for row in range(rows):
        middle = row * layout.height + (layout.height - 1) // 2
        position = row * layout.rows
        label = Text.assemble((f"{position:>{digits}} ", "dim"), row_label(tokens[position]))
        found.setdefault(middle // 2 if colored else middle, label)
    return found


def _notes(item: AttentionMap, layout: Layout, *, colored: bool) -> list[str]:
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


SMALLEST, LARGEST = 8, 16
"""Columns of a thumbnail; fewer would show nothing of a head but its sinks."""
NAME_WIDTH = 6


class TerminalGrid(TextRenderer):
    """All heads of a text's main map."""

    def parts(self, attention: Attention, views: Views) -> Iterator[list[Text]]:
        """The thumbnails under a line on what was run."""
        run = paragraph(printable(views()[0].run), self.display.width, "bold", between=" · ")
        yield [*run, *thumbnails(attention.main, self.display)]


def thumbnails(item: AttentionMap, display: Display) -> list[Text]:
    """The heads as lines, with the scale and how a thumbnail is read."""
    names = [shorten(printable(name), NAME_WIDTH) for name in item.layers]
    margin = max(max(map(len, names)), len("layer")) + 1
    beside, layout = _thumbnail_layout(
        item, display.width - margin, colored=display.colors is not None
    )
    limits = scale_of(item)
    small = strongest(item.weights, layout.rows, layout.columns)
    queries, keys = item.weights.shape[2:]
    lines = [Text(f"in each head rows are the {queries} queries, columns the {keys} keys")]
    lines[0].stylize("dim")
    for first in range(0, len(item.heads), beside):
        band = small[:, first : first + beside].repeat(layout.width, axis=-1)
        band = band.repeat(layout.height, axis=-2)
        lines += [Text(), _header(item.heads[first : first + beside], band, margin)]
        lines += _rows(band, names, margin, display, limits)
    lines += [Text(), legend(item, display.colors, limits)]
    if layout.rows * layout.columns > 1:
        note = f"each pixel shows the strongest of {layout.rows} × {layout.columns} weights"
        lines.append(Text(note, style="dim"))
    return lines


def _thumbnail_layout(item: AttentionMap, room: int, *, colored: bool) -> tuple[int, Layout]:
    """As many heads beside one another as keep eight columns each, evenly shared out.

    Without colour a line is one row of pixels and twice as high as wide, so that it stands for
    twice as many queries.
    """
    heads, queries, keys = item.weights.shape[1:]
    wanted = min(SMALLEST, keys) + 1
    bands = -(-heads // max((room + 1) // wanted, 1))
    beside = -(-heads // bands)
    width = max(min((room + 1) // beside - 1, LARGEST), 1)
    columns = -(-keys // width)
    rows = columns if colored else min(2 * columns, queries)
    if queries > 4 * keys:
        rows = max(rows, -(-queries // (2 * LARGEST)))
    shown = -(-keys // columns)
    stretch = max(min(width // shown, 2 if colored else 3), 1)
    return beside, Layout(rows, columns, stretch, stretch if colored else 1)


def _header(names: tuple[str, ...], band: NDArray[np.float32], margin: int) -> Text:
    width = band.shape[-1] + 1
    cells = "".join(shorten(printable(name), width - 1).ljust(width) for name in names)
    return Text("head".ljust(margin) + cells, style="dim")


def _rows(
    band: NDArray[np.float32], names: list[str], margin: int, display: Display, limits: Limits
) -> list[Text]:
    layers, heads, down, across = band.shape
    image = np.full((layers * (down + 1) - 1, heads * (across + 1) - 1), np.inf, dtype=np.float32)
    for layer, head in np.ndindex(layers, heads):
        top, left = layer * (down + 1), head * (across + 1)
        image[top : top + down, left : left + across] = band[layer, head]
    colored = display.colors is not None
    named = {
        (layer * (down + 1) + (down - 1) // 2) // (2 if colored else 1): name
        for layer, name in enumerate(names)
    }
    lines = []
    for number, line in enumerate(painted(image, limits, display.colors)):
        between = not colored and (number + 1) % (down + 1) == 0
        label = (named.get(number, "").ljust(margin), "dim")
        lines.append(Text() if between else Text.assemble(label, line))
    return lines
