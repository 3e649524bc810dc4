"""Gradients, values, queries and keys behind maps of the pocket model, from one more pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Projections
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import LOWER, causal_mask, scaled, split_heads
from attnviz.mechanisms.working import HeadPlace, Part, Worked
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.network import Attended, decode, encode
from attnviz.models.pocket.text import EncodedQuery

LAYER_NAMES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "causal": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}
"""What the attention of each stream's layers is called among the weights."""


def seen_of(model: PocketModel, query: EncodedQuery) -> dict[str, Attended]:
    """Each attention of one pass by its name ("encoder.0.self_attention")."""
    found: dict[str, Attended] = {}

    def note(seen: Attended) -> Array:
        found[seen.name] = seen
        return seen.output

    source = model.embed(query.source_ids)
    memory, _ = encode(model.weights, model.sizes, source, watch=note)
    if query.target:
        target = model.embed(query.target_ids)
        decode(model.weights, model.sizes, target, memory, watch=note)
    return found


def projections_of(model: PocketModel, query: EncodedQuery) -> dict[str, Array]:
    """What each projection gave, shape (positions, size), by name ("encoder.0.….query")."""
    return {
        f"{name}.{side}": getattr(seen, side)
        for name, seen in seen_of(model, query).items()
        for side in ("query", "key", "value")
    }


def worked_head(model: PocketModel, query: EncodedQuery, which: HeadPlace) -> Worked:
    """One head's numbers, from the layer's input to what it adds to the residual stream."""
    name = LAYER_NAMES[which.stream].format(which.layer)
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


def with_projections(model: PocketModel, query: EncodedQuery, attention: Attention) -> Attention:
    """The attention with the queries and keys of each of its streams."""
    found = projections_of(model, query)

    def stacked(item: AttentionMap, side: str) -> NDArray[np.float32]:
        names = (f"{LAYER_NAMES[item.stream].format(layer)}.{side}" for layer in item.layers)
        return np.stack([split_heads(to_numpy(found[name]), model.sizes.heads) for name in names])

    scale = (model.sizes.size // model.sizes.heads) ** -0.5
    kept = {
        item.stream: Projections(
            stacked(item, "query"), stacked(item, "key"), scale, item.layers, item.heads
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)


def value_vectors(model: PocketModel, query: EncodedQuery, attention: Attention) -> ValueVectors:
    """Each head's values through its slice of W_O, for maps that the model has made."""
    projected = projections_of(model, query)

    def products(name: str) -> NDArray[np.float64]:
        value = split_heads(to_numpy(projected[f"{name}.value"]), model.sizes.heads)
        return inner_products(value, to_numpy(model.weights[f"{name}.output.weight"]).T)

    found = tuple(
        np.stack([products(LAYER_NAMES[item.stream].format(layer)) for layer in item.layers])
        for item in attention.maps
    )
    return ValueVectors(attention, found, projected=True)
