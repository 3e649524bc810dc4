"""Pictures and pages of lessons: panels of curves and of cells, side by side.

A single panel of cells has the frame and colour bar of every other heat map.
"""

import attnviz.renderers.figures  # isort: skip  # noqa: F401 - first: it loads matplotlib

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from attnviz.features.lessons.lesson import Curves, Heat, Lesson, column_heading, format_cell
from attnviz.renderers.colors import FAINT, HEAD_COLORS, INK, Limits
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.heatmap import cell_number, write_cells
from attnviz.renderers.page.document import TABLE_FRAME, plain_page
from attnviz.renderers.printable import printable, shorten

WIDE, HIGH = 3.9, 3.3  # inches of a panel
WIDEST, TALLEST, LARGEST_CELL, ROOMY_CELL = 1200, 800, 60, 44
LONGEST_LABEL = 16
Room = tuple[float, float, float, float]  # left, bottom, width and height in inches
STEPS = (1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256)


@sheet.own_settings()
def draw_lesson(lesson: Lesson) -> Figure:
    heats = [panel for panel in lesson.panels if isinstance(panel, Heat)]
    labels = [label for panel in heats for label in (*panel.rows, *panel.columns)]
    face = typeface([lesson.title, *labels, *(panel.heading for panel in lesson.panels)])
    if len(lesson.panels) == len(heats) == 1:
        return _draw_alone(lesson.title, heats[0], face)
    # At most two in a row: viewers shrink wider pictures together with their text.
    wide, rows = WIDE * min(len(lesson.panels), 2), (len(lesson.panels) + 1) // 2
    title = face.wrap(face.drawable(lesson.title), sheet.TITLE_SIZE, (wide - 0.3) * DPI, bold=True)
    high = 0.35 + (HIGH - 0.35) * rows + title.count("\n") * sheet.LINE * sheet.TITLE_SIZE / 72
    figure = sheet.titled_figure(lesson.title, wide, high, 0.15, 1 - 0.12 / high, face)
    # One of three has a row of its own: the last where the others are cells of one shape.
    alike = len({panel.values.shape for panel in heats[:2]}) == 1 < len(heats)
    own_row = None if len(lesson.panels) % 2 == 0 else len(lesson.panels) - 1 if alike else 0
    for place, panel in enumerate(lesson.panels):
        row, column = divmod(place + (own_row == 0 and place > 0), 2)
        span = 2 if place == own_row and rows > 1 else 1
        room = column * WIDE, (rows - 1 - row) * (HIGH - 0.35), span * WIDE, HIGH - 0.35
        if isinstance(panel, Curves):
            _draw_curves(figure, panel, room, face)
        else:
            _draw_cells(figure, panel, room, face)
    return figure


