"""The queries, keys and values behind maps of the pocket model: its own forward pass once more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention, AttentionMap, Projections
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.multi_head import split_heads
from attnviz.pocket.batch import to_numpy
from attnviz.pocket.inputs import inputs_of
from attnviz.pocket.model import decode, encode
from attnviz.pocket.pocket import Pocket

PLACES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "causal": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}
"""What the attention of each stream's layers is called among the weights."""


def projected_for(pocket: Pocket, attention: Attention) -> dict[str, Array]:
    """What each projection gave, by its name ("encoder.0.self_attention.query").

    Args:
        pocket: the model.
        attention: maps that it has made.

    Returns:
        arrays of shape (positions, size), heads side by side.
    """
    inputs = inputs_of(pocket, attention)
    found: dict[str, Array] = {}
    source = pocket.embed(inputs.source)
    memory, _ = encode(pocket.weights, pocket.sizes, source, projected=found)
    if inputs.target:
        target = pocket.embed(inputs.target)
        decode(pocket.weights, pocket.sizes, target, memory, projected=found)
    return found


def with_projections(pocket: Pocket, attention: Attention) -> Attention:
    """The attention with the queries and keys of each of its streams."""
    found = projected_for(pocket, attention)

    def stacked(item: AttentionMap, side: str) -> NDArray[np.float32]:
        names = (f"{PLACES[item.stream].format(layer)}.{side}" for layer in item.layers)
        return np.stack([split_heads(to_numpy(found[name]), pocket.sizes.heads) for name in names])

    scale = (pocket.sizes.size // pocket.sizes.heads) ** -0.5
    kept = {
        item.stream: Projections(
            stacked(item, "query"), stacked(item, "key"), scale, item.layers, item.heads
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)
