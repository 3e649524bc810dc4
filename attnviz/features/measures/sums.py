"""Numbers of heads summed over texts, over a few as over a corpus.

Sums are float64 and are merged in the order of the input. So any number of processes gives the same
bits. Each text counts once in a mean, whatever its length.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.measures import HeadMeasure
from attnviz.features.measures.intervals import merge_moments, moments_of

_BLOCK = 256
_BLOCK_NUMBERS = 2**20
"""A block of texts is summed when it holds this many texts, or this many numbers. Summing each text
alone would cost a pass of numpy over all sums for every text."""


def measured_figures(
    measures: Mapping[str, HeadMeasure], names: Sequence[str], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """The measures of a text as figures (figures, layers, heads).

    These are the values of each name, then uniform attention's, then the largest possible ones; NaN
    where a measure does not apply, and in whatever figures follow.
    """
    figures = np.full(shape, np.nan)
    for place, name in enumerate(names):
        if name in measures:
            measure = measures[name]
            assert measure.uniform is not None
            for row, values in enumerate((measure.values, measure.uniform, measure.top)):
                figures[place + row * len(names)] = values
    return figures


class HeadSums:
    """Sums over the texts of one stream.

    Attributes:
        shape: (figures, layers, heads).
        sums: "count" of texts with a value and their "total", of that shape; sums of squared
            ("spread") and cubed ("skew") differences from the mean of the first figures, which are
            the values of measures.
    """

    def __init__(self, shape: tuple[int, ...], measures: int) -> None:
        self.shape, self._values = shape, slice(measures)
        self.sums: dict[str, NDArray[Any]] = {
            "count": np.zeros(shape, dtype=np.int64),
            "total": np.zeros(shape),
            "spread": np.zeros((measures, *shape[1:])),
            "skew": np.zeros((measures, *shape[1:])),
        }
        self._waiting: list[NDArray[np.float64]] = []

    def add(self, figures: NDArray[np.float64]) -> None:
        self._waiting.append(figures)
        if len(self._waiting) >= min(_BLOCK, max(_BLOCK_NUMBERS // figures.size, 1)):
            self.settle()

    def settle(self) -> None:
        if not self._waiting:
            return
        figures, self._waiting = np.stack(self._waiting), []
        self.merge(moments_of(figures, self._values))

    def merge(self, others: Mapping[str, NDArray[Any]]) -> None:
        merge_moments(self.sums, others, self._values)

    def means(self) -> NDArray[np.float64]:
        """The mean of each figure over the texts that have it, or NaN."""
        self.settle()
        count = self.sums["count"]
        return np.where(count > 0, self.sums["total"] / np.maximum(count, 1), np.nan)
