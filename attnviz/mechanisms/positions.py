"""Sinusoidal position encoding (Vaswani 2017, section 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sinusoidal_positions(length: int, size: int, base: float = 10000.0) -> NDArray[np.float32]:
    """A wave for each pair of columns: even columns sin, odd columns cos of pos / base^(2k/size).

    Args:
        length: how many positions, counted from 0.
        size: how many columns; an odd size ends on a sine.
        base: the longest wave is 2π × base positions long.

    Returns:
        float32 of shape (length, size), each value from −1 to 1.
    """
    pairs = np.arange(0, size, 2)
    angles = np.arange(length)[:, None] / base ** (pairs / size)
    encoding = np.empty((length, size))
    encoding[:, 0::2] = np.sin(angles)
    encoding[:, 1::2] = np.cos(angles[:, : size // 2])
    return encoding.astype(np.float32)
