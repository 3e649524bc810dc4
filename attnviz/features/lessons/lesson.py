"""A lesson: a table of numbers, three sentences about them, and the panels of its picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass
from attnviz.mechanisms.formula import Formula, Part
from attnviz.models.own import SeededEmbedding, word_tokens
from attnviz.renderers import Display, colors
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.text.console import render_parts

Cell = str | int | float
Numbers = Sequence[float] | NDArray[Any]
MOST_ROWS = 24
MOST_CELLS, MOST_FEATURES = 300, 2048
SENTENCE = "The professor who supervised the student published the paper"


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A panel of lines."""

    heading: str
    along: str  # label of the horizontal axis; `up` is that of the vertical one
    up: str
    lines: Mapping[str, tuple[Numbers, Numbers]]  # (x, y) by name; names with "_" have no legend
    doubling: bool = False  # the x axis is logarithmic to base 2; `tenfold`: the y axis to base 10
    tenfold: bool = False
    top: float | None = None  # the upper end of y
    level: tuple[float, str] | None = None  # a value of y to mark with a dashed line, and its label


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A panel of cells; NaN leaves a cell white."""

    heading: str
    values: NDArray[Any]
    rows: Sequence[str]
    columns: Sequence[str]
    unit: str = "share of a row's attention"
    limits: colors.Limits = (0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One thing about attention."""

    title: str
    # columns by name ("head_size"); names in _seconds or _bytes have that unit
    cells: Mapping[str, Sequence[Any] | NDArray[Any]]
    explanation: tuple[str, ...]
    reference: str  # the paper and its section
    panels: tuple[Curves | Heat, ...]  # what `drawing.draw_lesson` draws side by side

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.cells)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The rows from top to bottom."""
        return tuple(zip(*map(self.column, self.cells), strict=True))

    def column(self, name: str) -> tuple[Cell, ...]:
        """One column from top to bottom."""
        cells = self.cells[name]
        return tuple(cells.tolist() if isinstance(cells, np.ndarray) else cells)

    def data(self) -> dict[str, Any]:
        """The lesson as a JSON object; `rows` has one record for each row."""
        return {
            "title": self.title,
            "explanation": self.explanation,
            "reference": self.reference,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }

    def table(self, display: Display) -> str:
        """The lesson as text; of a long table only the first and last rows are shown."""
        surplus = max(len(self.rows) - MOST_ROWS, 0)
        # First shorten long words, then narrow the gaps, until the table fits; never a number.
        for longest, gap in ((14, 3), (11, 1), (8, 1)):
            cells = [
                [format_cell(*cell, longest) for cell in zip(row, self.columns, strict=True)]
                for row in self.rows
            ]
            if surplus:
                half = MOST_ROWS // 2
                cells[half : len(cells) - half] = [["…"] * len(self.columns)]
            widths = [
                max(map(cell_len, (*column_heading(name).split(), *column)))
                for name, column in zip(self.columns, zip(*cells, strict=True), strict=True)
            ]
            if sum(widths) + gap * (len(widths) - 1) <= display.width:
                break
        note = f"{surplus} rows in the middle left out; -f csv has all"
        return render_parts(
            [
                Text(printable(self.title), style="bold"),
                Padding(self._grid(cells, widths, gap), (1, 0)),
                *([Text(note, style="dim")] if surplus else []),
                *(Text(printable(sentence)) for sentence in self.explanation),
                Text(printable(self.reference), style="dim"),
            ],
            display,
        )

    def _grid(self, cells: list[list[str]], widths: list[int], gap: int) -> Table:
        grid = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0)
        )
        for name, width in zip(self.columns, widths, strict=True):
            words = all(isinstance(value, str) for value in self.column(name))
            grid.add_column(
                Text(column_heading(name)), justify="left" if words else "right", width=width
            )
        for row in cells:
            grid.add_row(*map(Text, row))
        return grid


def column_heading(name: str) -> str:
    return name.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def format_cell(value: Cell, name: str, longest: int = MOST_CELLS) -> str:
    """A cell as text, with its unit."""
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
    """A number of bytes to three digits, in the unit that keeps it below 1000."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"


def project_words(
    text: str, size: int, seed: int
) -> tuple[tuple[str, ...], list[NDArray[np.float64]]]:
    """The words of a text, and their queries, keys and values in an untrained layer."""
    check_range("size", size, 1, MOST_FEATURES)
    tokens = word_tokens(text)
    embedding = SeededEmbedding(seed, size)
    inputs = embedding.embed(tokens)
    projections = [inputs @ embedding.projection(name) for name in ("query", "key", "value")]
    return tuple(token.text for token in tokens), projections


def name_parts(mechanism: Formula[Any], *arrays: Any, **options: Any) -> dict[str, NDArray[Any]]:
    """Every array that a mechanism computes, by name; arrays without a head axis are one head."""
    parts: list[Part] = list(mechanism.parts(*arrays, **options))
    return {part.name: np.asarray(part.value) for part in parts}


def check_range(option: str, value: float, least: float, most: float) -> None:
    """Raise a UsageError if an option lies outside a lesson's range."""
    if not least <= value <= most:
        raise UsageError(f"--{option} {value} is outside {least} to {most}")
