"""Matrices by name from a file that somebody else wrote: .json, .npz or .safetensors.

Queries and keys of one request as vLLM-Hook writes them are a .safetensors with .json beside it.
The JSON names the layers with their arrays, how long each pass was (a prompt, then a token each)
and, in "config", the numbers of heads. Heads stand side by side in the features; each rank of a
tensor-parallel engine has a file with heads of its own. A layer is read when it is asked for.
"""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        _header_length(parts[0], where)
    if size == SMALL and file.seekable() and (end := file.seek(0, os.SEEK_END)):
        check_room(end, where)
        file.seek(0)
        return file.read()
    while part := file.read(SMALL):
        parts.append(part)
        size += len(part)
        check_room(size, where)
    return b"".join(parts)


def _header_length(data: Any, where: str) -> int:
    """How long the JSON at the beginning of .safetensors is, as its first 8 bytes say."""
    length = int.from_bytes(bytes(data[:8]), "little")
    if LONGEST_HEADER < length < 1 << 48:  # eight letters of a text are a larger number
        raise InputError(f"the header of {where} would have {length:,} bytes: it is damaged")
    return length


def parse_header(data: Any, where: str) -> Any:
    """The JSON at the beginning of .safetensors."""
    return parse_json(bytes(data[8 : 8 + _header_length(data, where)]), f"header of {where}")


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


NAME = "qk.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One rank's file: its arrays by name, mapped into memory, and the JSON beside it."""

    path: Path
    data: NDArray[np.uint8]
    header: dict[str, Any]
    about: dict[str, Any]

    def array(self, name: str) -> NDArray[Any]:
        """An array, whose numbers are read from disk as they are used."""
        item = self.header[name]
        first, last = item["data_offsets"]
        base = 8 + int.from_bytes(self.data[:8].tobytes(), "little")
        data = self.data[base + first : base + last]
        return read_tensor({"dtype": item["dtype"], "shape": item["shape"], "data": data})


@dataclass(frozen=True, slots=True, eq=False)
class LayeredArray:
    """Queries or keys of all layers, (layers, heads, tokens, size), read one layer at a time."""

    shards: Sequence[Shard]
    side: str
    size: int
    shape: tuple[int, int, int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, layer: int) -> NDArray[np.float64]:
        """One layer, (heads, tokens, size)."""
        with _dump_errors(self.shards[0].path):
            parts = [_queries_and_keys(shard, layer)[self.side == "k"] for shard in self.shards]
            rows = np.concatenate([p.reshape(len(p), -1, self.size) for p in parts], axis=1)
        if rows.swapaxes(0, 1).shape != self.shape[1:]:
            raise InputError(
                f"'{self.shards[0].path}': layer {layer} has another shape than others"
            )
        return rows.swapaxes(0, 1).astype(np.float64)


def is_engine_dump(path: Path) -> bool:
    """Whether this is a folder, or a file with the JSON of a dump beside it."""
    if path.is_dir():
        return True
    return path.suffix == ".safetensors" and path.with_suffix(".json").is_file()


@contextmanager
def _dump_errors(path: Path) -> Iterator[None]:
    """Whatever a damaged dump leads to, as an InputError."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"'{path}' is no dump of queries and keys: it lacks {error}") from error
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise InputError(f"'{path}' is no dump of queries and keys: it is damaged") from error


def read_engine_dump(path: Path) -> dict[str, Any]:
    """A dump as `--qk` takes it: "query", "key", "scale", "causal", "layers", ….

    Raises:
        InputError: it is damaged, or holds more than one request.
    """
    files = sorted(path.rglob(NAME)) if path.is_dir() else [path]
    if not files:
        raise InputError(f"folder '{path}' holds no {NAME}, which vLLM-Hook writes for a request")
    with _dump_errors(path):
        shards = [_open(file) for file in files]
        config, order = shards[0].about["config"], shards[0].about["layer_order"]
        size, groups = int(config["head_dim"]), int(config["num_key_value_heads"])
        first = [_queries_and_keys(shard, 0) for shard in shards]
        heads, own = (sum(pair[n].shape[1] // size for pair in first) for n in (0, 1))
        if own != groups:
            raise InputError(f"'{path}' holds {own} heads of keys, and its config says {groups}")
        shapes = [
            (len(order), count, len(first[0][n]), size) for n, count in ((0, heads), (1, own))
        ]
        arrays: dict[str, Any] = {
            "query": LayeredArray(shards, "q", size, shapes[0]),
            "key": LayeredArray(shards, "k", size, shapes[1]),
            "layers": tuple(str(one["layer_num"]) for one in order),
            "scale": float(config.get("attention_multiplier", size**-0.5)),
            "causal": 1.0,
            "rotated": float(shards[0].about.get("rotated", True)),
        }
        about = shards[0].about
        return arrays | {name: about[name] for name in ("tokens", "rope_theta") if name in about}


def _open(path: Path) -> Shard:
    about = parse_json(read_bytes(path.with_suffix(".json")), f"'{path.with_suffix('.json')}'")
    with open_file(path) as file:
        data = np.memmap(file, np.uint8, "r")
    header, end = parse_header(data, f"'{path}'"), 8 + _header_length(data, f"'{path}'")
    sizes = [item["data_offsets"][1] for name, item in header.items() if name != "__metadata__"]
    if end + max(sizes, default=0) != len(data):
        raise InputError(f"'{path}' is no dump of queries and keys: it is cut short")
    return Shard(path, data, header, about)


def _queries_and_keys(shard: Shard, layer: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """One layer's queries and keys (tokens, features) of all passes, one after the other."""
    about = shard.about
    item = about["layer_order"][layer]
    query, key = (shard.array(item[name]) for name in ("key_q", "key_k"))
    if about.get("compact_all_tokens"):
        if len(about["k_full_lens"]) != 1:
            raise _several(shard)
        lengths, ends = about["q_seq_lens"], about["k_prefix_ends"][0]
        query, key = query[: sum(lengths)], key[: ends[-1]]
    else:
        every = query if query.ndim == 3 else query[:, None]  # the last token of each pass alone
        lengths = about.get("q_seq_lens") if query.ndim == 3 else None
        lengths = lengths or [every.shape[1]] * len(every)
        ends = about.get("k_seq_lens") or [key.shape[1]] * len(key)
        query = np.concatenate([rows[:n] for rows, n in zip(every, lengths, strict=True)])
        key = key[-1, : ends[-1]]
    if any(end - n != before for before, end, n in zip(ends, ends[1:], lengths[1:], strict=False)):
        raise _several(shard)
    return query, key


def _several(shard: Shard) -> InputError:
    return InputError(f"'{shard.path}' holds more than one request: give the folder of one")
