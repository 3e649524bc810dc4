"""Parts for the eye as text of a display's width, with its colours or without."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from attnviz.core.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.renderers.colors import Limits, color_of, hex_of, ink_on
from attnviz.renderers.printable import printable, shorten


class TextRenderer:
    """Text by text for the eye, each behind its id where several may come."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.started = False

    def add(self, attention: Attention, views: Views) -> str:
        """The parts of one text, each behind a line with the text's id where several may come."""
        console = console_of(self.display)
        for part in self.parts(attention, views):
            if self.started:
                console.print()
            self.started = True
            if self.display.many:
                console.print(Text(f"{printable(attention.id)}:", style="bold"))
            for line in part:
                console.print(line)
        return written(console)

    def parts(self, attention: Attention, views: Views) -> Iterable[Iterable[RenderableType]]:
        """What to print for one text, part by part."""
        raise NotImplementedError

    def finish(self) -> str:
        """Nothing more."""
        return ""


def console_of(display: Display) -> Console:
    """A console that writes into memory as the display would show it; nothing is read as markup."""
    return Console(
        file=io.StringIO(),
        width=display.width,
        color_system=display.colors,  # type: ignore[arg-type]
        force_terminal=display.colors is not None,
        no_color=display.colors is None,
        legacy_windows=False,
        force_jupyter=False,  # which would print into the cell
        highlight=False,
        emoji=False,
        markup=False,
    )


def written(console: Console) -> str:
    """What was printed on the console, without spaces at the ends of lines."""
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def shown(parts: Sequence[RenderableType], display: Display) -> str:
    """The parts one below the other, as many as the display shows."""
    console = console_of(display)
    for part in parts[: display.rows or None]:
        console.print(part)
    return written(console) + display.left_out(len(parts))


def paragraph(text: str, width: int, style: str = "", *, between: str = " ") -> list[Text]:
    """The text in lines that fit, broken between its words; what is longer the console cuts."""
    lines = [""]
    for word in text.split(between):
        joined = f"{lines[-1]}{between}{word}" if lines[-1] else word
        if lines[-1] and cell_len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return [Text(line, style=style) for line in lines]


def shaded(text: str, share: float, display: Display) -> Text:
    """The text on the colour of a share from 0 to 1, or plain where the display has no colours."""
    if display.colors is None:
        return Text(text)
    return cell(text, share)


def cell(text: str, value: float, limits: Limits = (0.0, 1.0)) -> Text:
    """The text on the colour of a value."""
    ground = color_of(value, limits)
    return Text(text, style=f"{hex_of(ink_on(ground))} on {hex_of(ground)}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, and for each row what uniform attention gives, a cell, a share."""

    heading: str
    even: list[str]
    cells: list[str]
    shades: list[float]

    @property
    def width(self) -> int:
        """Cells of a terminal that it takes."""
        return max(map(cell_len, (self.heading, *self.even, *self.cells)))


def grid(
    headings: Sequence[str],
    names: Sequence[Sequence[str]],
    columns: dict[str, Column],
    display: Display,
    first: Sequence[str] = (),
) -> tuple[list[Text], list[str]]:
    """A line a head under headings and uniform attention, and the columns that do not fit.

    The columns called `first` are kept before others.
    """
    role = headings[-1] == "role"
    widths = [max(map(cell_len, column)) for column in zip(headings, *names, strict=True)]
    if role:
        widths[-1] = max(widths[-1], len("uniform"))
    room = display.width - sum(widths) - len(widths) + 1
    fitting = set()
    for name in sorted(columns, key=lambda n: first.index(n) if n in first else len(first)):
        if room >= columns[name].width + 1:
            room -= columns[name].width + 1
            fitting.add(name)
    kept = [column for name, column in columns.items() if name in fitting]
    heads = [column.heading.rjust(column.width) for column in kept]
    heading = " ".join([named_line(headings, widths, role=role).plain, *heads])
    lines = [Text(heading, style="dim", no_wrap=True)]
    if all(column.even for column in kept):
        lines += _even_lines(headings, names, kept, widths)
    for number, row in enumerate(names):
        line = named_line(row, widths, role=role)
        for column in kept:
            text = column.cells[number].rjust(column.width)
            line.append(" ").append_text(shaded(text, min(column.shades[number], 1.0), display))
        lines.append(line)
    return lines, [name for name in columns if name not in fitting]


def no_room(names: Sequence[str], display: Display) -> list[Text]:
    """Which columns are left out of a grid, if any."""
    told = f"no room for {', '.join(names)}: -f tsv shows them as a table, -f json as data"
    return paragraph(told, display.width, "dim") if names else []


def named_line(names: Sequence[str], widths: Sequence[int], *, role: bool = False) -> Text:
    """The names at the beginning of a line, the last in bold if it is a role."""
    plain = names[:-1] if role else names
    line = Text(" ".join(map(str.rjust, plain, widths)), no_wrap=True)
    return line.append(" ").append(names[-1].ljust(widths[-1]), style="bold") if role else line


def _even_lines(
    headings: Sequence[str], names: Sequence[Sequence[str]], kept: list[Column], widths: list[int]
) -> list[Text]:
    """A line for each mask; most models have one, windows and several streams bring more."""
    masks: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for number, row in enumerate(names):
        cells = tuple(column.even[number].rjust(column.width) for column in kept)
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
