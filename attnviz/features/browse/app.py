"""The terminal: one widget that shows the lines of a state, and keys that change it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from attnviz.core.notices import ask_at_pauses
from attnviz.features.browse import draw
from attnviz.features.browse.ask import Asker, Change, EndedError, work_of
from attnviz.features.browse.state import Request, State, insert, press, touch

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK, WAIT = 0.1, 0.2  # seconds between two pictures of the spinner, and of work before it is shown
FAST = 0.25  # seconds of an answer at most that is asked for while its text is typed
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
RESET = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[<u"
    "\x1b[?1004l\x1b[?25h\x1b[?1049l"
)
"""What takes back everything that textual asks of a terminal."""


class Lines(Widget, can_focus=True):
    """The lines of the screen."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Lines { width: 100%; height: 100%; background: ansi_default; color: ansi_default; }
    """

    def __init__(self, take: Callable[[events.Event], None]) -> None:
        super().__init__()
        self.take, self.lines = take, list[draw.Line]()

    def render_line(self, y: int) -> Strip:
        """One line, as textual shows it."""
        spans = self.lines[y] if y < len(self.lines) else []
        return Strip([Segment(span.text, style_of(span[1:7])) for span in spans if span.text])

    def show(self, lines: list[draw.Line]) -> None:
        """Show lines; only those that changed are drawn."""
        before, self.lines = self.lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        changed_lines = [y for y, line in enumerate(lines) if line != before[y]]
        regions = [Region(0, y, self.size.width, 1) for y in changed_lines]
        if regions:
            self.refresh(*regions)

    def on_key(self, event: events.Event) -> None:
        event.stop()
        event.prevent_default()
        self.take(event)

    on_paste = on_mouse_down = on_mouse_scroll_up = on_mouse_scroll_down = on_key


@lru_cache(maxsize=16384)
def style_of(look: tuple[Any, ...]) -> Style:
    """A span's look in rich's words."""
    ink, ground = (None if one is None else Color.from_rgb(*one) for one in look[:2])
    bold, underline, reverse, dim = (on or None for on in look[2:])
    return Style(
        color=ink, bgcolor=ground, bold=bold, underline=underline, reverse=reverse, dim=dim
    )


class AskingThread:
    """Does one thing at a time in a thread of its own; a new one ends the one before."""

    def __init__(self, asker: Asker, give: Callable[[int, Change | BaseException], None]) -> None:
        self.asker, self.give = asker, give
        self.number = 0
        self.task: tuple[int, State, Request] | None = None
        self.ready = threading.Condition()
        self.stage = ""
        asker.tell = partial(setattr, self, "stage")
        # A daemon: the program may leave while a model still runs.
        threading.Thread(target=self._run, name="attnviz-browse", daemon=True).start()

    def ask(self, state: State, request: Request) -> int:
        """Start work, and give up what is still done."""
        with self.ready:
            self.number += 1
            self.task = (self.number, state, request)
            self.stage = ""
            self.ready.notify()
        return self.number

    def end(self) -> None:
        """Give up what is done."""
        self.number += 1

    def _run(self) -> None:
        while True:
            with self.ready:
                while self.task is None:
                    self.ready.wait()
                (number, state, request), self.task = self.task, None

            def check(own: int = number) -> None:
                if own != self.number:
                    raise EndedError

            try:
                with ask_at_pauses(check):
                    change: Any = work_of(self.asker, state, request.job, request.value)
            except EndedError:
                continue
            except BaseException as error:  # a bug: the main thread shows it
                change = error
            self.give(number, change)


class Browser(App[int], inherit_bindings=False):
    """The app: a state, its lines, and a worker."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = []
    CSS = "Screen { background: ansi_default; }"

    def __init__(self, state: State, asker: Asker) -> None:
        super().__init__(ansi_color=True)
        self.title = "attnviz browse"
        self.state, self.asker = state, asker
        self.view = Lines(self.take)
        self.worker = AskingThread(asker, self.give)
        self.waits, self.began, self.lasted = 0, 0.0, 0.0
        self.error: BaseException | None = None
        self.status, self.is_open = 0, False

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.is_open = True
        if self.status:  # a signal came while the screen opened
            self.leave(self.status)
            return
        self.view.focus()
        self.set_interval(TICK, self.tick)

    def on_resize(self, event: events.Resize) -> None:
        self.state = replace(self.state, size=(event.size.width, event.size.height))
        self.draw()

    def draw(self) -> None:
        """Show the state."""
        busy, seconds = "", time.monotonic() - self.began
        if self.waits and seconds > WAIT:
            turn = SPINNER[int(seconds / TICK) % len(SPINNER)]
            busy = f"{turn} {self.worker.stage or 'working'} · {seconds:.1f} s"
        self.view.show(draw.screen(replace(self.state, busy=busy)))

    def tick(self) -> None:
        """Move the spinner; leave where the terminal is gone."""
        if self.waits:
            self.draw()
        if not self.is_headless and not os.isatty(0):
            self.leave(129)

    def take(self, event: events.Event) -> None:
        """What a key, the mouse or pasted text does."""
        state, request = self.state, None
        if isinstance(event, events.Key):
            if event.key == "escape" and self.waits and state.mode != "edit":
                self.worker.end()
                self.waits = 0
                state = replace(state, message="stopped")
            else:
                state, request = press(state, event.key, event.character)
        elif isinstance(event, events.Paste):
            state, request = insert(state, event.text)
        elif isinstance(event, events.MouseScrollUp | events.MouseScrollDown):
            down = isinstance(event, events.MouseScrollDown)
            state, request = press(state, "down" if down else "up")
        elif isinstance(event, events.MouseDown):
            state, request = touch(state, *self.action_at(event.x, event.y))
        self.state = state
        if request is not None:
            self.ask(request)
        self.draw()

    def action_at(self, x: int, y: int) -> tuple[tuple[Any, ...], int]:
        """What the span at a cell does, and how far into it the cell is."""
        for span in self.view.lines[y] if y < len(self.view.lines) else []:
            width = draw.width_of([span])
            if x < width:
                return span.act, x
            x -= width
        return (), 0

    def ask(self, request: Request) -> None:
        """Do what a key asks for."""
        job, value = request
        if job == "quit":
            self.leave(value)
        elif job == "suspend":
            self.action_suspend_process()
        elif job == "copy":
            line = self.asker.command(self.state)
            self.state = replace(self.state, message=line or "no command prints these maps")
            self.copy_to_clipboard(line)
        elif job != "type" or self.lasted < FAST:
            self.began = time.monotonic()
            self.waits = self.worker.ask(self.state, request)

    def give(self, number: int, change: Change | BaseException) -> None:
        """Take the worker's answer, from its thread."""
        with suppress(RuntimeError):  # the app has ended meanwhile
            self.call_from_thread(self.take_answer, number, change)

    def take_answer(self, number: int, change: Change | BaseException) -> None:
        """Show an answer, unless another one is waited for."""
        if number != self.waits:
            return
        self.waits, self.lasted = 0, time.monotonic() - self.began
        if isinstance(change, BaseException):
            self.error = change
            self.leave(1)
            return
        self.state = change(self.state)
        self.draw()

    def leave(self, status: int) -> None:
        """End, with a status."""
        self.status = self.status or status
        if self.is_open:
            self.exit(status, return_code=status)


def run(state: State, asker: Asker) -> int:
    """Browse until the reader leaves; return the status.

    The terminal is left as it was, whatever ends the program.
    """
    app = Browser(state, asker)
    with terminal_kept(app):
        app.run()
    if app.error is not None:
        raise app.error
    return app.status or app.return_code or 0


@contextmanager
def terminal_kept(app: Browser) -> Iterator[None]:
    """Answer signals by leaving, and put everything of the terminal back."""
    import termios

    names = (*SIGNALS, "SIGTSTP", "SIGCONT", "SIGWINCH", "SIGTTOU", "SIGTTIN")
    numbers = [getattr(signal, name) for name in names]
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = termios.tcgetattr(0)

    def leave(number: int, frame: object) -> None:
        app.status = app.status or 128 + number
        loop = getattr(app, "_loop", None)
        if app.is_open and loop is not None:
            loop.call_soon_threadsafe(app.leave, 128 + number)

    for name in SIGNALS:
        if handlers[getattr(signal, name)] != signal.SIG_IGN:
            signal.signal(getattr(signal, name), leave)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.write(2, RESET.encode())
        raise
    finally:
        with suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSANOW, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
