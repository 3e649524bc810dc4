"""Matrices by name from a file that somebody else wrote: .json, .npz or .safetensors."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from attnviz.core.errors import InputError, first_line
from attnviz.storage.archive import DAMAGE, member_shape, read_member
from attnviz.storage.documents import SMALL, check_room, check_words, parse_json, read_numbers

SUFFIXES = (".json", ".npz", ".safetensors")
TEXTS = ("tokens", "query_tokens", "key_tokens")
"""Names that hold lists of words; every other name holds numbers."""


LONGEST_HEADER = 100_000_000  # bytes of a safetensors header, as that library itself allows
STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""How paths of what the shell has opened begin, such as <(zcat maps.gz): somebody writes there."""


def open_file(path: Path, buffering: int = -1, *, pipe: bool = False) -> BinaryIO:
    """A file, open for reading; an InputError where that fails, or where it may never end."""
    try:
        pipe = pipe or str(path).startswith(STREAMS)
        if not pipe and path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"'{path}' is a pipe or a device, not a file")
        return path.open("rb", buffering=buffering)
    except IsADirectoryError as error:
        raise InputError(f"'{path}' is a folder, not a file") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file '{path}'") from error
    except (OSError, ValueError) as error:  # a ValueError of a name with a null byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read '{path}': {reason}") from error


def read_bytes(path: Path) -> bytes:
    """A file's content; an InputError where it cannot be read to its end."""
    with open_file(path) as file:
        try:
            return read_whole(file, f"'{path}'")
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error


def read_text(path: Path) -> str:
    """A file's text, in UTF-8; an InputError where it is none."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not valid UTF-8") from error


def read_whole(file: IO[bytes], where: str) -> bytes:
    """All of a file, a pipe or a device, as far as it fits into memory."""
    parts = [file.read(SMALL)]
    size = len(parts[0])
    if parts[0][8:9] == b"{":
        header_length(parts[0], where)
    if size == SMALL and file.seekable() and (end := file.seek(0, os.SEEK_END)):
        check_room(end, where)
        file.seek(0)
        return file.read()
    while part := file.read(SMALL):
        parts.append(part)
        size += len(part)
        check_room(size, where)
    return b"".join(parts)


def header_length(data: Any, where: str) -> int:
    """How long the JSON at the beginning of .safetensors is, as its first 8 bytes say."""
    length = int.from_bytes(bytes(data[:8]), "little")
    if LONGEST_HEADER < length < 1 << 48:  # eight letters of a text are a larger number
        raise InputError(f"the header of {where} would have {length:,} bytes: it is damaged")
    return length


def parse_header(data: Any, where: str) -> Any:
    """The JSON at the beginning of .safetensors."""
    return parse_json(bytes(data[8 : 8 + header_length(data, where)]), f"header of {where}")


class NamedArrays(Mapping[str, Any]):
    """Arrays by name; listing or testing names reads no array."""

    names: Mapping[str, Any]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Matrices(NamedArrays):
    """Numbers and lists of words by name; large arrays of an archive are read on demand."""

    def __init__(self, source: Mapping[str, Any], path: Path) -> None:
        self.names, self.path = source, path
        self.read: dict[str, Any] = {}
        for name in source:
            if not isinstance(source, Archive) or source.bytes_of(name) < SMALL:
                self[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self.read:
            read = _words if name in TEXTS else _numbers
            self.read[name] = read(self.names[name], name, self.path)
        return self.read[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The axes of an array, known before it is read."""
        if isinstance(self.names, Archive):
            return self.names.shapes[name]
        shape: tuple[int, ...] = self[name].shape
        return shape


class Archive(NamedArrays):
    """The arrays of an .npz archive, each read when it is asked for."""

    def __init__(self, data: bytes, path: Path | str) -> None:
        self.path = path
        with _npz_errors(path):
            self.archive = zipfile.ZipFile(io.BytesIO(data))
            members = [name.removesuffix(".npy") for name in self.archive.namelist()]
            self.shapes = {name: member_shape(self.archive, f"{name}.npy") for name in members}
            self.names = self.shapes

    def __getitem__(self, name: str) -> Any:
        self.shapes[name]  # a KeyError where there is no such array
        with _npz_errors(self.path):
            return read_member(self.archive, f"{name}.npy")

    def bytes_of(self, name: str) -> int:
        """How much memory an array takes."""
        return self.archive.getinfo(f"{name}.npy").file_size


@contextmanager
def _npz_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise InputError(f"'{path}' cannot be read as .npz: {first_line(error)}") from error


def read_matrices(path: Path, data: bytes | None = None) -> Matrices:
    """Numbers and words by name, else an InputError; the suffix or first bytes tell the format."""
    suffix = path.suffix.lower()
    if data is not None:
        suffix = SUFFIXES[1] if data[:2] == b"PK" else SUFFIXES[2 if b"\0" in data[:8] else 0]
    if suffix not in SUFFIXES:
        raise InputError(f"'{path}' is none of {', '.join(SUFFIXES)}")
    data = read_bytes(path) if data is None else data
    read = {".json": _read_json, ".npz": Archive, ".safetensors": read_safetensors}[suffix]
    return Matrices(read(data, path), path)


def _read_json(data: bytes, path: Path) -> Mapping[str, Any]:
    document = parse_json(data, f"'{path}'")
    if not isinstance(document, dict):
        raise InputError(f"'{path}' holds no matrices by name: its JSON is not an object")
    return _without_texts(document)


def read_examples(path: Path, data: bytes | None = None) -> dict[str, tuple[str, Matrices]]:
    """A JSON file's named examples with "about" and matrices; none if these are on top."""
    if data is None and path.suffix.lower() == ".json":
        data = read_bytes(path)
    try:
        document = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return {}  # reading its matrices reports the error
    document = document.get("examples", document) if isinstance(document, dict) else {}
    parts = document.items() if isinstance(document, dict) else ()
    return {
        name: (str(part.get("about", "")), Matrices(_without_texts(part), path))
        for name, part in parts
        if isinstance(part, dict)
    }


def _without_texts(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if not isinstance(value, str)}


def read_safetensors(data: bytes, path: Path | str) -> Mapping[str, Any]:
    """The arrays of a file by name, and the lists of words in its metadata."""
    from safetensors import SafetensorError, deserialize

    try:
        items: Any = deserialize(data)  # type: ignore[no-untyped-call]
        tensors = {name: read_tensor(item) for name, item in items}
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"'{path}' cannot be read as .safetensors: {first_line(error)}") from error
    words = parse_header(data, f"'{path}'").get("__metadata__", {})  # text stands in headers only
    return tensors | {
        name: parse_json(words[name], f"'{name}' in '{path}'") for name in TEXTS if name in words
    }


def read_tensor(item: Mapping[str, Any]) -> NDArray[Any]:
    """An array of .safetensors; bfloat16, which numpy does not have, as float32."""
    kind, shape = item["dtype"], item["shape"]
    if kind == "BF16":
        return (np.frombuffer(item["data"], "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    numpy_kind = "?" if kind == "BOOL" else f"<{kind[0].lower()}{int(kind[1:]) // 8}"
    return np.frombuffer(item["data"], numpy_kind).reshape(shape)


def _numbers(value: Any, name: str, path: Path) -> NDArray[np.float64]:
    numbers = read_numbers(value, f"'{name}' in '{path}'", np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"'{name}' in '{path}' holds numbers that are not finite")
    return numbers


def _words(value: Any, name: str, path: Path) -> list[str]:
    words: list[str] = value.tolist() if isinstance(value, np.ndarray) else value
    check_words(words, name, f"'{path}'")
    return words
