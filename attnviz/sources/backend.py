"""Where an own layer computes: numpy on the processor, torch elsewhere or at odd precisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import UsageError, choose
from attnviz.mechanisms.arrays import Array

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Backend:
    """A device and a precision; "auto" stays on the processor, where a sentence needs no more."""

    device: str
    dtype: str

    @property
    def on_torch(self) -> bool:
        """True where numpy cannot do it."""
        return self.device != "cpu" or self.dtype == "bfloat16"

    def array(self, numbers: NDArray[Any]) -> Array:
        """The numbers as an array of this backend; booleans stay booleans."""
        if not self.on_torch:
            return numbers if numbers.dtype == bool else numbers.astype(self.dtype)
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(numbers))
        dtype = None if tensor.dtype == torch.bool else getattr(torch, self.dtype)
        return tensor.to(device=self.device, dtype=dtype)


def choose_backend(device: str, dtype: str | None) -> Backend:
    """The backend that a device and a precision by name stand for.

    Raises:
        UsageError: an unknown name, or a device that this machine lacks.
    """
    choose(device, DEVICES, "device")
    dtype = choose(dtype or "float32", DTYPES, "dtype")
    if device in ("cuda", "mps"):
        import torch

        found = torch.cuda.is_available() if device == "cuda" else torch.mps.is_available()
        if not found:
            raise UsageError(f"device '{device}' is not available on this machine: use cpu")
    return Backend("cpu" if device == "auto" else device, dtype)


def to_numpy(array: Array) -> NDArray[np.float32]:
    """The array's numbers as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32)
    numbers: NDArray[np.float32] = array.detach().float().cpu().numpy()
    return numbers
