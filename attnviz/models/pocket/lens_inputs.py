"""Values, queries and keys behind maps of a shipped model, from one more pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Projections
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled, split_heads
from attnviz.mechanisms.working import HeadPlace, Part, Worked
from attnviz.models.pocket.network import Attended
from attnviz.models.pocket.stored import StoredModel

Layers = Callable[[AttentionMap], list[Attended]]


def seen_of(model: StoredModel, given: Any) -> dict[str, Attended]:
    """Each attention of a pass over what the model reads, by its name among the weights."""
    found: dict[str, Attended] = {}

    def note(seen: Attended) -> Array:
        found[seen.name] = seen
        return seen.output

    model.forward(model.weights, model.inputs(given), note)
    return found


def attended_of(model: StoredModel, given: Any) -> Layers:
    """What each layer of a map projected, from a pass over what the model reads."""
    found = seen_of(model, given)
    return lambda item: [found[model.streams[item.stream].format(layer)] for layer in item.layers]


def worked_head(model: StoredModel, query: Any, which: HeadPlace) -> Worked:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = model.streams[which.stream].format(which.layer)
    seen, size = seen_of(model, query)[name], model.sizes.size // model.sizes.heads
    own = slice(int(which.head) * size, (int(which.head) + 1) * size)
    crossed = seen.memory is not seen.inputs
    parts = [
        Part("layer_input", seen.residual, "", "qf"),
        Part("normalised", seen.inputs, "layer_input with mean 0 and variance 1, scaled", "qf"),
    ]
    parts += [Part("memory", seen.memory, "", "kf")] if crossed else []
    sides = []
    for side in ("query", "key", "value"):
        source = "memory" if crossed and side != "query" else "normalised"
        weight = model.weights[f"{name}.{side}.weight"][own].T
        bias = model.weights[f"{name}.{side}.bias"][None, own]
        parts += [Part(f"w_{side}", weight, "", "ff"), Part(f"b_{side}", bias, "", "ff")]
        made = getattr(seen, side)[:, own]
        shown = f"{source} @ w_{side} + b_{side}"
        parts.append(Part(side, made, shown, "qf" if side == "query" else "kf"))
        sides.append(made)
    mask = None
    if which.stream in ("decoder", "causal"):
        mask = causal_mask(sides[0], len(sides[0]), len(sides[1]))
        parts.append(Part("mask", mask, LOWER))
    parts += scaled.parts(sides[0], sides[1], sides[2], mask)
    mixed = parts.pop().value
    weight = model.weights[f"{name}.output.weight"][:, own].T
    parts += [
        Part("head_output", mixed, "weights @ value", "qf"),
        Part("w_output", weight, "", "ff"),
        Part("added", mixed @ weight, "head_output @ w_output", "qf"),
    ]
    note = "all heads together also add one bias, which is no head's: it is left out"
    plain = [part._replace(value=to_numpy(part.value)) for part in parts]
    plain = [p._replace(value=p.value > 0) if p.name == "mask" else p for p in plain]
    return Worked(plain, {"weights": to_numpy(seen.shares[int(which.head)])}, (note,))


def with_projections(model: StoredModel, given: Any, attention: Attention) -> Attention:
    """The attention with the queries and keys of each of its streams."""
    layers, heads = attended_of(model, given), model.sizes.heads

    def stacked(item: AttentionMap, side: str) -> NDArray[np.float32]:
        return np.stack(
            [split_heads(to_numpy(getattr(seen, side)), heads) for seen in layers(item)]
        )

    scale = (model.sizes.size // heads) ** -0.5
    kept = {
        item.stream: Projections(
            stacked(item, "query"), stacked(item, "key"), scale, item.layers, item.heads
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)


def value_vectors(model: StoredModel, given: Any, attention: Attention) -> ValueVectors:
    """Each head's values through its slice of W_O, for maps that the model has made."""
    layers = attended_of(model, given)

    def products(seen: Attended) -> NDArray[np.float64]:
        value = split_heads(to_numpy(seen.value), model.sizes.heads)
        mixer = to_numpy(model.weights[f"{seen.name}.{model.mixer}.weight"])
        return inner_products(value, mixer.T)

    found = tuple(np.stack([products(seen) for seen in layers(item)]) for item in attention.maps)
    return ValueVectors(attention, found, projected=True)
