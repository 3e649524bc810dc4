"""Heads as a grid of numbers: a line a head, a column a figure, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from attnviz.corpus_report import StreamReport
from attnviz.measures import HeadRow
from attnviz.renderers import Display
from attnviz.renderers.console import paragraph, shaded
from attnviz.renderers.printable import printable


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, what an even look gives, and a cell for each head.

    Attributes:
        heading: of few letters.
        even: the even look's cell for each head, in words.
        cells: in words.
        shades: of the cells, from 0 to 1.
    """

    heading: str
    even: list[str]
    cells: list[str]
    shades: list[float]

    @property
    def width(self) -> int:
        """Cells of a terminal that it takes."""
        return max(map(cell_len, (self.heading, *self.even, *self.cells)))


def grid(
    stream: StreamReport, columns: dict[str, Column], display: Display, role: bool = True
) -> list[Text]:
    """A line a head under the headings and an even look, in as many columns as fit."""
    names = [names_of(row, role) for row in stream.rows]
    headings = ("layer", "head", *(("role",) if role else ()))
    widths = [max(map(cell_len, column)) for column in zip(headings, *names, strict=True)]
    if role:
        widths[2] = max(widths[2], len("uniform"))
    room = display.width - sum(widths) - len(widths) + 1
    kept: list[Column] = []
    left_out = []
    for name, column in columns.items():
        if room >= column.width + 1:
            room -= column.width + 1
            kept.append(column)
        else:
            left_out.append(name)
    lines = [dim_line(headings, widths, [column.heading.rjust(column.width) for column in kept])]
    lines += _even_lines(names, kept, widths) if all(column.even for column in kept) else []
    for number, row in enumerate(names):
        line = named_line(row, widths)
        for column in kept:
            text = column.cells[number].rjust(column.width)
            line.append(" ").append_text(shaded(text, min(column.shades[number], 1.0), display))
        lines.append(line)
    if left_out:
        told = f"no room for {', '.join(left_out)}: -f tsv and -f json have them"
        lines += paragraph(told, display.width, "dim")
    return lines


def names_of(row: HeadRow, role: bool) -> tuple[str, ...]:
    """Layer, head and, if wanted, the clearest role."""
    named = row.roles[0].name if row.roles else ""
    return printable(row.layer), printable(row.head), *((named,) if role else ())


def named_line(names: Sequence[str], widths: Sequence[int]) -> Text:
    """The names at the beginning of a line, the role in bold."""
    line = Text(" ".join(name.rjust(width) for name, width in zip(names[:2], widths, strict=False)),
                no_wrap=True)  # fmt: skip
    if len(names) > 2:
        line.append(" ").append(names[2].ljust(widths[2]), style="bold")
    return line


def dim_line(names: Sequence[str], widths: Sequence[int], cells: Sequence[str]) -> Text:
    """A line that is no head's: headings, or an even look."""
    parts = [named_line(names, widths).plain, *cells]
    return Text(" ".join(parts), style="dim", no_wrap=True)


def _even_lines(
    names: Sequence[tuple[str, ...]], kept: Sequence[Column], widths: Sequence[int]
) -> list[Text]:
    """A line for each mask; most models have one, sliding windows bring more."""
    masks: dict[tuple[str, ...], list[str]] = {}
    for number, row in enumerate(names):
        cells = tuple(column.even[number].rjust(column.width) for column in kept)
        masks.setdefault(cells, []).append(row[0])
    return [
        dim_line(
            (",".join(dict.fromkeys(layers)) if len(masks) > 1 else "", "", "uniform"),
            widths,
            cells,
        )
        for cells, layers in masks.items()
    ]
