"""What one pass of a network recorded of its heads: queries and keys, and what each head adds."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from attnviz.analyses.entropy import peak
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, Projections
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.mechanisms.arrays import to_numpy
from attnviz.models.light.network import Network, Record


class Layers(Protocol):
    """A map, or what is captured for one."""

    @property
    def stream(self) -> str: ...

    @property
    def layers(self) -> tuple[str, ...]: ...


def own_layers(item: Layers, name: str, record: Record) -> list[AttentionCall]:
    """The attention of each layer of a map; `name` is that of its attentions, by layer."""
    calls = {one.path: one for one in record}
    return [calls[name.format(layer)] for layer in item.layers]


def projections_of(model: Network, item: Layers, record: Record) -> Projections:
    """The queries, keys and values of a map."""
    shape, own = model.shape_of(item.stream), own_layers(item, model.streams[item.stream], record)
    query, key, value = (
        np.stack([to_numpy(getattr(one, side)) for one in own])
        for side in ("query", "key", "value")
    )
    more = f"a soft cap of {shape.cap:g}" if shape.cap else ""
    heads, peaks = (
        tuple(map(str, range(shape.heads))),
        (peak(to_numpy(one.residual)) for one in own),
    )
    return Projections(query, key, shape.factor, item.layers, heads, more, value, tuple(peaks))


def value_vectors(model: Network, attention: Attention, record: Record) -> ValueVectors:
    """What each head adds for each token, of the attentions of one pass."""
    by_map = []
    for item in attention.maps:
        shape, part, products = model.shape_of(item.stream), model.part_of(item.stream), []
        for layer, one in zip(
            item.layers, own_layers(item, model.streams[item.stream], record), strict=True
        ):
            matrix = to_numpy(model.weights[f"{one.path}.{part.maps[3]}.weight"]).T
            if part.scale:
                matrix = matrix * model.weights[f"{shape.layer.format(layer)}.{part.scale}"]
            products.append(inner_products(to_numpy(one.value), matrix))
        by_map.append(np.stack(products))
    return ValueVectors(attention, tuple(by_map), projected=True)
