"""Parts for the eye as text of a display's width, with its colours or without."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from attnviz.core.attention_map import Attention
from attnviz.renderers import Display
from attnviz.renderers.colors import color_of, ink_on
from attnviz.renderers.printable import printable


class TextRenderer:
    """Text by text for the eye, each behind its id where several may come."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.started = False

    def begin(self, console: Console, attention: Attention) -> None:
        """Print what stands before one more part: an empty line, the text's id."""
        if self.started:
            console.print()
        self.started = True
        if self.display.many:
            console.print(Text(f"{printable(attention.id)}:", style="bold"))

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
        highlight=False,
        emoji=False,
        markup=False,
    )


def written(console: Console) -> str:
    """What was printed on the console, without spaces at the ends of lines."""
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def shown(parts: Iterable[RenderableType], display: Display) -> str:
    """The parts one below the other, as the display would show them."""
    console = console_of(display)
    for part in parts:
        console.print(part)
    return written(console)


def paragraph(text: str, width: int, style: str = "") -> list[Text]:
    """The text in lines that fit, broken at spaces; a longer word is cut by the console."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cell_len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return [Text(line, style=style) for line in lines]


def shaded(text: str, share: float, display: Display) -> Text:
    """The text on the colour of a share from 0 to 1, or plain where the display has no colours."""
    if display.colors is None:
        return Text(text)
    ground = color_of(share)
    ink, paper = (f"#{r:02x}{g:02x}{b:02x}" for r, g, b in (ink_on(ground), ground))
    return Text(text, style=f"{ink} on {paper}")
