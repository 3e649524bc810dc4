"""Learned arrays, read from safetensors where they are used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import ModelError
from attnviz.mechanisms.arrays import Array
from attnviz.models.light.architecture import Architecture
from attnviz.models.light.head import Head
from attnviz.models.light.network import Shape, UnknownArchitecture

DTYPES = {"F16": "<f2", "F32": "<f4", "BF16": "<u2"}  # bfloat16: upper half of a float32
PLANES = {"layout": "planes of bytes"}
"""Of a file whose arrays (2, …) are low and high bytes of float16: a wheel packs it 7 % smaller."""


def _check_places(contents: Mapping[str, Any], size: int) -> None:
    """Refuse a header, by a ValueError, whose arrays have no whole numbers or lie elsewhere."""
    for entry in contents.values():
        numbers = (*entry["shape"], *entry["data_offsets"])
        start, end = entry["data_offsets"]
        if any(type(one) is not int or one < 0 for one in numbers) or not start <= end <= size:
            raise ValueError(entry)


class StoredWeights(Mapping[str, Array]):
    """Learned arrays by name, from safetensors files that are mapped into memory.

    An array is converted at its first use: the attention of one text never touches the decoder.
    """

    def __init__(
        self, paths: Path | Sequence[Path], dtype: str = "float32", device: str = "cpu"
    ) -> None:
        self.dtype, self.device = dtype, device
        self.contents: dict[str, Any] = {}
        self.file_bytes: dict[str, NDArray[np.uint8]] = {}
        self.split = set[str]()  # the names of arrays in planes
        for path in [paths] if isinstance(paths, Path) else paths:
            # Read by hand: the default run imports no safetensors.
            try:
                content = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
                length = int(content[:8].view("<u8")[0])
                contents = json.loads(bytes(content[8 : 8 + length]))
                split = contents.pop("__metadata__", None) == PLANES and isinstance(paths, Path)
                _check_places(contents, len(content) - 8 - length)
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                raise ModelError(f"the weights '{path}' cannot be read") from error
            self.contents |= contents
            self.split |= set(contents if split else ())
            self.file_bytes |= dict.fromkeys(contents, content[8 + length :])
        self.arrays: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self.arrays:
            self.arrays[name] = self.convert(self.raw(name))
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.contents

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def raw(self, name: str) -> NDArray[Any]:
        entry = self.contents[name]
        start, end = entry["data_offsets"]
        numbers: NDArray[Any] = self.file_bytes[name][start:end]
        if name in self.split:
            low, high = numbers.reshape(entry["shape"])
            numbers = np.left_shift(high, 8, dtype=np.uint16) | low
            return numbers.view(np.float16)
        return numbers.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])

    def rows(self, name: str, numbers: NDArray[np.int64]) -> Array:
        if name in self.arrays:
            return self.arrays[name][numbers]
        return self.convert(self.raw(name)[numbers])

    def convert(self, array: NDArray[Any]) -> Array:
        """The numbers in this precision, on this device."""
        if array.dtype == np.uint16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        if self.device == "cpu":
            return array.astype(self.dtype, copy=False)
        import torch

        return torch.from_numpy(array.astype(np.float32)).to(
            device=self.device, dtype=getattr(torch, self.dtype)
        )

    def place(self, mask: NDArray[np.bool_]) -> Array:
        """A mask on the same device."""
        if self.device == "cpu":
            return mask
        import torch

        return torch.from_numpy(mask).to(self.device)


class CheckpointWeights(StoredWeights):
    """A checkpoint's arrays by the names that its architecture has in the table.

    Nothing stays converted but while a text is written: each array is used once in a pass, and a
    model may be large.
    """

    def __init__(self, paths: Sequence[Path], architecture: Architecture, shape: Shape) -> None:
        super().__init__(paths)
        self.architecture, self.shape = architecture, shape
        start = f"{architecture.prefix}."
        bare = not any(name.startswith(start) for name in self.contents)
        self.start = "" if bare else start
        self.beside: dict[str, str] = {}  # the head's weights, by the name of the stored one
        self.writing = False
        for name in architecture.copies.split():
            self._compare(f"{self.start}{name}.weight", self._words)

    @property
    def _words(self) -> str:
        return f"{self.start}{self.architecture.words}.weight"

    def add_head(self, head: Head) -> None:
        """Find the weights of a head too; what is tied may not be stored twice and differ."""
        output = head.maps.split()[0]
        ties = {f"{output}.weight": self._words, f"{output}.bias": head.bias} if head.ties else {}
        self.beside = {
            name: ties.get(name) or name for name, _ in head.weight_shapes(self.shape, 0)
        }
        for pair in self.beside.items():
            self._compare(*pair)

    def _compare(self, one: str, other: str) -> None:
        kinds = {self.contents.get(name, {}).get("dtype") for name in (one, other)}
        if kinds <= DTYPES.keys():
            own, other_numbers = (StoredWeights.raw(self, name) for name in (one, other))
            if not np.array_equal(own, other_numbers):
                raise UnknownArchitecture(f"its '{one}' is tied to other weights")

    @contextmanager
    def keep_widened(self) -> Iterator[None]:
        """Keep what is widened for a block of code that needs each array again and again."""
        self.writing = True
        try:
            yield
        finally:
            self.writing = False
            self.arrays.clear()

    def __getitem__(self, name: str) -> Array:
        return super().__getitem__(name) if self.writing else self.convert(self.raw(name))

    def __contains__(self, name: object) -> bool:
        return self._find(str(name))[0] in self.contents

    def raw(self, name: str) -> NDArray[Any]:
        place, part = self._find(name)
        numbers = super().raw(place)
        if self.architecture.is_transposed and numbers.ndim == 2 and place.endswith(".weight"):
            numbers = numbers.T if self._is_map(place) else numbers
        if part is None:
            return numbers
        if self.architecture.cuts == "heads":
            cut = numbers.reshape(self.shape.heads, 3, -1, *numbers.shape[1:])[:, part]
            return cut.reshape(-1, *numbers.shape[1:])
        size = len(numbers) // 3
        return numbers[part * size : (part + 1) * size]

    def _find(self, name: str) -> tuple[str, int | None]:
        """The name of a stored array, and which third of it is meant; None: all."""
        if name in self.beside:
            return self.beside[name], None
        stem, mark, rest = name.partition("#")
        if not mark:
            return self.start + name, None
        return f"{self.start}{stem}{rest[1:]}", int(rest[0])

    def _is_map(self, name: str) -> bool:
        shape = self.architecture.shape
        maps = {one.partition("#")[0] for one in (*shape.attention.maps, *shape.feed_forward.maps)}
        return any(name.endswith(f".{one}.weight") for one in maps)

    def check(self, shapes: Iterator[tuple[str, tuple[int, ...]]]) -> None:
        """Make sure that the file holds what the network reads, and nothing unknown beside it.

        Raises:
            UnknownArchitecture: it does not.
        """
        used_names = set()
        for name, size in shapes:
            place, _ = self._find(name)
            used_names.add(place)
            if place not in self.contents:
                raise UnknownArchitecture(f"its weights lack '{name}'")
            if self.contents[place]["dtype"] not in DTYPES:
                raise UnknownArchitecture(f"'{name}' is stored as {self.contents[place]['dtype']}")
            shape = self.raw(name).shape
            fits = (one in (-1, there) for one, there in zip(size, shape, strict=False))
            if len(shape) != len(size) or not all(fits):
                raise UnknownArchitecture(f"'{name}' has the shape {shape} and not {size}")
        for place in self.contents.keys() - used_names:
            name = place.removeprefix(self.start)
            if not re.match(self.architecture.left_out, name):
                raise UnknownArchitecture(f"its weights hold '{place}' too")
