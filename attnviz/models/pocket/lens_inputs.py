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
from attnviz.mechanisms.dot_product import split_heads
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
        mixer = to_numpy(model.weights[f"{seen.name}.{model.projections[3]}.weight"])
        return inner_products(value, mixer.T)

    found = tuple(np.stack([products(seen) for seen in layers(item)]) for item in attention.maps)
    return ValueVectors(attention, found, projected=True)
