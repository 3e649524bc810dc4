"""The strongest weight of each block, for pictures with fewer pixels than weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def block_peaks(weights: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """The weight furthest from 0 in each block, so that a thin line stays visible when pooled.

    Shape (…, queries, keys) becomes (…, ⌈queries / rows⌉, ⌈keys / columns⌉).
    """
    least = float(weights.min())
    if least >= 0:
        return _by_block(np.maximum, weights, rows, columns)
    # fmax prefers a number to NaN, but is slower than maximum.
    most, fewest = (np.fmax, np.fmin) if np.isnan(least) else (np.maximum, np.minimum)
    highest = _by_block(most, weights, rows, columns)
    lowest = _by_block(fewest, weights, rows, columns)
    return np.where(-lowest > highest, lowest, highest)


def _by_block(
    function: np.ufunc, weights: NDArray[np.float32], rows: int, columns: int
) -> NDArray[np.float32]:
    for axis, length in ((-1, columns), (-2, rows)):
        if length > 1:
            starts = np.arange(0, weights.shape[axis], length)
            weights = function.reduceat(weights, starts, axis=axis)
    return weights
