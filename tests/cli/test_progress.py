import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import rich.console
from rich.console import Console

from attnviz.cli.outputs import progress_bar
from tests import invoke
from tests.invoke import OWN, attnviz


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal behind stderr would be shown."""
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(rich.console, "Console", lambda **_: terminal)
    return written


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """Each look at the clock finds that much time gone by."""
    now: Iterator[float] = iter(step * look for look in range(100_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))


def test_long_work_is_counted_with_its_rate(screen, monkeypatch):
    clock(monkeypatch, 0.01)
    with progress_bar() as advance:
        for _ in range(3):
            advance(1)
    assert "texts" not in screen.getvalue()
    clock(monkeypatch, 0.6)
    with progress_bar() as advance:
        for _ in range(3):
            advance(1)
    assert "3 texts" in screen.getvalue()
    assert "a second" in screen.getvalue()
    clock(monkeypatch, 60)
    with progress_bar(1200) as advance:
        advance(300)
    assert "300 of 1,200 texts" in screen.getvalue()
    assert "5 a second" in screen.getvalue()
    assert "0:03:00 left" in screen.getvalue()


def test_a_pipe_behind_stderr_gets_no_progress(monkeypatch):
    clock(monkeypatch, 5)
    done = attnviz("self", "a", "b", "c", *OWN, "-q", "-f", "none")
    assert (done.out, done.err) == (b"", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal behind stderr."""
    streams = {"StringIO": Terminal, "BytesIO": io.BytesIO, "TextIOWrapper": io.TextIOWrapper}
    monkeypatch.setattr(invoke, "io", SimpleNamespace(**streams))


@pytest.mark.usefixtures("on_terminal")
def test_a_terminal_is_told_what_a_page_takes_time_for(tmp_path):
    run = ("live", "-o", tmp_path / "live.html")
    assert attnviz(*run).err == (
        "note: packing the model, and reading sentences for what its heads do in other texts\n"
    )
    assert attnviz(*run, "-q").err == ""


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize(
    ("words", "records"),
    [
        (("self", "--input", "texts.txt", *OWN, "-f", "none"), 3),
        (("heads", "--input", "texts.txt", *OWN), 3),
        (("align", "pairs.tsv"), 2),
        (("cross", "--input", "pairs.tsv", "--score", "pairs.gold"), 2),
    ],
)
def test_a_terminal_is_shown_how_many_records_are_done(words, records, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_bytes(b"a b\n\xff\nc d e\n")  # one fails
    (tmp_path / "pairs.tsv").write_text("The cat .\tLe chat .\nThe dog .\tLe chien .\n")
    (tmp_path / "pairs.gold").write_text("0-0 1-1\n0-0 1-1\n")
    counted, totals = list[int](), list[int | None]()

    @contextmanager
    def bar(total: int | None = None) -> Iterator[Callable[[int], None]]:
        totals.append(total)
        yield counted.append

    monkeypatch.setattr("attnviz.cli.outputs.progress_bar", bar)
    attnviz(*words)
    assert (totals, sum(counted)) == ([records], records)
    attnviz(*words, "--quiet")
    assert len(totals) == 1
