"""How much heads say of this text: how far their rows lie from what position alone predicts.

A head that always attends to the token before is sharp, and alike for every text. So a row is
compared with the head's other rows (a divergence of Kullback and Leibler 1951, over the words).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.analyses.measures.distance import patch_places
from attnviz.core.attention_map import AttentionMap
from attnviz.core.measures import HeadMeasure
from attnviz.core.sinks import word_cells
from attnviz.core.tokens import text_places

LEAST_WORDS = 3
"""Of two words no distance comes twice, so that nothing can be compared."""
TINY = np.finfo(np.float32).tiny
LONGEST = 24
"""Characters of a word that is named: an address can have hundreds."""
AT_ONCE = 2**16
"""Cells computed at once: many heads of a short text, one of a long one."""


def informative(subject: MeasuredMap) -> HeadMeasure | None:
    """How far rows lie from what position alone predicts, in nats.

    Mean over the words i of Σ_j a_ij ln(a_ij / p_ij) over the words j. p_ij is the mean weight of
    the head's other rows at the distance j − i, and in the column of a special token or a sink
    their mean weight in that column; it is made to sum to what the row sums to. At least 0.
    """
    words = Predicted(subject)
    if words.rows.sum() < LEAST_WORDS:
        return None
    ends = ("position predicts all", "each word attends to keys that no other row predicts")
    # Uniform attention is one row among those with a cell at that distance: p is not below this.
    most = float(np.log(words.visible.sum(axis=-1).max() * words.rows.sum()))
    values = words.means(words.item.weights), words.means(words.uniform)
    return subject.compare("informative", "nats", ends, values, top=most)


class Predicted:
    """What position alone predicts of a map over words.

    Attributes:
        item: the map over words; visible, uniform: as of a `MeasuredMap`.
        rows, columns: True for words; special tokens and a sink are no columns.
    """

    def __init__(self, subject: MeasuredMap) -> None:
        words = subject.words
        self.item, self.visible, self.uniform = words.item, words.visible, words.uniform
        cells = word_cells(self.item)
        self.columns = np.asarray(cells.any(axis=0))
        self.rows = np.asarray(cells.any(axis=1) & words.rows.any(axis=0))
        classes = _classes(self.item, self.columns)
        self._classes, self._width = classes[self.rows], int(classes.max()) + 1
        self._layers = [self._of_layer(visible) for visible in self.visible[:, self.rows]]

    def means(self, weights: NDArray[np.floating]) -> Numbers:
        """The measure of weights (layers, heads, queries, keys), shape (layers, heads)."""
        sums = np.empty(weights.shape[:2])
        step = max(AT_ONCE // self._classes.size, 1)
        for layer, heads in enumerate(weights):
            for first in range(0, len(heads), step):
                part = slice(first, first + step)
                sums[layer, part] = self.terms(heads[part], layer).sum(axis=(1, 2))
        counts = self.visible[:, self.rows].any(axis=-1).sum(axis=-1, keepdims=True)
        # Over some columns alone, a divergence can fall below 0 by a little.
        means: Numbers = np.where(counts, np.maximum(sums, 0) / np.maximum(counts, 1), np.nan)
        return means

    def terms(self, weights: NDArray[np.floating], layer: int) -> NDArray[np.float32]:
        """The terms a ln(a / p) of some heads (heads, queries, keys) of a layer.

        Shape (heads, rows, keys); 0 in columns that are no words.
        """
        own = weights[:, self.rows].astype(np.float32)
        shares, uniform = self._layers[min(layer, len(self._layers) - 1)]
        places = self._classes + self._width * np.arange(len(own))[:, None, None]
        # Of all rows but a cell's own one.
        predicted = np.bincount(places.ravel(), own.ravel()).astype(np.float32)[places]
        predicted -= own
        held = own.sum(axis=-1, keepdims=True)
        # Uniform attention counts as one row more: without it, p were unknown at a distance that
        # no other row has, and 0, so that one weight outweighs all, where one other row has 0.
        predicted += held * uniform
        predicted *= shares
        predicted *= held / np.maximum(predicted.sum(axis=-1, keepdims=True), TINY)
        # 0 ln 0 is 0.
        terms: NDArray[np.float32] = np.maximum(own, TINY) / np.maximum(predicted, TINY)
        np.log(terms, out=terms)
        terms *= own * self.columns
        return terms

    def link(self, layer: int, head: int) -> tuple[str, str, float]:
        """The query, the key and the weight of a head's largest term between different words.

        Where there is none, of the largest of all.
        """
        weights = self.item.weights[layer, head]
        terms = np.zeros_like(weights)
        terms[self.rows] = self.terms(weights[None], layer)[0]
        queries, keys = (
            np.array([token.text.lower() for token in tokens])
            for tokens in (self.item.query_tokens, self.item.key_tokens)
        )
        differing = np.where(queries[:, None] == keys, 0, terms)
        cells = differing if differing.max() > 0 else terms
        query, key = map(int, np.unravel_index(cells.argmax(), cells.shape))
        ends = (self.item.query_tokens[query].text, self.item.key_tokens[key].text)
        first, last = (one if len(one) <= LONGEST else f"{one[: LONGEST - 1]}…" for one in ends)
        return first, last, float(weights[query, key])

    def _of_layer(
        self, visible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What makes sums over a class means, and uniform attention's weight in each row.

        The first is one over the visible cells of a cell's class, 0 where the cell is hidden.
        """
        counts = np.bincount(self._classes[visible], minlength=self._width)
        shares = visible / np.maximum(counts, 1).astype(np.float32)[self._classes]
        uniform = 1 / np.maximum(visible.sum(axis=-1, keepdims=True), 1)
        return shares.astype(np.float32), uniform.astype(np.float32)


def _classes(item: AttentionMap, words: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Cells that position cannot tell apart share a number: those at one distance.

    A column that is no word is a class, and between two texts, which have no distance, every one.
    """
    keys = np.arange(len(item.key_tokens))
    if not within_one_text(item):
        return np.tile(keys, (len(item.query_tokens), 1))
    places = np.stack([np.zeros_like(keys), keys], axis=1)
    patches = patch_places(item.key_tokens)
    if patches is not None:  # of a picture, the distance in rows and in columns
        places[text_places(item.key_tokens)] = patches
    steps = (places - places[:, None]) @ (2 * places[:, 1].max() + 1, 1)
    return np.where(words, steps - steps.min() + len(keys), keys)
