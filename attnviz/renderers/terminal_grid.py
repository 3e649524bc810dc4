"""Every head as a thumbnail in the terminal, on one scale: layers run down, heads across."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnviz.attention_map import Attention, AttentionMap
from attnviz.renderers import Display, Views
from attnviz.renderers.blocks import strongest
from attnviz.renderers.console import console_of, written
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.table import broken
from attnviz.renderers.terminal import legend, painted, scale_of

SMALLEST, LARGEST = 8, 16
"""Columns of a thumbnail; fewer would show nothing of a head but its sinks."""
NAME_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """How thumbnails fit the terminal.

    Attributes:
        heads: heads beside one another; the others follow below.
        rows: queries that share a pixel.
        columns: keys that share a pixel.
        stretch: columns of text that a pixel takes.
    """

    heads: int
    rows: int
    columns: int
    stretch: int


class TerminalGrid:
    """All heads of a text's main map."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.started = False

    def add(self, attention: Attention, views: Views) -> str:
        """The thumbnails of one text, behind a line with its id where several may come."""
        console = console_of(self.display)
        if self.started:
            console.print()
        self.started = True
        if self.display.many:
            console.print(Text(f"{printable(attention.id)}:", style="bold"))
        caption = views()[0].run
        for line in broken(printable(caption), self.display.width):
            console.print(Text(line, style="bold"))
        for text in thumbnails(attention.main, self.display):
            console.print(text)
        return written(console)

    def finish(self) -> str:
        """Nothing more."""
        return ""


def thumbnails(item: AttentionMap, display: Display) -> list[Text]:
    """The heads as lines, with the scale and how a thumbnail is read."""
    names = [shorten(printable(name), NAME_WIDTH) for name in item.layers]
    margin = max(max(map(len, names)), len("layer")) + 1
    layout = layout_of(item, display.width - margin, display.colors is not None)
    limits = scale_of(item)
    small = strongest(item.weights, layout.rows, layout.columns)
    queries, keys = item.weights.shape[2:]
    lines = [Text(f"in each head rows are the {queries} queries, columns the {keys} keys")]
    lines[0].stylize("dim")
    for first in range(0, len(item.heads), layout.heads):
        band = small[:, first : first + layout.heads].repeat(layout.stretch, axis=-1)
        if display.colors is not None:
            band = band.repeat(layout.stretch, axis=-2)
        lines += [Text(), _header(item.heads[first : first + layout.heads], band, margin)]
        lines += _rows(band, names, margin, display, limits)
    lines += [Text(), legend(item, display.colors, limits)]
    if layout.rows * layout.columns > 1:
        note = f"each pixel shows the strongest of {layout.rows} × {layout.columns} weights"
        lines.append(Text(note, style="dim"))
    return lines


def layout_of(item: AttentionMap, room: int, colored: bool) -> Layout:
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
    return Layout(beside, rows, columns, stretch)


def _header(names: tuple[str, ...], band: NDArray[np.float32], margin: int) -> Text:
    """Heads' names over their thumbnails."""
    width = band.shape[-1] + 1
    cells = "".join(shorten(printable(name), width - 1).ljust(width) for name in names)
    return Text("head".ljust(margin) + cells, style="dim")


def _rows(
    band: NDArray[np.float32],
    names: list[str],
    margin: int,
    display: Display,
    limits: tuple[float, float],
) -> list[Text]:
    """The thumbnails of some heads, layer below layer, a pixel apart."""
    layers, heads, down, across = band.shape
    image = np.full((layers * (down + 1) - 1, heads * (across + 1) - 1), np.nan, dtype=np.float32)
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
