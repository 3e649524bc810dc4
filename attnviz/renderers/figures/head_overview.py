"""All heads of a model in one picture: layers by heads, once by role and once for each measure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from attnviz.core.measures import EFFECT, HeadReport, HeadRow, Meaning, about_effects, mass_note
from attnviz.renderers.colors import (
    FAINT,
    INK,
    PAPER,
    ROLE_COLORS,
    UNNAMED,
    colors_of,
    ink_on,
    role_color,
)
from attnviz.renderers.figures.canvas import EDGE, Canvas, full_canvas
from attnviz.renderers.figures.figure import (
    NOTE_SIZE,
    TEXT_SIZE,
    footing,
    heading,
    height_of,
    ink,
    line_height,
    own_settings,
    points,
)
from attnviz.renderers.figures.fonts import typeface
from attnviz.renderers.printable import number, two_digits

_GAP = 44
_WIDTH = 1560
_NAMES = 70
"""Pixels beside a panel for the names of its layers."""
_LARGEST_CELL, _ROW = 92, 40
_TILE_CELL = 40
_RAMP = 44
_SMALLEST_TILE = 300
NO_ROLE = "no clear role"
_SUBTITLE = (
    "layers run down, heads across; a role is named where a head clearly beats uniform attention"
)


@dataclass(frozen=True, slots=True)
class _Heads:
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    rows: dict[tuple[str, str], HeadRow]

    def values(self, meaning: Meaning) -> NDArray[np.float64]:
        """A measure by place, NaN where it is unknown."""
        found = np.full((len(self.layers), len(self.heads)), np.nan)
        for (layer, head), row in self.rows.items():
            place = self.layers.index(layer), self.heads.index(head)
            found[place] = row.values.get(meaning.name, math.nan)
        return found

    def uniform(self, meaning: Meaning) -> str:
        """What uniform attention gives, as one number or, where masks differ, as a range."""
        found = [row.uniform.get(meaning.name, math.nan) for row in self.rows.values()]
        known = [value for value in found if not math.isnan(value)]
        if not known:
            return ""
        low, high = (number(end(known), meaning) for end in (min, max))
        return low if low == high else f"{low} to {high}"


@own_settings()
def head_overview(report: HeadReport) -> Figure:
    """Every head of the first stream: its role on top, then its measures on common scales.

    In the tiles a colour is the share of the largest value a measure can have; behind its name
    stands what uniform attention would give.
    """
    stream = report.rows[0].stream
    rows = {(row.layer, row.head): row for row in report.rows if row.stream == stream}
    heads = _Heads(
        tuple(dict.fromkeys(layer for layer, _ in rows)),
        tuple(dict.fromkeys(head for _, head in rows)),
        rows,
    )
    # What says nothing of this stream, such as a diagonal across two texts, has no tile.
    measures = [item for item in report.measures if np.isfinite(heads.values(item)).any()]
    counts = Counter(row.roles[0].name if row.roles else NO_ROLE for row in rows.values())
    notes = _notes(report)
    face = typeface([report.caption, _SUBTITLE, *notes, *heads.layers, *heads.heads])
    head = heading(face, report.caption, _SUBTITLE, _WIDTH)
    foot = footing(face, notes, _WIDTH)
    top = EDGE + height_of(head)
    layout = _lay_out(heads, measures, len({*counts, NO_ROLE}), top)
    canvas = full_canvas(face, _WIDTH, head, foot, layout.bottom + _RAMP)
    canvas.axes.set_label("heads")
    painter = _Painter(canvas, heads)
    painter.roles(layout, counts)
    painter.ramp(EDGE, layout.bottom)
    for meaning, (left, upper) in zip(measures, layout.tiles, strict=True):
        painter.tile(meaning, left, upper, layout.tile)
    return canvas.figure


@dataclass(frozen=True, slots=True)
class _Layout:
    panel: tuple[int, int]
    cell: tuple[int, int]
    legend: tuple[int, int]
    tiles: list[tuple[int, int]]
    tile: tuple[float, float]
    bottom: int


def _lay_out(heads: _Heads, measures: Sequence[Meaning], entries: int, top: int) -> _Layout:
    line = int(line_height(TEXT_SIZE))
    layers, across = len(heads.layers), len(heads.heads)
    room = _WIDTH - _NAMES
    cell = (max(min(_LARGEST_CELL, (room - 300) // across), 4), max(min(_ROW, 1000 // layers), 4))
    legend = (EDGE + _NAMES + cell[0] * across + _GAP, top + 2 * line + 12)
    panel_bottom = max(legend[1] + cell[1] * layers, legend[1] + line * entries)
    columns = max(min(4, _WIDTH // (_NAMES + max(_SMALLEST_TILE, 4 * across))), 1)
    span = _WIDTH // columns
    tile_cell = min(_TILE_CELL, (span - _NAMES - 20) / across)
    tile = (tile_cell, min(tile_cell, _TILE_CELL, max(600 / layers, 4)))
    pitch = int(tile[1] * layers) + line + _GAP
    start = panel_bottom + _GAP
    tiles = [
        (EDGE + _NAMES + (place % columns) * span, start + line + (place // columns) * pitch)
        for place in range(len(measures))
    ]
    bottom = start + pitch * -(-len(measures) // columns)
    return _Layout((EDGE + _NAMES, legend[1]), cell, legend, tiles, tile, bottom)


class _Painter:
    def __init__(self, canvas: Canvas, heads: _Heads) -> None:
        self.canvas, self.heads = canvas, heads

    def roles(self, layout: _Layout, counts: Counter[str]) -> None:
        (left, top), (width, height) = layout.panel, layout.cell
        names = self.heads.layers, self.heads.heads
        colors = np.full((*map(len, names), 3), PAPER, dtype=np.uint8)
        for (layer, head), row in self.heads.rows.items():
            colors[names[0].index(layer), names[1].index(head)] = role_color(row, UNNAMED)
        self._image(colors, left, top, width, height)
        self.canvas.name_heads(names, (left, top), (width, height))
        if width >= 44 and height >= 24:
            for (layer, head), row in self.heads.rows.items():
                if row.roles:
                    down, across = names[0].index(layer), names[1].index(head)
                    text = two_digits(row.roles[0].share)
                    place = left + (across + 0.5) * width, top + (down + 0.5) * height
                    color = ink_on(role_color(row))
                    self.canvas.text(*place, text, NOTE_SIZE, color, align="center")
        self._legend(layout, counts)

    def tile(self, meaning: Meaning, left: int, top: int, cell: tuple[float, float]) -> None:
        values = self.heads.values(meaning)
        limits = (-1.0, 1.0) if meaning.name in ("offset", EFFECT) else (0.0, 1.0)
        colors = colors_of(np.nan_to_num(values / meaning.top).astype(np.float32), limits)
        colors[np.isnan(values)] = 255
        self._image(colors, left, top, *cell)
        self.canvas.name_layers(self.heads.layers, (left, top), cell[1], 5.5)
        line = top - points(0.75 * TEXT_SIZE)
        after = left + self.canvas.text(left, line, meaning.name, TEXT_SIZE, INK) + 14
        even = self.heads.uniform(meaning).replace("-", "−")
        told = [f"uniform {even}"] if even else []
        if meaning.unit != "share":
            told.append(f"scale to {number(meaning.top, meaning)}")
        self.canvas.text(after, line, ", ".join(told), 5.5, FAINT)

    def ramp(self, left: float, top: float) -> None:
        height = points(NOTE_SIZE)
        steps = colors_of(np.linspace(0, 1, 128, dtype=np.float32)[None])
        self._image(steps, left + 24, top, 2, height)
        middle = top + height / 2
        self.canvas.text(left, middle, "0", NOTE_SIZE, FAINT)
        self.canvas.text(left + 292, middle, "the largest value there can be", NOTE_SIZE, FAINT)

    def _image(
        self, colors: NDArray[np.uint8], left: float, top: float, width: float, height: float
    ) -> None:
        down, across = colors.shape[:2]
        box = (left, left + width * across, top + height * down, top)
        self.canvas.axes.imshow(colors, extent=box, aspect="auto", interpolation="nearest")
        if min(width, height) >= 8:
            looks: dict[str, Any] = {"color": "white", "linewidth": 0.6}
            self.canvas.axes.hlines([top + height * y for y in range(1, down)], *box[:2], **looks)
            self.canvas.axes.vlines([left + width * x for x in range(1, across)], *box[2:], **looks)

    def _legend(self, layout: _Layout, counts: Counter[str]) -> None:
        left, top = layout.legend
        line = line_height(TEXT_SIZE)
        entries = {name: color for name, color in ROLE_COLORS.items() if name in counts}
        for place, (name, color) in enumerate({**entries, NO_ROLE: UNNAMED}.items()):
            box = (left, top + place * line), 26, line * 0.72
            self.canvas.axes.add_patch(Rectangle(*box, facecolor=ink(color), edgecolor="none"))
            text = f"{name}  {counts[name]}"
            self.canvas.text(left + 38, top + (place + 0.36) * line, text, NOTE_SIZE, INK)


def _notes(report: HeadReport) -> list[str]:
    text = "white: says nothing here"
    if any(meaning.name == "offset" for meaning in report.measures):
        text += "; offset: orange towards the past, blue towards what follows"
    if about := about_effects(report.provenance):
        text += f"; {about}: blue supports it, orange hinders it"
    streams = list(dict.fromkeys(row.stream for row in report.rows))
    only = f"stream {streams[0]} of {', '.join(streams)}" if len(streams) > 1 else ""
    told = mass_note(report.measures)
    notes = (text, told, report.sinks, only, *report.provenance.notes)
    return [item for item in notes if item]
