"""Each invariant can fail, and so can what the campaign sees a run with."""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from attnviz.core.registry import FORMATS
from fuzz import run as harness
from fuzz.invariants import FILES, INVARIANTS, READERS, WORK, broken_invariants, page
from fuzz.run import Case, Ran, TookTooLong, observe, prepare, run

GOOD = Case((("self", "a b"), ("-o", "out.json")), {"t.txt": b"a"}, valid=True)


def ran(case: Case = GOOD, **more: Any) -> Ran:
    """A run as it ought to be, but for what is said."""
    usual: dict[str, Any] = {
        "status": 0, "out": b"", "err": b"", "error": None, "frame": "", "acts": (), "seconds": 0.0,
        "resident": 0,
        "after": {WORK + "t.txt": b"a", WORK + "out.json": b"{}"},
    }  # fmt: skip
    return Ran(case, **(usual | more))


BREAKING: dict[str, tuple[Ran, ...]] = {
    "ends_by_itself": (ran(error=TookTooLong("SIGPROF")),),
    "raises_nothing": (ran(error=KeyError("x")),),
    "ends_with_a_known_status": (ran(status=5), ran(status=-11)),
    "succeeds_where_it_must": (ran(status=2, err=b"attnviz: error: no\n"),),
    "says_why_it_failed": (ran(Case(()), status=1), ran(Case(()), status=130, err=b" \n")),
    "says_it_plainly": (
        ran(err=b"Traceback (most recent call last):\n"),
        ran(err=b"/x.py:3: RuntimeWarning: invalid value\n"),
        ran(err=b"thread '<unnamed>' panicked at x\n"),
        ran(err=b"note: a\x1b[31mb\n"),
        ran(err="note: a\u202eb\n".encode()),
        ran(err=b"something else\n"),
        ran(err=b"note: " + b"a" * 30_000 + b"\n"),
    ),
    "tells_one_error": (
        ran(Case(()), status=2, err=b"attnviz: error: a\nattnviz: error: b\n"),
        ran(Case(()), status=2, err=b"attnviz: error: a\n", out=b"x"),
    ),
    "keeps_the_terminal_clean": (
        ran(out=b"a\x1b[0m"),
        ran(out="\u2066".encode()),
        ran(out=b"\xff"),
    ),
    "writes_its_format": (
        ran(Case((("self", "-f", "json"),)), out=b"{"),
        ran(Case((("self", "-f", "tsv"),)), out=b"a\tb\nc\n"),
        ran(Case((("self", "-f", "none"),)), out=b"x"),
        ran(after={WORK + "out.json": b"{"}),
        ran(after={WORK + "out.pdf": b"%PDF-1.4\n"}),
        ran(after={WORK + "out.png": b"\x89PNG"}),
    ),
    "leaves_inputs_alone": (ran(after={WORK + "t.txt": b"b"}), ran(after={})),
    "writes_nowhere_else": (ran(after={WORK + "t.txt": b"a", WORK + "other.json": b"{}"}),),
    "writes_what_was_asked": (
        ran(after={WORK + "t.txt": b"a"}),
        ran(after={WORK + "t.txt": b"a", WORK + "out.tsv": b""}),
    ),
    "leaves_nothing_behind": (
        ran(after={WORK + ".out.json.unfinished": b""}),
        ran(after={"tmp/x": b""}),
    ),
    "asks_no_network": (ran(acts=("socket.connect",)),),
    "runs_nothing_foreign": (ran(acts=("exec",)), ran(acts=("pickle.find_class", "exec"))),
    "ignores_no_empty_value": (ran(Case((("self", "a b"), ("--labels", "")))),),
    "picks_fields_that_exist": (ran(Case((("self", "a b"), ("--fields", "head.layer")))),),
    "stays_small": (ran(resident=1 << 40),),
}


def test_good_runs_and_every_format():
    assert (broken_invariants(ran()), set(READERS)) == ([], set(FORMATS))
    assert {entry.suffix for entry in FORMATS.values() if entry.suffix} <= set(FILES)


@pytest.mark.parametrize("name", INVARIANTS)
def test_an_invariant_can_fail(name):
    for bad in BREAKING[name]:
        assert INVARIANTS[name](bad), bad
    assert INVARIANTS[name](ran()) is None


