"""`--show`: a picture in a terminal that answers, and a note in every other place."""

import base64
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.cli import terminal
from attnviz.cli.terminal import QUESTIONS
from tests.features.compare.test_history import folder_of, sample
from tests.invoke import OWN, attnviz, on_terminal
from tests.patience import HUNG, wait_until

ROOT = Path(__file__).parents[2]
CELL, ATTRIBUTES = b"\x1b[6;20;10t", b"\x1b[?62;22c"
ANSWERS = {
    "kitty": b"\x1b_Gi=31;OK\x1b\\" + CELL + ATTRIBUTES,
    "iterm2": b"\x1bP>|iTerm2 3.5.0\x1b\\" + CELL + b"\x1b[?62;4c",
    "sixel": b"\x1bP>|foot(1.16)\x1b\\" + CELL + b"\x1b[?62;4;22c",
}
NOTHING = {
    "names itself": (b"\x1bP>|VTE(7600)\x1b\\\x1b[?61;1c", "(VTE(7600)) shows no pictures"),
    "says little": (b"\x1b[?1;2c", "this terminal shows no pictures"),
    "is silent": (b"", "did not answer whether it shows pictures"),
}
SELF = ("self", "The cat sat", *OWN, "--show")
UNTRAINED = "note: untrained: 'multi-head' over random vectors shows the mechanism, not meaning\n"
PLAIN = {"TERM": "xterm-256color", "TMUX": "", "COLORTERM": ""}


@pytest.fixture
def coarse() -> None:
    """Pictures have their own size here."""


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)


def kitty_picture(shown: bytes) -> bytes:
    parts = re.findall(rb"\x1b_G([^;]*);([^\x1b]*)\x1b\\", shown)
    assert b"a=q" in parts[0][0]  # the question
    assert [b"m=1"] * (len(parts) - 2) == [one[0][-3:] for one in parts[1:-1]]
    assert parts[-1][0][-3:] == b"m=0"
    assert all(len(data) <= 4096 for _, data in parts)
    return base64.b64decode(b"".join(data for _, data in parts[1:]))


def iterm2_picture(shown: bytes) -> bytes:
    found = re.search(rb"\x1b]1337;File=inline=1;size=(\d+):(.*?)\a", shown, re.DOTALL)
    assert found
    data = base64.b64decode(found[2])
    assert len(data) == int(found[1])
    return data


def sixel_pixels(shown: bytes) -> np.ndarray:
    """The pixels of the one picture in what was shown, decoded slowly."""
    found = re.search(rb"\x1bP[\d;]*q(.*?)\x1b\\", shown, re.DOTALL)
    assert found
    size = re.match(rb'"1;1;(\d+);(\d+)', found[1])
    assert size
    wide, high = map(int, size.groups())
    pixels = np.zeros((high + 6, wide, 3))
    colors: dict[int, list[int]] = {}
    color, column, band = 0, 0, 0
    parts = re.finditer(rb"#(\d+)((?:;\d+){4})?|!(\d+)([?-~])|([?-~])|([$])|(-)", found[1])
    for part in parts:
        number, defined, times, repeated, single, back, down = part.groups()
        if number is not None:
            color = int(number)
            if defined:
                colors[color] = [int(one) for one in defined.split(b";")[2:]]
        elif back or down:
            column, band = 0, band + (6 if down else 0)
        else:
            bits = (repeated or single)[0] - 63
            end = column + int(times or 1)
            for row in range(6):
                if bits >> row & 1:
                    pixels[band + row, column:end] = colors[color]
            column = end
    return pixels[:high] * 2.55


def test_each_protocol_carries_the_same_picture():
    done = {name: on_terminal(*SELF, answer=answer, **PLAIN) for name, answer in ANSWERS.items()}
    for one in done.values():
        assert (one.status, one.err) == (0, UNTRAINED)
        assert b"rows attend to columns" in one.out
    png = kitty_picture(done["kitty"].out)
    assert png == iterm2_picture(done["iterm2"].out)
    picture = np.asarray(Image.open(BytesIO(png)).convert("RGB"), dtype=float)
    shown = sixel_pixels(done["sixel"].out)
    assert shown.shape == picture.shape
    assert np.abs(shown - picture).mean() < 4  # 256 colours, in per cent
    assert done["sixel"].out.index(b"rows attend") < done["sixel"].out.index(b"\x1bP")


