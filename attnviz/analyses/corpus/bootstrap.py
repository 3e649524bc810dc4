"""A bootstrap that adds up: the Poisson bootstrap.

Instead of drawing n texts out of n with replacement, each replicate counts each text a Poisson(1)
number of times (Hanley and MacGibbon 2006, Creating non-parametric bootstrap samples using Poisson
frequencies; Chamandy et al. 2012, Estimating uncertainty for massive data streams, section 3). No
text needs to know of another: a text's weights come from a counter-based generator (Philox, Salmon
et al. 2011) at a place that only the seed and the text's number in the corpus name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

REPLICATES = 200
LEVEL = 0.95
_GRID = 2.0**20
_DRAWS_A_STEP = 8
_CUMULATIVE = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(13)])
_BOUNDS = np.rint(_CUMULATIVE * 2.0**32)


def poisson_weights(
    seed: int, numbers: Sequence[int], replicates: int = REPLICATES
) -> NDArray[np.float64]:
    """Whole numbers of shape (texts, replicates), each Poisson(1): how often each text counts."""
    found = np.empty((len(numbers), replicates))
    starts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for start, end in pairwise(starts):
        found[start:end] = _weights_of_run(seed, numbers[start], end - start, replicates)
    return found


def _weights_of_run(seed: int, first: int, count: int, replicates: int) -> NDArray[np.float64]:
    """Those of texts with consecutive numbers, by inversion of 32 random bits each."""
    steps = -(-replicates // _DRAWS_A_STEP)
    generator = np.random.Philox(key=seed, counter=first * steps)
    words = generator.random_raw(count * steps * _DRAWS_A_STEP // 2)
    bits = words.astype("<u8").view("<u4").reshape(count, -1)[:, :replicates]
    return np.searchsorted(_BOUNDS, bits.ravel(), side="right").reshape(bits.shape).astype(float)


def replicate_sums(
    weights: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What a block of texts adds to each replicate.

    Values are rounded to multiples of 2^-20: every product and every sum of a block is then exact
    in float64, in whatever order a matrix product adds on however many threads.

    Args:
        weights: shape (texts, replicates), as `poisson_weights` gives them; at most 1,024 texts.
        values: shape (texts, measures, heads), of size below 2^19; NaN where a text says nothing.

    Returns:
        Sums and counts, each of shape (replicates, measures, heads).
    """
    known = np.isfinite(values)
    flat = np.rint(np.where(known, values, 0.0) * _GRID).reshape(len(values), -1)
    shape = (weights.shape[1], *values.shape[1:])
    totals = (weights.T @ flat).reshape(shape) / _GRID
    if (known == known[..., :1]).all():
        # A text mostly says something of all heads or of none.
        counts = np.broadcast_to((weights.T @ known[..., 0])[..., None], shape)
    else:
        counts = (weights.T @ known.reshape(len(values), -1)).reshape(shape)
    return totals, counts.astype(np.int64)


def intervals(
    totals: NDArray[np.float64], counts: NDArray[np.int64], texts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The percentile interval's ends (…) by totals (replicates, …); NaN of fewer than two texts."""
    means = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    means[:, texts < 2] = np.nan
    ends = np.full((2, *texts.shape), np.nan)
    # A replicate that drew no text at all says nothing; with a handful of texts there are some.
    some = np.isfinite(means).any(axis=0)
    tails = (1 - LEVEL) / 2
    ends[:, some] = np.nanquantile(means[:, some], [tails, 1 - tails], axis=0)
    return ends[0], ends[1]
