"""The base of the shipped models: a folder of weights, one forward pass, and their origin."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.errors import choose
from attnviz.core.lens_inputs import ValueVectors
from attnviz.core.query import Query
from attnviz.core.registry import HEAD_WEIGHTS
from attnviz.core.writers import HeadWeights
from attnviz.mechanisms.arrays import Array
from attnviz.models import Source, check_device
from attnviz.models.light.network import Network, Record, Weights, linear_map
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket import card, text


class StoredModel(Source, Network):
    """A shipped model as a source: numpy runs its weights, or torch where a device asks for it.

    Its folder holds weights, a configuration, and their origin.

    Attributes:
        sizes: at least the `size` of a position and the `heads` that share it.
    """

    name: ClassVar[str]  # its value for `--model`
    file: ClassVar[str] = "model.safetensors"  # its weights
    decides: ClassVar[bool] = False  # True where it predicts one class, from its first position
    # the names of its embeddings, if it reads tokens, and of the map to its logits
    words: ClassVar[str] = ""
    output: ClassVar[str]

    def __init__(self, folder: Path, device: str = "cpu", dtype: str = "float32") -> None:
        self.folder, self.device, self.dtype = folder, device, dtype
        self.config = card.read_model_file(folder / "config.json")
        self.weights = StoredWeights(folder / self.file, dtype, device)
        self.tokenizer = card.tokenizer_of(folder)

    @cached_property
    def origin(self) -> dict[str, Any]:
        """The card, the measured figures and limits that training wrote."""
        return card.read_model_file(self.folder / "origin.json")

    @abstractmethod
    def read(self, query: Query) -> tuple[Any, Attention]:
        """The model's input for a query, and the query's maps."""

    def _attend_one(self, query: Query) -> Attention:
        return self.read(query)[1]

    def values(self, query: Query) -> ValueVectors:
        feed, attention = self.read(query)
        return self.values_of(feed, attention)

    def values_of(self, feed: Any, attention: Attention) -> ValueVectors:
        """Each head's values through its slice of W_O, for maps of this model."""
        from attnviz.models.light.vectors import value_vectors

        return value_vectors(self, attention, self.record(feed))

    def record(self, feed: Any) -> Record:
        """Each attention of one pass."""
        record = Record()
        self.forward(self.weights, self.inputs(feed), record)
        return record

    def scores(self, weights: Weights, states: Array) -> Array:
        return linear_map(weights, self.output, states)

    def spell(self, number: int) -> str:
        """A piece as it is written, or the name of a class."""
        return text.spell_piece(self.tokenizer, number)

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        tokens = (self.words, self.output) if self.words else None
        weights = HEAD_WEIGHTS.load()(self.weights, self.shapes, [*self.streams], tokens)
        return weights, self.provenance((), {})

    @abstractmethod
    def stacks(self, feed: Any) -> list[Any]:
        """Its stacks of layers after they have read an input; the last one predicts."""

    def provenance(self, notes: tuple[str, ...], settings: dict[str, Any]) -> Provenance:
        """The origin of maps of this model, with notes for the reader."""
        revision = self.config.get("revision") or self.origin["revision"]
        return Provenance(
            source="pocket",
            model=self.name,
            trained=True,
            device=self.device,
            dtype=self.dtype,
            settings={"revision": revision, **settings},
            notes=notes,
            versions={"numpy": np.__version__},
        )


def device_options(device: str, dtype: str | None) -> dict[str, str]:
    """The device and the precision, once this machine is known to have them."""
    device = check_device(device)
    dtypes = ("float32", "float64") if device == "cpu" else ("float32", "float16", "bfloat16")
    return {"device": device, "dtype": choose(dtype or "float32", dtypes, f"dtype on {device}")}


def add_projections(model: StoredModel, feed: Any, attention: Attention) -> Attention:
    """The attention, with the queries and keys of each stream."""
    from attnviz.models.light.vectors import projections_of

    record = model.record(feed)
    projections = {item.stream: projections_of(model, item, record) for item in attention.maps}
    return replace(attention, projections=projections)
