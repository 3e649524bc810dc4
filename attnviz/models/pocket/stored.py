"""What the shipped models share: weights in a folder, one pass over what they read, its origin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnviz.core.attention_map import Provenance
from attnviz.core.errors import choose
from attnviz.mechanisms.arrays import Array
from attnviz.models import check_device
from attnviz.models.pocket.network import StoredWeights, Watch, Weights


class StoredModel(ABC):
    """The weights of a folder, and how to run them on numpy, or on torch where a device asks.

    Attributes:
        name: as `--model` has it.
        streams: what the attention of each stream's layers is called among the weights.
        projections: what the maps to queries, keys, values and out of the heads are called.
        turned: whether queries and keys are turned by their positions.
        normalised: how a layer's input is made ready for its attention, in words.
        sizes: with at least the `size` of a position and the `heads` that share it.
    """

    name: ClassVar[str]
    streams: ClassVar[Mapping[str, str]]
    projections: ClassVar[tuple[str, ...]]
    turned: ClassVar[bool] = False
    normalised: ClassVar[str] = "layer_input with mean 0 and variance 1, scaled"
    sizes: Any

    def __init__(self, weights: Path, revision: str, device: str, dtype: str) -> None:
        self.weights = StoredWeights(weights, dtype, device)
        self.revision, self.device, self.dtype = revision, device, dtype

    @abstractmethod
    def inputs(self, given: Any) -> tuple[Array, ...]:
        """What the model reads as its layers take it, each (positions, size)."""

    @abstractmethod
    def forward(
        self, weights: Weights, inputs: tuple[Array, ...], watch: Watch | None = None
    ) -> tuple[Array, Mapping[str, list[Array]]]:
        """Last states (…, positions, size), and each stream's weights by layer."""

    @abstractmethod
    def scores(self, weights: Weights, states: Array) -> Array:
        """What states (…, size) say of each choice, before it becomes a probability."""

    def provenance(self, notes: tuple[str, ...], settings: dict[str, Any]) -> Provenance:
        """Where maps of this model come from, and what a reader must know of them."""
        return Provenance(
            source="pocket",
            model=self.name,
            trained=True,
            device=self.device,
            dtype=self.dtype,
            settings={"revision": self.revision, **settings},
            notes=notes,
            versions={"numpy": np.__version__},
        )


def checked(device: str, dtype: str | None) -> dict[str, str]:
    """A device that is there and a precision that it has, as a model takes them."""
    device = check_device(device)
    known = ("float32", "float64") if device == "cpu" else ("float32", "float16", "bfloat16")
    return {"device": device, "dtype": choose(dtype or "float32", known, f"dtype on {device}")}