@pytest.mark.slow
def test_pictures_fit_and_are_those_written(tmp_path):
    for columns in (60, 80):
        done = on_terminal(
            *("heads", "The cat sat", *OWN, "--show"),
            **{"answer": ANSWERS["kitty"], "columns": columns, **PLAIN},
        )
        picture = Image.open(BytesIO(kitty_picture(done.out)))
        assert 0.9 * columns * 10 < picture.width <= columns * 10
    done = on_terminal("self", "a b", "c d", *OWN, "--show", answer=ANSWERS["iterm2"], **PLAIN)
    assert done.out.count(b"\x1b]1337") == 1
    assert "--show shows the first result" in done.err
    files = ("--grid", tmp_path / "g.png", "--picture", tmp_path / "l.png")
    done = on_terminal(*SELF, *files, "--style", "title=Mine", answer=ANSWERS["iterm2"], **PLAIN)
    assert (done.status, done.out.count(b"\x1b]1337")) == (0, 2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["g.png", "l.png"]


@pytest.mark.parametrize("name", NOTHING)
def test_a_terminal_without_pictures_gets_a_line(name):
    answer, said = NOTHING[name]
    done = on_terminal(*SELF, answer=answer, **PLAIN)
    assert done.status == 0
    assert done.err.startswith("note: ")
    assert said in done.err
    assert done.err.endswith(f"; --heatmap FILE.png writes the picture\n{UNTRAINED}")
    assert done.err.count("\n") == 2
    before, _, after = done.out.partition(QUESTIONS)
    assert before.startswith(b"\x1b_Gi=31")
    assert after.startswith(b"\r\x1b[K")  # what such a terminal may have printed is gone
    assert not re.search(rb"\x1b[_P\]]", after)


def test_a_note_names_the_option_that_there_is(monkeypatch):
    monkeypatch.chdir(ROOT / "sample_inputs")
    for words in (("image", "shapes.png"), ("heads", "The cat", *OWN)):
        done = attnviz(*words, "--show", "-f", "none")
        option = re.search(r"; (--picture \w+:)FILE.png writes the picture\n", done.err)
        assert option, done.err


def test_a_pipe_gets_no_question(tmp_path, monkeypatch):
    done = attnviz(*SELF)
    assert b"\x1b" not in done.out
    assert done.err == (
        "note: --show draws in a terminal, and stdout is none; --heatmap FILE.png writes the "
        f"picture\n{UNTRAINED}"
    )
    for kind in ("dumb", "linux"):
        assert b"\x1b[c" not in on_terminal(*SELF, **(PLAIN | {"TERM": kind})).out

    monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    monkeypatch.setattr(terminal, "ask_terminal", lambda questions: ANSWERS["sixel"])
    monkeypatch.setattr(
        terminal.os, "get_terminal_size", lambda file: terminal.os.terminal_size((80, 24))
    )
    monkeypatch.setattr(
        sys, "stdout", type("Terminal", (), {"isatty": lambda s: True, "fileno": lambda s: 1})()
    )
    monkeypatch.setenv("TERM", "foot")
    assert "pip install 'attnviz[terminal]'" in terminal.ask_screen().lack


PAIR = ("The red car.", "La voiture rouge.")
COMMANDS = {
    "cross": ("cross", *PAIR),
    "image": ("image", ROOT / "sample_inputs" / "shapes.png"),
    "ablate": ("ablate", *PAIR, "--token", "red"),
    "why": ("why", "The cat sat", "--model", "pocket-lm"),
}


@pytest.mark.parametrize("command", [*COMMANDS, "history"])
def test_every_command_with_a_picture_shows_it(command, tmp_path):
    arguments = COMMANDS.get(command) or (
        "compare",
        folder_of(tmp_path / "s", sample(0), sample(9)),
    )
    done = on_terminal(*arguments, "--show", "-q", answer=ANSWERS["iterm2"], **PLAIN)
    assert (done.status, done.err) == (0, "")
    assert Image.open(BytesIO(iterm2_picture(done.out))).width > 200


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_inside_tmux_nothing_is_left_on_the_screen(tmp_path):
    command = f"{sys.executable} -m attnviz self 'a b' --mechanism multi-head --show; echo done"
    tmux = ("tmux", "-f", "/dev/null", "-S", str(tmp_path / "socket"))

    def ask(*words: str) -> str:
        run = subprocess.run([*tmux, *words], capture_output=True, text=True, timeout=HUNG)
        return run.stdout

    ask("new-session", "-d", "-x", "120", "-y", "40", "sh", "-c", f"{command}; sleep {HUNG}")
    try:
        wait_until(lambda: "done" in ask("capture-pane", "-p"))
        screen, title = ask("capture-pane", "-p"), ask("display-message", "-p", "#{pane_title}")
    finally:
        ask("kill-server")
    assert "Gi=31" not in screen + title
    assert "note: " in screen
    assert "rows attend to columns" in screen
