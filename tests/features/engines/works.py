"""Work for the engines to do; it lies in a module so that worker processes can import it."""

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.core.errors import InputError
from attnviz.core.notices import notify
from tests.patience import wait_until


def square(shard: int) -> int:
    return shard * shard


@dataclass(frozen=True)
class Uneven:
    """The first shards take longest: each waits until the one after it is done."""

    folder: Path
    last: int

    def __call__(self, shard: int) -> int:
        if shard % 2 == 0 and shard < self.last:
            wait_until((self.folder / str(shard + 1)).exists)
        (self.folder / str(shard)).touch()
        return shard


@dataclass(frozen=True)
class Deadly:
    """Kills its own process over one shard, the first times it comes."""

    folder: Path
    shard: int
    times: int

    def __call__(self, shard: int) -> int:
        if shard == self.shard:
            tries = len(list(self.folder.iterdir()))
            if tries < self.times:
                (self.folder / str(tries)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return shard * shard


class Halved:
    """Bytes larger than a pipe, over which the process that sends them dies halfway."""

    def __init__(self, died: Path) -> None:
        self.died = died

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        from multiprocessing.connection import Connection

        def send(pipe: Any, data: bytes) -> None:
            os.write(pipe.fileno(), data[: len(data) // 2])
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

        Connection._send = send  # type: ignore[attr-defined]
        return bytes, (bytes(1 << 22),)


@dataclass(frozen=True)
class DyingMessenger:
    """Is killed once, while it sends what it made of one shard."""

    folder: Path
    shard: int

    def __call__(self, shard: int) -> object:
        died = self.folder / "died"
        return Halved(died) if shard == self.shard and not died.exists() else shard * shard


def failing(shard: int) -> int:
    notify(f"shard {shard} begins")
    if shard == 2:
        raise InputError("line 3 of 'a.txt' is empty")
    return shard


class OddError(Exception):
    """One that cannot be made again from its message."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)


def odd(shard: int) -> int:
    raise OddError("out of order", 3)


def opened(shard: int) -> object:
    return threading.Lock()


class Remembering:
    """Counts its shards, as work does that keeps a model."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, shard: int) -> tuple[int, int]:
        self.seen += 1
        return os.getpid(), self.seen


def limits(shard: int) -> tuple[str | None, ...]:
    print("on stdout")
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Endless:
    """Says which process it is in, and never comes back."""

    folder: Path

    def __call__(self, shard: int) -> None:
        (self.folder / f"{os.getpid()}.pid").touch()
        while True:
            pass
