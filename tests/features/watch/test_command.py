"""`attnviz watch`: a program runs as Python runs it, and its attention is written."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attnviz as package
from attnviz.cli.stderr import interrupt
from tests.invoke import Done, attnviz, fresh
from tests.patience import HUNG

SAMPLES = Path(__file__).parents[3] / "sample_inputs"
PROBE = """'''A doc.'''
import pickle, sys
class Own: pass
assert type(pickle.loads(pickle.dumps(Own()))) is Own
assert vars(sys.modules["__main__"]) is globals()
print(__name__, __doc__, __package__, __spec__ and __spec__.name, type(__loader__).__name__)
print(__file__, __builtins__, __cached__ and "cached", sys.argv, sys.path[0], sys.stdin.read())
print(sorted(set(globals()) - {"__annotations__"}))
"""
ATTENDS = """
import os, sys, torch
torch.manual_seed(0)
q, k = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8)
attend = torch.nn.functional.scaled_dot_product_attention
print(attend(q, k, k).sum().item() != 0)
"""
"""One call, 4 queries over 5 keys, of three items and two heads."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return tmp_path


def script(text: str, name: str = "program.py") -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    return name


def by_python(*words: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """What Python makes of a program: the exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, *words], input=stdin, capture_output=True, check=False, timeout=HUNG
    )
    return done.returncode, done.stdout, done.stderr.decode()


def watched(done: Done) -> tuple[int, bytes, str]:
    """The same of a program that was watched and attended to nothing."""
    err, _, said = done.err.rpartition("attnviz: error: no attention was seen: ")
    assert said.count("\n") == 1
    return 0 if done.status == 4 else done.status & 0xFF, done.out, err


KEPT = ("-q", "-o", "seen.npz")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("program.py", ["--html", "-o", "--", "-q", "-m", "é *"]),
        *((name, []) for name in ("sub/program.py", "link.py", "./program.py")),
    ],
)
def test_a_script_finds_what_python_gives_it(name, behind):
    script(PROBE, "sub/program.py")
    script(PROBE)
    Path("link.py").symlink_to("sub/program.py")
    for before in ([], ["--"]):
        done = attnviz("watch", *KEPT, *before, name, *behind, stdin=b"given")
        assert watched(done) == by_python(name, *behind, stdin=b"given")


def test_a_module_finds_what_python_gives_it():
    script(PROBE, "watched_package/__main__.py")
    script(PROBE, "watched_module.py")
    for name in ("watched_module", "watched_package"):
        done = attnviz("watch", *KEPT, "--", "-m", name, "-o", "x")
        assert watched(done) == by_python("-m", name, "-o", "x")


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        "",
        "raise SystemExit",
        "import sys; sys.exit(3)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('a reason')",
        "def f(): 1 / 0\ntry: f()\nexcept ZeroDivisionError: [][1]",
        "1 +",
        "import sys; sys.excepthook = lambda *_: print('my own'); raise ValueError",
        "import sys; sys.stdout = sys.stderr; print('there'); raise BaseException('é')",
        "import sys; sys.path.clear(); sys.argv.clear()",
    ],
)
def test_a_program_ends_as_it_does_without_us(end):
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    name = script(f"print('begun', flush=True)\n{end}\n")
    assert watched(attnviz("watch", *KEPT, name)) == by_python(name)
    assert (sys.argv, sys.path, sys.modules["__main__"]) == (argv, path, main)
    assert watched(attnviz("watch", *KEPT, "--", "-m", "program")) == by_python("-m", "program")


def test_a_traceback_shows_the_programs_frames_alone():
    name = script(f"{ATTENDS}\nattend(q[..., :3], k, k)")
    done = attnviz("watch", *KEPT, name)
    assert done.status == 1
    assert "Traceback (most recent call last):\n" in done.err
    assert "attnviz" not in done.err
    assert "line 8, in <module>" in done.err


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(5)", 5),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), 2); print('more')", 130),
        ("os.kill(os.getpid(), 15); print('more')", 143),
        ("os.chdir('/')", 0),
    ],
)
def test_what_was_seen_is_written_however_it_ends(end, status, monkeypatch):
    name = script(f"{ATTENDS}\n{end}\n")
    usual = {number: signal.signal(number, interrupt) for number in (2, 15)}
    try:
        done = attnviz("watch", "-o", "maps.npz", "--html", "page.html", name)
        assert {signal.getsignal(number) for number in usual} == {interrupt}
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert (done.status, done.text) == (status, "True\n")
    told = "note: 1 call of attention by function; 1 kept: maps.npz, page.html\n"
    assert done.err.endswith(told)
    (found,) = package.load("maps.npz")
    assert found.provenance.model == "program.py"
    import torch

    torch.manual_seed(0)
    q, k = torch.randn(3, 2, 4, 8).double(), torch.randn(3, 2, 5, 8).double()
    wanted = torch.softmax(q @ k.mT / 8**0.5, -1)[0]
    np.testing.assert_allclose(found.weights[0], wanted, atol=1e-6)
    assert sorted(os.listdir()) == ["maps.npz", "page.html", "program.py"]  # noqa: PTH208


def test_what_is_kept_is_chosen():
    name = script(f"{ATTENDS}\nfor _ in range(6): attend(q, k, k)")
    attnviz("watch", "--batch", "all", "--every", 2, "--first", 3, "-o", "maps.npz", name)
    found = package.load("maps.npz")
    assert [one.id for one in found] == ["0", "1", "2"]
    assert [item.stream for item in found[1].maps] == [f"call {n} · cross" for n in (1, 3, 5)]
    attnviz("watch", "--calls", "2,6", "-o", "some.npz", name)
    (some,) = package.load("some.npz")
    assert [item.stream for item in some.maps] == ["call 2 · cross", "call 6 · cross"]
    done = attnviz("watch", "--calls", "last", "-o", "none.npz", name)
    assert (done.status, "names no calls: how many (10)" in done.mistake) == (2, True)
    attnviz("watch", "--batch", 2, "--first", 1, "--rows", "1-2", "-o", "rows.npz", name)
    (rows,) = package.load("rows.npz")
    assert rows.id == "2"
    np.testing.assert_allclose(rows.weights[0], found[2].weights[0][:, 1:3], atol=1e-6)
    done = attnviz("watch", "--first", 1, "--max-size", 2, "-o", "small.npz", name)
    (small,) = package.load("small.npz")
    assert small.weights.shape[2:] == (2, 2)
    np.testing.assert_allclose(small.weights.sum(-1), 1, atol=1e-6)
    assert "2 × 2" in done.err


def test_nothing_seen_is_one_line_and_writes_no_file():
    name = script("print('done')")
    done = attnviz("watch", "-q", "-o", "maps.npz", name)
    assert (done.status, done.out) == (4, b"done\n")
    assert done.err.startswith("attnviz: error: no attention was seen: ")
    assert done.err.count("\n") == 1
    assert os.listdir() == [name]  # noqa: PTH208
    for end, status in (("raise SystemExit(3)", 3), ("1 / 0", 1)):
        assert attnviz("watch", "--html", "page.html", script(end)).status == status
    said = attnviz("watch", *KEPT, "--only", "encoder.*", script(ATTENDS)).err
    assert "none of the calls seen is wanted (only=encoder.*); they were made by function" in said


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["no.py"], 1, "there is no script 'no.py'"),
        (["-q", "-o", "a.npz", "--", "-m", "no.such"], 1, "there is no module 'no.such'"),
        (["-q", "-o", "a.npz", "--", "-m", ""], 1, "there is no module ''"),
        (["program.py"], 2, "nothing would be written: add -o, --html"),
        (
            ["-q", "-o", "a.npz", "--", "-m", "email"],
            1,
            "'email' is a package without a module __main__",
        ),
        (["-f", "json", "program.py"], 2, "unknown option '-f'"),
        (["--batch", "first", "program.py"], 2, "--batch 'first' is no item of a batch"),
        (["--every", "0", "program.py"], 2, "'--every'"),
        (["--rows", "b", "program.py"], 2, "--rows 'b' is no range of tokens"),
        (["-o", "program.py", "program.py"], 2, "names no data format"),
        (["-o", "given.npz", "program.py", "given.npz"], 2, "would replace 'given.npz'"),
        (["-o", "no/maps.npz", "program.py"], 1, "there is no folder 'no'"),
        ([], 2, "missing argument"),
    ],
)
def test_what_cannot_be_is_told_before_the_program_runs(words, status, message):
    script("print('it runs')")
    Path("given.npz").write_bytes(b"given")
    done = attnviz("watch", *words)
    assert done.status == status
    assert message in done.mistake
    assert Path("given.npz").read_bytes() == b"given"


def test_a_file_that_cannot_be_written_is_a_failure():
    name = script(f"{ATTENDS}\nos.rename('out', 'gone')")
    Path("out").mkdir()
    done = attnviz("watch", "--html", "out/page.html", name)
    assert (done.status, done.out) == (1, b"True\n")
    assert "attnviz: error: cannot write 'out/page.html'" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says", "every", "rows", "keys"),
    [
        # After ">" a letter is written at each place: the last one first.
        ("watch_decoder.py", "100% of the letters", 99, range(6, 12), range(5, -1, -1)),
        # Each digit comes from the other half.
        ("watch_transformer.py", "it has learned", 79, range(8), [4, 5, 6, 7, 0, 1, 2, 3]),
    ],
)
def test_the_samples_learn_where_to_look(name, says, every, rows, keys):
    done = attnviz("watch", "--every", every, "-o", "maps.npz", SAMPLES / name)
    assert done.text.startswith(says)
    (found,) = package.load("maps.npz")
    streams = [item.stream for item in found.maps]
    calls = [f"call {number} · " for number in (1, every + 1)]
    kinds = ["causal"] if "decoder" in name else ["self", "causal", "cross"]
    assert streams[: 2 * len(kinds)] == [f"{call}{kind}" for call in calls for kind in kinds]
    of_kind = [item for item in found.maps if item.stream.endswith(kinds[-1])]
    first, last = (item.weights[0][:, rows, keys] for item in (of_kind[0], of_kind[1]))
    assert last.min() > 0.9
    assert first.mean() < 0.3


@pytest.mark.slow
def test_a_process_of_its_own_is_pythons():
    name = script(
        "import atexit, gc, os, sys, threading, warnings\n"
        "if 'torch' in sys.modules:\n"
        "    import torch; q = torch.ones(1, 2, 3, 4)\n"
        "    torch.nn.functional.scaled_dot_product_attention(q, q, q)\n"
        "if os.fork() == 0: sys.exit(9)\n"
        "print('it ended with', os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "print(gc.isenabled(), sys.warnoptions, sys.stdin.read())\n"
        "warnings.warn('a warning')\n"
        "atexit.register(print, 'the end')\n"
        "def late(): threading.main_thread().join(); print('a thread')\n"
        "threading.Thread(target=late).start()\n"
        "file = open('log.txt', 'w'); file.write('kept')\n"
        "sys.exit(7)\n"
    )
    expected = by_python(name, stdin=b"given")
    log = Path("log.txt").read_text()
    Path("log.txt").unlink()
    done = fresh("watch", "-q", "-o", "maps.npz", name, stdin=b"given")
    assert (done.status, done.out, done.err) == expected
    assert (expected[0], b"it ended with 9" in expected[1], log) == (7, True, "kept")
    assert Path("log.txt").read_text() == log
    assert package.load("maps.npz")[0].weights.shape == (1, 2, 3, 3)
