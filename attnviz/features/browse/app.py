"""The terminal: one widget that shows the lines of a state, and keys that change it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult, RenderResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from attnviz.core.notices import ask_at_pauses, pause, pauses_between_modules
from attnviz.features.browse import draw, keys
from attnviz.features.browse.ask import Asker
from attnviz.features.browse.state import State, say

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK, WAIT = 0.1, 0.2  # seconds between two pictures of the spinner, and of work before it is shown
FAST = 0.25  # seconds of an answer at most that is asked for while its text is typed
MOST_WRITTEN = 8_000  # characters of a line that is written
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
HANDLED = (
    *SIGNALS,
    *(signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, signal.SIGTTOU, signal.SIGTTIN),
)
"""Signals that textual and the app answer; what answered them before is put back."""
RESET = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[<u"
    "\x1b[?1004l\x1b[?25h\x1b[?1049l"
)
"""What takes back everything that textual asks of a terminal."""


class StateView(Widget):
    """The lines of a state."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.lines = list[draw.Line]()

    def render_line(self, y: int) -> Strip:
        """One line, as textual shows it."""
        spans = self.lines[y] if y < len(self.lines) else []
        return Strip([Segment(span.text, style_of(span[1:7])) for span in spans if span.text])

    def show(self, lines: list[draw.Line]) -> None:
        """Show lines; only those that changed are drawn."""
        before, self.lines = dict(enumerate(self.lines)), lines
        changes = [y for y, line in enumerate(lines) if before.get(y) != line]
        if changes:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changes))


@lru_cache(maxsize=16384)
def style_of(look: tuple[Any, ...]) -> Style:
    """A span's look in rich's words."""
    ink, ground = (None if one is None else Color.from_rgb(*one) for one in look[:2])
    bold, underline, reverse, dim = (on or None for on in look[2:])
    return Style(
        color=ink, bgcolor=ground, bold=bold, underline=underline, reverse=reverse, dim=dim
    )


class TextLine(Input):
    """A line that is written; of pasted text every line is taken."""

    def on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor("".join(c if c.isprintable() else " " for c in event.text))


class WriteLines(ModalScreen[tuple[str, ...]]):
    """Lines that are written below the view; enter takes them, escape leaves them."""

    BINDINGS: ClassVar[list[Any]] = [("escape", "dismiss(())")]

    def __init__(self, lines: dict[str, str], tell: Callable[[tuple[str, ...]], None]) -> None:
        super().__init__()
        self.lines, self.tell = lines, tell

    def compose(self) -> ComposeResult:
        with Vertical():
            for name, text in self.lines.items():
                with Horizontal():
                    yield Label(f" {name}: ")
                    yield TextLine(
                        text, compact=True, select_on_focus=False, max_length=MOST_WRITTEN
                    )

    def texts(self) -> tuple[str, ...]:
        """The lines by now."""
        return tuple(" ".join(one.value.split()) for one in self.query(TextLine))

    def on_input_changed(self) -> None:
        self.tell(self.texts())

    def on_input_submitted(self) -> None:
        self.dismiss(self.texts())


class TextPage(ModalScreen[None]):
    """A text over the view; arrows scroll it, and the other keys leave it."""

    def __init__(self, text: RenderResult) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self.text)

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("up", "down", "pageup", "pagedown", "home", "end"):
            event.stop()
            self.dismiss()


