"""Inputs of lenses besides weights, as arrays: gradients, and inner products of value vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, check_finite
from attnviz.core.effects import Experiment
from attnviz.core.records import dataclass

BLOCK = 256  # keys whose vectors are in memory at once: all would take heads × keys × size numbers


@dataclass(frozen=True, slots=True, eq=False)
class AttentionGradients:
    """One output of a model, and its gradient for each attention weight."""

    attention: Attention  # the raw maps of every layer
    gradients: tuple[NDArray[np.floating[Any]], ...]  # ∂output/∂weight, one array for each map
    positions: tuple[int, ...]  # queries of the main map that the output is read from, one or more
    output: str  # its name: a class, or the predicted token
    probability: float | None = None  # the output's probability, if the model gives one
    experiment: Experiment | None = None  # cuts links; None if the output is a score

    def __post_init__(self) -> None:
        for item, gradient in zip(self.attention.maps, self.gradients, strict=True):
            dtype = self.attention.provenance.dtype
            check_finite(gradient, item.stream, item.layers, item.heads, dtype, "the gradient")


def rows_read(last: NDArray[Any]) -> tuple[int, ...]:
    """The positions that a classifier reads, by the gradients of its last layer."""
    # So nobody has to know whether it reads [CLS], the last token or the mean.
    rows = np.flatnonzero(np.any(last != 0, axis=(0, 2)))
    return tuple(rows.tolist()) or tuple(range(last.shape[1]))


@dataclass(frozen=True, slots=True, eq=False)
class ValueVectors:
    """Inner products of the vectors fₕ(xⱼ) that weights scale, for heads h and keys j."""

    attention: Attention  # the raw maps of every layer
    # for each map ⟨fₕ(xⱼ), f₉(xⱼ)⟩ for heads h and g, float64 of shape (layers, keys, heads, heads)
    products: tuple[NDArray[np.float64], ...]
    # whether f includes W_O; else f is the value, and products of different heads are 0
    projected: bool

    def __post_init__(self) -> None:
        for item, product in zip(self.attention.maps, self.products, strict=True):
            of_heads, dtype = product.swapaxes(1, 2), self.attention.provenance.dtype
            check_finite(of_heads, item.stream, item.layers, item.heads, dtype, "the value vector")


def inner_products(
    value: NDArray[np.floating[Any]], projection: NDArray[np.floating[Any]] | None
) -> NDArray[np.float64]:
    """⟨fₕ(xⱼ), f₉(xⱼ)⟩ of one layer, with fₕ(xⱼ) = vₕⱼ W_Oₕ; shape (keys, heads, heads).

    Values with their bias have the shape (heads, keys, head size), W_O that of (heads × head size,
    size). Without W_O, products of two different heads are 0.
    """
    heads, keys, head_size = value.shape
    if projection is None:
        squares = (value.astype(np.float64) ** 2).sum(axis=-1).T
        return np.asarray(squares[:, :, None] * np.eye(heads))
    slices = projection.astype(np.float64).reshape(heads, head_size, -1)
    products = np.empty((keys, heads, heads))
    for start in range(0, keys, BLOCK):
        block = slice(start, start + BLOCK)
        vectors = (value[:, block] @ slices).swapaxes(0, 1)
        products[block] = vectors @ vectors.swapaxes(1, 2)
    return products
