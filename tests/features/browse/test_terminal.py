"""Browsing in a terminal: textual's own pilot, and a real terminal of its own."""

import asyncio
import base64
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.core.notices import pause
from attnviz.features.browse.ask import Subject, Subjects
from attnviz.features.browse.draw import plain, screen
from attnviz.features.browse.entry import is_dark, open_first
from attnviz.features.browse.keys import KEYS
from attnviz.features.browse.state import begin
from attnviz.storage.texts import Text
from tests.features.browse.test_screens import saved
from tests.invoke import attnviz as run
from tests.invoke import imported
from tests.patience import HUNG, wait_until

TEXT = "The cat sat on the mat because it was tired"
SAMPLES = Path(__file__).parents[3] / "sample_inputs"
PROGRAM = (sys.executable, "-m", "attnviz")
events = pytest.importorskip("textual.events")
WorkerFailed = pytest.importorskip("textual.worker").WorkerFailed


def drive(state, act, size=(80, 24)):
    """What an action of a pilot returns, in an app without a terminal."""
    from attnviz.features.browse.app import Browser

    async def work():
        app = Browser(state)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            return await act(app, pilot)

    return asyncio.run(work())


async def settle(app, pilot):
    """Wait for what a model is asked."""
    while app.worker:
        await asyncio.sleep(0.005)
        await pilot.pause()


def text_of(app):
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.fixture
def live():
    origin = attnviz.attend("a").again.origin
    return open_first(Subjects([Subject(origin, "self", Text("0", TEXT))]), None)


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (200, 60)])
def test_the_app_shows_what_the_state_draws(size, live):
    async def act(app, pilot):
        await pilot.press("n", "tab", "down", "p", "s", "question_mark")
        first = text_of(app)
        await pilot.press("down", "escape", "enter", "right")
        return first, text_of(app), app.state

    page, shown, state = drive(live, act, size)
    assert all(does[:20] in page for _, _, does in KEYS[: size[1] - 10])
    assert (state.size, state.matrix, state.words, state.special) == (size, True, False, False)
    assert "\n".join(map(plain, screen(state))) == shown
    assert ("│" in page, "│" in shown) == (False, size[0] >= 100)


def test_resizing_keeps_the_place(live):
    async def act(app, pilot):
        await pilot.press("n", "tab", "enter", "right")
        before = app.state
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        return before, app.state, text_of(app)

    before, after, shown = drive(live, act)
    assert replace(after, size=before.size, message="") == replace(before, message="")
    assert {len(line) for line in shown.split("\n")} == {60}


def test_the_text_is_edited_and_answered_while_it_is_typed(live, monkeypatch):
    monkeypatch.setattr("attnviz.features.browse.app.FAST", np.inf)  # however busy the machine

    async def act(app, pilot):
        await pilot.press("/", *(["backspace"] * 5), "s", "a", "d")
        await settle(app, pilot)
        typed, screens = app.state, [len(app.screen_stack)]
        await pilot.press("enter")
        await settle(app, pilot)
        return typed, app.state, [*screens, len(app.screen_stack)]

    typed, state, screens = drive(live, act)
    assert typed.seen.text == state.seen.text == TEXT.replace("tired", "sad")
    assert screens == [2, 1]


def test_one_slow_answer_does_not_end_live_edit(live):
    async def act(app, pilot):
        asked = []
        app.ask = asked.append  # what takes how long is said here, not measured
        await pilot.press("/")
        counts = []
        for seconds in (9, 9, 9, 0.1, 9):
            app.lasted.append(seconds)
            await pilot.press("x")
            counts.append(len(asked))
        return counts

    assert drive(live, act) == [1, 2, 2, 3, 4]