def test_acts_of_pages_are_refused():
    page(b"<!doctype html><html><p>a</p></html>")
    for bad in (
        b'<script src="https://a/x.js"></script>',
        b'<img src="//a">',
        b"<p onclick=x>",
        b"<iframe>",
    ):
        with pytest.raises(AssertionError):
            page(b"<html>" + bad + b"</html>")


def seen(work: Callable[[], Any], tmp_path: Path, files: dict[str, bytes] | None = None) -> Ran:
    """A run of something else than the program."""
    case = Case((("x",),), files or {})
    prepare(tmp_path, case.files)
    return observe(tmp_path, case, lambda: work() or 0)


def test_what_is_printed_or_warned_of_is_seen(tmp_path):
    found = seen(lambda: os.write(2, b"panic\n") and os.write(1, b"out") and None, tmp_path)
    assert (found.out, found.err) == (b"out", b"panic\n")
    for number in range(2):
        found = seen(
            lambda: warnings.warn("odd", RuntimeWarning, stacklevel=1), tmp_path / str(number)
        )
        assert b"RuntimeWarning: odd" in found.err
        assert "says_it_plainly" in dict(broken_invariants(found))


def test_what_stays_in_folders_is_seen(tmp_path):
    def litter() -> None:
        Path(".out.json.abc").touch()
        Path("../up.json").touch()
        Path(tempfile.mkstemp()[1]).touch()

    wrong = dict(broken_invariants(seen(litter, tmp_path)))
    assert {"leaves_nothing_behind", "writes_nowhere_else"} <= set(wrong)


def test_sockets_pickles_and_programs_are_seen(tmp_path):
    def act() -> None:
        Path("own.py").write_text("value = 1")
        exec(compile(Path("own.py").read_text(), str(Path("own.py").resolve()), "exec"), {})
        pickle.loads(pickle.dumps(Path))
        subprocess.run(["true"], check=True)
        with socket.socket() as made, suppress(OSError):
            made.connect(("127.0.0.1", 1))

    found = seen(act, tmp_path / "a")
    assert {"exec", "pickle.find_class", "subprocess.Popen", "socket.connect"} <= set(found.acts)
    assert {"asks_no_network", "runs_nothing_foreign"} <= set(dict(broken_invariants(found)))
    assert seen(lambda: None, tmp_path / "b").acts == ()


def test_an_endless_run_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.05)

    def endless() -> None:
        while True:
            pass

    assert "ends_by_itself" in dict(broken_invariants(seen(endless, tmp_path)))


@pytest.mark.slow
def test_a_run_that_fills_the_memory_is_held_back(tmp_path):
    # In a process of its own: one that has been larger does not grow by what it takes again.
    code = f"""
from pathlib import Path
from fuzz import invariants
from tests.fuzz.test_invariants import broken_invariants, harness, seen
invariants.MOST_RESIDENT = 32 << 20
found = seen(lambda: bool(b"x" * (64 << 20)) and None, Path({str(tmp_path)!r}, "a"))
assert "stays_small" in dict(broken_invariants(found))
found = seen(lambda: bytearray(2 * harness.ROOM) and None, Path({str(tmp_path)!r}, "b"))
assert isinstance(found.error, MemoryError)
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@pytest.mark.parametrize("option", ["--weights", "--input"])
def test_a_file_of_the_same_name_is_read_anew(option):
    words = ("self", option, "a.json" if option == "--weights" else "a.txt", "-f", "json")
    told = []
    for text in ("one two", "three four"):
        saved = run(Case((("self", text), ("-f", "json")))).out
        told.append(run(Case((words,), {"a.json": saved, "a.txt": text.encode()})).out)
    assert b"one" in told[0]
    assert b"three" in told[1]


def test_the_real_command_line_is_run():
    done = run(
        Case((("self", "the cat"), ("-f", "json"), ("-o", "out.tsv")), {"t.txt": b""}, valid=True)
    )
    assert broken_invariants(done) == []
    assert done.out.startswith(b"{")
    assert WORK + "out.tsv" in done.after
    wrong = run(Case((("self", "the cat"), ("--sice", "3")), valid=True))
    assert wrong.status == 2
    assert list(dict(broken_invariants(wrong))) == ["succeeds_where_it_must"]
