"""Tables as text of a display's width, with its colours or without."""

import io
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from attnviz.core.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.renderers.colors import Limits, color_of, hex_of, ink_on
from attnviz.renderers.printable import printable


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


def more_note(count: int, top: int, width: int) -> list[Text]:
    """A note on how to see the rows that were left out; nothing if there are none."""
    note = f"and {count - top} more: --top {count}, or -f tsv"
    return wrap_text(note, width, "dim") if count > top else []
