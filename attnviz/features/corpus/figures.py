"""The numbers of each head on one text, as one array that is summed over texts.

`ROWS` names the rows of the array. A second table sums the attention between frequent words.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap
from attnviz.core.measures import EFFECT, HeadMeasure
from attnviz.core.registry import MEASURES
from attnviz.core.tokens import patch_places
from attnviz.features.corpus.words import CLASSES, PAIRED, InWords
from attnviz.features.measures.sums import measured_figures

WORD_BYTES = 32 * 2**20  # largest table of pairs for each stream

MEASURED = (*(name for name, entry in MEASURES.items() if not entry.repeated), EFFECT)
ORDERING = (EFFECT, "confidence")  # the measures that order heads for pruning, lowest first
REACH = 16  # largest distance with a row of its own, in tokens on either side, or in patches
OFFSETS = tuple(range(-REACH, REACH + 1))  # position of the key minus that of the query

_LENGTHS = {
    "value": len(MEASURED),
    "uniform": len(MEASURED),
    "top": len(MEASURED),
    "rows": 1,
    "text rows": 1,
    "near": len(OFFSETS),
    "cells": len(OFFSETS),
    "beyond": 2,
    "class": len(CLASSES),
    "class uniform": len(CLASSES),
    "ordering": len(ORDERING),
}


ROWS: Mapping[str, slice] = {
    name: slice(end - length, end)
    for (name, length), end in zip(_LENGTHS.items(), accumulate(_LENGTHS.values()), strict=True)
}
"""The rows of the array:

- "value", "uniform", "top": each measure, its value for uniform attention and its largest possible
  value; NaN where the measure does not apply;
- "rows", "text rows": rows that attend to something, and those of them that stand for text;
- "near", "cells", "beyond": without special tokens, the attention at each relative position, the
  number of cells there, and the attention before and after all these positions;
- "class", "class uniform": the attention to each class of keys, and that of uniform attention;
- "ordering": the measures that order heads, on half of the texts."""
COUNT = sum(_LENGTHS.values())


def head_statistics(
    subject: MeasuredMap,
    measures: Mapping[str, HeadMeasure],
    classes: NDArray[np.intp],
    *,
    orders: bool = False,
) -> NDArray[np.float64]:
    """All numbers of a map, shape (figures, layers, heads).

    `classes` has the class of each key; `orders` is True for a text that orders the heads.
    """
    weights = subject.item.weights
    figures = figures_of(measures, weights.shape[:2], orders=orders)
    figures[ROWS["rows"]] = subject.rows.sum(axis=-1)[:, None]
    queries, keys = (
        np.array([not token.special for token in tokens])
        for tokens in (subject.item.query_tokens, subject.item.key_tokens)
    )
    of_text = queries[:, None] & keys
    figures[ROWS["text rows"]] = (subject.rows & queries).sum(axis=-1)[:, None]
    places = patch_places(subject.item.key_tokens)
    if places is None:
        figures[ROWS["near"]] = np.moveaxis(by_offset(weights * of_text), -1, 0)
        figures[ROWS["cells"]] = np.moveaxis(by_offset(subject.visible & of_text), -1, 0)[..., None]
        rows, columns = weights.shape[2:]
        sums = np.zeros((2, *weights.shape[:2]))
        if max(rows, columns) > REACH:
            apart = np.arange(columns) - np.arange(rows)[:, None]
            for side, far in enumerate((apart < -REACH, apart > REACH)):
                sums[side] = weights[..., far & of_text].sum(axis=-1, dtype=np.float64)
        figures[ROWS["beyond"]] = sums
    elif subject.item.query_tokens == subject.item.key_tokens:
        near, beyond = by_distance(weights[:, :, queries][..., keys], places)
        cells, _ = by_distance(subject.visible[:, queries][..., keys], places)
        figures[ROWS["near"]], figures[ROWS["cells"]] = near, cells[..., None]
        figures[ROWS["beyond"]] = np.stack([np.zeros_like(beyond), beyond])
    of_keys = weights.sum(axis=-2, dtype=np.float64), subject.uniform.sum(axis=-2)
    for name, by_key in zip(("class", "class uniform"), of_keys, strict=True):
        for place in range(len(CLASSES)):
            figures[ROWS[name].start + place] = by_key[..., classes == place].sum(axis=-1)
    return figures


def figures_of(
    measures: Mapping[str, HeadMeasure], shape: tuple[int, ...], *, orders: bool
) -> NDArray[np.float64]:
    """The measures alone, of (layers, heads); what needs whole maps is unknown."""
    figures = measured_figures(measures, MEASURED, (COUNT, *shape))
    for place, name in enumerate(ORDERING, ROWS["ordering"].start):
        if orders and name in measures:
            figures[place] = measures[name].values
    return figures


def by_offset(cells: NDArray[np.generic]) -> NDArray[np.float64]:
    """Sums along the diagonals of cells (…, queries, keys), shape (…, offsets)."""
    *lead, queries, keys = cells.shape
    # A strided view puts each query's own position in the middle, so no row is copied.
    wide = np.zeros((*lead, queries, max(queries, keys) + 2 * REACH), dtype=cells.dtype)
    wide[..., REACH : REACH + keys] = cells
    *steps, down, across = wide.strides
    bands = as_strided(
        wide, (*lead, queries, len(OFFSETS)), (*steps, down + across, across), writeable=False
    )
    return np.asarray(bands.sum(axis=-2, dtype=np.float64))


def by_distance(
    cells: NDArray[np.generic], places: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of cells (…, patches, patches) by rounded distance in patches, shape (offsets, …).

    Negative offsets are 0. The second array, shape (…), sums all larger distances.
    """
    apart = np.rint(np.linalg.norm(places[:, None] - places, axis=-1))
    sums = np.zeros((len(OFFSETS), *cells.shape[:-2]))
    for place in range(REACH, len(OFFSETS)):
        sums[place] = cells[..., apart == OFFSETS[place]].sum(axis=-1, dtype=np.float64)
    return sums, cells[..., apart > REACH].sum(axis=-1, dtype=np.float64)


