"""What position says of where heads attend: how far, and how much it leaves unexplained.

Distances, in tokens or in patches, include special tokens: a sink is part of what a head does.
A head that always attends to the token before is alike for every text: `informative` holds rows
against the head's other rows (a divergence of Kullback and Leibler 1951, over the words).
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.core.attention_map import AttentionMap, Token, known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import text_places, word_cells

_PATCH = re.compile(r"(\d+),(\d+)")
FAR = 64
"""Tokens beyond which attention is called distant."""
LEAST_WORDS = 3
"""Of two words no distance comes twice, so that nothing can be compared."""
TINY = np.finfo(np.float32).tiny
AT_ONCE = 2**16
"""Cells computed at once: many heads of a short text, one of a long one."""


def distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a token and the tokens it attends to, in tokens.

    Mean over the rows i of Σ_j a_ij |i − j| / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "distance", ("only itself", "only the far end"), np.abs)


def offset(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean signed distance, negative towards the past.

    Mean over the rows i of Σ_j a_ij (j − i) / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "offset", ("only the past", "only what follows"), np.positive)


def distant(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes further than 64 tokens, to text behind the first token.

    Sinks are left out: special tokens and the first token. None where no row sees so far.
    """
    item = subject.item
    if not within_one_text(item) or patch_places(item.key_tokens) is not None:
        return None
    positions = np.arange(len(item.key_tokens))
    targets = np.abs(positions - positions[:, None]) > FAR
    targets[:, [0, *(n for n, token in enumerate(item.key_tokens) if token.special)]] = False
    if not (targets & subject.visible).any():
        return None
    return subject.share_on("distant", targets, ("only near tokens and sinks", "only far text"))


def _weigh_offsets(
    subject: MeasuredMap, name: str, ends: tuple[str, str], kind: np.ufunc
) -> HeadMeasure | None:
    length = len(subject.item.key_tokens)
    in_line = within_one_text(subject.item) and patch_places(subject.item.key_tokens) is None
    if not in_line or length < 2:
        return None
    positions = np.arange(length, dtype=np.float32)
    apart = kind(positions - positions[:, None])

    def formula(weights: NDArray[np.floating], sums: Numbers) -> Numbers:
        with np.errstate(divide="ignore", invalid="ignore"):
            return subject.mean(np.einsum("lhij,ij->lhi", weights, apart) / sums, subject.rows)

    uniform = formula(subject.uniform, subject.uniform.sum(axis=-1))
    values = formula(subject.item.weights, subject.sums), uniform
    return subject.compare(name, "tokens", ends, values, top=length - 1)


