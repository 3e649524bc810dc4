"""Sums in whole numbers: adding in any order and grouping gives the same to the last bit.

A value is rounded once, to the nearest multiple of 2^-32; from there on only integers are added,
which lose nothing. A sum is held in limbs of 32 bits on its first axis, the whole part first: limb
k counts multiples of 2^(-32 k), and all but the first lie from 0 to 2^32 − 1, so that a number has
one spelling only.
"""

from __future__ import annotations

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
