"""Sums in whole numbers: adding in any order and grouping gives the same to the last bit.

A value is rounded once, to the nearest multiple of 2^-32; from there on only integers are added,
which lose nothing. A sum is held in limbs of 32 bits on its first axis, the whole part first: limb
k counts multiples of 2^(-32 k), and all but the first lie from 0 to 2^32 − 1, so that a number has
one spelling only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BITS = 32
_MASK = np.int64(2**BITS - 1)

Limbs = NDArray[np.int64]


def limbs_of(values: NDArray[np.floating]) -> Limbs:
    """Values as whole parts and parts of 2^-32.

    Args:
        values: finite, of size below 2^62.

    Returns:
        Shape (2, *shape of the values).
    """
    numbers = np.asarray(values, dtype=np.float64)
    whole = np.floor(numbers)
    parts = np.rint((numbers - whole) * 2.0**BITS)
    return carry(np.stack([whole, parts]).astype(np.int64))


def squares_of(limbs: Limbs) -> Limbs:
    """The squares of numbers in two limbs, exactly.

    Args:
        limbs: shape (2, …), of size below 2^30.

    Returns:
        Shape (3, …).
    """
    negative = limbs[0] < 0
    size = carry(np.where(negative, -limbs, limbs))
    whole, parts = size
    small = parts.astype(np.uint64) ** 2
    upper, lower = ((small >> BITS).astype(np.int64), (small & _MASK.astype(np.uint64)))
    return carry(np.stack([whole**2, 2 * whole * parts + upper, lower.astype(np.int64)]))


def carry(limbs: Limbs) -> Limbs:
    """The same numbers in their one spelling, in place.

    Args:
        limbs: shape (limbs, …), at least one limb.
    """
    for place in range(len(limbs) - 1, 0, -1):
        limbs[place - 1] += limbs[place] >> BITS
        limbs[place] &= _MASK
    return limbs


def summed(limbs: Limbs) -> Limbs:
    """The sum over the second axis, of at most 2^30 numbers; shape (limbs, …) without that axis."""
    return carry(limbs.sum(axis=1))


def to_floats(limbs: Limbs) -> NDArray[np.float64]:
    """The nearest floating point numbers, about; shape without the first axis."""
    values = np.zeros(limbs.shape[1:])
    for place in range(len(limbs) - 1, -1, -1):
        values += limbs[place] * 2.0 ** (-BITS * place)
    return values


def mean(count: NDArray[np.int64], total: Limbs) -> NDArray[np.float64]:
    """Means of numbers; NaN where there is none.

    Args:
        count: of how many, any shape.
        total: their sum, shape (limbs, *that shape).
    """
    means: NDArray[np.float64] = np.where(
        count > 0, to_floats(total) / np.maximum(count, 1), np.nan
    )
    return means


def deviation(count: NDArray[np.int64], total: Limbs, squares: Limbs) -> NDArray[np.float64]:
    """Sample standard deviations, (Σx² − (Σx)² / n) / (n − 1) under a root; NaN below two numbers.

    The difference is taken between integers, so that nothing cancels.

    Args:
        count: of how many numbers, any shape.
        total: their sum, shape (2, *that shape).
        squares: the sum of their squares, shape (3, *that shape).
    """
    found = np.full(count.shape, np.nan)
    for place in np.ndindex(count.shape):
        number = int(count[place])
        if number > 1:
            whole = _integer(total[(slice(None), *place)])
            spread = number * _integer(squares[(slice(None), *place)]) - whole * whole
            found[place] = (spread / (number * (number - 1) << 2 * BITS)) ** 0.5
    return found


def _integer(limbs: Limbs) -> int:
    """A number in multiples of its last limb."""
    number = 0
    for limb in limbs.tolist():
        number = (number << BITS) + limb
    return number


# <bootstrap> A bootstrap that adds up: the Poisson bootstrap.
#
# Instead of drawing n texts out of n with replacement, each replicate counts each text a
# Poisson(1) number of times (Hanley and MacGibbon 2006, Creating non-parametric bootstrap samples
# using Poisson frequencies; Chamandy et al. 2012, Estimating uncertainty for massive data
# streams, section 3). No text needs to know of another: a text's weights come from a counter-
# based generator (Philox, Salmon et al. 2011) at a place that only the seed and the text's number
# in the corpus name, so that order, workers and restarts change nothing.

REPLICATES = 200
LEVEL = 0.95
_GRID = 2.0**20
"""Values are rounded to multiples of 1 / this; sums of a block then stay exact in float64."""
_DRAWS_A_STEP = 8
_CUMULATIVE = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(13)])
_BOUNDS = np.rint(_CUMULATIVE * 2.0**32)


def poisson_weights(
    seed: int, numbers: Sequence[int], replicates: int = REPLICATES
) -> NDArray[np.float64]:
    """How often each replicate counts each text.

    Args:
        seed: of the bootstrap.
        numbers: of the texts in their corpus, from 0.
        replicates: how many.

    Returns:
        Whole numbers of shape (texts, replicates), each Poisson(1).
    """
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
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What a block of texts adds to each replicate.

    Every product and every sum is a whole number below 2^53, so that a matrix product is exact in
    whatever order it adds.

    Args:
        weights: shape (texts, replicates), as `poisson_weights` gives them; at most 1,024 texts.
        values: shape (texts, measures, heads), of size below 2^19; NaN where a text says nothing.

    Returns:
        Sums in multiples of 2^-20, and counts, each of shape (replicates, measures, heads).
    """
    known = np.isfinite(values)
    flat = np.rint(np.where(known, values, 0.0) * _GRID).reshape(len(values), -1)
    shape = (weights.shape[1], *values.shape[1:])
    totals = (weights.T @ flat).reshape(shape).astype(np.int64)
    if (known == known[..., :1]).all():
        # A text mostly says something of all heads or of none.
        counts = np.broadcast_to((weights.T @ known[..., 0])[..., None], shape)
    else:
        counts = (weights.T @ known.reshape(len(values), -1)).reshape(shape)
    return totals, counts.astype(np.int64)


def intervals(
    totals: NDArray[np.int64], counts: NDArray[np.int64], texts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends of the percentile interval of each mean; NaN of fewer than two texts.

    Args:
        totals: of the replicates, shape (replicates, …).
        counts: of the replicates, likewise.
        texts: how many texts there were, shape (…).
    """
    means = np.where(counts > 0, totals / _GRID / np.maximum(counts, 1), np.nan)
    means[:, texts < 2] = np.nan
    ends = np.full((2, *texts.shape), np.nan)
    # A replicate that drew no text at all says nothing; with a handful of texts there are some.
    some = np.isfinite(means).any(axis=0)
    tails = (1 - LEVEL) / 2
    ends[:, some] = np.nanquantile(means[:, some], [tails, 1 - tails], axis=0)
    return ends[0], ends[1]
