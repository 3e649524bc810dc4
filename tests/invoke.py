"""The command line, run in this process, in a fresh one, or on a terminal of its own."""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnviz.__main__ import main
from attnviz.cli import app
from attnviz.cli.app import run
from attnviz.features.live import packed
from tests.patience import HUNG

app.build_command = cache(app.build_command)  # which takes a third of a short run
packed._unicode_facts = cache(packed._unicode_facts)  # of every code point, for each page

OWN = ("--mechanism", "multi-head")
"""An origin that stays what it is whatever becomes the default."""


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.lines]

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def mistake(self) -> str:
        """The one line that a failure is told in; asserts that there is just one, and no data."""
        assert self.out == b""
        head, tail = self.err.split("attnviz: error: ")
        assert head == ""
        assert tail.endswith("\n")
        assert "\n" not in tail[:-1]
        return tail[:-1]


@contextmanager
def _streams(stdin: bytes, *, together: bool) -> Iterator[tuple[io.TextIOWrapper, io.StringIO]]:
    kept, main = (sys.stdin, sys.stdout, sys.stderr), sys.modules["__main__"]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(stdin)), out
    sys.stderr = out if together else err
    try:
        yield out, err
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
        sys.modules["__main__"] = main


def attnviz(*arguments: Any, stdin: bytes = b"", together: bool = False) -> Done:
    """Run in this process, which costs milliseconds; `together`: stderr goes to stdout too."""
    with _streams(stdin, together=together) as (out, err):
        status = run([str(argument) for argument in arguments])
        out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return Done(status, out.buffer.getvalue(), err.getvalue())


def fresh(*arguments: Any, stdin: bytes = b"", **variables: str) -> Done:
    """Run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "attnviz", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=os.environ | variables,
        timeout=HUNG,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def _fork(work: Callable[[], object], files: tuple[int, int, int]) -> int:
    """The number of a copy of this process that does some work with those streams, and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which wait
        process = os.fork()
    if process:
        return process
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(99)


def _status_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def forked(work: Callable[[], object], stdout: int | None = None) -> Done:
    """What a copy of this process leaves that does some work and ends, or is killed at it.

    It has imported everything already, which is what a fresh process takes its time for.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        told = out.fileno() if stdout is None else stdout
        status = _status_of(_fork(work, (nothing.fileno(), told, err.fileno())))
        for file in (out, err):
            file.seek(0)
        return Done(status, out.read(), err.read().decode())


def on_terminal(*arguments: Any, columns: int = 80, answer: bytes = b"", **variables: str) -> Done:
    """Run in a copy of this process with stdin and stdout on a terminal of that width.

    stderr stays apart. The terminal answers once to a question that ends with that for its
    attributes (DA1).
    """

    def work() -> None:
        os.environ.pop("COLUMNS", None)
        os.environ.update(variables)
        sys.argv = ["attnviz", *map(str, arguments)]
        main()

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with tempfile.TemporaryFile() as err:
        process = _fork(work, (slave, slave, err.fileno()))
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
                if answer and b"\x1b[c" in shown:
                    os.write(master, answer)
                    answer = b""
        except OSError:
            pass  # Linux answers so once the last writer has gone.
        finally:
            os.close(master)
        status = _status_of(process)
        err.seek(0)
        return Done(status, shown.replace(b"\r\n", b"\n"), err.read().decode())


def imported(*arguments: Any, stdin: bytes = b"") -> tuple[set[str], Done]:
    """The top-level packages that a run imports, and the run."""
    code = (
        "import sys; from attnviz.cli.app import run; status = run(sys.argv[1:]);"
        "print('loaded:', *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr);"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=HUNG,
        check=False,
    )
    err, _, loaded = done.stderr.decode().rpartition("loaded:")
    return set(loaded.split()), Done(done.returncode, done.stdout, err)
