"""Entropy of attention rows (Shannon 1948) and how far two rows diverge (Lin 1991), in nats."""

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import known_mean

Rows = NDArray[np.float64]


def row_entropy(weights: NDArray[np.floating]) -> Rows:
    """−Σ p ln p of rows (…, queries, keys), each made to sum to 1, as float64 (…, queries).

    From 0, where one key has it all, to ln(keys), where all are equal; NaN of a row that attends to
    nothing, which is no distribution. For a row a with the sum s it is ln s − Σ a ln a / s.
    """
    entropies = np.empty(weights.shape[:-1])
    for place in np.ndindex(weights.shape[:-2]):
        matrix = weights[place]
        # Head by head it stays in the processor's cache. The smallest number stands in for 0,
        # whose logarithm, times 0, is 0.
        terms = np.maximum(matrix, np.finfo(matrix.dtype).tiny)
        np.log(terms, out=terms)
        terms *= matrix
        sums = matrix.sum(axis=-1, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropies[place] = np.log(sums) - terms.sum(axis=-1, dtype=np.float64) / sums
    return np.maximum(entropies, 0.0)


def mean_entropy(weights: NDArray[np.floating]) -> Rows:
    """Mean of each head's row entropies; rows that attend to nothing are left out."""
    return known_mean(row_entropy(weights))


def jensen_shannon(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    entropies: tuple[Rows, Rows] | None = None,
) -> Rows:
    """H((p + q) / 2) − (H(p) + H(q)) / 2 of rows, in nats; 0: they are equal, ln 2: disjoint.

    Both of a shape like (…, queries, keys), with rows that sum to 1, and broadcast; NaN where one
    attends to nothing. The entropies of both are computed where they are not known.
    """
    of_first, of_second = entropies or (row_entropy(first), row_entropy(second))
    divergences: Rows = row_entropy((first + second) / 2) - (of_first + of_second) / 2
    return np.maximum(divergences, 0.0)
