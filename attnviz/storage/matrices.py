"""Matrices by name out of a file that somebody else wrote: .json, .npz or .safetensors."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from attnviz.core.errors import InputError
from attnviz.storage.archive import DAMAGE
from attnviz.storage.documents import check_words, parse_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = (".json", ".npz", ".safetensors")
TEXTS = ("tokens", "query_tokens", "key_tokens")
"""Names that hold lists of words; every other name holds numbers."""


def open_file(path: Path) -> BinaryIO:
    """A file, open for reading; InputError where it cannot be."""
    try:
        return path.open("rb")
    except IsADirectoryError as error:
        raise InputError(f"'{path}' is a folder, not a file") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file '{path}'") from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error


def read_bytes(path: Path) -> bytes:
    """A file's content; InputError where it cannot be read to its end."""
    with open_file(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error


def read_matrices(path: Path) -> dict[str, Any]:
    """Numbers and lists of words by name; an InputError where a file holds anything else."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"'{path}' is none of {', '.join(SUFFIXES)}")
    data = read_bytes(path)
    read = {".json": _read_json, ".npz": read_npz, ".safetensors": read_safetensors}[suffix]
    return {
        name: _words(value, name, path) if name in TEXTS else _numbers(value, name, path)
        for name, value in read(data, path).items()
    }


def _read_json(data: bytes, path: Path) -> Mapping[str, Any]:
    document = parse_json(data, f"'{path}'")
    if not isinstance(document, dict):
        raise InputError(f"'{path}' holds no matrices by name: its JSON is not an object")
    return {name: value for name, value in document.items() if not isinstance(value, str)}


def read_npz(data: bytes, path: Path | str) -> Mapping[str, Any]:
    """The arrays of an archive by name; nothing in it is run."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGE as error:
        raise InputError(f"'{path}' cannot be read as .npz: {error}") from error


def read_safetensors(data: bytes, path: Path | str) -> Mapping[str, Any]:
    """The arrays of a file by name, and the lists of words in its metadata."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors: dict[str, Any] = dict(load(data))
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"'{path}' cannot be read as .safetensors: {error}") from error
    # The format keeps text in its header only: its first 8 bytes give the header's length.
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")], f"header of '{path}'")
    words = header.get("__metadata__", {})
    return tensors | {
        name: parse_json(words[name], f"'{name}' in '{path}'") for name in TEXTS if name in words
    }


def _numbers(value: Any, name: str, path: Path) -> NDArray[np.float64]:
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise InputError(f"'{name}' in '{path}' has rows of different lengths") from error
    try:
        # Texts and complex numbers would be read, or cut down, without a word.
        numbers = np.asarray(value if found.dtype.kind in "biufO" else None, dtype=np.float64)
        if found.size and numbers.shape != found.shape:
            raise ValueError
    except (TypeError, ValueError) as error:
        raise InputError(f"'{name}' in '{path}' is no matrix of numbers") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"'{name}' in '{path}' holds numbers that are not finite")
    return numbers


def _words(value: Any, name: str, path: Path) -> list[str]:
    words: list[str] = value.tolist() if isinstance(value, np.ndarray) else value
    check_words(words, name, f"'{path}'")
    return words
