"""What one text says of each head, as one array of figures to be added up over texts.

The rows of the array are named by `ROWS`: the measures of `heads` with what an even look gives and
the largest value there can be, the attention by relative position, and the attention by class of
the key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from attnviz.analyses.corpus.words import CLASSES
from attnviz.analyses.subject import Subject
from attnviz.measures import HeadMeasure
from attnviz.registry import MEASURES

MEASURED = tuple(name for name, entry in MEASURES.items() if not entry.repeated)
REACH = 16
"""Relative positions are told apart up to so many tokens on either side."""
OFFSETS = tuple(range(-REACH, REACH + 1))
"""Position of the key minus that of the query."""

_LENGTHS = {
    "value": len(MEASURED),
    "even": len(MEASURED),
    "top": len(MEASURED),
    "rows": 1,
    "text rows": 1,
    "near": len(OFFSETS),
    "cells": len(OFFSETS),
    "beyond": 2,
    "class": len(CLASSES),
    "class even": len(CLASSES),
}


def _places() -> dict[str, slice]:
    ends = np.cumsum(list(_LENGTHS.values())).tolist()
    return {
        name: slice(end - length, end)
        for (name, length), end in zip(_LENGTHS.items(), ends, strict=True)
    }


ROWS: Mapping[str, slice] = _places()
"""Where in the array to find: each measure's "value", what an "even" look gives and the "top"
there can be (NaN where it says nothing); how many "rows" attend, and how many of them stand for
text; by relative position, special tokens aside, all the attention ("near") and the "cells" that it
lies on, and the attention before and after these ("beyond"); by class of the key all the attention
("class"), and that of an even look."""
COUNT = sum(_LENGTHS.values())


def figures_of(
    subject: Subject, measures: Mapping[str, HeadMeasure], classes: NDArray[np.intp]
) -> NDArray[np.float64]:
    """All figures of one map.

    Args:
        subject: the map.
        measures: of its heads, by name.
        classes: of its keys, as places in `CLASSES`.

    Returns:
        Shape (figures, layers, heads), the rows as `ROWS` names them.
    """
    weights = subject.item.weights
    found = np.full((COUNT, *weights.shape[:2]), np.nan)
    for place, name in enumerate(MEASURED):
        if name in measures:
            measure = measures[name]
            assert measure.uniform is not None
            found[place] = measure.values
            found[ROWS["even"].start + place] = measure.uniform
            found[ROWS["top"].start + place] = measure.top
    found[ROWS["rows"]] = subject.rows.sum(axis=-1)[:, None]
    queries, keys = (
        np.array([not token.special for token in tokens])
        for tokens in (subject.item.query_tokens, subject.item.key_tokens)
    )
    of_text = queries[:, None] & keys
    found[ROWS["text rows"]] = (subject.rows & queries).sum(axis=-1)[:, None]
    found[ROWS["near"]] = np.moveaxis(by_offset(weights * of_text), -1, 0)
    found[ROWS["cells"]] = np.moveaxis(by_offset(subject.visible & of_text), -1, 0)[..., None]
    found[ROWS["beyond"]] = _beyond(weights, of_text)
    of_keys = weights.sum(axis=-2, dtype=np.float64), subject.uniform.sum(axis=-2)
    for name, received in zip(("class", "class even"), of_keys, strict=True):
        for place in range(len(CLASSES)):
            held = received[..., classes == place].sum(axis=-1)
            found[ROWS[name].start + place] = held
    return found


def by_offset(cells: NDArray[np.generic]) -> NDArray[np.float64]:
    """Sums along diagonals.

    Args:
        cells: shape (…, queries, keys).

    Returns:
        Shape (…, offsets), in the order of `OFFSETS`.
    """
    *lead, queries, keys = cells.shape
    # Each row, moved so that the query's own position is in the middle, is a view into one array.
    padded = np.zeros((*lead, queries, max(queries, keys) + 2 * REACH), dtype=cells.dtype)
    padded[..., REACH : REACH + keys] = cells
    *steps, down, across = padded.strides
    moved = as_strided(
        padded, (*lead, queries, len(OFFSETS)), (*steps, down + across, across), writeable=False
    )
    sums: NDArray[np.float64] = moved.sum(axis=-2, dtype=np.float64)
    return sums


def _beyond(weights: NDArray[np.float32], of_text: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The attention to text out of reach, before and after; shape (2, layers, heads)."""
    queries, keys = weights.shape[2:]
    found = np.zeros((2, *weights.shape[:2]))
    if max(queries, keys) > REACH:
        apart = np.arange(keys) - np.arange(queries)[:, None]
        for side, far in enumerate((apart < -REACH, apart > REACH)):
            found[side] = weights[..., far & of_text].sum(axis=-1, dtype=np.float64)
    return found
