"""The base of the shipped models: a folder of weights, one forward pass, and their origin."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.effects import HeadAt
from attnviz.core.errors import choose
from attnviz.core.query import Query
from attnviz.core.registry import HEAD_WEIGHTS
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.formula import HeadArithmetic, Part
from attnviz.models import Source, check_device
from attnviz.models.light.network import Network, Record, Weights, linear_map
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import read_model_file
from attnviz.models.pocket.text import spell_piece

if TYPE_CHECKING:
    from attnviz.core.lens_inputs import ValueVectors
    from attnviz.core.writers import HeadWeights


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
        self.config = read_model_file(folder / "config.json")
        self.weights = StoredWeights(folder / self.file, dtype, device)
        self.tokenizer = folder / "tokenizer.json"

    @cached_property
    def origin(self) -> dict[str, Any]:
        """The card, the measured figures and limits that training wrote."""
        return read_model_file(self.folder / "origin.json")

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
        return spell_piece(self.tokenizer, number)

    def head_arithmetic(self, query: Query, which: HeadAt) -> HeadArithmetic:
        return stored_head_arithmetic(self, self.read(query)[0], which)

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


NORMS = "layer_input / √(its mean square), scaled", "layer_input with mean 0 and variance 1, scaled"
"""The formula of a layer's norm, in words: by the mean square, or of mean and variance."""


def stored_head_arithmetic(model: StoredModel, query: Any, which: HeadAt) -> HeadArithmetic:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    (attention,) = (one for one in model.record(query) if one.path == name)
    shape, maps = model.shape_of(which.stream), model.part_of(which.stream).maps
    size = shape.head_features
    own = slice(which.head * size, (which.head + 1) * size)
    is_cross = attention.memory is not attention.inputs
    parts = [
        Part("layer_input", attention.residual, "", "qf"),
        Part("normalised", attention.inputs, NORMS[shape.norm == "layer"], "qf"),
    ]
    parts += [Part("memory", attention.memory, "", "kf")] if is_cross else []
    sides, has_bias = [], f"{name}.{maps[3]}.bias" in model.weights
    for side, projection in zip(("query", "key", "value"), maps, strict=False):
        source = "memory" if is_cross and side != "query" else "normalised"
        axes = "qf" if side == "query" else "kf"
        weight = model.weights[f"{name}.{projection}.weight"][own].T
        parts.append(Part(f"w_{side}", weight, "", "ff"))
        formula = f"{source} @ w_{side}"
        if has_bias:
            bias = model.weights[f"{name}.{projection}.bias"][None, own]
            parts.append(Part(f"b_{side}", bias, "", "ff"))
            formula += f" + b_{side}"
        if shape.turns and side != "value":
            parts.append(Part(f"plain_{side}", attention.inputs @ weight, formula, axes))
            formula = f"pairs of plain_{side} turned by position"
        side_values = getattr(attention, side)[which.head]
        parts.append(Part(side, side_values, formula, axes))
        sides.append(side_values)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    output = parts.pop().value
    weight = model.weights[f"{name}.{maps[3]}.weight"][:, own].T
    parts += [
        Part("head_output", output, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", output @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    notes = (note,) if has_bias else ()
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return HeadArithmetic(plain, {"weights": to_numpy(attention.weights[which.head])}, notes)
