"""Lines of a file or a pipe, unpacked where it is gzip (RFC 1952), as they are wanted."""

from __future__ import annotations

import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from attnviz.errors import InputError

MAGIC = b"\x1f\x8b"
CHUNK = 1 << 16


class BrokenFileError(InputError):
    """A file that could be read up to some line only."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        super().__init__(f"{name} cannot be read after line {line}: {reason}")
        self.line = line


class Readable(Protocol):
    """What bytes come from."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes, waiting for one at least; none at the end."""
        ...


class Lines:
    """The lines of a stream as they come, each with its end."""

    def __init__(self, stream: Readable, start: bytes = b"") -> None:
        """Lines of what was read already, and of the stream after it."""
        self.stream, self.start = stream, start
        self.whole: deque[bytes] = deque()

    @property
    def ready(self) -> bool:
        """Whether a whole line is here already."""
        return bool(self.whole) or b"\n" in self.start

    def __iter__(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        while chunk := self.start or _read(self.stream):
            self.start = b""
            *ended, last = chunk.split(b"\n")
            for line in ended:
                self.whole.append(b"".join((*pieces, line, b"\n")))
                pieces.clear()
            if last:
                pieces.append(last)
            while self.whole:
                yield self.whole.popleft()
        if pieces:
            yield b"".join(pieces)


def _read(stream: Readable, size: int = CHUNK) -> bytes:
    chunk = stream.read(size)
    if chunk is None:  # which would look like its end
        raise BlockingIOError("it does not wait for what is to come (O_NONBLOCK)")
    return chunk


class _Rejoined(io.RawIOBase):
    """A stream with its first bytes, already read, put back."""

    def __init__(self, start: bytes, stream: Readable) -> None:
        self.start, self.stream = start, stream

    def readable(self) -> bool:
        return True

    def readinto(self, room: bytearray | memoryview, /) -> int:  # type: ignore[override]
        size = len(room)
        chunk = self.start[:size] or _read(self.stream, size)
        self.start = self.start[size:]
        room[: len(chunk)] = chunk
        return len(chunk)


def open_lines(stream: Readable, name: str, packed: bool = False) -> Lines | gzip.GzipFile:
    """The lines of a stream, unpacked where its first bytes are those of gzip.

    Args:
        stream: a file or pipe, read from where it stands.
        name: the file's, for messages.
        packed: it has to be gzip.

    Raises:
        BrokenFileError: it is not.
    """
    start = b""
    while len(start) < len(MAGIC) and (more := _read(stream)):
        start += more
    if start.startswith(MAGIC):
        return gzip.GzipFile(fileobj=io.BufferedReader(_Rejoined(start, stream), CHUNK), mode="rb")
    if packed:
        raise BrokenFileError(name, 0, "it is not gzip")
    return Lines(stream, start)


def unbroken(lines: Lines | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """The lines; a last one that is cut off in the middle of gzip is none.

    Raises:
        BrokenFileError: the rest cannot be read.
    """
    number = 0
    try:
        for line in lines:
            yield line
            number += 1
    except EOFError as error:
        raise BrokenFileError(name, number, "its gzip ends too early") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise BrokenFileError(name, number, f"its gzip is damaged ({error})") from error
    except OSError as error:
        raise BrokenFileError(name, number, str(error.strerror or error)) from error


def read_file(file: BinaryIO, name: str, packed: bool = False) -> Iterator[bytes]:
    """The lines of an open file, plain or gzip, which is closed at their end.

    Raises:
        BrokenFileError: it cannot be read to its end.
    """
    with file:
        yield from unbroken(open_lines(file, name, packed), name)
