"""All heads of a model in one picture: layers by heads, or near one another if they look alike."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from attnviz.core.measures import SIGNED, HeadRow, Meaning, about_effects, mass_note
from attnviz.core.records import dataclass
from attnviz.features.heads.similarity import SimilarityReport
from attnviz.features.measures.columns import format_measure
from attnviz.features.measures.study import HeadReport
from attnviz.renderers.colors import (
    FAINT,
    INK,
    NO_ROLE,
    PAPER,
    ROLE_COLORS,
    UNNAMED,
    colors_of,
    ink_on,
    role_color,
)
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, full_canvas
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.printable import printable, two_digits

_GAP = 44
_WIDTH = 1560
_NAMES = 70  # pixels beside a panel for the names of its layers
_LARGEST_CELL, _ROW = 92, 40
_TILE_CELL = 40
_RAMP = 44
_SMALLEST_TILE = 300
UNNAMED_ROLE = "no clear role"
_PLANE_WIDTH, _PLANE_LEGEND, _PLANE_HEIGHT, _PLANE_MARGIN = 1480, 330, 460, 60
_DOT = 5.0
_SUBTITLE = (
    "layers run down, heads across; a role is named where a head clearly beats uniform attention"
)


@dataclass(frozen=True, slots=True)
class _Heads:
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    rows: dict[tuple[str, str], HeadRow]

    def values(self, meaning: Meaning) -> NDArray[np.float64]:
        """A measure by layer and head; NaN if unknown."""
        values = np.full((len(self.layers), len(self.heads)), np.nan)
        for (layer, head), row in self.rows.items():
            place = self.layers.index(layer), self.heads.index(head)
            values[place] = row.values.get(meaning.name, math.nan)
        return values

    def uniform(self, meaning: Meaning) -> str:
        """The value of uniform attention; a range if it differs between masks."""
        values = [row.uniform.get(meaning.name, math.nan) for row in self.rows.values()]
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers:
            return ""
        low, high = (format_measure(end(numbers), meaning) for end in (min, max))
        return low if low == high else f"{low} to {high}"


@sheet.own_settings()
def head_overview(report: HeadReport) -> Figure:
    """Every head of the first stream: its role on top, then its measures.

    The scale of a tile ends at the largest possible value of its measure; its title has the value
    of uniform attention.
    """
    stream = report.rows[0].stream
    rows = {(row.layer, row.head): row for row in report.rows if row.stream == stream}
    heads = _Heads(
        tuple(dict.fromkeys(layer for layer, _ in rows)),
        tuple(dict.fromkeys(head for _, head in rows)),
        rows,
    )
    # A measure without any value, such as the diagonal between two texts, has no tile.
    measures = [item for item in report.measures if np.isfinite(heads.values(item)).any()]
    counts = Counter(row.roles[0].name if row.roles else UNNAMED_ROLE for row in rows.values())
    notes = _notes(report)
    face = typeface([report.caption, _SUBTITLE, *notes, *heads.layers, *heads.heads])
    width = sheet.page_width(_WIDTH, EDGE)
    head = sheet.title_paragraphs(face, report.caption, _SUBTITLE, width)
    foot = sheet.note_paragraphs(face, notes, width)
    top = EDGE + sheet.height_of(head)
    layout = _lay_out(heads, measures, len({*counts, UNNAMED_ROLE}), top)
    canvas = full_canvas(face, width, head, foot, layout.bottom + _RAMP)
    canvas.axes.set_label("heads")
    _draw_roles(canvas, heads, layout, counts)
    height = sheet.points(sheet.NOTE_SIZE)
    steps = colors_of(np.linspace(0, 1, 128, dtype=np.float32)[None])
    _draw_cells(canvas, steps, (EDGE + 24, layout.bottom), (2, height))
    middle = layout.bottom + height / 2
    canvas.text(EDGE, middle, "0", sheet.NOTE_SIZE, FAINT)
    canvas.text(EDGE + 292, middle, "1, or the number after 'scale to'", sheet.NOTE_SIZE, FAINT)
    for meaning, at in zip(measures, layout.tiles, strict=True):
        _draw_tile(canvas, heads, meaning, at, layout.tile)
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
    line = int(sheet.line_height(sheet.TEXT_SIZE))
    layers, across = len(heads.layers), len(heads.heads)
    width = sheet.page_width(_WIDTH, EDGE)
    room = width - _NAMES
    cell = (max(min(_LARGEST_CELL, (room - 300) // across), 4), max(min(_ROW, 1000 // layers), 4))
    legend = (EDGE + _NAMES + cell[0] * across + _GAP, top + 2 * line + 12)
    panel_bottom = max(legend[1] + cell[1] * layers, legend[1] + line * entries)
    columns = max(min(4, width // (_NAMES + max(_SMALLEST_TILE, 4 * across))), 1)
    span = width // columns
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


def _draw_roles(canvas: Canvas, heads: _Heads, layout: _Layout, counts: Counter[str]) -> None:
    (left, top), (width, height) = layout.panel, layout.cell
    names = heads.layers, heads.heads
    colors = np.full((*map(len, names), 3), PAPER, dtype=np.uint8)
    for (layer, head), row in heads.rows.items():
        place = heads.layers.index(layer), heads.heads.index(head)
        colors[place] = role_color(row, UNNAMED)
        if row.roles and width >= 44 and height >= 24:
            middle = left + (place[1] + 0.5) * width, top + (place[0] + 0.5) * height
            share, color = two_digits(row.roles[0].share), ink_on(role_color(row))
            canvas.text(*middle, share, sheet.NOTE_SIZE, color, align="center")
    _draw_cells(canvas, colors, (left, top), (width, height))
    canvas.name_heads(names, (left, top), (width, height))
    left, top = layout.legend
    line = sheet.line_height(sheet.TEXT_SIZE)
    entries = {name: color for name, color in ROLE_COLORS.items() if name in counts}
    roles = (role for row in heads.rows.values() for role in row.roles)
    labels = {role.name: printable(role.label) for role in roles}
    for row_number, (name, color) in enumerate({**entries, UNNAMED_ROLE: UNNAMED}.items()):
        box = (left, top + row_number * line), 26, line * 0.72
        canvas.axes.add_patch(Rectangle(*box, facecolor=sheet.ink(color), edgecolor="none"))
        y = top + (row_number + 0.36) * line
        canvas.text(left + 38, y, f"{labels.get(name, name)}  {counts[name]}", sheet.NOTE_SIZE, INK)


def _draw_tile(
    canvas: Canvas, heads: _Heads, meaning: Meaning, at: tuple[int, int], cell: tuple[float, float]
) -> None:
    values = heads.values(meaning)
    limits = (-1.0, 1.0) if meaning.name in SIGNED else (0.0, 1.0)
    colors = colors_of(np.nan_to_num(values / meaning.top).astype(np.float32), limits)
    colors[np.isnan(values)] = 255
    _draw_cells(canvas, colors, at, cell)
    canvas.name_layers(heads.layers, at, cell[1], sheet.SMALLEST)
    line = at[1] - sheet.points(0.75 * sheet.TEXT_SIZE)
    after = at[0] + canvas.text(at[0], line, meaning.name, sheet.TEXT_SIZE, INK) + 14
    uniform = heads.uniform(meaning).replace("-", "−")
    notes = [f"uniform {uniform}"] if uniform else []
    if meaning.unit != "share":
        notes.append(f"scale to {format_measure(meaning.top, meaning)}")
    canvas.text(after, line, ", ".join(notes), sheet.SMALLEST, FAINT)


def _draw_cells(
    canvas: Canvas, colors: NDArray[np.uint8], at: tuple[float, float], cell: tuple[float, float]
) -> None:
    (left, top), (width, height), (down, across) = at, cell, colors.shape[:2]
    box = (left, left + width * across, top + height * down, top)
    canvas.axes.imshow(colors, extent=box, aspect="auto", interpolation="nearest")
    if min(width, height) >= 8:
        looks: dict[str, Any] = {"color": "white", "linewidth": 0.6}
        canvas.axes.hlines([top + height * y for y in range(1, down)], *box[:2], **looks)
        canvas.axes.vlines([left + width * x for x in range(1, across)], *box[2:], **looks)


def _notes(report: HeadReport) -> list[str]:
    text = "white: says nothing here"
    if any(meaning.name == "offset" for meaning in report.measures):
        text += "; offset: orange towards the past, blue towards what follows"
    if about := about_effects(report.provenance):
        text += f"; {about}: blue supports it, orange hinders it"
    streams = list(dict.fromkeys(row.stream for row in report.rows))
    only = f"stream {streams[0]} of {', '.join(streams)}" if len(streams) > 1 else ""
    notes = (text, mass_note(report.measures), report.sinks, only)
    return [note for note in notes if note]


@sheet.own_settings()
def head_plane(report: SimilarityReport, rows: Sequence[HeadRow]) -> Figure:
    """Each head as a point, with its name (layer.head) where there is room.

    The rows give the roles of the heads; heads without a role are grey.
    """
    by_place = {
        (row.layer, row.head): row.roles[0]
        for row in rows
        if row.roles and row.stream == report.stream
    }
    names = [f"{layer}.{head}" for layer, head in report.heads]
    subtitle = (
        f"layer.head, near where they look alike; the plane shows {report.shown:.0%} of how far "
        "they lie apart"
    )
    face = typeface([report.caption, subtitle, *names])
    width = sheet.page_width(_PLANE_WIDTH, EDGE)
    head = sheet.title_paragraphs(face, report.caption, subtitle, width)
    foot = sheet.note_paragraphs(face, sheet.missing_font_note(face), width)
    top = EDGE + sheet.height_of(head) + 12
    roles = [by_place[place].name if place in by_place else "" for place in report.heads]
    labels = {role.name: printable(role.label) for role in by_place.values()}
    beside = width >= 3 * _PLANE_LEGEND
    legend = 0 if beside else int(sheet.line_height(sheet.NOTE_SIZE) * (len({*roles}) + 1))
    places, size = _to_pixels(report.places, width - _PLANE_LEGEND * beside)
    bottom = top + size[1] + 12 + legend
    page = sheet.blank_page(width + 2 * EDGE, bottom + sheet.height_of(foot) + EDGE)
    axes = page.axes(EDGE, top, *size)
    page.stack(head, EDGE, EDGE, face, axes)
    page.stack(foot, EDGE, bottom, face)
    across, down = places.T
    axes.set(xlim=(0, size[0]), ylim=(size[1], 0), xticks=[], yticks=[], label="plane")
    axes.spines[:].set(linewidth=0.5, color=sheet.ink((190, 190, 190)))
    colors = [sheet.ink(ROLE_COLORS.get(role, NO_ROLE)) for role in roles]
    axes.scatter(across, down, s=_DOT**2, c=colors, linewidths=0.4, edgecolors="white", zorder=2)
    _label_points(axes, places, names, roles, face)
    _draw_legend(axes, roles, labels, face, (1.01, 1.0) if beside else (0.0, -10 / size[1]))
    return page.figure


def _to_pixels(
    places: NDArray[np.float64], side: int
) -> tuple[NDArray[np.float64], tuple[int, int]]:
    low, high = places.min(axis=0), places.max(axis=0)
    spread = np.maximum(high - low, 1e-9)
    scale = (side - 2 * _PLANE_MARGIN) / max(float(spread.max()), 1e-3)
    down = max(int(spread[1] * scale) + 2 * _PLANE_MARGIN, _PLANE_HEIGHT)
    middle = np.array([side, down]) / 2
    # In pixels, y grows downwards.
    pixels = (places - (low + high) / 2) * scale * [1, -1]
    return pixels + middle, (side, down)


def _label_points(
    axes: Any,
    places: NDArray[np.float64],
    names: Sequence[str],
    roles: Sequence[str],
    face: Typeface,
) -> None:
    dot = sheet.points(_DOT) / 2
    obstacles = [(x - dot, y - dot, x + dot, y + dot) for x, y in places.tolist()]
    line = sheet.points(sheet.SMALLEST)
    for place in sorted(range(len(names)), key=lambda place: not roles[place]):
        x, y = places[place].tolist()
        width = face.width(names[place], sheet.SMALLEST)
        for left, middle in (
            (x + dot + 2, y),
            (x - dot - 2 - width, y),
            (x - width / 2, y - dot - line / 2 - 1),
            (x - width / 2, y + dot + line / 2 + 1),
        ):
            box = (left, middle - line / 2, left + width, middle + line / 2)
            if not any(sheet.overlap_area(box, other) for other in obstacles):
                obstacles.append(box)
                name, color = face.drawable(names[place]), INK if roles[place] else FAINT
                sheet.write(
                    axes, (left, middle), name, face, sheet.SMALLEST, color, va="center_baseline"
                )
                break


def _draw_legend(
    axes: Any,
    roles: Sequence[str],
    labels: Mapping[str, str],
    face: Typeface,
    corner: tuple[float, float],
) -> None:
    entries = [(labels[name], color) for name, color in ROLE_COLORS.items() if name in roles]
    entries += [(UNNAMED_ROLE, NO_ROLE)] if "" in roles else []
    handles = [
        Line2D(
            [], [], marker="o", linestyle="", markersize=_DOT, color=sheet.ink(color), label=name
        )
        for name, color in entries
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=corner,
        borderaxespad=0.0,
        frameon=False,
        prop=face.font(sheet.NOTE_SIZE),
        labelcolor=sheet.ink(INK),
        labelspacing=sheet.LINE - 0.9,
        handletextpad=0.2,
    )
