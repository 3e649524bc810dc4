"""The terminal: one widget that shows the lines of a state, and keys that change it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

from attnviz.core.notices import ask_at_pauses, pause
from attnviz.features.browse import draw, keys
from attnviz.features.browse.ask import Asker
from attnviz.features.browse.state import State, say

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK, WAIT = 0.1, 0.2  # seconds between two pictures of the spinner, and of work before it is shown
FAST = 0.25  # seconds of an answer at most that is asked for while its text is typed
MOST_WRITTEN = 8_000  # characters of a line that is written
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
RESET = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[<u"
    "\x1b[?1004l\x1b[?25h\x1b[?1049l"
)
"""What takes back everything that textual asks of a terminal."""


class View(Widget, can_focus=True):
    """The lines of the screen."""

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


class Line(Input):
    """A line that is written; of pasted text every line is taken."""

    def on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor("".join(c if c.isprintable() else " " for c in event.text))


class Lines(ModalScreen[tuple[str, ...] | None]):
    """Lines that are written below the view; enter takes them, escape leaves them."""

    BINDINGS: ClassVar[list[Any]] = [("escape", "dismiss")]

    def __init__(self, texts: dict[str, str], tell: Callable[[tuple[str, ...]], None]) -> None:
        super().__init__()
        self.texts, self.tell = texts, tell

    def compose(self) -> ComposeResult:
        with Vertical():
            for name, text in self.texts.items():
                with Horizontal():
                    yield Label(f" {name}: ")
                    yield Line(text, compact=True, select_on_focus=False, max_length=MOST_WRITTEN)

    @property
    def written(self) -> tuple[str, ...]:
        """The lines by now."""
        return tuple(" ".join(one.value.split()) for one in self.query(Line))

    def on_input_changed(self) -> None:
        self.tell(self.written)

    def on_input_submitted(self) -> None:
        self.dismiss(self.written if self.written[0] else None)


class Page(ModalScreen[None]):
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
    """The app: a state, its lines, and a worker."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("ctrl+c", "leave(130)", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]
    CSS = """
    Screen, View { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; align: left bottom; }
    Vertical, Horizontal, Horizontal Line { height: auto; width: 1fr; background: ansi_default; }
    VerticalScroll { background: ansi_default; padding: 0 1; margin: 1 0; scrollbar-size: 1 1; }
    """

    def __init__(self, state: State, asker: Asker) -> None:
        super().__init__(ansi_color=True)
        self.title = "attnviz browse"
        self.state, self.asker, self.view = state, asker, View()
        self.number, self.lock, self.stage = 0, threading.Lock(), ""
        self.waits, self.began, self.lasted = False, 0.0, 0.0
        self.error: BaseException | None = None
        self.status, self.is_open = 0, False
        asker.tell = partial(setattr, self, "stage")

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.is_open = True
        if self.status:  # a signal came while the screen opened
            self.action_leave(self.status)
            return
        self.view.focus()
        self.set_interval(TICK, self.tick)

    def on_resize(self, event: events.Resize) -> None:
        self.show(replace(self.state, size=(event.size.width, event.size.height)))

    def show(self, state: State) -> None:
        """Show a state; a page of it is shown once."""
        if state.page:
            self.push_screen(Page(Text("\n".join(state.page), no_wrap=False)))
        self.state = state = replace(state, page=())
        seconds = time.monotonic() - self.began
        if self.waits and seconds > WAIT:
            turn = SPINNER[int(seconds / TICK) % len(SPINNER)]
            state = say(state, f"{turn} {self.stage or 'working'} · {seconds:.1f} s · esc ends it")
        self.view.show(draw.screen(state))

    def tick(self) -> None:
        """Move the spinner; leave where the terminal is gone."""
        if self.waits:
            self.show(self.state)
        if not self.is_headless and not os.isatty(0):
            self.action_leave(129)

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
        if isinstance(step, str):
            getattr(self, f"do_{step}")()
        elif step is not None:
            self.ask(step)

    def do_quit(self) -> None:
        self.action_leave(0)

    def do_copy(self) -> None:
        line = self.asker.command(self.state)
        self.show(say(self.state, line or "no command prints these maps"))
        self.copy_to_clipboard(line)

    def do_keys(self) -> None:
        rows = Table.grid(padding=(0, 2))
        for key, _, does in keys.KEYS:
            rows.add_row(Text(key, "bold"), does)
        self.push_screen(Page(rows))

    def do_edit(self) -> None:
        def typed(texts: tuple[str, ...]) -> None:
            if all(texts) and self.lasted < FAST:
                self.ask(keys.write(texts))

        def done(texts: tuple[str, ...] | None) -> None:
            if texts is not None:
                self.ask(keys.write(texts))

        self.push_screen(Lines(self.asker.texts, typed), done)

    def do_save(self) -> None:
        name = f"attention-{self.state.name}" if self.state.matrix else "attention"

        def done(names: tuple[str, ...] | None) -> None:
            if names is not None:
                self.ask(keys.save(self.state, names[0]))

        self.push_screen(Lines({"save as": name}, lambda _: None), done)

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
            self.waits, self.lasted = False, time.monotonic() - self.began
            self.show(change(self.state))

    def action_leave(self, status: int) -> None:
        """End, with a status."""
        self.status = self.status or status
        if self.is_open:
            self.exit(status, return_code=status)


class EndedError(KeyboardInterrupt):
    """The reader no longer waits for the answer."""


@contextmanager
def pauses_between_modules() -> Iterator[None]:
    """Let work be given up before each module of torch, as it is within models that numpy runs."""
    if "torch" not in sys.modules:
        yield
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    hook = register_module_forward_pre_hook(pause)
    try:
        yield
    finally:
        hook.remove()


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

    others = ("SIGTSTP", "SIGCONT", "SIGWINCH", "SIGTTOU", "SIGTTIN")
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in (*SIGNALS, *others)}
    before = termios.tcgetattr(0)

    def leave(number: int, frame: object) -> None:
        app.status = app.status or 128 + number
        loop = getattr(app, "_loop", None)
        if app.is_open and loop is not None:
            loop.call_soon_threadsafe(app.action_leave, 128 + number)

    for name in SIGNALS:
        if handlers[name] != signal.SIG_IGN:
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
        for name, handler in handlers.items():
            signal.signal(getattr(signal, name), handler)
