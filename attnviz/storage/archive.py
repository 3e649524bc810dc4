"""Several texts' attention in one .npz archive that loads without pickle.

Member "attnviz" is a JSON list of documents without their weights, one on each line. The weights of
map m of text t are the float32 member "t/m/stream", so `numpy.load(file)["0/0/self"]` works without
this package. Weights are written as they come, the list at the end.
"""

import codecs
import io
import itertools
import lzma
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, first_line
from attnviz.storage.documents import (
    Shape,
    check_room,
    dump_json,
    from_document,
    identity_of,
    parse_json,
    read_numbers,
    to_document,
)

ZIP = b"PK\x03\x04"  # how every .npz begins
INDEX = "attnviz"
ENCODINGS = {"<": "utf-32-le", ">": "utf-32-be"}
CHUNK = 1 << 18
LONGEST = 64 << 20  # the most characters of a text's document without its weights
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, LookupError, TypeError, AttributeError),
    # For a header, which is a dictionary in Python's spelling.
    *(Warning, SyntaxError, tokenize.TokenError),
    ArithmeticError,
    *(RuntimeError, lzma.LZMAError),  # encrypted, or packed as zipfile or this package cannot
)
"""What reading a damaged archive may raise; no single error of zipfile and numpy covers it."""


class ArchiveWriter:
    """Writes an archive piece by piece, the same bytes for the same maps."""

    def __init__(self) -> None:
        self.out = ByteBuffer()
        self.archive = zipfile.ZipFile(self.out, "w")
        self.index = _CompressedText()
        self.count = 0

    def add(self, attention: Attention) -> bytes:
        """One more text's part of the archive."""
        document = to_document(attention)
        for position, item in enumerate(document["maps"]):
            weights = item.pop("weights")
            with self._open(_member(self.count, position, item["stream"]), weights) as member:
                np.lib.format.write_array(member, weights, allow_pickle=False)
        self.index.add(("[" if not self.count else ",\n") + dump_json(document))
        self.count += 1
        return self.out.take()

    def finish(self) -> bytes:
        """The list of documents and the end of the archive."""
        self.index.add("]" if self.count else "[]")
        with self._open(INDEX) as member:
            header = {"descr": f"<U{self.index.length}", "fortran_order": False, "shape": ()}
            np.lib.format.write_array_header_1_0(member, header)
            for text in self.index.pieces():
                member.write(text.encode("utf-32-le"))
        self.archive.close()
        return self.out.take()

    def _open(self, name: str, weights: NDArray[np.float32] | None = None) -> IO[bytes]:
        """A new member; dense weights are stored uncompressed, since deflate saves only 6 %."""
        entry = zipfile.ZipInfo(f"{name}.npy")  # of 1980, whenever it is written
        sparse = weights is None or np.count_nonzero(weights) < weights.size * 7 / 8
        entry.compress_type = zipfile.ZIP_DEFLATED if sparse else zipfile.ZIP_STORED
        return self.archive.open(entry, "w", force_zip64=True)


class ArchiveReader:
    """The texts of an archive, each read when it is asked for."""

    def __init__(self, file: IO[bytes], where: str = "the .npz archive") -> None:
        self.where = where
        try:
            self.archive = zipfile.ZipFile(file)
            self.archive.getinfo(f"{INDEX}.npy")
        except KeyError as error:
            raise InputError(
                f"{where} has no member '{INDEX}': attnviz did not write it; "
                "for matrices of your own use 'attnviz self --weights FILE'"
            ) from error
        except DAMAGE as error:
            raise self._damage_error(error) from error

    def ids(self) -> Iterator[str]:
        return map(identity_of, self.documents())

    def __iter__(self) -> Iterator[Attention]:
        return itertools.starmap(self._read, enumerate(self.documents()))

    def at(self, number: int) -> Attention:
        return self._read(number, next(itertools.islice(self.documents(), number, None)))

    def documents(self) -> Iterator[bytes]:
        """The JSON of each text without its weights."""
        try:
            with self.archive.open(f"{INDEX}.npy") as member:
                yield from _list_items(_texts(member))
        except DAMAGE as error:
            raise self._damage_error(error) from error

    def _read(self, number: int, line: bytes) -> Attention:
        def weights(position: int, stream: str, pattern: Shape) -> NDArray[Any]:
            name = _member(number, position, stream)
            try:
                shape = member_shape(self.archive, f"{name}.npy")
                if not shape_fits(shape, pattern):
                    sizes = ", ".join("any" if size is None else str(size) for size in pattern)
                    raise ValueError(f"member '{name}' has the shape {shape}, not ({sizes})")
                return read_numbers(read_member(self.archive, f"{name}.npy"), f"member '{name}'")
            except DAMAGE as error:
                raise InputError(f"damaged: {first_line(error)}") from error

        place = f"text {number} of {self.where}"
        return from_document(parse_json(line, f"member '{INDEX}'"), place, weights)

    def _damage_error(self, error: Exception) -> InputError:
        return InputError(f"{self.where} is damaged: {first_line(error)}")


