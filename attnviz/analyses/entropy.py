"""Entropy of attention rows (Shannon 1948), in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import AttentionMap
from attnviz.measures import HeadMeasure


def row_entropy(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """−Σ a ln a of each row, 0 ln 0 being 0; 0: one key has it all, ln(keys): an even look at all.

    Args:
        weights: shape (…, queries, keys), values from 0 up.

    Returns:
        float64 of shape (…, queries), from 0 to ln(keys).
    """
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    sums = np.einsum("...k,...k->...", weights, logarithms, dtype=np.float64)
    entropies: NDArray[np.float64] = np.maximum(-sums, 0.0)
    return entropies


def entropy(item: AttentionMap) -> HeadMeasure:
    """Mean entropy of each head's rows, in nats; rows that attend to nothing are left out."""
    rows = row_entropy(item.weights)
    attending = item.weights.sum(axis=-1) > 0
    counted = np.maximum(attending.sum(axis=-1), 1)
    return HeadMeasure(
        "entropy",
        "nats",
        "every query looks at one key",
        "an even look at all keys",
        np.where(attending, rows, 0).sum(axis=-1) / counted,
    )
