"""Norm-based attention (Kobayashi et al. 2020, EMNLP, section 3; 2021 for all heads together).

A weight does not show how long the vector is that it scales: a head can put most of its attention
on [SEP] and add almost nothing. This lens measures the length of what is added, ‖Σₕ Aₕ fₕ(x)‖.
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import map_shares
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.lens_inputs import ValueVectors
from attnviz.features.lenses.layered import through_lens

UNIT = "share of a row's summed norms"
VALUE_UNIT = "share of a row's summed value-norms"
WITHOUT_PROJECTION = (
    "value-norm: the output projection is not known, so a cell is the length of the weighted value "
    "alone; it does not show where heads cancel each other"
)


def norm(inputs: ValueVectors) -> Attention:
    """Length of each key's contribution to each query, over all heads together.

    Each stream has a map of one head, "sum", with ‖Σₕ Aₕᵢⱼ fₕ(xⱼ)‖, and a map "…-by-head" with
    each head's ‖Aₕᵢⱼ fₕ(xⱼ)‖, both as shares of their rows' sums.
    """
    attention = inputs.attention
    unit = UNIT if inputs.projected else VALUE_UNIT
    together, by_head = [], []
    for item, products in zip(attention.maps, inputs.products, strict=True):
        lengths = norms(item.weights, products)[:, None]
        together.append(_as_map(item, lengths, unit, heads=("sum",)))
        lengths = norms_by_head(item.weights, products)
        by_head.append(_as_map(item, lengths, unit, stream=f"{item.stream}-by-head"))
    notes = () if inputs.projected else (WITHOUT_PROJECTION,)
    return through_lens("norm", attention, (*together, *by_head), notes)


def norms(weights: NDArray[np.floating], products: NDArray[np.float64]) -> NDArray[np.float64]:
    """‖Σₕ Aₕᵢⱼ fₕ(xⱼ)‖ = √(aᵀ Gⱼ a) with a the weights of all heads and Gⱼ their inner products.

    Weights (layers, heads, queries, keys) and products (layers, keys, heads, heads) give (layers,
    queries, keys). No vector for each pair of positions is made.
    """
    layers, _, queries, keys = weights.shape
    lengths = np.empty((layers, queries, keys))
    for layer in range(layers):
        by_key = weights[layer].astype(np.float64).transpose(2, 1, 0)
        squares = ((by_key @ products[layer]) * by_key).sum(axis=-1)
        lengths[layer] = np.sqrt(np.maximum(squares, 0)).T
    return lengths


def norms_by_head(
    weights: NDArray[np.floating], products: NDArray[np.float64]
) -> NDArray[np.float64]:
    """‖Aₕᵢⱼ fₕ(xⱼ)‖ = Aₕᵢⱼ ‖fₕ(xⱼ)‖ of each head, (layers, heads, queries, keys)."""
    lengths = np.sqrt(np.diagonal(products, axis1=-2, axis2=-1)).swapaxes(-1, -2)
    return np.asarray(weights.astype(np.float64) * lengths[:, :, None, :])


def _as_map(
    item: AttentionMap, lengths: NDArray[np.float64], unit: str, **changes: object
) -> AttentionMap:
    return item.with_weights(map_shares(lengths), unit=unit, **changes)
