"""Lines of a file or a pipe, unpacked where it is gzip, each made into a text or an error."""

from __future__ import annotations

import gzip
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO, Protocol, TypeVar

from attnviz.core.errors import InputError
from attnviz.core.records import dataclass, field
from attnviz.core.values import is_utf8
from attnviz.storage.texts import BadText, Text, check_text, read_conversation

MAGIC = b"\x1f\x8b"
CHUNK = 1 << 16
LONGEST = 64 << 20  # bytes of a line at most


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How a file of texts is read."""

    input_format: str = "txt"
    # source and target are wanted rather than single texts; in .txt, and in .tsv without a header,
    # they stand to the left and right of a tab or |||
    pairs: bool = False
    keep_blank: bool = False  # a blank line is a BadText too, for output that stays line by line
    columns: Mapping[str, str] = field(default_factory=dict)  # the role of columns or keys


class BrokenFileError(InputError):
    """A file that can be read only up to some line."""

    line = 0

    @classmethod
    def after(cls, name: str, line: int, reason: str) -> BrokenFileError:
        """The error of a file after a line; no __init__ of its own, as pickle gives the message."""
        error = cls(f"{name} cannot be read after line {line}: {reason}")
        error.line = line
        return error


class Readable(Protocol):
    """A file or a pipe."""

    def read(self, size: int, /) -> bytes | None:
        """At most this many bytes; waits for at least one; empty at the end."""


class LineReader:
    """The lines of a stream as they come, each with its end.

    Python's own buffered reader cannot tell whether a line is there without waiting for one, and a
    pipe's lines are to be shown as soon as they come.
    """

    def __init__(self, stream: Readable, start: bytes = b"", *, is_gzip: bool = False) -> None:
        self.stream, self.start, self.is_gzip = stream, start, is_gzip
        self.complete: deque[bytes] = deque()

    @property
    def ready(self) -> bool:
        """Whether a complete line can be read without waiting."""
        return bool(self.complete) or b"\n" in self.start

    def __iter__(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        length = 0
        while chunk := self.start or _read(self.stream):
            self.start = b""
            *complete, last = chunk.split(b"\n")
            for line in complete:
                self.complete.append(b"".join((*pieces, line, b"\n")))
                pieces.clear()
            if last:
                pieces.append(last)
                length = len(last) if len(pieces) == 1 else length + len(last)
                if length > LONGEST:
                    raise OverflowError(f"the next one is longer than {LONGEST >> 20} MiB")
            while self.complete:
                yield self.complete.popleft()
        if pieces:
            yield b"".join(pieces)


def _read(stream: Readable, size: int = CHUNK) -> bytes:
    chunk = stream.read(size)
    if chunk is None:  # which would look like its end
        raise BlockingIOError("it does not wait for what is to come (O_NONBLOCK)")
    return chunk


class _RejoinedStream(io.RawIOBase):
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


def open_lines(stream: Readable, name: str, *, is_gzip: bool = False) -> LineReader:
    """The lines of a stream, unpacked where it is gzip.

    Raises:
        BrokenFileError: `is_gzip` asks for gzip, and is no gzip.
    """
    start = b""
    while len(start) < len(MAGIC) and (more := _read(stream)):
        start += more
    if start.startswith(MAGIC):
        file = io.BufferedReader(_RejoinedStream(start, stream), CHUNK)
        content: Any = SimpleNamespace(read=gzip.GzipFile(fileobj=file, mode="rb").read1)
        return LineReader(content, is_gzip=True)
    if is_gzip:
        raise BrokenFileError.after(name, 0, "it is not gzip")
    return LineReader(stream, start)


def whole_lines(lines: LineReader, name: str) -> Iterator[bytes]:
    """The lines, without a last one that gzip cuts off.

    Raises:
        BrokenFileError: the rest cannot be read.
    """
    number = 0
    try:
        for line in lines:
            yield line
            number += 1
    except EOFError as error:
        raise BrokenFileError.after(name, number, "its gzip ends too early") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise BrokenFileError.after(name, number, f"its gzip is damaged ({error})") from error
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BrokenFileError.after(name, number, str(reason)) from error


def read_file(file: BinaryIO, name: str, *, is_gzip: bool = False) -> Iterator[bytes]:
    """The lines of an open file, plain or gzip, which is closed at their end."""
    with file:
        yield from whole_lines(open_lines(file, name, is_gzip=is_gzip), name)


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands in a file, or a row of a table, which may go over several."""

    number: int  # its place among the records, from 0; the id of a text without one
    line: int  # where it begins in the file, from 1
    raw: str  # what stands there, without the line's end; bytes that are no UTF-8 are surrogates
    name: str

    @property
    def where(self) -> str:
        return f"line {self.line} of {self.name}"

    @property
    def blank(self) -> bool:
        return not self.raw or self.raw.isspace()

    def text(self, identity: object, text: str, **more: Any) -> Text:
        return Text(str(identity), text, where=self.where, line=self.line, raw=self.raw, **more)


