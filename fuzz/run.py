"""One run of the real command line in this process, and everything that it leaves behind.

Streams are replaced at the level of file descriptors, so that what a library prints past Python is
seen too. Time and memory are limited by the system, for this run alone.
"""

from __future__ import annotations

import gc
import io
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from attnviz.cli import app
from attnviz.runs.many_texts import close_sources
from fuzz.world import home
from tests.patience import HUNG

CPU_SECONDS = 20
"""Of one run; a tiny input needs hundredths."""
ROOM = 4 << 30
"""Bytes of address space that a run may add to the process."""
OPENING = {"--model", "-m", "--weights"}
"""Options whose files a process opens once."""
MOST_RESIDENT = 3 << 30
"""Bytes that the process may grow by: the maps of a text of 2,000 pieces take half of it."""


@dataclass(frozen=True)
class Case:
    """A command line with what lies in its folder.

    Attributes:
        groups: the command with its arguments, and each option with its value: what can be left
            out alone when a failure is made smaller.
        files: what is in the folder, by path; None: a folder; text: a link to there.
        valid: True where the run must succeed.
    """

    groups: tuple[tuple[str, ...], ...]
    files: Mapping[str, bytes | str | None] = field(default_factory=dict)
    stdin: bytes = b""
    columns: int = 80
    valid: bool = False

    @property
    def argv(self) -> list[str]:
        """The words behind the program's name."""
        return [word for group in self.groups for word in group]

    @property
    def key(self) -> str:
        """What distinguishes it from other cases."""
        return repr((self.argv, sorted(self.files.items(), key=str), self.stdin, self.columns))

    @property
    def line(self) -> str:
        """The command line for a shell."""
        typed = " ".join(["attnviz", *map(quote, self.argv)])
        return f"printf %s {quoted_bytes(self.stdin[:200])} | {typed}" if self.stdin else typed


def quote(word: str) -> str:
    """A word as bash reads it."""
    return shlex.quote(word) if word.isprintable() else quoted_bytes(os.fsencode(word))


def quoted_bytes(data: bytes) -> str:
    """Bytes as bash reads them."""
    if data.isascii() and data.decode().isprintable():
        return shlex.quote(data.decode())
    return "$'" + "".join(chr(b) if 35 < b < 91 else f"\\x{b:02x}" for b in data) + "'"


@dataclass(frozen=True)
class Ran:
    """What a run left behind.

    Attributes:
        error: what came out of the program, which nothing ought to.
        frame: where in the package that was raised, "room/file.py:function".
        acts: what it did beyond its own files: sockets, programs, foreign code.
        after: every file below the folder by path; a link or a device is told by b"".
        resident: bytes of memory that the run added at its peak.
    """

    case: Case
    status: int
    out: bytes
    err: bytes
    error: BaseException | None
    frame: str
    acts: tuple[str, ...]
    after: Mapping[str, bytes]
    seconds: float
    resident: int


class TookTooLong(BaseException):
    """A run that is stopped; nothing catches it."""


def run(case: Case) -> Ran:
    """Run a command line in a fresh folder."""
    with _folder(case.files) as top:
        return run_in(top, case)


def run_in(top: Path, case: Case) -> Ran:
    """Run a command line in a folder made by `prepared`."""
    argv = [*case.argv]
    if any(word in OPENING for word in argv):
        close_sources()  # of which a process keeps the last two
    return observe(top, case, lambda: app.run(argv))


def observe(top: Path, case: Case, work: Callable[[], int]) -> Ran:
    """Run a case in its folder and record everything that happens."""
    error: BaseException | None = None
    frame, status = "", -1
    with (
        _streams(case.stdin) as (out, err),
        _surroundings(top, case.columns),
        _record_acts(top) as acts,
    ):
        filled = _peak_reset()
        began = time.process_time()
        try:
            with _limits():
                status = work()
        except BaseException as raised:
            if isinstance(raised, KeyboardInterrupt):
                raise
            error, frame = raised, innermost(raised)
        seconds = time.process_time() - began
        resident = _peak() - filled
        _flush()
        kept = _content(out), _content(err)
    # Else the frames of the traceback keep arrays in memory.
    if error is not None:
        traceback.clear_frames(error.__traceback__)
    return Ran(case, status, *kept, error, frame, tuple(acts), _snapshot(top), seconds, resident)


