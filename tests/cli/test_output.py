"""What reaches stdout reaches it whole."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnviz.cli.places import hold_interrupts
from attnviz.storage.writing import write_whole
from tests.patience import HUNG


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[int]:
    """Files of this process have at most 100 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    yield 100
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_what_pytest_prints_may_go_to_a_file(tmp_path):
    path = tmp_path / "log"
    name = f"{__file__}::{test_where_there_is_no_room_nothing_is_written.__name__}"
    with path.open("w") as file:
        subprocess.run([sys.executable, "-m", "pytest", "-v", name], stdout=file, check=True)
    assert "3 passed" in path.read_text()


@pytest.mark.parametrize("flags", [os.O_TRUNC, os.O_APPEND, 0])
def test_where_there_is_no_room_nothing_is_written(flags, room, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old " * (flags != os.O_TRUNC))
    start = b"" if flags == os.O_TRUNC else b"old "
    file = os.open(path, os.O_WRONLY | flags)
    if not flags:
        os.lseek(file, 0, os.SEEK_END)
    write_whole(file, b"1" * 60)
    with pytest.raises(OSError, match="File too large"):
        write_whole(file, b"2" * 60)
    assert path.read_bytes() == start + b"1" * 60
    write_whole(file, b"3" * 10)
    assert path.read_bytes() == start + b"1" * 60 + b"3" * 10
    os.close(file)


def test_what_others_wrote_behind_is_never_cut_off(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.touch()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    real = os.write

    def write(file: int, data: bytes) -> int:
        if path.stat().st_size:
            with path.open("ab") as other:
                other.write(b"other")
            raise OSError(errno.ENOSPC, "full")
        return real(file, data[:3])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="full"):
        write_whole(file, b"1" * 10)
    assert path.read_bytes() == b"111other"
    os.close(file)


def test_a_pipe_is_waited_for_and_threads_left_alone():
    read, write = os.pipe()
    os.set_blocking(write, False)
    data, got = os.urandom(300_000), bytearray()

    def drain() -> None:
        while len(got) < len(data):
            got.extend(os.read(read, 65536))

    reader = threading.Thread(target=drain)
    reader.start()
    write_whole(write, data)
    reader.join(timeout=HUNG)
    assert got == data
    os.close(read)
    os.close(write)

    seen = []

    def beside() -> None:
        with hold_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join(timeout=HUNG)
    assert seen == [signal.default_int_handler]
    with pytest.raises(ZeroDivisionError):
        interrupted([], press, lambda: 1 / 0)


def interrupted(done: list[int], *actions: Callable[[], object] | int) -> None:
    with hold_interrupts():
        for action in actions:
            done.append(action) if isinstance(action, int) else action()


@pytest.mark.parametrize(
    ("actions", "finished"),
    [
        ((press, 1), [1]),
        ((press, 1, press, 2), [1]),  # a second one does not wait
        ((lambda: interrupted([], press), 1), [1]),  # the inner one waits for the outer
    ],
)
def test_ctrl_c_waits_until_what_is_begun_is_done(actions, finished):
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done, *actions)
    assert done == finished
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
