"""The base of the shipped models: a folder of weights, one forward pass, and their origin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, AttentionMap, Projections, Provenance
from attnviz.core.effects import HeadAt
from attnviz.core.errors import choose
from attnviz.core.query import Query
from attnviz.core.registry import WRITERS
from attnviz.mechanisms.arrays import to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.formula import HeadArithmetic, Part
from attnviz.models import Choose, Source, check_device
from attnviz.models.light.network import Network, Record
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import read_model_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.lens_inputs import ValueVectors
    from attnviz.core.writers import HeadWeights, ResidualStream, WrittenText


class StoredModel(Source, Network):
    """A shipped model as a source: numpy runs its weights, or torch where a device asks for it.

    Its folder holds weights, a configuration, and their origin.

    Attributes:
        sizes: at least the `size` of a position and the `heads` that share it.
    """

    name: ClassVar[str]  # its value for `--model`
    file: ClassVar[str] = "model.safetensors"  # its weights
    projections: ClassVar[tuple[str, ...]]  # names of query, key, value and output maps
    turns_pairs: ClassVar[bool] = False  # True where positions turn queries and keys
    decides: ClassVar[bool] = False  # True where it predicts one class, from its first position
    # the names of its embeddings and of the map to its logits, without ".weight"
    tokens: ClassVar[tuple[str, str] | None] = None
    # the formula of a layer's norm, in words
    norm_formula: ClassVar[str] = "layer_input with mean 0 and variance 1, scaled"

    def __init__(self, folder: Path, device: str = "cpu", dtype: str = "float32") -> None:
        self.folder, self.device, self.dtype = folder, device, dtype
        self.config = read_model_file(folder / "config.json")
        self.weights = StoredWeights(folder / self.file, dtype, device)

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
        return stored_values(self, *self.read(query))

    def head_arithmetic(self, query: Query, which: HeadAt) -> HeadArithmetic:
        return stored_head_arithmetic(self, self.read(query)[0], which)

    def trace_writers(self, query: Query) -> WrittenText:
        text: WrittenText = WRITERS["pocket"].load()(self, query)
        return text

    def read_stream(
        self, query: Query, choose: Choose, *, attention_only: bool = False
    ) -> ResidualStream | None:
        text: Any = self.trace_writers(query)
        stream: ResidualStream | None = text.stream(choose, attention_only=attention_only)
        return stream

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        weights = WRITERS["head weights"].load()(
            self.weights, self.shapes, [*self.streams], self.tokens
        )
        return weights, self.provenance((), {})

    @abstractmethod
    def stacks(self, feed: Any) -> list[Any]:
        """Its stacks of layers after they have read an input; the last one predicts."""

    @abstractmethod
    def spell(self, number: int) -> str:
        pass

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


def watch_pass(model: StoredModel, feed: Any) -> dict[str, AttentionCall]:
    """Each attention of one pass, by its name among the weights."""
    record = Record()
    model.forward(model.weights, model.inputs(feed), record)
    return {one.path: one for one in record}


def watch_layers(model: StoredModel, feed: Any) -> Callable[[AttentionMap], list[AttentionCall]]:
    """A function that gives a map's layers their attentions, from one pass."""
    calls = watch_pass(model, feed)
    return lambda item: [calls[model.streams[item.stream].format(layer)] for layer in item.layers]


def add_projections(model: StoredModel, feed: Any, attention: Attention) -> Attention:
    """The attention, with the queries and keys of each stream."""
    from attnviz.analyses.entropy import peak

    layers = watch_layers(model, feed)

    def stack(item: AttentionMap, side: str) -> NDArray[np.float32]:
        return np.stack([to_numpy(getattr(one, side)) for one in layers(item)])

    scale = (model.sizes.size // model.sizes.heads) ** -0.5
    projections = {
        item.stream: Projections(
            stack(item, "query"),
            stack(item, "key"),
            scale,
            item.layers,
            item.heads,
            value=stack(item, "value"),
            peaks=tuple(peak(to_numpy(one.residual)) for one in layers(item)),
        )
        for item in attention.maps
    }
    return replace(attention, projections=projections)


def stored_values(model: StoredModel, feed: Any, attention: Attention) -> ValueVectors:
    """Each head's values through its slice of W_O, for maps of the model."""
    from attnviz.core.lens_inputs import ValueVectors, inner_products

    layers = watch_layers(model, feed)

    def products(attention: AttentionCall) -> NDArray[np.float64]:
        mixer = to_numpy(model.weights[f"{attention.path}.{model.projections[3]}.weight"])
        return inner_products(to_numpy(attention.value), mixer.T)

    arrays = tuple(np.stack([products(one) for one in layers(item)]) for item in attention.maps)
    return ValueVectors(attention, arrays, projected=True)


def stored_head_arithmetic(model: StoredModel, query: Any, which: HeadAt) -> HeadArithmetic:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    attention, size = watch_pass(model, query)[name], model.sizes.size // model.sizes.heads
    own = slice(which.head * size, (which.head + 1) * size)
    is_cross = attention.memory is not attention.inputs
    parts = [
        Part("layer_input", attention.residual, "", "qf"),
        Part("normalised", attention.inputs, model.norm_formula, "qf"),
    ]
    parts += [Part("memory", attention.memory, "", "kf")] if is_cross else []
    sides, has_bias = [], f"{name}.{model.projections[3]}.bias" in model.weights
    for side, projection in zip(("query", "key", "value"), model.projections, strict=False):
        source = "memory" if is_cross and side != "query" else "normalised"
        axes = "qf" if side == "query" else "kf"
        weight = model.weights[f"{name}.{projection}.weight"][own].T
        parts.append(Part(f"w_{side}", weight, "", "ff"))
        formula = f"{source} @ w_{side}"
        if has_bias:
            bias = model.weights[f"{name}.{projection}.bias"][None, own]
            parts.append(Part(f"b_{side}", bias, "", "ff"))
            formula += f" + b_{side}"
        if model.turns_pairs and side != "value":
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
    weight = model.weights[f"{name}.{model.projections[3]}.weight"][:, own].T
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
