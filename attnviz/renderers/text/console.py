"""Tables as text of a display's width, with its colours or without."""

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
    """Writes texts one by one, each under its id where several may come."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.count = 0

    def add(self, attention: Attention, views: Views) -> str:
        """The parts of one text; its id stands above each part if there may be several texts."""
        console = console_of(self.display)
        for part in self.parts(attention, views):
            if self.count:
                console.print()
            self.count += 1
            if self.display.many:
                console.print(Text(f"{printable(attention.id)}:", style="bold"))
            for line in part:
                console.print(line)
        return console_text(console)

    def parts(self, attention: Attention, views: Views) -> Iterable[Iterable[RenderableType]]:
        raise NotImplementedError

    def finish(self) -> str:
        return ""


def console_of(display: Display) -> Console:
    """A console that writes into memory as the display would show it, without any markup."""
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


def console_text(console: Console) -> str:
    """The text printed on the console, without spaces at the ends of lines."""
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def render_parts(parts: Sequence[RenderableType], display: Display) -> str:
    """The parts as text, one below the other; a note counts those that the display leaves out."""
    console = console_of(display)
    for part in parts[: display.rows or None]:
        console.print(part)
    return console_text(console) + display.more_rows_note(len(parts))


def introduction(caption: str, reading: str, width: int) -> list[Text]:
    """The head of a table: its caption in bold, how to read it, and an empty line."""
    return [*wrap_text(caption, width, "bold"), *wrap_text(reading, width, "dim"), Text()]


def column_widths(rows: Iterable[Sequence[str]]) -> list[int]:
    """Cells of a terminal that each column takes."""
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def wrap_text(text: str, width: int, style: str = "", *, between: str = " ") -> list[Text]:
    """The text in lines that fit, broken between its words; the console cuts longer words."""
    lines = [""]
    for word in text.split(between):
        longer = f"{lines[-1]}{between}{word}" if lines[-1] else word
        if lines[-1] and cell_len(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [Text(line, style=style) for line in lines]


def shade_text(text: str, share: float, display: Display) -> Text:
    """The text on the colour of a share from 0 to 1, or plain if the display has no colours."""
    return Text(text) if display.colors is None else color_cell(text, share)


def bar_of(share: float, cells: float) -> str:
    """A bar for a share of some cells, to an eighth of a cell."""
    eighths = round(share * cells * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉█"[eighths % 8].strip()


def color_cell(text: str, value: float, limits: Limits = (0.0, 1.0)) -> Text:
    """The text on the colour of a value."""
    ground = color_of(value, limits)
    return Text(text, style=f"{hex_of(ink_on(ground))} on {hex_of(ground)}")


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


def more_note(count: int, top: int, width: int) -> list[Text]:
    """A note on how to see the rows that were left out; nothing if there are none."""
    note = f"and {count - top} more: --top {count}, or -f tsv"
    return wrap_text(note, width, "dim") if count > top else []


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