class PairTable:
    """Attention between the most frequent words, summed over the occurrences of each pair.

    The table has a fixed size and its sums are exact; a sketch of all pairs would only estimate.

    Attributes:
        totals: shape (pairs, heads); pair q · words + k is query word q and key word k.
    """

    def __init__(self, words: Sequence[str], heads: int) -> None:
        most = min(PAIRED, math.isqrt(WORD_BYTES // (8 * heads)))
        self.words = tuple(words[:most])
        self._places = {word: place for place, word in enumerate(self.words)}
        self.totals = np.zeros((len(self.words) ** 2, heads))
        self.counts = np.zeros(len(self.words) ** 2, dtype=np.int64)

    def add(self, item: InWords) -> None:
        queries, keys = (
            np.array([self._places.get(word, -1) for word in axis.words])
            for axis in (item.queries, item.keys)
        )
        cells = item.between & (queries >= 0)[:, None] & (keys >= 0)
        rows, columns = np.nonzero(cells)
        if not len(rows):
            return
        pairs = queries[rows] * len(self.words) + keys[columns]
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        starts = np.flatnonzero(np.diff(pairs, prepend=-1))
        parts = item.weights[:, rows[order], columns[order]].T.astype(np.float64)
        self.totals[pairs[starts]] += np.add.reduceat(parts, starts, axis=0)
        self.counts[pairs[starts]] += np.diff([*starts, len(pairs)])

    def means(self, pairs: NDArray[np.intp]) -> NDArray[np.float64]:
        """Mean weight of pairs that occurred, shape (pairs, heads)."""
        return np.asarray(self.totals[pairs] / self.counts[pairs, None])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The pairs that occurred, by number, with their totals and counts."""
        pairs = np.flatnonzero(self.counts)
        totals, counts = self.totals[pairs], self.counts[pairs]
        return {"pairs": pairs, "pair totals": totals, "pair counts": counts}

    def merge(
        self, pairs: NDArray[np.int64], totals: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> None:
        """Add the `arrays` of another table of the same words."""
        self.totals[pairs] += totals
        self.counts[pairs] += counts