def test_a_line_is_written_pasted_and_corrected(live, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnviz.features.browse.app.FAST", 0)

    async def act(app, pilot):
        await pilot.press("/", "ctrl+u", "s", "home", "delete", "X", "end", "ctrl+w", "X")
        app.screen.focused.post_message(events.Paste(" new\nline\x1b"))
        await pilot.pause()
        line = text_of(app).split("\n")[-1]
        await pilot.press("enter")
        await settle(app, pilot)
        text = app.state.seen.text
        await pilot.press("/", "escape", "o", "ctrl+u", *"a.tsv", "enter")
        await settle(app, pilot)
        return line, text, app.state

    line, text, state = drive(live, act)
    assert line.rstrip() == " text: X new line"
    assert (text, state.seen.text) == ("X new line", "X new line")
    assert state.message == "wrote a.tsv"
    assert (tmp_path / "a.tsv").is_file()


def test_escape_ends_slow_work(live, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def slow(*_, **__):
        begun.set()
        try:
            wait_until(lambda: pause() or False)
        finally:
            ended.set()

    monkeypatch.setattr(Subject, "why", slow)

    async def act(app, pilot):
        await pilot.press("w")
        await asyncio.to_thread(begun.wait, HUNG)
        app.began -= 1
        app.tick()
        doing = text_of(app)
        await pilot.press("down", "escape")
        await asyncio.to_thread(ended.wait, HUNG)
        return doing, app.state, text_of(app)

    doing, after, shown = drive(live, act)
    assert "esc ends it" in doing
    assert after.layer == min(live.layer + 1, 3)  # keys move meanwhile
    assert "stopped" in shown


def test_a_bug_of_a_worker_is_no_silent_end(live, monkeypatch):
    monkeypatch.setattr(Subject, "why", lambda *_: 1 / 0)

    async def act(app, pilot):
        await pilot.press("w")
        await app.workers.wait_for_complete()

    with pytest.raises(WorkerFailed, match="division by zero"):
        drive(live, act)


def test_clicks_choose_heads_tokens_and_keys(live):
    async def act(app, pilot):
        lines = text_of(app).split("\n")
        word = lines[1].index("mat")
        await pilot.click(offset=(word, 1))
        chosen = app.state.item.query_tokens[app.state.query].text
        row = next(y for y, line in enumerate(lines) if line.startswith("1"))
        await pilot.click(offset=(4, row))
        head = app.state.name
        await pilot.click(offset=(lines[-1].index("enter"), 23))
        return chosen, head, app.state.matrix

    assert drive(live, act) == ("mat", "1.0", True)


def test_markup_in_tokens_is_text():
    state = replace(begin(saved(["[red]a[/]", "[/x]", "\x1b[31mb", "c"])), size=(80, 24))

    async def act(app, pilot):
        await pilot.press("tab", "down")
        return text_of(app), app.export_screenshot()

    shown, picture = drive(state, act)
    assert "[red]a[/]" in shown
    assert "␛[31mb" in shown
    assert "\x1b" not in picture


def test_no_terminal_is_one_line_and_status_2():
    done = run("browse", TEXT)
    assert done.status == 2
    assert "needs a terminal" in done.mistake
    assert "needs a terminal" in run("self", TEXT, "--browse").mistake
    for arguments in (("--help",), ("browse", "--help"), ("self", "a b", "-q")):
        assert "textual" not in imported(*arguments)[0]


class Terminal:
    """A program on a terminal of its own, whose every byte is kept."""

    def __init__(self, *arguments: str, command: Sequence[str] = PROGRAM, **variables: str):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.out = b""
        # The ground is said, so that no answer of the terminal is waited for.
        usual = {"TERM": "xterm-256color", "HF_HUB_OFFLINE": "1", "COLORFGBG": "15;0"}
        self.program = subprocess.Popen(
            [*command, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=os.environ | usual | variables,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read_until(self, condition: Callable[[], bool]) -> None:
        """Read until something holds, or the program has ended."""

        def holds() -> bool:
            if select.select([self.master], [], [], 0.005)[0]:
                self.out += os.read(self.master, 4096)
            return condition() or self.program.poll() is not None

        wait_until(holds)

    def opened(self) -> None:
        """Wait for the whole screen."""
        self.read_until(lambda: b"keys" in self.out and b"quit" in self.out)

    def send(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def state(self) -> str:
        """How the system sees it: T is stopped."""
        return Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def end(self) -> int:
        """The status, once it has ended; the terminal is as it was."""
        self.read_until(lambda: False)
        self.check()
        os.close(self.master)
        os.close(self.slave)
        return self.program.wait()

    def check(self) -> None:
        """Every mode that was set is taken back, and keys are echoed as before."""
        while select.select([self.master], [], [], 0)[0]:
            self.out += os.read(self.master, 4096)
        assert termios.tcgetattr(self.slave) == self.before
        for mode in (1049, 1000, 1003, 1006, 2004, 1004, 2048):
            on, off = (self.out.rfind(f"\x1b[?{mode}{end}".encode()) for end in "hl")
            assert on <= off, mode
        for mode in (25, 7):  # the cursor and wrapping, which are on in a shell
            off, on = (self.out.rfind(f"\x1b[?{mode}{end}".encode()) for end in "lh")
            assert off <= on, mode
        assert self.out.count(b"\x1b[<u") >= len(re.findall(rb"\x1b\[>\d+u", self.out))


@pytest.mark.core
@pytest.mark.parametrize(
    ("how", "status"),
    [
        (b"q", 0),
        (signal.SIGTERM, 143),
        pytest.param(b"\x03", 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_the_terminal_is_left_as_it_was(how, status):
    terminal = Terminal("browse", TEXT)
    terminal.opened()
    if isinstance(how, bytes):
        terminal.send(b"\x1b[B\t" + how)
    else:
        os.kill(terminal.program.pid, how)
    assert terminal.end() == status
    assert b"Traceback" not in terminal.out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_moment(seed):
    chance = np.random.default_rng(seed)
    number = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP][seed % 3]
    terminal = Terminal("browse", TEXT)
    # The first bytes are those of the wait for the model, then come modes, then screens.
    many = int(chance.choice([1, 30, 200, 1000, 5000, 30_000]) * chance.random())
    terminal.send(b"nxnx\t\tzw")
    terminal.read_until(lambda: len(terminal.out) > many)
    if terminal.program.poll() is None:
        os.kill(terminal.program.pid, number)
    # Nothing answers SIGHUP before the program has begun to write.
    assert terminal.end() in {128 + number, 128 + number if b"\x1b" in terminal.out else -number}
    assert b"Traceback" not in terminal.out


@pytest.mark.parametrize(
    ("answer", "dark"), [(b"ffff/ffff/f0f0", False), (b"1e1e/1e/2", True), (b"", True)]
)
def test_the_terminal_says_whether_its_ground_is_dark(answer, dark, monkeypatch):
    told = b"\x1b]11;rgb:" + answer + b"\x1b\\" if answer else b""
    monkeypatch.delenv("COLORFGBG", raising=False)
    monkeypatch.setattr("attnviz.features.browse.entry.ask_terminal", lambda _: told + b"\x1b[?62c")
    assert is_dark() == dark
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert not is_dark()


def test_stopped_and_back():
    terminal = Terminal("browse", TEXT)
    terminal.opened()
    terminal.send(b"\x1a")
    terminal.read_until(lambda: terminal.state() == "T")
    terminal.check()
    opened = terminal.out.count(b"\x1b[?1049h")
    os.kill(terminal.program.pid, signal.SIGCONT)
    terminal.read_until(lambda: terminal.out.count(b"\x1b[?1049h") > opened)
    terminal.send(b"q")
    assert terminal.end() == 0


@pytest.mark.slow
def test_a_closed_terminal_ends_it():
    terminal = Terminal("browse", TEXT)
    terminal.opened()
    os.close(terminal.slave)
    os.close(terminal.master)
    assert terminal.program.wait(HUNG) != 0


def test_the_command_of_the_view_is_copied(tmp_path):
    saved().save(tmp_path / "m.npz")
    terminal = Terminal("browse", str(tmp_path / "m.npz"))
    terminal.opened()
    terminal.send(b"y")
    terminal.read_until(lambda: b"\x1b]52;c;" in terminal.out and b"\a" in terminal.out)
    terminal.send(b"q")
    assert terminal.end() == 0
    copied = base64.b64decode(re.search(rb"\x1b\]52;c;([^\a]*)\a", terminal.out)[1]).decode()
    assert copied.startswith(f"attnviz render {tmp_path / 'm.npz'} --head")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"COLORTERM": "truecolor"}, b"48;2;"),
        ({"COLORTERM": ""}, b"48;5;"),
        ({"NO_COLOR": "1"}, b""),
    ],
)
def test_colours_are_those_of_the_terminal(variables, said):
    terminal = Terminal("browse", TEXT, **variables)
    terminal.opened()
    terminal.send(b"q")
    assert terminal.end() == 0
    if said:
        assert said in terminal.out
    else:
        assert not re.search(rb"\x1b\[[\d;]*[34]8;[25];", terminal.out)


@pytest.mark.slow
def test_maps_of_a_pipe_and_results_of_python_are_browsed(tmp_path):
    saved().save(tmp_path / "m.npz")
    program = f"cat {tmp_path / 'm.npz'} | {sys.executable} -m attnviz browse -"
    terminal = Terminal("-c", program, command=["sh"])
    terminal.opened()
    terminal.send(b"q")
    assert terminal.end() == 0
    program = f"import attnviz; attnviz.attend({TEXT!r}).browse(); print('after')"
    terminal = Terminal("-c", program, command=[sys.executable])
    terminal.opened()
    terminal.send(b"q")
    assert terminal.end() == 0
    assert b"after" in terminal.out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["self", "image"])
def test_a_result_is_browsed_behind_its_other_outputs(command, tmp_path):
    subject = "The cat sat on the mat" if command == "self" else str(SAMPLES / "shapes.png")
    file = tmp_path / "a.json"
    terminal = Terminal(command, subject, "--browse", "-o", str(file), "-f", "none")
    terminal.opened()
    assert file.is_file()
    terminal.send(b"xq")
    assert terminal.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", ["draw.screen", "ask.Subject.why"])
def test_a_bug_leaves_a_traceback_and_the_terminal(place):
    program = (
        "import sys; from attnviz.features.browse import ask, draw\n"
        "from attnviz.__main__ import main\n"
        f"real = {place}\n"
        "def bad(*given):\n"
        "    if getattr(given[0], 'matrix', True): raise ZeroDivisionError\n"
        "    return real(*given)\n"
        f"{place} = bad; sys.argv = ['attnviz', 'browse', 'The cat sat on the mat']; main()"
    )
    terminal = Terminal("-c", program, command=[sys.executable])
    terminal.opened()
    terminal.send(b"w" if "why" in place else b"\r")
    assert terminal.end() == 1
    assert b"ZeroDivisionError" in terminal.out
