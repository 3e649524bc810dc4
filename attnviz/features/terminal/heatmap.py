"""One matrix, or every head, as a picture in the terminal: coloured half blocks, or shades."""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.measures import View
from attnviz.core.records import dataclass
from attnviz.renderers import Display, Views
from attnviz.renderers.colors import (
    NO_VALUE,
    Limits,
    beyond_note,
    block_peaks,
    color_of,
    hex_of,
    no_value_note,
    scale_of,
)
from attnviz.renderers.printable import UNKNOWN, printable, shorten, two_digits
from attnviz.renderers.text import table
from attnviz.renderers.text.console import TextRenderer, wrap_text

UPPER = "▀"
GAP = "│"  # drawn without colours where no cell is, which images mark by infinity
RAMP_WIDTH = 16
# For terminals with 16 colours: light to dark, and warm colours below 0.
_SHARES = ("bright_white", "bright_cyan", "bright_blue", "blue", "black")
_NEGATIVE = ("bright_white", "bright_yellow", "yellow", "bright_red", "red")
# For 256 colours, chosen by hand: those nearest to the smooth scale jump in hue.
_SHARES_256 = (231, 189, 153, 111, 68, 32, 26, 25, 18, 17)
_NEGATIVE_256 = (231, 230, 223, 215, 208, 172, 166, 130, 94, 52)


def paint(image: NDArray[np.float32], limits: Limits, colors: str | None) -> list[Text]:
    """An image as lines of text, one column for each pixel."""
    if colors is None:
        return [
            Text(
                "".join(GAP if value == np.inf else table.shade_of(value, limits) for value in row)
            )
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


def scale_legend(item: AttentionMap, colors: str | None, limits: Limits) -> Text:
    """The scale: a ramp where colours are smooth, else each step and where it begins."""
    text = Text(style="dim")
    no_value = no_value_note(item, "grey" if colors else UNKNOWN)
    unit = "; ".join(filter(None, (printable(item.unit), beyond_note(item, limits), no_value)))
    if colors in ("truecolor", "256"):
        text.append(f"{two_digits(limits[0]) if limits[0] else '0'} ")
        for value in np.linspace(*limits, RAMP_WIDTH).tolist():
            text.append(" ", style=Style(bgcolor=_ink(value, limits, colors)))
        return text.append(f" {two_digits(limits[1])} {unit}")
    signs = (-1, 1) if limits[0] < 0 else (1,)
    for sign in signs:
        for step in table.SHADE_STEPS:
            value = sign * step * limits[1]
            if colors is None:
                text.append(table.shade_of(value, limits))
            else:
                text.append("  ", style=Style(bgcolor=_ink(value, limits, colors)))
            text.append(f" {'from' if sign > 0 else 'to'} {two_digits(value)}  ")
    return text.append(unit)


def _ink(value: float, limits: Limits, colors: str) -> str | None:
    if value == np.inf:
        return None
    if math.isnan(value):
        return {"standard": "bright_black", "256": "color(250)"}.get(colors, hex_of(NO_VALUE))
    if colors == "standard":
        return (_NEGATIVE if value < 0 else _SHARES)[table.shade_level(value, limits)]
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


LARGEST_CELL, TALLEST = 4, 80  # pixels of a cell at most; taller pictures get smaller cells
MOST_ROWS = 240
MOST_NAMES = 60
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True)
class Layout:
    """How weights fit the terminal.

    A cell shows `rows` queries and `columns` keys. It is `width` columns of text wide and `height`
    pixels high; with colours a line of text has two pixels.
    """

    rows: int
    columns: int
    width: int
    height: int


class TerminalHeatmap(TextRenderer):
    """The views of a text as heat maps."""

    def parts(self, attention: Attention, views: Views) -> Iterator[list[Text]]:
        return (view_picture(view, self.display) for view in views() if not view.second)


def view_picture(view: View, display: Display) -> list[Text]:
    """A view as lines: caption, ruler, labelled rows, scale and notes."""
    item, colors = view.map, display.colors
    colored = colors is not None
    margin = table.numbered_width(item.query_tokens) + 1
    layout = layout_of(item, display.width - margin, colored=colored)
    limits = scale_of(item)
    image = block_peaks(item.weights[0, 0], layout.rows, layout.columns)
    pixels = image.repeat(layout.height, axis=0).repeat(layout.width, axis=1)
    lines = wrap_text(printable(view.caption), display.width, "bold", between=" · ")
    lines += [Text(printable(view.orientation), style="dim"), Text()]
    keys = len(item.key_tokens)
    first_keys = range(0, keys, layout.columns)
    digits = len(str(keys - 1))
    step = next(step for step in (*_STEPS, len(first_keys)) if step * layout.width > digits)
    ruler = ""
    for column in range(0, len(first_keys), step):
        ruler = ruler.ljust(column * layout.width) + str(first_keys[column])
    lines.append(Text(" " * margin + ruler, style="dim"))
    labels = _labels(item.query_tokens, image.shape[0], layout, colored=colored)
    for number, line in enumerate(paint(pixels, limits, colors)):
        label = labels.get(number, Text())
        lines.append(Text.assemble(label, " " * (margin - label.cell_len), line))
    lines += [Text(), scale_legend(item, colors, limits)]
    lines += [Text(note, style="dim") for note in _notes(item, layout, colored=colored)]
    return lines