LineT = TypeVar("LineT", bound=Line)


def decode_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """Each line with its end; a byte order mark is left out, bytes that are no UTF-8 are kept."""
    for place, line in enumerate(lines):
        yield line.decode("utf-8" if place else "utf-8-sig", "surrogateescape")


def number_lines(lines: Iterable[bytes], name: str) -> Iterator[Line]:
    """Each line of a file with its number."""
    for number, line in enumerate(decode_lines(lines)):
        yield Line(number, number + 1, line.rstrip("\r\n"), name)


def make_texts(
    lines: Iterable[LineT], make: Callable[[LineT], Text], *, keep_blank: bool
) -> Iterator[Text | BadText]:
    """Each line as a text, or a BadText if `make` fails; blank lines are left out or bad."""
    for line in lines:
        if line.blank and not keep_blank:
            continue
        try:
            if line.blank:
                raise InputError(f"{line.where} is empty")
            if not is_utf8(line.raw):
                raise InputError(f"{line.where} is not valid UTF-8")
            text = make(line)
        except InputError as error:
            yield BadText(line.where, error, line.line, line.raw)
        else:
            yield text


def plain_text(line: Line, *, pairs: bool) -> Text:
    """The line itself; of a pair, what stands before and after a tab or |||."""
    if not pairs:
        return line.text(line.number, check_text(line.raw))
    source, tab, target = line.raw.partition("\t" if "\t" in line.raw else " ||| ")
    return line.text(
        line.number,
        check_text(source, f"source in {line.where}"),
        target=check_text(target, f"target in {line.where}") if tab else None,
    )


def json_text(line: Line, *, pairs: bool, names: Mapping[str, str]) -> Text:
    """The text of an object with "text", or "source" and "target"; perhaps "id" and "labels".

    The source of a pair may also be its "text". A list of messages, alone, as "messages" or in the
    text's place, is a conversation.
    """
    from attnviz.storage.documents import parse_json

    row = parse_json(line.raw, line.where)
    row = {"messages": row} if isinstance(row, list) else row
    if not isinstance(row, dict):
        raise InputError(f"{line.where} is no JSON object")
    identity = row.get(names.get("id", "id"))
    identity = line.number if identity is None else identity
    main = "source" if pairs and ("source" in row or "text" not in row) else "text"
    main = names.get("source" if pairs else "text", main)
    conversation = row.get(main, row.get("messages"))
    labels = _labels(row, names.get("labels", "labels"), line.where)
    if isinstance(conversation, list):
        own = {"messages": conversation, "tools": row.get("tools")}
        return line.text(identity, labels=labels, **read_conversation(own, line.where))
    text = _string(row, main, line.where)
    if text is None:
        raise InputError(f'{line.where} has no "{main}"')
    other = names.get("target", "target")
    target = _string(row, other, line.where) if pairs else None
    return line.text(
        identity,
        check_text(text, f"{main} in {line.where}"),
        target=None if target is None else check_text(target, f"{other} in {line.where}"),
        labels=labels,
    )


def _string(row: dict[str, Any], name: str, where: str) -> str | None:
    value = row.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InputError(f'{where} has a "{name}" that is no text')


def _labels(row: dict[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    labels = row.get(name)
    if labels is None:
        return None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f'{where} has "{name}" that are no list of words')
    return tuple(labels)
