"""A map over words: weights summed over a key's pieces and averaged over a query's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.words import Axis
from attnviz.analyses.mask import within_one_text
from attnviz.analyses.subject import Subject


@dataclass(frozen=True, slots=True, eq=False)
class InWords:
    """A map over the words of its two axes.

    Attributes:
        queries: words that attend.
        keys: words that are attended to.
        weights: shape (layers · heads, query words, key words).
        between: True where a link joins two words that may see each other in some layer; False for
            special tokens and for a word and itself; shape (query words, key words).
    """

    queries: Axis
    keys: Axis
    weights: NDArray[np.floating]
    between: NDArray[np.bool_]


def in_words(subject: Subject, queries: Axis, keys: Axis) -> InWords:
    """A map over its words.

    Args:
        subject: the map.
        queries: its rows read in words.
        keys: its columns read in words.
    """
    item = subject.item
    weights: NDArray[np.floating] = item.weights.reshape(-1, *item.weights.shape[2:])
    visible = subject.visible.any(axis=0)
    if len(keys.starts) < len(item.key_tokens):
        weights = np.add.reduceat(weights, keys.starts, axis=-1)
        visible = np.logical_or.reduceat(visible, keys.starts, axis=-1)
    if len(queries.starts) < len(item.query_tokens):
        sizes = np.diff([*queries.starts, len(item.query_tokens)]).astype(np.float32)
        weights = np.add.reduceat(weights, queries.starts, axis=-2) / sizes[:, None]
        visible = np.logical_or.reduceat(visible, queries.starts, axis=-2)
    between = visible & ~queries.special[:, None] & ~keys.special
    if within_one_text(item):
        np.fill_diagonal(between, False)
    return InWords(queries, keys, weights, between)
