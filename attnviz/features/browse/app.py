"""The terminal: one widget that shows the lines of a state, and keys that change it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, TextIO

from rich.cells import cell_len
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from textual import containers, events, work
from textual.app import App, ComposeResult, RenderResult
from textual.binding import Binding
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Label, Static
from textual.worker import Worker, get_current_worker

from attnviz.core.notices import ask_at_pauses, notices_to, pauses_between_modules
from attnviz.features.browse import draw, keys
from attnviz.features.browse.output import command_of, save
from attnviz.features.browse.state import State

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK, WAIT = 0.1, 0.2  # seconds between two pictures of the spinner, and of work before it is shown
FAST = 0.25  # seconds of an answer at most that is asked for while its text is typed
MOST_WRITTEN = 8_000  # characters of a line that is written
ENDS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
HANDLED = *ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, signal.SIGTTOU, signal.SIGTTIN
"""Signals that textual and the app answer; what answered them before is put back."""


class TerminalOutput:
    """The terminal that textual's thread writes to; one that was closed takes all and shows none.

    Else the thread would end, and the app would wait for ever for room in its queue.
    """

    def __init__(self, file: TextIO) -> None:
        self.fileno, self._file = file.fileno, file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class TerminalDriver(LinuxDriver):
    """Textual's driver with such an output."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._file: Any = TerminalOutput(self._file)


class StateView(Widget):
    """The lines of a state; those that changed are drawn."""

    ALLOW_SELECT = False
    lines: reactive[list[draw.Line]] = reactive(list, repaint=False)

    def render_line(self, y: int) -> Strip:
        line = self.lines[y : y + 1]
        return Strip([Segment(span.text, span.style) for spans in line for span in spans])

    def watch_lines(self, before: list[draw.Line], lines: list[draw.Line]) -> None:
        pairs = enumerate(zip_longest(before, lines))
        if changes := [Region(0, y, self.size.width, 1) for y, (old, new) in pairs if old != new]:
            self.refresh(*changes)


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
        with containers.Vertical():
            for name, text in self.lines.items():
                line = TextLine(text, compact=True, select_on_focus=False, max_length=MOST_WRITTEN)
                yield containers.Horizontal(Label(f" {name}: "), line)

    def texts(self) -> tuple[str, ...]:
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
        yield containers.VerticalScroll(Static(self.text))

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("up", "down", "pageup", "pagedown", "home", "end"):
            event.stop()
            self.dismiss()


