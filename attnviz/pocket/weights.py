"""The shipped weights as float arrays, each converted when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.errors import ModelError
from attnviz.mechanisms.arrays import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StoredWeights(Mapping[str, Array]):
    """Learned arrays by name, out of a safetensors file of float16.

    The file is mapped into memory, and an array is converted when it is first used: reading a text
    without translating it never touches the decoder.
    """

    def __init__(self, path: Path, dtype: str = "float32", device: str = "cpu") -> None:
        """Read the file's table of contents.

        Args:
            path: a safetensors file of float16 arrays.
            dtype: what the arrays are converted to.
            device: "cpu" for numpy arrays, any other for torch tensors there.

        Raises:
            ModelError: no such file, or one that is damaged.
        """
        self.dtype, self.device = dtype, device
        try:
            stored = np.memmap(path, dtype=np.uint8, mode="r")
            length = int(stored[:8].view("<u8")[0])
            self.contents: dict[str, Any] = json.loads(bytes(stored[8 : 8 + length]))
        except (OSError, ValueError) as error:
            raise ModelError(f"the pocket model's weights '{path}' cannot be read") from error
        self.contents.pop("__metadata__", None)
        self.stored = stored[8 + length :]
        self.converted: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self.converted:
            self.converted[name] = self.convert(self.raw(name))
        return self.converted[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def raw(self, name: str) -> NDArray[np.float16]:
        """The array as it lies in the file."""
        entry = self.contents[name]
        start, end = entry["data_offsets"]
        return self.stored[start:end].view("<f2").reshape(entry["shape"])

    def rows(self, name: str, numbers: NDArray[np.int64]) -> Array:
        """Some rows of an array, without converting the others."""
        if name in self.converted:
            return self.converted[name][numbers]
        return self.convert(self.raw(name)[numbers])

    def convert(self, array: NDArray[Any]) -> Array:
        """The numbers in this precision, on this device."""
        if self.device == "cpu":
            return array.astype(self.dtype)
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