class Browser(App[int], inherit_bindings=False):
    """The app: a state, its lines, and a thread that asks the model."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("ctrl+c", "leave(130)", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]
    CSS = """
    Screen, StateView { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; align: left bottom; }
    Vertical, Horizontal, Horizontal Input { height: auto; width: 1fr; background: ansi_default; }
    VerticalScroll { background: ansi_default; padding: 0 1; margin: 1 0; scrollbar-size: 1 1;
        scrollbar-background: ansi_default; scrollbar-color: ansi_bright_black; }
    """

    def __init__(self, state: State, asker: Asker) -> None:
        super().__init__(ansi_color=True)
        self.title = "attnviz browse"
        self.state, self.asker, self.view = state, asker, StateView()
        self.number, self.lock, self.stage = 0, threading.Lock(), ""
        self.waits, self.began = False, 0.0
        self.lasted = deque([0.0], maxlen=3)  # the fastest tells what an idle machine takes
        self.error: BaseException | None = None
        self.status, self.is_open = 0, False
        asker.tell = partial(setattr, self, "stage")

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.is_open = True
        self.set_interval(TICK, self.tick)

    def on_resize(self, event: events.Resize) -> None:
        self.show(replace(self.state, size=(event.size.width, event.size.height)))

    def show(self, state: State) -> None:
        """Show a state; a page of it is shown once."""
        if state.page:
            self.push_screen(TextPage(Text("\n".join(state.page))))
        self.state = state = replace(state, page=())
        seconds = time.monotonic() - self.began
        if self.waits and seconds > WAIT:
            turn = SPINNER[int(seconds / TICK) % len(SPINNER)]
            state = say(state, f"{turn} {self.stage or 'working'} · {seconds:.1f} s · esc ends it")
        self.view.show(draw.screen(state))

    def tick(self) -> None:
        """Move the spinner; leave where a signal came, or the terminal is gone."""
        if self.waits:
            self.show(self.state)
        if self.status or not (self.is_headless or os.isatty(0)):
            self.action_leave(self.status or 129)

    def on_key(self, event: events.Key) -> None:
        if self.screen is not self.view.screen:
            return
        event.prevent_default()
        if event.key == "escape" and self.waits:
            self.number, self.waits = self.number + 1, False
            self.show(say(self.state, "stopped"))
        else:
            self.take(*keys.press(self.state, event.key, event.character))

    def on_mouse_scroll_up(self) -> None:
        self.take(*keys.press(self.state, "up"))

    def on_mouse_scroll_down(self) -> None:
        self.take(*keys.press(self.state, "down"))

    def on_click(self, event: events.Click) -> None:
        x = event.screen_x
        for span in self.view.lines[event.screen_y] if self.screen is self.view.screen else []:
            if x < (width := cell_len(span.text)):
                self.take(*keys.touch(self.state, span.act, x))
                return
            x -= width

    def take(self, state: State, step: keys.Work | str | None) -> None:
        """Show a state, and do what a key asks for besides."""
        self.show(state)
        match step:
            case None:
                return
            case "quit":
                self.action_leave(0)
            case "copy":
                line = self.asker.command(state)
                self.show(say(state, line or "no command prints these maps"))
                self.copy_to_clipboard(line)
            case "keys":
                rows = Table.grid(padding=(0, 2))
                for key, _, does in keys.KEYS:
                    rows.add_row(Text(key, "bold"), does)
                self.push_screen(TextPage(rows))
            case "edit":
                self.write(self.asker.texts, keys.write, most_seconds=FAST)
            case "save":
                name = f"attention-{state.name}" if state.matrix else "attention"
                self.write({"save as": name}, partial(keys.save, state))
            case work if not isinstance(work, str):
                self.ask(work)

    def write(
        self,
        lines: dict[str, str],
        work_of: Callable[[tuple[str, ...]], keys.Work],
        most_seconds: float = 0.0,
    ) -> None:
        """Let lines be written, and do work with them; also while they are, where it is fast."""

        def take(texts: tuple[str, ...] | None) -> None:
            if texts and texts[0]:
                self.ask(work_of(texts))

        def tell(texts: tuple[str, ...]) -> None:
            is_new = self.waits or texts != (*self.asker.texts.values(),)
            if all(texts) and is_new and min(self.lasted) < most_seconds:
                take(texts)

        self.push_screen(WriteLines(lines, tell), take)

    def ask(self, work: keys.Work) -> None:
        """Do work in a thread, and give up what is still done.

        The thread is a daemon: the program may leave while a model still runs.
        """
        self.number += 1
        number, self.waits, self.began, self.stage = self.number, True, time.monotonic(), ""

        def check() -> None:
            if number != self.number:
                raise EndedError

        def run() -> None:
            try:
                with self.lock, ask_at_pauses(check), pauses_between_modules():
                    pause()
                    change = keys.change_of(work, self.asker)
            except EndedError:
                return
            except BaseException as error:  # a bug: the main thread shows it
                change = partial(self.fail, error)
            with suppress(RuntimeError):  # the app has ended meanwhile
                self.call_from_thread(self.take_answer, number, change)

        threading.Thread(target=run, name="attnviz-browse", daemon=True).start()

    def fail(self, error: BaseException, state: State) -> State:
        """Leave where there is a bug."""
        self.error = error
        self.action_leave(1)
        return state

    def take_answer(self, number: int, change: keys.Change) -> None:
        """Show an answer, unless another one is waited for."""
        if number == self.number:
            self.waits = False
            self.lasted.append(time.monotonic() - self.began)
            self.show(change(self.state))

    def action_leave(self, status: int) -> None:
        """End, with a status."""
        self.status = status
        self.exit(status, return_code=status)


class EndedError(KeyboardInterrupt):
    """The reader no longer waits for the answer."""


def run(state: State, asker: Asker) -> int:
    """Browse until the reader leaves; return the status.

    The terminal is left as it was, whatever ends the program.
    """
    import termios

    app, before = Browser(state, asker), termios.tcgetattr(0)
    handlers = {number: signal.getsignal(number) for number in HANDLED}

    def leave(number: int, frame: object) -> None:
        app.status = app.status or 128 + number
        if app.is_open and app._loop is not None:
            app._loop.call_soon_threadsafe(app.tick)

    for number in SIGNALS:
        if handlers[number] != signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        app.run()
    except BaseException:
        with suppress(OSError):
            os.write(2, RESET.encode())
        raise
    finally:
        with suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSANOW, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if app.error is not None:
        raise app.error
    return app.status or app.return_code or 0