class Browser(App[None], inherit_bindings=False):
    """The app: a state, its lines, and a worker that asks the model."""

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

    def __init__(self, state: State) -> None:
        super().__init__(driver_class=TerminalDriver, ansi_color=True)
        self.title = "attnviz browse"
        self.state, self.view, self.stage, self.began = state, StateView(), "", 0.0
        self.worker: Worker[None] | None = None  # what asks the model
        self.lock = threading.Lock()  # what was given up still runs to its next pause
        self.lasted = deque([0.0], maxlen=3)  # the fastest tells what an idle machine takes

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.set_interval(TICK, self.tick)

    def on_resize(self, event: events.Resize) -> None:
        self.show(replace(self.state, size=(event.size.width, event.size.height)))

    def show(self, state: State) -> None:
        """Show a state; a page of it is shown once."""
        if state.page:
            self.push_screen(TextPage(Text(state.page)))
        self.state = state = replace(state, page="")
        seconds = time.monotonic() - self.began
        if self.worker and seconds > WAIT:
            turn = SPINNER[int(seconds / TICK) % len(SPINNER)]
            state = state.say(f"{turn} {self.stage or 'working'} · {seconds:.1f} s · esc ends it")
        self.view.lines = draw.screen(state)

    def tick(self) -> None:
        """Move the spinner; leave where the terminal is gone."""
        if self.worker:
            self.show(self.state)
        if not (self.is_headless or os.isatty(0)):
            self.action_leave(129)

    def on_key(self, event: events.Key) -> None:
        if self.screen is not self.view.screen:
            return
        event.prevent_default()
        if event.key == "escape" and self.worker:
            self.worker.cancel()
            self.worker = None
            self.show(self.state.say("stopped"))
        else:
            self.take((event.character if event.character in keys.STEPS else event.key) or "")

    def on_mouse_scroll_up(self) -> None:
        self.take("up")

    def on_mouse_scroll_down(self) -> None:
        self.take("down")

    def on_click(self, event: events.Click) -> None:
        x = event.screen_x
        for span in self.view.lines[event.screen_y] if self.screen is self.view.screen else []:
            if x < (width := cell_len(span.text)):
                self.take(span.act)
                break
            x -= width

    def take(self, act: keys.Act) -> None:
        self.show(self.state.say(""))
        step = keys.press(self.state, act)
        if isinstance(step, State):
            self.show(step)
        elif isinstance(step, str):
            getattr(self, f"action_{step}")()
        else:
            self.ask(step)

    def action_leave(self, status: int = 0) -> None:
        self.exit(return_code=status)

    def action_copy(self) -> None:
        line = command_of(self.state)
        self.show(self.state.say(line or "no command prints these maps"))
        self.copy_to_clipboard(line)

    def action_keys(self) -> None:
        rows = Table.grid(padding=(0, 2))
        for key, _, does in keys.KEYS:
            rows.add_row(Text(key, "bold"), does)
        self.push_screen(TextPage(rows))

    def action_save(self) -> None:
        name = f"attention-{self.state.name}" if self.state.matrix else "attention"
        self.write({"save as": name}, lambda state, names: {"message": save(state, names[0])})

    def action_edit(self) -> None:
        texts = self.state.subject.texts
        self.write(texts, lambda state, new: keys.read(state.subject.with_texts(new)), FAST)

    def write(self, lines: dict[str, str], answer: Any, most_seconds: float = 0.0) -> None:
        """Let lines be written, and answered; also while they are, where that is fast."""

        def take(texts: tuple[str, ...] | None) -> None:
            if texts and texts[0]:
                self.ask(partial(answer, self.state, texts))

        def tell(texts: tuple[str, ...]) -> None:
            is_new = self.worker or texts != (*self.state.subject.texts.values(),)
            if all(texts) and is_new and min(self.lasted) < most_seconds:
                take(texts)

        self.push_screen(WriteLines(lines, tell), take)

    def ask(self, task: keys.Work) -> None:
        """Do work in a thread, and give up what is still done."""
        self.began, self.stage = time.monotonic(), ""
        self.worker = self.do(task, self.state)

    @work(thread=True, exclusive=True)
    def do(self, task: keys.Work, state: State) -> None:
        worker, tell = get_current_worker(), partial(setattr, self, "stage")

        def check() -> None:
            if worker.is_cancelled:
                raise asyncio.CancelledError

        with self.lock, ask_at_pauses(check), pauses_between_modules(), notices_to(tell):
            check()
            answer = keys.perform(state, task)
            check()
        self.call_from_thread(self.take_answer, worker, state, *answer)

    def take_answer(self, worker: object, old: State, new: State, changes: keys.Changes) -> None:
        """Show an answer, unless another one is waited for."""
        if worker is self.worker:
            self.worker = None
            self.lasted.append(time.monotonic() - self.began)
            self.show(new if self.state is old else self.state.see(**changes))


def run(state: State) -> int:
    """The status, once the reader leaves; the terminal is left as it was, whatever ends it."""
    # Not asyncio.run(), which would wait for a model that still runs.
    app, loop = Browser(state), asyncio.new_event_loop()
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    for number in ENDS:
        if handlers[number] != signal.SIG_IGN:
            loop.add_signal_handler(number, app.action_leave, 128 + number)
    try:
        app.run(loop=loop)
    finally:
        loop.close()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return app.return_code or 0
