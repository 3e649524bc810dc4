"""What each head of the pocket model makes of each key: its value through its slice of W_O."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention
from attnviz.evidence import Transformed, inner_products
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.multi_head import split_heads
from attnviz.pocket.inputs import inputs_of
from attnviz.pocket.model import decode, encode
from attnviz.pocket.pocket import Pocket, to_numpy

PLACES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "causal": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}
"""What the attention of each stream's layers is called among the weights."""


def transform(pocket: Pocket, attention: Attention) -> Transformed:
    """What each head makes of each key, for maps that the model has made."""
    inputs = inputs_of(pocket, attention)
    values: dict[str, Array] = {}
    memory, _ = encode(pocket.weights, pocket.sizes, pocket.embed(inputs.source), values=values)
    if inputs.target:
        target = pocket.embed(inputs.target)
        decode(pocket.weights, pocket.sizes, target, memory, values=values)
    products = tuple(
        np.stack(
            [
                products_of(pocket, PLACES[item.stream].format(layer), values)
                for layer in item.layers
            ]
        )
        for item in attention.maps
    )
    return Transformed(attention, products, projected=True)


def products_of(pocket: Pocket, name: str, values: Mapping[str, Array]) -> NDArray[np.float64]:
    """One layer's inner products."""
    value = split_heads(to_numpy(values[name]), pocket.sizes.heads)
    return inner_products(value, to_numpy(pocket.weights[f"{name}.output.weight"]).T)
