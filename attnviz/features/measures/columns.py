"""Tables of heads: a line for each head, a column for each measure, as many as fit."""

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from attnviz.core.errors import in_words
from attnviz.core.measures import Meaning
from attnviz.core.records import dataclass
from attnviz.renderers import Display
from attnviz.renderers.printable import UNKNOWN, nats, shorten, two_digits
from attnviz.renderers.text.console import column_widths, shade_text, wrap_text


def format_measure(value: float, meaning: Meaning) -> str:
    """A share in two digits, an effect as `nats` has it, others in about three; – for NaN."""
    if math.isnan(value):
        return UNKNOWN
    if meaning.name == "effect":
        return nats(value)
    if meaning.unit == "share":
        return two_digits(value)
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value + 0.0:.{digits}f}"  # -0.0 + 0.0 is 0.0


def measures_by_unit(measures: Iterable[Meaning]) -> list[str]:
    """The measures that are not shares by unit, such as "entropy in nats"."""
    names: dict[str, list[str]] = {}
    for meaning in measures:
        if meaning.unit != "share":
            names.setdefault(meaning.unit, []).append(meaning.name)
    return [f"{in_words(same_unit, 'and')} in {unit}" for unit, same_unit in names.items()]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and for each row the value of uniform attention, a cell, a share."""

    heading: str
    uniform: list[str]
    cells: list[str]
    shades: list[float]

    @property
    def width(self) -> int:
        """Cells of a terminal that the column takes."""
        return max(map(cell_len, (self.heading, *self.uniform, *self.cells)))


def head_grid(
    headings: Sequence[str],
    names: Sequence[Sequence[str]],
    columns: dict[str, Column],
    display: Display,
    first: Sequence[str] = (),
) -> tuple[list[Text], list[str]]:
    """A line for each head, and the columns left out; those in `first` are kept longest."""
    role = headings[-1] == "role"
    widths = column_widths([headings, *names])
    if role:
        widths[-1] = max(widths[-1], len("uniform"))
    room = display.width - sum(widths) - len(widths) + 1
    left_out = set(columns)
    for name in sorted(columns, key=lambda n: first.index(n) if n in first else len(first)):
        if room >= columns[name].width + 1:
            room -= columns[name].width + 1
            left_out.remove(name)
    fitting = [column for name, column in columns.items() if name not in left_out]
    heads = [column.heading.rjust(column.width) for column in fitting]
    heading = " ".join([label_line(headings, widths, role=role).plain, *heads])
    lines = [Text(heading, style="dim", no_wrap=True)]
    if all(column.uniform for column in fitting):
        lines += _uniform_lines(headings, names, fitting, widths)
    for number, row in enumerate(names):
        line = label_line(row, widths, role=role)
        for column in fitting:
            text = column.cells[number].rjust(column.width)
            line.append(" ").append_text(shade_text(text, min(column.shades[number], 1.0), display))
        lines.append(line)
    return lines, [name for name in columns if name in left_out]


def no_room_note(names: Sequence[str], display: Display) -> list[Text]:
    """A note on the columns that did not fit; nothing if all did."""
    note = f"no room for {', '.join(names)}: -f tsv shows them as a table, -f json as data"
    return wrap_text(note, display.width, "dim") if names else []


def label_line(names: Sequence[str], widths: Sequence[int], *, role: bool = False) -> Text:
    """The names at the start of a line, the last in bold if it is a role."""
    plain = names[:-1] if role else names
    line = Text(" ".join(map(str.rjust, plain, widths)), no_wrap=True)
    return line.append(" ").append(names[-1].ljust(widths[-1]), style="bold") if role else line


def _uniform_lines(
    headings: Sequence[str],
    names: Sequence[Sequence[str]],
    columns: list[Column],
    widths: list[int],
) -> list[Text]:
    """A line for each mask: uniform attention depends on the visible keys."""
    masks: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for number, row in enumerate(names):
        cells = tuple(column.uniform[number].rjust(column.width) for column in columns)
        masks.setdefault(cells, []).append(row)
    room = sum(widths[:-1]) + len(widths) - 2
    lines = []
    for cells, rows in masks.items():
        first, second, *_ = (dict.fromkeys(column) for column in zip(*rows, strict=True))
        inside = all(row in rows for row in names if row[0] in first)
        where = second if headings[0] == "stream" and not inside else first
        label = shorten(",".join(where) if len(masks) > 1 else "", room)
        text = " ".join([label.rjust(room), "uniform".ljust(widths[-1]), *cells])
        lines.append(Text(text, style="dim", no_wrap=True))
    return lines
