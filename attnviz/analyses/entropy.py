"""Entropy of attention rows (Shannon 1948) and how far two rows diverge (Lin 1991), in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]


def row_entropy(weights: NDArray[np.floating]) -> Rows:
    """−Σ a ln a of each row, 0 ln 0 being 0; 0: one key has it all, ln(keys): all are equal.

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


def mean_entropy(weights: NDArray[np.floating], entropies: Rows | None = None) -> Rows:
    """Mean of each head's row entropies; rows that attend to nothing are left out.

    Args:
        weights: shape (layers, heads, queries, keys).
        entropies: of its rows, shape (layers, heads, queries), where they are known.
    """
    attending = weights.any(axis=-1)
    counted = np.maximum(attending.sum(axis=-1), 1)
    of_rows = row_entropy(weights) if entropies is None else entropies
    means: Rows = np.where(attending, of_rows, 0).sum(axis=-1) / counted
    return means


def jensen_shannon(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    entropies: tuple[Rows, Rows] | None = None,
) -> Rows:
    """H((p + q) / 2) − (H(p) + H(q)) / 2 of rows, in nats; 0: they are equal, ln 2: disjoint.

    Args:
        first: shape (…, queries, keys); rows sum to 1.
        second: likewise, of a shape that broadcasts against the first.
        entropies: of both, where they are known.

    Returns:
        Shape (…, queries).
    """
    of_first, of_second = entropies or (row_entropy(first), row_entropy(second))
    divergences: Rows = row_entropy((first + second) / 2) - (of_first + of_second) / 2
    return np.maximum(divergences, 0.0)