def patch_distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a patch of a picture and those it attends to, in patches.

    Mean over the patches of Σ_j a_ij times the distance of patches i and j (Dosovitskiy 2020, fig.
    7). The class token has no place: its row and column are left out, and what is left of each row
    is made to sum to 1 again. Times the side of a patch it is a distance in pixels.
    """
    item = subject.item
    places = patch_places(item.key_tokens)
    if places is None or not within_one_text(item):
        return None
    patches = text_places(item.key_tokens)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        between = weights[:, :, patches][:, :, :, patches].astype(np.float64)
        sums = between.sum(axis=-1)
        ways = np.einsum("lhij,ij->lhi", between, apart)
        # A patch that attends to nothing but the class token has no distance.
        attending = sums > 0
        return known_mean(np.where(attending, ways / np.where(attending, sums, 1.0), np.nan))

    ends = ("only itself", "only the far corner")
    return subject.measure("patch-distance", "patches", ends, formula, top=float(apart.max()))


def patch_places(tokens: Sequence[Token]) -> NDArray[np.float64] | None:
    """Row and column of each patch, shape (patches, 2); None where the tokens are no picture's.

    A picture's tokens are named "row,column", row by row without a gap; special ones may stand
    among them.
    """
    matches = [_PATCH.fullmatch(token.text) for token in tokens if not token.special]
    places = [(int(match[1]), int(match[2])) for match in matches if match]
    if len(places) < max(len(matches), 2):
        return None
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    grid = [(row, column) for row in range(rows) for column in range(columns)]
    return np.array(places, dtype=np.float64) if places == grid else None


def informative(subject: MeasuredMap) -> HeadMeasure | None:
    """How far rows lie from what position predicts, in nats.

    Mean over the words i of Σ_j a_ij ln(a_ij / p_ij) over the words j. p_ij is the mean weight of
    the head's other rows at the distance j − i, and in the column of a special token or a sink
    their mean weight in that column; it is made to sum to what the row sums to. At least 0.
    """
    words = PositionPrediction(subject)
    if words.rows.sum() < LEAST_WORDS:
        return None
    ends = ("position predicts all", "each word attends to keys that no other row predicts")
    # Uniform attention is one row among those with a cell at that distance: p is not below this.
    most = float(np.log(words.visible.sum(axis=-1).max() * words.rows.sum()))
    values = words.means(words.item.weights), words.means(words.uniform)
    return subject.compare("informative", "nats", ends, values, top=most)


class PositionPrediction:
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
        own, width = classes[self.rows], int(classes.max()) + 1
        step = min(max(AT_ONCE // max(own.size, 1), 1), len(self.item.heads))
        # The classes of each head that is computed at once.
        self._places = own + width * np.arange(step)[:, None, None]
        visible = self.visible[:, self.rows]
        counts = [np.bincount(own[layer], minlength=width) for layer in visible]
        # What makes sums over a class means; 0 where a cell is hidden.
        means = visible / np.maximum(counts, 1)[:, own]
        self._means = means.astype(np.float32)
        self._keys = np.maximum(visible.sum(axis=-1, keepdims=True), 1).astype(np.float32)

    def means(self, weights: NDArray[np.floating]) -> Numbers:
        """The measure of weights (layers, heads, queries, keys), shape (layers, heads)."""
        sums = np.empty(weights.shape[:2])
        step = len(self._places)
        for layer, heads in enumerate(weights):
            for first in range(0, len(heads), step):
                part = slice(first, first + step)
                sums[layer, part] = self.terms(heads[part], layer).sum(axis=(1, 2))
        counts = self.visible[:, self.rows].any(axis=-1).sum(axis=-1, keepdims=True)
        # Over some columns alone, a divergence can fall below 0 by a little.
        return np.asarray(np.where(counts, np.maximum(sums, 0) / np.maximum(counts, 1), np.nan))

    def terms(self, weights: NDArray[np.floating], layer: int) -> NDArray[np.float32]:
        """The terms a ln(a / p) of some heads (heads, queries, keys) of a layer.

        Shape (heads, rows, keys); 0 in columns that are no words.
        """
        own = weights[:, self.rows].astype(np.float32, copy=False)
        at = min(layer, len(self.visible) - 1)
        places = self._places[: len(own)]
        # The sum over all rows except the cell's own.
        prior = np.bincount(places.ravel(), own.ravel()).astype(np.float32).take(places)
        prior -= own
        row_sums = own.sum(axis=-1, keepdims=True)
        # Uniform attention counts as one row more: without it, p were unknown at a distance that
        # no other row has, and 0, so that one weight outweighs all, where one other row has 0.
        prior += row_sums / self._keys[at]
        prior *= self._means[at]
        prior *= row_sums / np.maximum(prior.sum(axis=-1, keepdims=True), TINY)
        # 0 ln 0 is 0.
        terms: NDArray[np.float32] = np.maximum(own, TINY)
        terms /= np.maximum(prior, TINY, out=prior)
        np.log(terms, out=terms)
        terms *= np.multiply(own, self.columns, out=own)
        return terms

    def link(self, layer: int, head: int) -> tuple[str, str, float]:
        """The query, the key and the weight of a head's largest term between different words.

        If there is none, those of the largest term of all.
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
        ends = self.item.query_tokens[query].text, self.item.key_tokens[key].text
        # An address can have hundreds of characters.
        first, last = (end if len(end) <= 24 else f"{end[:23]}…" for end in ends)
        return first, last, float(weights[query, key])


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
