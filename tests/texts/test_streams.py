"""Bytes become lines, unpacked where they are gzip, and a broken file ends in one clear error."""

import gzip
import io
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.storage.texts import BadText, Text
from attnviz.storage.texts.formats import read_texts
from attnviz.storage.texts.lines import (
    BrokenFileError,
    FileFormat,
    LineReader,
    open_lines,
    whole_lines,
)


class Drops(io.RawIOBase):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data: bytes, sizes: Iterator[int]) -> None:
        self.data, self.sizes = io.BytesIO(data), sizes

    def read(self, size: int = -1, /) -> bytes:
        return self.data.read(min(size, next(self.sizes, size)))


@pytest.mark.slow
@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(1, 5)), st.booleans())
def test_lines_are_those_of_the_file(pieces, sizes, packed):
    data = b"\n".join(pieces)
    if data.startswith(b"\x1f\x8b"):
        return
    stream = Drops(gzip.compress(data) if packed else data, iter(sizes))
    assert list(open_lines(stream, "a")) == list(io.BytesIO(data))


def test_lines_of_any_length_come_when_wanted():
    data = b"x" * 1_000_000 + b"\nnext"
    assert list(LineReader(io.BytesIO(data))) == [b"x" * 1_000_000 + b"\n", b"next"]
    stream = io.BytesIO(b"line\n" * 1_000_000)
    lines = whole_lines(open_lines(stream, "a"), "a")
    next(lines)
    assert stream.tell() <= 1 << 17
    data = gzip.compress(b"one\n") + gzip.compress(b"two\n")
    assert list(open_lines(io.BytesIO(data), "a", is_gzip=True)) == [b"one\n", b"two\n"]


CONTENT = "".join(f"number {number * number} \u00e9\n" for number in range(400)).encode()


@pytest.mark.parametrize("cut", range(0, len(gzip.compress(CONTENT, mtime=0)), 7))
def test_a_cut_gzip_file_gives_lines_and_one_error(cut):
    whole = CONTENT.decode().splitlines()
    data = gzip.compress(CONTENT, mtime=0)[:cut]

    def lines() -> Iterator[bytes]:
        yield from whole_lines(open_lines(io.BytesIO(data), "'a.gz'", is_gzip=True), "'a.gz'")

    *texts, last = read_texts(lines(), "'a.gz'", FileFormat())
    assert [text.text for text in texts if isinstance(text, Text)] == whole[: len(texts)]
    assert isinstance(last, BadText)
    assert last.line == len(texts) + 1
    reason = "it is not gzip" if cut < 2 else "its gzip ends too early"
    assert str(last.error) == f"'a.gz' cannot be read after line {len(texts)}: {reason}"


def test_damaged_files_and_disks_are_named():
    data = gzip.compress(CONTENT)[:-20]
    found = []
    with pytest.raises(BrokenFileError):
        found.extend(list(whole_lines(_collect(data, found), "a")))
    assert len(found) > 350

    data = bytearray(gzip.compress(CONTENT))
    data[-6] ^= 1
    with pytest.raises(BrokenFileError, match="its gzip is damaged"):
        list(whole_lines(open_lines(io.BytesIO(data), "a"), "a"))
    data = bytearray(gzip.compress(CONTENT))
    data[300:400] = bytes(100)
    with pytest.raises(BrokenFileError, match="its gzip is damaged"):
        list(whole_lines(open_lines(io.BytesIO(data), "a"), "a"))

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            chunk = super().read(4)
            if not chunk:
                raise OSError(5, "Input/output error")
            return chunk

    with pytest.raises(BrokenFileError) as raised:
        list(whole_lines(open_lines(Failing(b"a\nb\nc"), "'a'"), "'a'"))
    assert str(raised.value) == "'a' cannot be read after line 2: Input/output error"


def _collect(data: bytes, found: list[bytes]) -> Iterator[bytes]:
    for line in open_lines(io.BytesIO(data), "a"):
        found.append(line)
        yield line


def test_a_stream_that_does_not_wait_is_not_its_end():
    class Nonblocking:
        def read(self, size: int, /) -> bytes | None:
            return None

    with pytest.raises(BlockingIOError):
        open_lines(Nonblocking(), "stdin")
