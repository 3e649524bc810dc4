"""A lesson as text: a table for the eye, JSON or CSV for programs."""

from __future__ import annotations

import csv
import io

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attnviz.lessons.lesson import Cell, Lesson
from attnviz.renderers import Display
from attnviz.renderers.printable import printable, shorten
from attnviz.storage.json import dump_json

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