def _draw_curves(figure: Figure, panel: Curves, room: Room, face: Typeface) -> None:
    left, bottom, across, up = room
    wide, high = figure.get_size_inches()
    box = (left + 0.58) / wide, (bottom + 0.46) / high, (across - 0.85) / wide, (up - 0.67) / high
    axes = figure.add_axes(box)
    axes.set_title(
        panel.heading,
        fontproperties=face.font(sheet.TEXT_SIZE, bold=True),
        color=sheet.ink(INK),
        loc="left",
    )
    axes.set_xlabel(panel.along, fontproperties=face.font(sheet.TEXT_SIZE), color=sheet.ink(FAINT))
    axes.set_ylabel(panel.up, fontproperties=face.font(sheet.TEXT_SIZE), color=sheet.ink(FAINT))
    for (name, (x, y)), color in zip(panel.lines.items(), HEAD_COLORS * 4, strict=False):
        dots: dict[str, Any] = {"marker": "o", "markersize": 3.2} if len(x) <= 24 else {}
        axes.plot(x, y, color=sheet.ink(color), linewidth=1.4, label=name, **dots)
    if panel.doubling:
        axes.set_xscale("log", base=2)
        ticks = list(next(iter(panel.lines.values()))[0])
        ticks = ticks[:: -(-len(ticks) // 6)]
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    if panel.tenfold:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    if panel.top is not None:
        axes.set_ylim(0, panel.top)
    if any(not name.startswith("_") for name in panel.lines):
        looks: dict[str, Any] = {"labelcolor": "linecolor", "handlelength": 1.4, "framealpha": 0.85}
        axes.legend(prop=face.font(sheet.NOTE_SIZE), edgecolor="none", **looks)
    if panel.level is not None:
        value, words = panel.level
        axes.axhline(value, color=sheet.ink(FAINT), linewidth=0.8, linestyle=(0, (2, 2)))
        above = axes.get_yaxis_transform() + ScaledTranslation(0, 3 / 72, figure.dpi_scale_trans)
        at: dict[str, Any] = {"transform": above, "ha": "right", "va": "bottom"}
        sheet.write(axes, (0.99, value), words, face, sheet.NOTE_SIZE, FAINT, **at)
    axes.tick_params(
        labelsize=sheet.NOTE_SIZE, colors=sheet.ink(FAINT), width=0.5, length=2.5, which="both"
    )
    axes.grid(color=(0.92, 0.92, 0.92), linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(linewidth=0.5, color=sheet.ink(FAINT))


def _draw_cells(figure: Figure, panel: Heat, room: Room, face: Typeface) -> None:
    """Draw cells as large as their labels allow, with a line below that explains the colours."""
    texts = [_label_texts(labels, face) for labels in (panel.rows, panel.columns)]
    left, top = (max(face.width(text, sheet.NOTE_SIZE) for text in of_side) for of_side in texts)
    whole, high = figure.get_size_inches() * DPI
    at, bottom, across, up = (part * DPI for part in room)
    down, columns = panel.values.shape
    head = 22  # the panel's heading; 84: the note below
    cell = (across - left - 70) / columns, (up - head - top - 16 - 84) / down
    wide = min(cell[0], 2.4 * cell[1])
    tall = min(cell[1], 1.6 * wide)
    x, y = at + 40 + left, high - bottom - up + head + top + 16
    box = (x / whole, 1 - (y + tall * down) / high, wide * columns / whole, tall * down / high)
    axes = figure.add_axes(box)
    colors = sheet.colormap(panel.limits).with_extremes(bad="white")
    sheet.draw_image(axes, panel.values, panel.limits, cmap=colors)
    _set_labels(axes, texts, (tall, wide), face)
    if min(wide, 1.6 * tall) >= ROOMY_CELL:
        _write_numbers(axes, panel.values, panel.limits, face)
    over: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    above = (-left / (wide * columns), 1 + (top + 24) / (tall * down))
    sheet.write(axes, above, panel.heading, face, sheet.TEXT_SIZE, bold=True, va="bottom", **over)
    low, high_end = (f"{end:g}".replace("-", "−") for end in panel.limits)
    ends = (
        f"{low} orange, {high_end} blue" if panel.limits[0] < 0 else f"{low} light, {high_end} dark"
    )
    below = face.wrap(f"{panel.unit}: {ends}", sheet.NOTE_SIZE, across - 60)
    sheet.write(
        axes, (above[0], -16 / (tall * down)), below, face, sheet.NOTE_SIZE, FAINT, va="top", **over
    )


def _label_texts(labels: Sequence[str], face: Typeface) -> list[str]:
    return [face.drawable(shorten(printable(label), LONGEST_LABEL)) for label in labels]


def _draw_alone(title: str, panel: Heat, face: Typeface) -> Figure:
    texts = [_label_texts(labels, face) for labels in (panel.rows, panel.columns)]
    widest = [max(face.width(label, sheet.NOTE_SIZE) for label in labels) for labels in texts]
    left, top = (int(wide) + 16 for wide in widest)
    frame = sheet.Frame(title, panel.heading, (), panel.unit, panel.limits, face, left, top)
    down, across = panel.values.shape
    tall, wide = (
        int(np.clip(room // count, 1, LARGEST_CELL))
        for room, count in ((TALLEST, down), (WIDEST, across))
    )
    # Values below the scale are drawn white: NaN has no cell.
    cells = np.where(np.isnan(panel.values), panel.limits[0] - 1, panel.values)
    figure, axes = sheet.frame_image(cells, wide * across, tall * down, frame)
    _set_labels(axes, texts, (tall, wide), face)
    if min(tall, wide) >= ROOMY_CELL:
        _write_numbers(axes, panel.values, panel.limits, face)
    return figure


def _set_labels(
    axes: Axes, texts: Sequence[list[str]], cells: tuple[float, float], face: Typeface
) -> None:
    rows, columns = texts
    font = face.font(sheet.NOTE_SIZE)
    axes.xaxis.tick_top()
    places = _thin_labels(columns, cells[1])
    axes.set_xticks(places, [columns[i] for i in places], fontproperties=font, rotation=90)
    places = _thin_labels(rows, cells[0])
    axes.set_yticks(places, [rows[i] for i in places], fontproperties=font)
    axes.tick_params(
        length=2.5, width=0.5, pad=2, color=sheet.ink(FAINT), labelcolor=sheet.ink(INK)
    )


def _write_numbers(axes: Axes, values: NDArray[Any], limits: Limits, face: Typeface) -> None:
    texts = [
        ["" if np.isnan(value) or value == 0 else cell_number(value, 2) for value in row]
        for row in values
    ]
    write_cells(axes, values, texts, limits, face.font(sheet.NOTE_SIZE))


def _thin_labels(labels: Sequence[str], spacing: float) -> list[int]:
    """The labels to show: every n-th, so that none overlap and none is empty."""
    height = sheet.line_height(sheet.NOTE_SIZE)
    step = next((step for step in STEPS if step * spacing >= height), len(labels))
    return [place for place in range(0, len(labels), step) if labels[place]]


def lesson_page(lesson: Lesson, command: str = "") -> str:
    """A lesson as one HTML file without scripts; the picture is an image in it."""

    def cell(place: int, text: str, tag: str) -> str:
        words = all(isinstance(value, str) for value in lesson.column(lesson.columns[place]))
        word = ' class="word"' if words else ""
        return f"<{tag}{word}>{escape(text)}</{tag.split()[0]}>"

    heads = [
        cell(i, column_heading(name), 'th scope="col"') for i, name in enumerate(lesson.columns)
    ]
    rows = [
        "".join(
            cell(i, format_cell(*one), "td")
            for i, one in enumerate(zip(row, lesson.columns, strict=True))
        )
        for row in lesson.rows
    ]
    svg = base64.b64encode(sheet.figure_bytes(draw_lesson(lesson), ".svg")).decode("ascii")
    title = printable(lesson.title)
    parts = [
        f'<img src="data:image/svg+xml;base64,{svg}" alt="{escape(title)}">',
        *(f"<p>{escape(printable(sentence))}</p>" for sentence in lesson.explanation),
        f'<p class="faint">{escape(printable(lesson.reference))}</p>',
        f"{TABLE_FRAME}<table><thead><tr>{''.join(heads)}</tr></thead><tbody>",
        *(f"<tr>{row}</tr>" for row in rows),
        "</tbody></table></div>",
        *([f'<p class="faint"><code>{escape(printable(command))}</code></p>'] if command else []),
    ]
    return plain_page(title, "\n".join(parts))