def shape_fits(shape: Sequence[int], pattern: Sequence[int | None]) -> bool:
    """Whether a shape is the wanted one, in which None may be any size."""
    sizes = zip(pattern, shape, strict=False)
    return len(shape) == len(pattern) and all(want in (None, size) for want, size in sizes)


def member_shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape of an array from its header; a ValueError where the member holds less than that."""
    with archive.open(name) as member:
        return _checked_shape(member, archive.getinfo(name).file_size, f"member '{name}'")


def _checked_shape(file: IO[bytes], size: int, what: str) -> tuple[int, ...]:
    shape, kind = _header(file)
    if (least := math.prod(shape) * kind.itemsize) > size:
        raise ValueError(f"{what} says {least} bytes and has {size}")
    return shape


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of an .npy file of that size; a ValueError where it says that it holds more."""
    _checked_shape(file, size, "the file")
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """The array of a member, if it fits into memory; pickled objects are refused."""
    check_room(archive.getinfo(name).file_size, f"member '{name}'")
    with archive.open(name) as member:
        _header(member)
    with archive.open(name) as member, warnings.catch_warnings(action="ignore"):
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array; numpy's own words about a broken header name its insides."""
    try:
        version = np.lib.format.read_magic(member)
        read = {(1, 0): "read_array_header_1_0", (2, 0): "read_array_header_2_0"}[version]
        with warnings.catch_warnings(action="ignore"):  # of a kind that goes, or of Python 2
            shape, _, kind = getattr(np.lib.format, read)(member)
    except DAMAGE as error:
        raise ValueError("the header of its array cannot be read") from error
    if kind.hasobject:
        raise ValueError("it holds objects of Python, which are never read")
    return shape, kind


def dump_archive(attentions: Sequence[Attention]) -> bytes:
    """The bytes of an archive of these texts."""
    writer = ArchiveWriter()
    return b"".join([*map(writer.add, attentions), writer.finish()])


class _CompressedText:
    def __init__(self) -> None:
        self.packer = zlib.compressobj(1)
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, text: str) -> None:
        self.length += len(text)
        self.parts.append(self.packer.compress(text.encode()))

    def pieces(self) -> Iterator[str]:
        """The text in pieces; after this nothing can be added."""
        unpacker, decoder = zlib.decompressobj(), codecs.getincrementaldecoder("utf-8")()
        for part in (*self.parts, self.packer.flush()):
            while part:
                yield decoder.decode(unpacker.decompress(part, CHUNK))
                part = unpacker.unconsumed_tail
        yield decoder.decode(unpacker.flush(), final=True)


def _texts(member: IO[bytes]) -> Iterator[str]:
    """The text as a numpy array in pieces, since it may be larger than memory."""
    shape, kind = _header(member)
    if shape != () or kind.kind != "U":
        raise ValueError(f"member '{INDEX}' is no text")
    decoder = codecs.getincrementaldecoder(ENCODINGS[kind.str[0]])()
    while chunk := member.read(CHUNK):
        yield decoder.decode(chunk)


def _list_items(texts: Iterator[str]) -> Iterator[bytes]:
    """The JSON of each item of a list, on lines of their own or all on one."""
    lines = (line.encode() for line in _lines(texts))
    first = next(lines, b"")
    if first.endswith(b","):
        yield first[1:-1]
        for line in lines:
            yield line[:-1]
        return
    documents = parse_json(first, f"member '{INDEX}'")
    if not isinstance(documents, list):
        raise TypeError(f"member '{INDEX}' is no list")
    yield from (dump_json(document).encode() for document in documents)


def _lines(texts: Iterator[str]) -> Iterator[str]:
    rest = ""
    for text in texts:
        *complete, rest = (rest + text).split("\n")
        if len(rest) > LONGEST:
            raise ValueError(f"a text's document is longer than {LONGEST >> 20} MiB")
        yield from complete
    yield rest


class ByteBuffer(io.RawIOBase):
    """A file in memory for writers that need a file; `take` empties it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.place = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self.parts.append(part)
        self.place += len(part)
        return len(part)

    def tell(self) -> int:
        return self.place

    def take(self) -> bytes:
        """The bytes written since the last time."""
        data = b"".join(self.parts)
        self.parts.clear()
        return data


def _member(number: int, position: int, stream: str) -> str:
    return f"{number}/{position}/{stream.replace('/', '_')}"
