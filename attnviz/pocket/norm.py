"""What each head of the pocket model makes of each key: its value through its slice of W_O."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention
from attnviz.evidence import Transformed, inner_products
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.multi_head import split_heads
from attnviz.pocket.batch import to_numpy
from attnviz.pocket.pocket import Pocket
from attnviz.pocket.projected import PLACES, projected_for


def transform(pocket: Pocket, attention: Attention) -> Transformed:
    """What each head makes of each key, for maps that the model has made."""
    projected = projected_for(pocket, attention)
    products = tuple(
        np.stack(
            [
                products_of(pocket, PLACES[item.stream].format(layer), projected)
                for layer in item.layers
            ]
        )
        for item in attention.maps
    )
    return Transformed(attention, products, projected=True)


def products_of(pocket: Pocket, name: str, projected: Mapping[str, Array]) -> NDArray[np.float64]:
    """One layer's inner products."""
    value = split_heads(to_numpy(projected[f"{name}.value"]), pocket.sizes.heads)
    return inner_products(value, to_numpy(pocket.weights[f"{name}.output.weight"]).T)
