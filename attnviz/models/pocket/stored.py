"""The base of the shipped models: a folder of weights, one forward pass, and their origin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Projections, Provenance
from attnviz.core.errors import choose
from attnviz.core.query import Query
from attnviz.mechanisms.arrays import to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled
from attnviz.mechanisms.formula import HeadArithmetic, HeadPlace, Part
from attnviz.models import Predicting, UnbatchedSource, check_device
from attnviz.models.light.network import Attended, Network, Record
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import read_model_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.lens_inputs import ValueVectors
    from attnviz.core.writers import HeadWeights
    from attnviz.models.light.stacked_text import Stack, StackedText


class StoredModel(UnbatchedSource, Predicting, Network):
    """A shipped model as a source: numpy runs its weights, or torch where a device asks for it.

    Its folder holds weights, a configuration, and their origin.

    Attributes:
        sizes: at least the `size` of a position and the `heads` that share it.
    """

    name: ClassVar[str]  # its value for `--model`
    file: ClassVar[str] = "model.safetensors"  # its weights
    projections: ClassVar[tuple[str, ...]]  # names of query, key, value and output maps
    turned: ClassVar[bool] = False  # True where positions turn queries and keys
    decides: ClassVar[bool] = False  # True where it predicts one class, from its first position
    # the names of its embeddings and of the map to its logits, without ".weight"
    tokens: ClassVar[tuple[str, str] | None] = None
    # the formula of a layer's norm, in words
    normalised: ClassVar[str] = "layer_input with mean 0 and variance 1, scaled"

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

    def head_arithmetic(self, query: Query, which: HeadPlace) -> HeadArithmetic:
        return stored_head_arithmetic(self, self.read(query)[0], which)

    def trace_writers(self, query: Query) -> StackedText:
        from attnviz.models.light.stacked_text import StackedText

        given, attention = self.read(query)
        model = self if self.device == "cpu" else type(self)(self.folder)

        def scores(states: NDArray[np.floating]) -> NDArray[np.floating]:
            found: NDArray[np.floating] = model.scores(model.weights, states)
            return found

        return StackedText(attention, model.stacks(given), scores, model.spell, first=model.decides)

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        from attnviz.models.light.stacked_text import head_weights

        found = head_weights(self.weights, self.shapes, [*self.streams], self.tokens)
        return found, self.provenance((), {})

    @abstractmethod
    def stacks(self, given: Any) -> list[Stack]:
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
    known = ("float32", "float64") if device == "cpu" else ("float32", "float16", "bfloat16")
    return {"device": device, "dtype": choose(dtype or "float32", known, f"dtype on {device}")}


def watch_pass(model: StoredModel, given: Any) -> dict[str, Attended]:
    """Each attention of one pass, by its name among the weights."""
    seen = Record()
    model.forward(model.weights, model.inputs(given), seen)
    return {one.name: one for one in seen}


def watch_layers(model: StoredModel, given: Any) -> Callable[[AttentionMap], list[Attended]]:
    """A function that gives a map's layers their attentions, from one pass."""
    found = watch_pass(model, given)
    return lambda item: [found[model.streams[item.stream].format(layer)] for layer in item.layers]


def add_projections(model: StoredModel, given: Any, attention: Attention) -> Attention:
    """The attention, with the queries and keys of each stream."""
    from attnviz.analyses.entropy import peak

    layers = watch_layers(model, given)

    def stack(item: AttentionMap, side: str) -> NDArray[np.float32]:
        return np.stack([to_numpy(getattr(seen, side)) for seen in layers(item)])

    scale = (model.sizes.size // model.sizes.heads) ** -0.5
    kept = {
        item.stream: Projections(
            stack(item, "query"),
            stack(item, "key"),
            scale,
            item.layers,
            item.heads,
            value=stack(item, "value"),
            peaks=tuple(peak(to_numpy(seen.residual)) for seen in layers(item)),
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)


def stored_values(model: StoredModel, given: Any, attention: Attention) -> ValueVectors:
    """Each head's values through its slice of W_O, for maps of the model."""
    from attnviz.core.lens_inputs import ValueVectors, inner_products

    layers = watch_layers(model, given)

    def products(seen: Attended) -> NDArray[np.float64]:
        mixer = to_numpy(model.weights[f"{seen.name}.{model.projections[3]}.weight"])
        return inner_products(to_numpy(seen.value), mixer.T)

    found = tuple(np.stack([products(seen) for seen in layers(item)]) for item in attention.maps)
    return ValueVectors(attention, found, projected=True)


def stored_head_arithmetic(model: StoredModel, query: Any, which: HeadPlace) -> HeadArithmetic:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    seen, size = watch_pass(model, query)[name], model.sizes.size // model.sizes.heads
    own = slice(int(which.head) * size, (int(which.head) + 1) * size)
    crossed = seen.memory is not seen.inputs
    parts = [
        Part("layer_input", seen.residual, "", "qf"),
        Part("normalised", seen.inputs, model.normalised, "qf"),
    ]
    parts += [Part("memory", seen.memory, "", "kf")] if crossed else []
    sides, biased = [], f"{name}.{model.projections[3]}.bias" in model.weights
    for side, projection in zip(("query", "key", "value"), model.projections, strict=False):
        source = "memory" if crossed and side != "query" else "normalised"
        axes = "qf" if side == "query" else "kf"
        weight = model.weights[f"{name}.{projection}.weight"][own].T
        parts.append(Part(f"w_{side}", weight, "", "ff"))
        shown = f"{source} @ w_{side}"
        if biased:
            bias = model.weights[f"{name}.{projection}.bias"][None, own]
            parts.append(Part(f"b_{side}", bias, "", "ff"))
            shown += f" + b_{side}"
        if model.turned and side != "value":
            parts.append(Part(f"plain_{side}", seen.inputs @ weight, shown, axes))
            shown = f"pairs of plain_{side} turned by position"
        made = getattr(seen, side)[int(which.head)]
        parts.append(Part(side, made, shown, axes))
        sides.append(made)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    mixed = parts.pop().value
    weight = model.weights[f"{name}.{model.projections[3]}.weight"][:, own].T
    parts += [
        Part("head_output", mixed, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", mixed @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    notes = (note,) if biased else ()
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return HeadArithmetic(plain, {"weights": to_numpy(seen.shares[int(which.head)])}, notes)