def innermost(error: BaseException) -> str:
    """Where in the package an error came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [item for item in frames if "/attnviz/" in item.filename]
    if not own:
        return "?"
    return f"{own[-1].filename.rpartition('/attnviz/')[2]}:{own[-1].name}"


@contextmanager
def _folder(files: Mapping[str, bytes | str | None]) -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(dir=home()))
    try:
        prepare(top, files)
        yield top
    finally:
        shutil.rmtree(top, ignore_errors=True)


def prepare(top: Path, files: Mapping[str, bytes | str | None]) -> None:
    """The folder that a run works in (deep, so that `..` stays inside) and its temporary one."""
    for name in ("a/b/work", "tmp"):
        (top / name).mkdir(parents=True)
    for name, data in files.items():
        path = top / "a/b/work" / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        elif isinstance(data, str):
            path.symlink_to(data)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@contextmanager
def _surroundings(top: Path, columns: int) -> Iterator[None]:
    here, variables = Path.cwd(), dict(os.environ)
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # of programs that are run
    os.environ |= {
        "COLUMNS": str(columns),
        "TMPDIR": str(top / "tmp"),
        "HOME": str(top),
        # Where there is none yet, matplotlib of a worker would make its list of fonts.
        "MPLCONFIGDIR": variables.get("MPLCONFIGDIR", str(Path.home() / ".config/matplotlib")),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(top / "a/b/work/hub"),
        "BROWSER": "true",
        "TERM": "xterm-256color",
    }
    for name in ("NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    program, place, sys.argv = sys.argv, tempfile.tempdir, ["attnviz"]
    main = sys.modules["__main__"]  # a program that is watched is one too
    tempfile.tempdir = str(top / "tmp")
    os.chdir(top / "a/b/work")
    try:
        with warnings.catch_warnings():
            # As Python starts, but that a warning is shown each time and not once a process.
            warnings.resetwarnings()
            warnings.showwarning = _show
            warnings.simplefilter("always")
            for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
                warnings.simplefilter("ignore", kind)
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        os.chdir(here)
        sys.argv, tempfile.tempdir, sys.modules["__main__"] = program, place, main
        os.environ.clear()
        os.environ.update(variables)
        sys.dont_write_bytecode = compiled


def _show(
    message: Warning | str, category: type[Warning], file: str, line: int, *_: object
) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, file, line))


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[int, int]]:
    _flush()
    kept = [os.dup(number) for number in range(3)]
    python = sys.stdin, sys.stdout, sys.stderr
    made = [os.memfd_create(name) for name in ("in", "out", "err")]
    os.write(made[0], stdin)
    os.lseek(made[0], 0, os.SEEK_SET)
    for number, file in enumerate(made):
        os.dup2(file, number)
    raw: list[Any] = [open(number, mode, closefd=False) for number, mode in enumerate(("rb", "wb", "wb"))]  # fmt: skip  # noqa: E501, SIM115
    sys.stdin = io.TextIOWrapper(raw[0], "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(raw[1], "utf-8", "surrogateescape")
    sys.stderr = io.TextIOWrapper(raw[2], "utf-8", "backslashreplace", line_buffering=True)
    try:
        yield made[1], made[2]
    finally:
        sys.stdin, sys.stdout, sys.stderr = python
        for number, file in enumerate(kept):
            os.dup2(file, number)
        for file in (*kept, *made):
            os.close(file)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)


@contextmanager
def _limits() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TookTooLong(signal.Signals(number).name)

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    usual = {name: signal.signal(name, stop) for name in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, HUNG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name, handler in usual.items():
            signal.signal(name, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


_listening: list[tuple[str, list[str]]] = []
"""The folder of the run that is heard, and what it did; an audit hook stays for ever."""


@cache
def _listen() -> None:
    def hear(event: str, given: tuple[Any, ...]) -> None:
        if not _listening or event not in HEARD:
            return
        top, acts = _listening[0]
        if event == "exec":  # of code that does not come from a run's folder nothing is said
            file = getattr(given[0], "co_filename", "")
            if not file.startswith((top, ".", "a/")):
                return
        if event == "pickle.find_class" and given[0].startswith("attnviz."):
            return  # a corpus of stdin is read twice: the second time from a file of its own
        if event == "subprocess.Popen" and given[0] == sys.executable:
            return  # a worker, or what renders a chat template
        acts.append(event)

    sys.addaudithook(hear)


HEARD = {
    *("socket.connect", "socket.getaddrinfo", "socket.bind", "pickle.find_class", "exec"),
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "webbrowser.open"),
}


@contextmanager
def _record_acts(top: Path) -> Iterator[list[str]]:
    _listen()
    acts: list[str] = []
    _listening[:] = [(str(top), acts)]
    try:
        yield acts
    finally:
        _listening.clear()


def _peak_reset() -> int:
    """Forget the most memory that was in use; answers what is in use now."""
    with open("/proc/self/clear_refs", "wb", buffering=0) as file:  # noqa: PTH123
        file.write(b"5")
    return _peak()


def _peak() -> int:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        found = file.read().partition(b"VmHWM:")[2]
    return int(found.split()[0]) * 1024


def _snapshot(top: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            plain = path.is_file() and not path.is_symlink()
            found[str(path.relative_to(top))] = path.read_bytes() if plain else b""
    return found


def tidy() -> None:
    """Free memory that many runs have left."""
    gc.collect()
