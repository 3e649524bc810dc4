"""Pictures in the terminal that stdout is, by the protocol of kitty, of iTerm2, or by sixels.

The terminal is asked once, before the work. Where it does not answer, nothing but a note is shown.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from attnviz.cli.places import write_bytes
from attnviz.core.notices import Listener
from attnviz.core.options.look import Look
from attnviz.core.records import dataclass
from attnviz.renderers.reports import Data, Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE = 0.7
"""Seconds to wait for an answer, which may come over a slow line."""
KITTY = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
QUESTIONS = b"\x1b[>q\x1b[16t\x1b[c"
"""Name (XTVERSION), pixels of a cell, and attributes (DA1), which every terminal answers last."""
ATTRIBUTES = re.compile(rb"\x1b\[\?([\d;]+)c")
NAME = re.compile(rb"\x1bP>\|(.*?)\x1b\\", re.DOTALL)
CELL = re.compile(rb"\x1b\[6;(\d+);(\d+)t")
INLINE = ("iTerm2", "WezTerm", "mintty")
"""Beginnings of the names of terminals that have iTerm2's protocol."""
MULTIPLEXERS = ("tmux", "screen")
USUAL_CELL, USUAL_DPI, LEAST_DPI = (10, 20), 200, 100
CHUNK = 4096
GET_PICTURES = "kitty, Ghostty, WezTerm, iTerm2, Konsole, foot and VS Code's terminal show pictures"


@dataclass(frozen=True, slots=True)
class Screen:
    """What a terminal answered: "kitty", "iterm2" or "sixel", and its pixels; or why nothing."""

    protocol: str = ""
    width: int = 0
    height: int = 0
    lack: str = ""


def ask_screen() -> Screen:
    """Ask the terminal of stdout how it shows pictures."""
    if not sys.stdout.isatty():
        return Screen(lack="--show draws in a terminal, and stdout is none")
    terminal = os.environ.get("TERM", "dumb")
    if os.name != "posix" or terminal in ("dumb", "linux"):
        return Screen(lack=f"this terminal shows no pictures; {GET_PICTURES}")
    # tmux would take kitty's question for the title of its pane.
    inner = bool(os.environ.get("TMUX")) or terminal.startswith(MULTIPLEXERS)
    answer = ask_terminal(QUESTIONS if inner else KITTY + QUESTIONS)
    name = (NAME.search(answer) or [b"", b""])[1].decode("utf-8", "replace")
    attributes = ATTRIBUTES.search(answer)
    protocol = ""
    if name.startswith(INLINE):
        protocol = "iterm2"
    elif b"\x1b_Gi=31;OK" in answer:
        protocol = "kitty"
    elif attributes and b"4" in attributes[1].split(b";")[1:]:
        protocol = "sixel"
    if lack := _lack(protocol, name, inner=inner, responds=attributes is not None):
        return Screen(lack=lack)
    cell = CELL.search(answer)
    high, wide = map(int, cell.groups()) if cell else USUAL_CELL[::-1]
    size = os.get_terminal_size(sys.stdout.fileno())
    return Screen(protocol, size.columns * wide, (size.lines - 1) * high)


def _lack(protocol: str, name: str, *, inner: bool, responds: bool) -> str:
    """Why no picture can be shown; empty where one can."""
    if protocol == "sixel" and find_spec("textual_image") is None:
        extra = "pip install 'attnviz[terminal]'"
        return f"this terminal shows pictures by sixels, which need an extra: {extra}"
    if protocol:
        return ""
    if inner:
        return "tmux shows pictures from 3.4 on, if it is built with sixel: or leave it"
    who = f"this terminal ({name})" if name else "this terminal"
    does = "shows no pictures" if responds else "did not answer whether it shows pictures"
    return f"{who} {does}; {GET_PICTURES}"


def ask_terminal(questions: bytes) -> bytes:
    """What the terminal answers to the questions in time; empty in the background."""
    import termios
    import tty

    try:
        file = os.open(os.ttyname(sys.stdout.fileno()), os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return b""
    answer, before = b"", termios.tcgetattr(file)
    try:
        with suppress(OSError):  # it may not be the terminal that controls this process
            if os.tcgetpgrp(file) != os.getpgrp():  # in the background the system would stop it
                return b""
        tty.setcbreak(file)
        try:
            os.write(file, questions)
            end = time.monotonic() + PATIENCE
            while not ATTRIBUTES.search(answer):
                if not select.select([file], [], [], max(end - time.monotonic(), 0))[0]:
                    break
                answer += os.read(file, CHUNK)
            os.write(file, b"\r\x1b[K")  # some terminals print what they do not know
        finally:
            termios.tcsetattr(file, termios.TCSAFLUSH, before)
    finally:
        os.close(file)
    return answer


class ShownPictures:
    """The pictures of the first result in the terminal."""

    def __init__(
        self, screen: Screen, names: Sequence[str], look: Look, say: Listener, *, many: bool
    ) -> None:
        self.screen, self.names, self.look, self.say = screen, names, look, say
        self.many, self.count = many, 0

    def add(self, item: Item) -> None:
        """Draw the result's pictures; of many results only the first's."""
        from attnviz.runs.outputs import draw_item

        self.count += 1
        if self.many and self.count > 1:
            return
        for name in self.names:
            if isinstance(item.data, Data) and name not in item.figures:
                self.say("--show: there is no picture of this")
                continue
            figure = draw_item(item, name, self.look)
            write_bytes(b"".join(encode(figure, self.screen)) + b"\n")

    def finish(self) -> None:
        """Note that only the first was shown, where there were more."""
        if self.many and self.count > 1:
            self.say("--show shows the first result; a picture's FILE is written for each")


def encode(figure: Figure, screen: Screen) -> Iterator[bytes]:
    """A figure as the screen's protocol has it, as large as there is room for, yet legible."""
    from attnviz.renderers.figures.figure import figure_bytes

    wide, high = figure.get_size_inches()
    fits = screen.width / wide, screen.height / high
    dpi = min(USUAL_DPI, fits[0], max(fits[1], LEAST_DPI))
    png = figure_bytes(figure, ".png", dpi=dpi)
    if screen.protocol == "sixel":
        yield _sixels(png)
        return
    data = b64encode(png)
    if screen.protocol == "iterm2":
        yield b"\x1b]1337;File=inline=1;size=%d:%s\a" % (len(png), data)
        return
    for start in range(0, len(data), CHUNK):
        head = b"a=T,f=100,q=2," if not start else b""
        more = start + CHUNK < len(data)
        yield b"\x1b_G%sm=%d;%s\x1b\\" % (head, more, data[start : start + CHUNK])


def _sixels(png: bytes) -> bytes:
    # Its renderables ask stdin when they are imported, which may be a pipe with texts.
    from PIL import Image
    from textual_image._sixel import image_to_sixels

    sixels: Any = image_to_sixels(Image.open(BytesIO(png)).convert("RGB"))
    return bytes(sixels, "ascii")
