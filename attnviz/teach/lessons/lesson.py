"""What a lesson gives: numbers, three sentences about them, and what its picture shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnviz.core.errors import UsageError
from attnviz.mechanisms.working import Formula, Part
from attnviz.models.own import SeededEmbedding, split_words
from attnviz.renderers import Display
from attnviz.renderers.colors import Limits
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.text.console import render_parts

Cell = str | int | float
Numbers = Sequence[float] | NDArray[Any]
MOST_ROWS = 24
MOST_CELLS, MOST_FEATURES = 300, 2048
SENTENCE = "The professor who supervised the student published the paper"


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A panel of lines.

    Attributes:
        along: what the horizontal axis counts; `up` the vertical one.
        lines: (x, y) by name; a name that begins with "_" stands in no legend.
        doubling: x grows by doubling, so each x gets the same room; `tenfold` likewise of y.
        level: a value of y that is marked, with its words.
    """

    heading: str
    along: str
    up: str
    lines: Mapping[str, tuple[Numbers, Numbers]]
    doubling: bool = False
    tenfold: bool = False
    top: float | None = None
    level: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A panel of cells; NaN is a cell that is not there."""

    heading: str
    values: NDArray[Any]
    rows: Sequence[str]
    columns: Sequence[str]
    unit: str = "share of a row's attention"
    limits: Limits = (0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """One thing about attention.

    Attributes:
        cells: columns of `Cell`s by name, as data has it ("head_size"); a name in _seconds or
            _bytes has that unit.
        reference: where it is published.
        panels: the picture, side by side; `drawing.drawn` makes it.
    """

    title: str
    cells: Mapping[str, Sequence[Any] | NDArray[Any]]
    explanation: tuple[str, ...]
    reference: str
    panels: tuple[Curves | Heat, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.cells)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """From top to bottom."""
        return tuple(zip(*map(self.column, self.cells), strict=True))

    def column(self, name: str) -> tuple[Cell, ...]:
        """One column from top to bottom."""
        cells = self.cells[name]
        return tuple(cells.tolist() if isinstance(cells, np.ndarray) else cells)

    def data(self) -> dict[str, Any]:
        """As a JSON object has it: schema, title, explanation, reference, and a record a row."""
        return {
            "schema": 1,
            "title": self.title,
            "explanation": self.explanation,
            "reference": self.reference,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }

    def table(self, display: Display) -> str:
        """Title, rows and explanation at the display's width; many rows keep their ends."""
        hidden = max(len(self.rows) - MOST_ROWS, 0)
        for longest, gap in ((14, 3), (11, 1), (8, 1)):
            cells = [
                [format_cell(*cell, longest) for cell in zip(row, self.columns, strict=True)]
                for row in self.rows
            ]
            if hidden:
                half = MOST_ROWS // 2
                cells[half : len(cells) - half] = [["…"] * len(self.columns)]
            widths = [
                max(map(cell_len, (*heading(name).split(), *column)))
                for name, column in zip(self.columns, zip(*cells, strict=True), strict=True)
            ]
            if sum(widths) + gap * (len(widths) - 1) <= display.width:
                break
        note = f"{hidden} rows in the middle left out; -f csv has all"
        return render_parts(
            [
                Text(printable(self.title), style="bold"),
                Padding(self._grid(cells, widths, gap), (1, 0)),
                *([Text(note, style="dim")] if hidden else []),
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
            grid.add_column(Text(heading(name)), justify="left" if words else "right", width=width)
        for row in cells:
            grid.add_row(*map(Text, row))
        return grid


def heading(name: str) -> str:
    """A column's name as a reader sees it."""
    return name.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def format_cell(value: Cell, name: str, longest: int = MOST_CELLS) -> str:
    """A cell as a reader sees it."""
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


def in_space(text: str, size: int, seed: int) -> tuple[tuple[str, ...], list[NDArray[np.float64]]]:
    """A text's words, and their queries, keys and values in an untrained layer."""
    between("size", size, 1, MOST_FEATURES)
    tokens = split_words(text)
    embedding = SeededEmbedding(seed, size)
    inputs = embedding.embed(tokens)
    projected = [inputs @ embedding.projection(name) for name in ("query", "key", "value")]
    return tuple(token.text for token in tokens), projected


def parts_of(mechanism: Formula[Any], *arrays: Any, **options: Any) -> dict[str, NDArray[Any]]:
    """Everything on the way through a mechanism, by name; of arrays without heads one head's."""
    parts: list[Part] = list(mechanism.parts(*arrays, **options))
    return {part.name: np.asarray(part.value) for part in parts}


def between(option: str, given: float, least: float, most: float) -> None:
    """Refuse what is outside a lesson's range with a UsageError."""
    if not least <= given <= most:
        raise UsageError(f"--{option} {given} is outside {least} to {most}")