def layout_of(item: AttentionMap, room: int, *, colored: bool) -> Layout:
    """The largest square cells that fit; a cell shows a block of weights if there are too many."""
    queries, keys = item.weights.shape[2:]
    columns = -(-keys // max(room, 1))
    rows = max(columns if queries > 1 else 1, -(-queries // MOST_ROWS))
    across, down = -(-keys // columns), -(-queries // rows)
    side = max(min(room // across, LARGEST_CELL, TALLEST // down), 1)
    if not colored:
        return Layout(rows, columns, min(side, 2), 1)
    return Layout(rows, columns, side, side)


def _labels(
    tokens: tuple[Token, ...], rows: int, layout: Layout, *, colored: bool
) -> dict[int, Text]:
    digits = len(str(len(tokens) - 1))
    labels: dict[int, Text] = {}
    for row in range(rows):
        middle = row * layout.height + (layout.height - 1) // 2
        position = row * layout.rows
        label = Text.assemble((f"{position:>{digits}} ", "dim"), table.row_label(tokens[position]))
        labels.setdefault(middle // 2 if colored else middle, label)
    return labels


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
        names = "  ".join(f"{n} {_short_name(token)}" for n, token in enumerate(keys))
        more = len(item.key_tokens) - len(keys)
        notes.append(f"columns: {names}" + (f"  and {more} more" if more else ""))
    return notes


def _short_name(token: Token) -> str:
    text = shorten(printable(token.text), 14)
    return text if cell_len(text) else "?"


SMALLEST, LARGEST = 8, 16  # columns of a thumbnail; fewer would show nothing but a head's sinks
NAME_WIDTH = 6


class TerminalGrid(TextRenderer):
    """All heads of a text's main map."""

    def parts(self, attention: Attention, views: Views) -> Iterator[list[Text]]:
        run = wrap_text(printable(views()[0].run), self.display.width, "bold", between=" · ")
        yield [*run, *head_thumbnails(attention.main, self.display)]


def head_thumbnails(item: AttentionMap, display: Display) -> list[Text]:
    """The heads as lines, with the scale and how to read a thumbnail."""
    names = [shorten(printable(name), NAME_WIDTH) for name in item.layers]
    margin = max(max(map(len, names)), len("layer")) + 1
    colored = display.colors is not None
    beside, layout = _thumbnail_layout(item, display.width - margin, colored=colored)
    limits = scale_of(item)
    small = block_peaks(item.weights, layout.rows, layout.columns)
    queries, keys = item.weights.shape[2:]
    reading = f"in each head rows are the {queries} queries, columns the {keys} keys"
    lines = [Text(reading, style="dim")]
    for first in range(0, len(item.heads), beside):
        band = small[:, first : first + beside].repeat(layout.width, axis=-1)
        band = band.repeat(layout.height, axis=-2)
        width = band.shape[-1] + 1
        heads = [shorten(printable(name), width - 1) for name in item.heads[first : first + beside]]
        header = "head".ljust(margin) + "".join(name.ljust(width) for name in heads)
        lines += [Text(), Text(header, style="dim")]
        lines += _head_rows(band, names, margin, display, limits)
    lines += [Text(), scale_legend(item, display.colors, limits)]
    if layout.rows * layout.columns > 1:
        note = f"each pixel shows the strongest of {layout.rows} × {layout.columns} weights"
        lines.append(Text(note, style="dim"))
    return lines


def _thumbnail_layout(item: AttentionMap, room: int, *, colored: bool) -> tuple[int, Layout]:
    """How many heads stand side by side, each with eight columns or more; and their layout."""
    heads, queries, keys = item.weights.shape[1:]
    least = min(SMALLEST, keys) + 1
    bands = -(-heads // max((room + 1) // least, 1))
    beside = -(-heads // bands)
    width = max(min((room + 1) // beside - 1, LARGEST), 1)
    columns = -(-keys // width)
    # Without colours a pixel is a character, twice as high as wide, and stands for twice the rows.
    rows = columns if colored else min(2 * columns, queries)
    if queries > 4 * keys:
        rows = max(rows, -(-queries // (2 * LARGEST)))
    cells = -(-keys // columns)
    stretch = max(min(width // cells, 2 if colored else 3), 1)
    return beside, Layout(rows, columns, stretch, stretch if colored else 1)


def _head_rows(
    band: NDArray[np.float32], names: list[str], margin: int, display: Display, limits: Limits
) -> list[Text]:
    layers, heads, down, across = band.shape
    image = np.full((layers * (down + 1) - 1, heads * (across + 1) - 1), np.inf, dtype=np.float32)
    for layer, head in np.ndindex(layers, heads):
        top, left = layer * (down + 1), head * (across + 1)
        image[top : top + down, left : left + across] = band[layer, head]
    colored = display.colors is not None
    labels = {
        (layer * (down + 1) + (down - 1) // 2) // (2 if colored else 1): name
        for layer, name in enumerate(names)
    }
    lines = []
    for number, line in enumerate(paint(image, limits, display.colors)):
        between = not colored and (number + 1) % (down + 1) == 0
        label = (labels.get(number, "").ljust(margin), "dim")
        lines.append(Text() if between else Text.assemble(label, line))
    return lines
