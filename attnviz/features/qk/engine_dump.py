"""Queries and keys of one request as vLLM-Hook writes them: .safetensors with .json beside it.

The JSON names the layers with their arrays, how long each pass was (a prompt, then a token each)
and, in "config", the numbers of heads. Heads stand side by side in the features; each rank of a
tensor-parallel engine has a file with heads of its own. A layer is read when it is asked for.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError
from attnviz.core.records import dataclass
from attnviz.storage.documents import parse_json
from attnviz.storage.matrices import (
    header_length,
    open_file,
    parse_header,
    read_bytes,
    read_tensor,
)

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
    header, end = parse_header(data, f"'{path}'"), 8 + header_length(data, f"'{path}'")
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
