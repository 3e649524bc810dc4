"""Learned arrays, read from safetensors where they are used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import ModelError
from attnviz.mechanisms.arrays import Array
from attnviz.models.light.network import Shape, UnknownArchitecture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.models.light.architecture import Architecture
    from attnviz.models.light.experiment import Head

DTYPES = {"F16": "<f2", "F32": "<f4", "BF16": "<u2"}  # bfloat16: upper half of a float32


class StoredWeights(Mapping[str, Array]):
    """Learned arrays by name, from safetensors files that are mapped into memory.

    An array is converted at its first use: the attention of one text never touches the decoder.
    """

    def __init__(
        self, paths: Path | Sequence[Path], dtype: str = "float32", device: str = "cpu"
    ) -> None:
        self.dtype, self.device = dtype, device
        self.contents: dict[str, Any] = {}
        self.stored: dict[str, NDArray[np.uint8]] = {}
        for path in [paths] if isinstance(paths, Path) else paths:
            # Read by hand: the default run imports no safetensors.
            try:
                stored = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
                length = int(stored[:8].view("<u8")[0])
                contents = json.loads(bytes(stored[8 : 8 + length]))
            except (OSError, ValueError) as error:
                raise ModelError(f"the weights '{path}' cannot be read") from error
            contents.pop("__metadata__", None)
            self.contents |= contents
            self.stored |= dict.fromkeys(contents, stored[8 + length :])
        self.converted: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self.converted:
            self.converted[name] = self.convert(self.raw(name))
        return self.converted[name]

    def __contains__(self, name: object) -> bool:
        return name in self.contents

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def raw(self, name: str) -> NDArray[Any]:
        entry = self.contents[name]
        start, end = entry["data_offsets"]
        found: NDArray[Any] = self.stored[name][start:end].view(DTYPES[entry["dtype"]])
        return found.reshape(entry["shape"])

    def rows(self, name: str, numbers: NDArray[np.int64]) -> Array:
        if name in self.converted:
            return self.converted[name][numbers]
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
        ties = {f"{output}.weight": self._words, f"{output}.bias": head.bias} if head.tied else {}
        self.beside = {
            name: ties.get(name) or name for name, _ in head.weight_shapes(self.shape, 0)
        }
        for pair in self.beside.items():
            self._compare(*pair)

    def _compare(self, one: str, other: str) -> None:
        kinds = {self.contents.get(name, {}).get("dtype") for name in (one, other)}
        if kinds <= DTYPES.keys():
            own, shared = (StoredWeights.raw(self, name) for name in (one, other))
            if not np.array_equal(own, shared):
                raise UnknownArchitecture(f"its '{one}' is tied to other weights")

    @contextmanager
    def keep_widened(self) -> Iterator[None]:
        """Keep what is widened for a block of code that needs each array again and again."""
        self.writing = True
        try:
            yield
        finally:
            self.writing = False
            self.converted.clear()

    def __getitem__(self, name: str) -> Array:
        return super().__getitem__(name) if self.writing else self.convert(self.raw(name))

    def __contains__(self, name: object) -> bool:
        return self._find(str(name))[0] in self.contents

    def raw(self, name: str) -> NDArray[Any]:
        stored, part = self._find(name)
        found = super().raw(stored)
        if self.architecture.transposed and found.ndim == 2 and stored.endswith(".weight"):
            found = found.T if self._is_map(stored) else found
        if part is None:
            return found
        if self.architecture.cuts == "heads":
            cut = found.reshape(self.shape.heads, 3, -1, *found.shape[1:])[:, part]
            return cut.reshape(-1, *found.shape[1:])
        size = len(found) // 3
        return found[part * size : (part + 1) * size]

    def _find(self, name: str) -> tuple[str, int | None]:
        """The name of a stored array, and which third of it is meant; None: all."""
        if name in self.beside:
            return self.beside[name], None
        stem, mark, rest = name.partition("#")
        if not mark:
            return self.start + name, None
        return f"{self.start}{stem}{rest[1:]}", int(rest[0])

    def _is_map(self, stored: str) -> bool:
        shape = self.architecture.shape
        maps = {one.partition("#")[0] for one in (*shape.attention.maps, *shape.feed_forward.maps)}
        return any(stored.endswith(f".{one}.weight") for one in maps)

    def check(self, expected: Iterator[tuple[str, tuple[int, ...]]]) -> None:
        """Make sure that the file holds what the network reads, and nothing unknown beside it.

        Raises:
            UnknownArchitecture: it does not.
        """
        used = set()
        for name, size in expected:
            stored, _ = self._find(name)
            used.add(stored)
            if stored not in self.contents:
                raise UnknownArchitecture(f"its weights lack '{name}'")
            if self.contents[stored]["dtype"] not in DTYPES:
                raise UnknownArchitecture(f"'{name}' is stored as {self.contents[stored]['dtype']}")
            found = self.raw(name).shape
            fits = (one in (-1, there) for one, there in zip(size, found, strict=False))
            if len(found) != len(size) or not all(fits):
                raise UnknownArchitecture(f"'{name}' has the shape {found} and not {size}")
        for stored in self.contents.keys() - used:
            name = stored.removeprefix(self.start)
            if not re.match(self.architecture.left_out, name):
                raise UnknownArchitecture(f"its weights hold '{stored}' too")
