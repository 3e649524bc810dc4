"""Attention between the most frequent words of a corpus, pair by pair.

The table has a fixed size, so that nothing is forgotten and nothing depends on the order of texts:
what a sketch of all pairs would only estimate is exact for those that have numbers behind them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.exact import BITS
from attnviz.analyses.corpus.in_words import InWords
from attnviz.analyses.corpus.words import PAIRED

WORD_BYTES = 32 * 2**20
"""Memory that the table of pairs may take for each stream."""


class PairTable:
    """Sums over the occurrences of each pair of words, in multiples of 2^-32.

    Attributes:
        words: those between which pairs are counted.
        totals: int64 of shape (pairs, heads); pair q · words + k is query word q and key word k.
        counts: occurrences, shape (pairs,).
    """

    def __init__(self, words: Sequence[str], heads: int) -> None:
        """An empty table.

        Args:
            words: the most frequent first; as many are taken as memory allows.
            heads: of all layers.
        """
        most = min(PAIRED, math.isqrt(WORD_BYTES // (8 * heads)))
        self.words = tuple(words[:most])
        self._places = {word: place for place, word in enumerate(self.words)}
        self.totals = np.zeros((len(self.words) ** 2, heads), dtype=np.int64)
        self.counts = np.zeros(len(self.words) ** 2, dtype=np.int64)

    def add(self, item: InWords) -> None:
        """Count the pairs of one more text."""
        queries, keys = (
            np.array([self._places.get(word, -1) for word in axis.words])
            for axis in (item.queries, item.keys)
        )
        wanted = item.between & (queries >= 0)[:, None] & (keys >= 0)
        rows, columns = np.nonzero(wanted)
        if not len(rows):
            return
        pairs = queries[rows] * len(self.words) + keys[columns]
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        parts = item.weights[:, rows[order], columns[order]].T.astype(np.float64)
        whole = np.rint(parts * 2.0**BITS).astype(np.int64)
        self.totals[pairs[starts]] += np.add.reduceat(whole, starts, axis=0)
        self.counts[pairs[starts]] += np.diff([*starts, len(pairs)])

    def means(self, pairs: NDArray[np.intp]) -> NDArray[np.float64]:
        """Mean weight of some pairs that occurred, in each head; shape (pairs, heads)."""
        means: NDArray[np.float64] = self.totals[pairs] / 2.0**BITS / self.counts[pairs, None]
        return means

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        """The pairs that occurred, by number, with their totals and counts."""
        pairs = np.flatnonzero(self.counts)
        found = {"pairs": pairs, "pair totals": self.totals[pairs]}
        return {**found, "pair counts": self.counts[pairs]}

    def merge(
        self, pairs: NDArray[np.int64], totals: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> None:
        """Add another table of the same words, as `arrays` gave it."""
        self.totals[pairs] += totals
        self.counts[pairs] += counts
