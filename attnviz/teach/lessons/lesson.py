"""What a lesson gives: numbers, words about them and a picture that is drawn on demand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnviz.renderers import Display
from attnviz.renderers.colors import FAINT, INK, LABELLED, Color, Limits, color_of, ink_on
from attnviz.renderers.figures.figure import (
    LINE,
    NOTE_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Frame,
    framed,
    ink,
    missing_note,
    points,
)
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface
from attnviz.renderers.figures.heatmap import number
from attnviz.renderers.printable import printable, shorten
from attnviz.storage.documents import dump_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = str | int | float


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One thing about attention.

    Attributes:
        title: what was computed, for every output.
        columns: names as data has them ("head_size"); a name in _seconds or _bytes has that unit.
        rows: a cell a column.
        explanation: what to see in the numbers, a sentence each.
        draw: makes the picture; matplotlib is imported only then.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    explanation: tuple[str, ...]
    draw: Callable[[], Figure]

    def column(self, name: str) -> tuple[Cell, ...]:
        """One column from top to bottom."""
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)


# <curves> The frame of a lesson's curves: a title, panels side by side, and lines named where
# they end.

BLUE, ORANGE = color_of(0.75), LABELLED
"""One way of doing it, and the other."""


def panels(
    title: str, names: Sequence[tuple[str, str, str]]
) -> tuple[Figure, list[Axes], Typeface]:
    """A figure with a panel for each name.

    Args:
        title: of the whole.
        names: for each panel what it shows, and the words along x and y.
    """
    face = typeface([title])
    figure = Figure(figsize=(3.9 * len(names), 3.3), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    room = (3.9 * len(names) - 0.3) * DPI
    figure.text(
        0.15 / (3.9 * len(names)),
        0.965,
        face.wrap(face.drawable(title), TITLE_SIZE, room, bold=True),
        fontproperties=face.font(TITLE_SIZE, bold=True),
        color=ink(INK),
        va="top",
        parse_math=False,
    )
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


# <images> The frame of a lesson's heat map: whole pixels, labels on both sides, thinned where too
# many.

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
    """Values as colours, a label a row and a column.

    Args:
        values: shape (rows, columns); NaN stays white.
        title: what was computed.
        subtitle: what rows and columns are.
        unit: what a colour means.
        limits: the values at the ends of the colour scale.
        rows: a label a row, "" for none; numbers stand in the cells where they fit.
        columns: a label a column, "" for none.
    """
    face = typeface([title, subtitle, *rows, *columns])
    row_texts, column_texts = (
        [face.drawable(shorten(printable(label), LONGEST_LABEL)) for label in labels]
        for labels in (rows, columns)
    )
    widths = [
        [face.width(text, NOTE_SIZE) for text in texts] for texts in (row_texts, column_texts)
    ]
    frame = Frame(
        title=title,
        subtitle=subtitle,
        notes=missing_note(face),
        unit=unit,
        limits=limits,
        face=face,
        left=int(max(widths[0])) + 16,
        top=int(max(widths[1])) + 16,
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
    """Each value in its cell, in whichever ink reads on it."""
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
    """Pixels a row or column takes, a whole number."""
    return int(np.clip(room // count, 1, LARGEST_CELL))


def _thinned(labels: Sequence[str], spacing: float) -> list[int]:
    """Every how-many-th label there is room for, of those that are not empty."""
    needed = points(LINE * NOTE_SIZE)
    step = next((step for step in STEPS if step * spacing >= needed), len(labels))
    return [place for place in range(0, len(labels), step) if labels[place]]


# <show> A lesson as text: a table for the eye, JSON or CSV for programs.

MOST_ROWS = 24


def as_table(lesson: Lesson, display: Display) -> str:
    """Title, rows and explanation at the display's width; many rows keep their ends."""
    for longest, gap in ((14, 3), (11, 1), (8, 1)):
        rows = [_cells(lesson, row, longest) for row in lesson.rows]
        hidden = max(len(rows) - MOST_ROWS, 0)
        if hidden:
            half = MOST_ROWS // 2
            rows[half : len(rows) - half] = [["…"] * len(lesson.columns)]
        widths = _widths(lesson, rows)
        if sum(widths) + gap * (len(widths) - 1) <= display.width:
            break
    console = _console(display)
    console.print(Text(printable(lesson.title), style="bold"))
    console.print(Padding(_grid(lesson, rows, widths, gap), (1, 0)))
    if hidden:
        console.print(Text(f"{hidden} rows in the middle left out; -f csv has all", style="dim"))
    for sentence in lesson.explanation:
        console.print(Text(printable(sentence)))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def _grid(lesson: Lesson, rows: list[list[str]], widths: list[int], gap: int) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
    for name, values, width in zip(
        lesson.columns, zip(*lesson.rows, strict=True), widths, strict=True
    ):
        words = all(isinstance(value, str) for value in values)
        grid.add_column(Text(_heading(name)), justify="left" if words else "right", width=width)
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


def _widths(lesson: Lesson, rows: list[list[str]]) -> list[int]:
    """What each column needs: its longest cell, or the longest word of its heading."""
    columns = zip(*rows, strict=True)
    return [
        max(map(cell_len, (*_heading(name).split(), *cells)))
        for name, cells in zip(lesson.columns, columns, strict=True)
    ]


def _cells(lesson: Lesson, row: tuple[Cell, ...], longest: int) -> list[str]:
    """The row as text, its words cut to that many columns."""
    return [
        shorten(printable(value), longest) if isinstance(value, str) else _number(value, name)
        for value, name in zip(row, lesson.columns, strict=True)
    ]


def as_json(lesson: Lesson) -> str:
    """One JSON object: schema, title, explanation, and a record a row."""
    records = [dict(zip(lesson.columns, row, strict=True)) for row in lesson.rows]
    document = {
        "schema": 1,
        "title": lesson.title,
        "explanation": lesson.explanation,
        "rows": records,
    }
    return dump_json(document) + "\n"


def as_csv(lesson: Lesson) -> str:
    """A header and a line a row, numbers at full precision."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(lesson.columns)
    writer.writerows(lesson.rows)
    return file.getvalue()


def _heading(name: str) -> str:
    """A column's name for the eye; its unit then stands beside each number."""
    return name.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def _number(value: float, name: str) -> str:
    """A number in the unit that its column's name tells."""
    if name.endswith("_bytes"):
        return byte_size(int(value))
    if name.endswith("_seconds"):
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < 1e3 else f"{value:,.0f}"


def byte_size(count: int) -> str:
    """A number of bytes in the unit that keeps it below 1024, to three digits."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"


def _console(display: Display) -> Console:
    return Console(
        file=io.StringIO(),
        width=display.width,
        color_system=display.colors,  # type: ignore[arg-type]
        force_terminal=display.colors is not None,
        no_color=display.colors is None,
        legacy_windows=False,
        highlight=False,
    )
