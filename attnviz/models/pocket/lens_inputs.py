"""Gradients, values, queries and keys behind maps of the pocket model, from one more pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Projections
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import split_heads
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


def projections_of(model: PocketModel, query: EncodedQuery) -> dict[str, Array]:
    """What each projection gave, shape (positions, size), by name ("encoder.0.….query")."""
    found: dict[str, Array] = {}

    def note(seen: Attended) -> Array:
        for side in ("query", "key", "value"):
            found[f"{seen.name}.{side}"] = getattr(seen, side)
        return seen.output

    source = model.embed(query.source_ids)
    memory, _ = encode(model.weights, model.sizes, source, watch=note)
    if query.target:
        target = model.embed(query.target_ids)
        decode(model.weights, model.sizes, target, memory, watch=note)
    return found


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
