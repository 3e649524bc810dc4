"""What a lesson gives: numbers, sentences about them, and a picture that is drawn on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnviz.renderers import Display
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.text.console import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float
MOST_ROWS = 24


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One thing about attention.

    Attributes:
        columns: names as data has them ("head_size"); a name in _seconds or _bytes has that unit.
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

    def data(self) -> dict[str, Any]:
        """As a JSON object has it: schema, title, explanation, and a record a row."""
        return {
            "schema": 1,
            "title": self.title,
            "explanation": self.explanation,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }

    def table(self, display: Display) -> str:
        """Title, rows and explanation at the display's width; many rows keep their ends."""
        hidden = max(len(self.rows) - MOST_ROWS, 0)
        for longest, gap in ((14, 3), (11, 1), (8, 1)):
            cells = [
                [_cell(*cell, longest) for cell in zip(row, self.columns, strict=True)]
                for row in self.rows
            ]
            if hidden:
                half = MOST_ROWS // 2
                cells[half : len(cells) - half] = [["…"] * len(self.columns)]
            widths = [
                max(map(cell_len, (*_heading(name).split(), *column)))
                for name, column in zip(self.columns, zip(*cells, strict=True), strict=True)
            ]
            if sum(widths) + gap * (len(widths) - 1) <= display.width:
                break
        note = f"{hidden} rows in the middle left out; -f csv has all"
        return shown(
            [
                Text(printable(self.title), style="bold"),
                Padding(self._grid(cells, widths, gap), (1, 0)),
                *([Text(note, style="dim")] if hidden else []),
                *(Text(printable(sentence)) for sentence in self.explanation),
            ],
            display,
        )

    def _grid(self, cells: list[list[str]], widths: list[int], gap: int) -> Table:
        grid = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0)
        )
        for name, width in zip(self.columns, widths, strict=True):
            words = all(isinstance(value, str) for value in self.column(name))
            grid.add_column(Text(_heading(name)), justify="left" if words else "right", width=width)
        for row in cells:
            grid.add_row(*map(Text, row))
        return grid


def _heading(name: str) -> str:
    return name.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def _cell(value: Cell, name: str, longest: int) -> str:
    if isinstance(value, str):
        return shorten(printable(value), longest)
    if name.endswith("_bytes"):
        return byte_size(int(value))
    if name.endswith("_seconds"):
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < 1e3 else f"{value:,.0f}"


def byte_size(count: int) -> str:
    """A number of bytes in the unit that keeps it below 1000, to three digits."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"
