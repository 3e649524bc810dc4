"""Entropy of attention rows (Shannon 1948), in nats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention_map import AttentionMap
from attnviz.measures import HeadMeasure

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOW, HIGH = "every query looks at one key", "an even look at all keys"


def row_entropy(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """−Σ a ln a of each row, 0 ln 0 being 0; 0: one key has it all, ln(keys): an even look at all.

    Args:
        weights: shape (…, queries, keys), values from 0 up.

    Returns:
        float64 of shape (…, queries), from 0 to ln(keys).
    """
    entropies = np.empty(weights.shape[:-1])
    for place in np.ndindex(weights.shape[:-2]):
        matrix = weights[place]
        # Head by head it stays in the processor's cache. The smallest number stands in for 0,
        # whose logarithm, times 0, is 0.
        terms = np.maximum(matrix, np.finfo(matrix.dtype).tiny)
        np.log(terms, out=terms)
        terms *= matrix
        entropies[place] = terms.sum(axis=-1, dtype=np.float64)
    return np.maximum(-entropies, 0.0)


def mean_entropy(
    weights: NDArray[np.floating], entropies: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of each head's row entropies; rows that attend to nothing are left out.

    Args:
        weights: shape (layers, heads, queries, keys).
        entropies: of its rows, shape (layers, heads, queries).
    """
    attending = weights.any(axis=-1)
    counted = np.maximum(attending.sum(axis=-1), 1)
    means: NDArray[np.float64] = np.where(attending, entropies, 0).sum(axis=-1) / counted
    return means


def entropy(item: AttentionMap) -> HeadMeasure:
    """Mean entropy of each head's rows, in nats; rows that attend to nothing are left out."""
    return HeadMeasure(
        "entropy", "nats", LOW, HIGH, mean_entropy(item.weights, row_entropy(item.weights))
    )
