"""Matrices by name from a file that somebody else wrote: .json, .npz or .safetensors."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from attnviz.core.errors import InputError
from attnviz.storage.archive import DAMAGE, member_shape, read_member
from attnviz.storage.documents import SMALL, check_room, check_words, parse_json, read_numbers

SUFFIXES = (".json", ".npz", ".safetensors")
TEXTS = ("tokens", "query_tokens", "key_tokens")
"""Names that hold lists of words; every other name holds numbers."""


def open_file(path: Path, buffering: int = -1) -> BinaryIO:
    """A file, open for reading; an InputError where that fails."""
    try:
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
            check_room(os.fstat(file.fileno()).st_size, f"'{path}'")
            return file.read()
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error


class Matrices(Mapping[str, Any]):
    """Numbers and lists of words by name; large arrays of an archive are read on demand."""

    def __init__(self, source: Mapping[str, Any], path: Path) -> None:
        self.source, self.path = source, path
        self.read: dict[str, Any] = {}
        for name in source:
            if not isinstance(source, Archive) or source.bytes_of(name) < SMALL:
                self[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self.read:
            value = self.source[name]
            read = _words if name in TEXTS else _numbers
            self.read[name] = read(value, name, self.path)
        return self.read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.source

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)

    def shape(self, name: str) -> tuple[int, ...]:
        """The axes of an array, known before it is read."""
        if isinstance(self.source, Archive):
            return self.source.shapes[name]
        shape: tuple[int, ...] = self[name].shape
        return shape


class Archive(Mapping[str, Any]):
    """The arrays of an .npz archive, each read when it is asked for."""

    def __init__(self, data: bytes, path: Path | str) -> None:
        self.path = path
        with _npz_errors(path):
            self.archive = zipfile.ZipFile(io.BytesIO(data))
            members = [name.removesuffix(".npy") for name in self.archive.namelist()]
            self.shapes = {name: member_shape(self.archive, f"{name}.npy") for name in members}

    def __getitem__(self, name: str) -> Any:
        self.shapes[name]  # a KeyError where there is no such array
        with _npz_errors(self.path):
            return read_member(self.archive, f"{name}.npy")

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def bytes_of(self, name: str) -> int:
        """How much memory an array takes."""
        return self.archive.getinfo(f"{name}.npy").file_size


@contextmanager
def _npz_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise InputError(f"'{path}' cannot be read as .npz: {error}") from error


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
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as .safetensors: {error}") from error
    # The format keeps text in its header only: its first 8 bytes give the header's length.
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")], f"header of '{path}'")
    words = header.get("__metadata__", {})
    return tensors | {
        name: parse_json(words[name], f"'{name}' in '{path}'") for name in TEXTS if name in words
    }


def read_tensor(item: Mapping[str, Any]) -> NDArray[Any]:
    """An array of .safetensors; bfloat16, which numpy does not have, as float32."""
    kind, shape = item["dtype"], item["shape"]
    if kind == "BF16":
        wide = np.frombuffer(item["data"], "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(shape)
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
