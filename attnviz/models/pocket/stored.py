"""What the shipped models share: weights in a folder, one pass over what they read, its origin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.errors import InputError, choose
from attnviz.core.query import Query
from attnviz.mechanisms.arrays import Array
from attnviz.models import attend_each, check_device
from attnviz.models.pocket.card import read_json
from attnviz.models.pocket.network import StoredWeights, Watch, Weights

if TYPE_CHECKING:
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.models.pocket.experiment import StoredExperiment


class StoredModel(ABC):
    """The weights of a folder, and how to run them on numpy, or on torch where a device asks.

    Attributes:
        name: as `--model` has it.
        streams: what the attention of each stream's layers is called among the weights.
        mixer: what the map is called that joins an attention's heads again.
        sizes: with at least the `size` of a position and the `heads` that share it.
    """

    name: ClassVar[str]
    streams: ClassVar[Mapping[str, str]]
    mixer: ClassVar[str] = "o_proj"
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


class OneInput(StoredModel):
    """A shipped model that reads one thing; fulfils `attnviz.models.Source` and what explains it.

    Its files beside the weights are a configuration of transformers and the weights' origin.
    """

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        self.config, self.origin = (
            read_json(folder / f"{name}.json") for name in ("config", "origin")
        )
        super().__init__(folder / "model.safetensors", self.origin["revision"], device, dtype)

    @abstractmethod
    def read(self, query: Query) -> tuple[Any, Attention]:
        """What `inputs` takes, and its maps."""

    @abstractmethod
    def experiment(self, query: Query, wanted: str | None = None) -> StoredExperiment:
        """The model with its input before it, to be run with parts of it switched off."""

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of each query in order, or why it has none."""
        return attend_each(lambda query: self.read(query)[1], queries)

    def gradients(self, query: Query, wanted: str | None = None) -> AttentionGradients:
        """The gradients of what is predicted, or of the wanted output."""
        return self.experiment(query, wanted).explained()

    def values(self, query: Query) -> ValueVectors:
        """The values at each position, through each head's slice of the output projection."""
        from attnviz.models.pocket.lens_inputs import value_vectors

        return value_vectors(self, *self.read(query))


def checked(device: str, dtype: str | None) -> dict[str, str]:
    """A device that is there and a precision that it has, as a model takes them."""
    device = check_device(device)
    known = ("float32", "float64") if device == "cpu" else ("float32", "float16", "bfloat16")
    return {"device": device, "dtype": choose(dtype or "float32", known, f"dtype on {device}")}
