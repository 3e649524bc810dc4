"""Pictures of lessons: curves in panels, and heat maps with a label a row and a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.renderers.colors import FAINT, INK, LABELLED, Color, Limits, color_of, ink_on
from attnviz.renderers.figures.figure import (
    LINE,
    NOTE_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Frame,
    ShownFigure,
    framed,
    ink,
    missing_note,
    points,
)
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.heatmap import number
from attnviz.renderers.printable import printable, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = color_of(0.75), LABELLED
"""One way of doing it, and the other."""


def titled(
    title: str, width: float, height: float, left: float, top: float, face: Typeface
) -> Figure:
    """A figure of so many inches; its title begins `left` inches in, at a share of the height."""
    figure = ShownFigure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(
        left / width,
        top,
        face.wrap(face.drawable(title), TITLE_SIZE, (width - 2 * left) * DPI, bold=True),
        fontproperties=face.font(TITLE_SIZE, bold=True),
        color=ink(INK),
        va="top",
        parse_math=False,
    )
    return figure


def panels(
    title: str, names: Sequence[tuple[str, str, str]]
) -> tuple[Figure, list[Axes], Typeface]:
    """A titled figure with a panel for each heading and its words along x and y."""
    face = typeface([title])
    figure = titled(title, 3.9 * len(names), 3.3, 0.15, 0.965, face)
    found = []
    for panel, (heading, along, up) in enumerate(names):
        left = (panel + 0.15) / len(names)
        axes = figure.add_axes((left, 0.14, 0.78 / len(names), 0.69))
        axes.set_title(
            heading, fontproperties=face.font(TEXT_SIZE, bold=True), color=ink(INK), loc="left"
        )
        axes.set_xlabel(along, fontproperties=face.font(TEXT_SIZE), color=ink(FAINT))
        axes.set_ylabel(up, fontproperties=face.font(TEXT_SIZE), color=ink(FAINT))
        axes.tick_params(
            labelsize=NOTE_SIZE, colors=ink(FAINT), width=0.5, length=2.5, which="both"
        )
        axes.grid(color=(0.92, 0.92, 0.92), linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(linewidth=0.5, color=ink(FAINT))
        found.append(axes)
    return figure, found, face


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], name: str, color: Color, face: Typeface
) -> None:
    """A curve with a dot at each number."""
    axes.plot(x, y, color=ink(color), linewidth=1.4, marker="o", markersize=3.2, label=name)
    axes.legend(prop=face.font(TEXT_SIZE), frameon=False, labelcolor="linecolor", handlelength=1.4)


WIDEST, TALLEST, LARGEST_CELL, ROOMY_CELL = 1200, 800, 60, 44
LONGEST_LABEL = 16
STEPS = (1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256)


def image(
    values: NDArray[Any],
    *,
    title: str,
    subtitle: str,
    unit: str,
    limits: Limits,
    rows: Sequence[str],
    columns: Sequence[str],
) -> Figure:
    """Values as colours, a label a row and a column."""
    face = typeface([title, subtitle, *rows, *columns])
    row_texts, column_texts = texts = [
        [face.drawable(shorten(printable(label), LONGEST_LABEL)) for label in labels]
        for labels in (rows, columns)
    ]
    widest = [max(face.width(label, NOTE_SIZE) for label in labels) for labels in texts]
    frame = Frame(
        title=title,
        subtitle=subtitle,
        notes=missing_note(face),
        unit=unit,
        limits=limits,
        face=face,
        left=int(widest[0]) + 16,
        top=int(widest[1]) + 16,
    )
    width = _cell(len(columns), WIDEST) * len(columns)
    height = _cell(len(rows), TALLEST) * len(rows)
    figure, axes = framed(values, width, height, frame)
    font = face.font(NOTE_SIZE)
    axes.xaxis.tick_top()
    places = _thinned(column_texts, width / len(columns))
    axes.set_xticks(places, [column_texts[i] for i in places], fontproperties=font, rotation=90)
    places = _thinned(row_texts, height / len(rows))
    axes.set_yticks(places, [row_texts[i] for i in places], fontproperties=font)
    if min(width / len(columns), height / len(rows)) >= ROOMY_CELL:
        _write_numbers(axes, values, limits, face)
    axes.tick_params(length=2.5, width=0.5, pad=2, color=ink(FAINT), labelcolor=ink(INK))
    return figure


def _write_numbers(axes: Axes, values: NDArray[Any], limits: Limits, face: Typeface) -> None:
    font = face.font(NOTE_SIZE)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                number(float(value), 2),
                fontproperties=font,
                color=ink(ink_on(color_of(float(value), limits))),
                ha="center",
                va="center_baseline",
            )


def _cell(count: int, room: int) -> int:
    return int(np.clip(room // count, 1, LARGEST_CELL))


def _thinned(labels: Sequence[str], spacing: float) -> list[int]:
    """Every how-many-th label there is room for, of those that are not empty."""
    needed = points(LINE * NOTE_SIZE)
    step = next((step for step in STEPS if step * spacing >= needed), len(labels))
    return [place for place in range(0, len(labels), step) if labels[place]]
