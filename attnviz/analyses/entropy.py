"""Entropy of attention rows (Shannon 1948), how far two rows diverge (Lin 1991), and their scores.

A score is what the softmax is taken of, scaled and with its biases, over the keys that a query may
see. All are in nats.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Projections, known_mean

Rows = NDArray[np.float64]
SATURATED = 0.999
"""A row is saturated where one key gets more."""
ENTROPY = "row-entropy"
"""The median over rows of entropy as a share of what is possible, which verdicts are based on."""
Array = NDArray[np.floating]
AT_ONCE, FEW = 2**16, 2**12
"""How many weights one step reads, so that they stay in the cache; with so few none is skipped."""


def row_entropy(weights: NDArray[np.floating]) -> Rows:
    """−Σ p ln p of rows (…, queries, keys), each made to sum to 1, as float64 (…, queries).

    From 0, where one key has it all, to ln(keys), where all are equal; NaN of a row that attends to
    nothing, which is no distribution. For a row a with the sum s it is ln s − Σ a ln a / s.
    """
    entropies = np.empty(weights.shape[:-1])
    for place in np.ndindex(weights.shape[:-2]):
        for rows, keys in _parts(weights[place]):
            part = weights[place][rows, keys]
            # Part by part it stays in the processor's cache. The smallest number stands in for 0,
            # whose logarithm, times 0, is 0.
            terms = np.maximum(part, np.finfo(part.dtype).tiny)
            np.log(terms, out=terms)
            terms *= part
            sums = part.sum(axis=-1, dtype=np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.log(sums) - terms.sum(axis=-1, dtype=np.float64) / sums
            entropies[place][rows] = own
    return np.maximum(entropies, 0.0)


def _parts(matrix: NDArray[Any]) -> Iterator[tuple[slice, slice]]:
    """Neighbouring rows of a matrix, without the keys at the end to which they give nothing."""
    count, keys = matrix.shape
    step = max(AT_ONCE // max(keys, 1), 1)
    for first in range(0, count, step):
        part, stop = matrix[first : first + step], keys
        if part.size > FEW:
            # Of a causal text the last row goes furthest.
            stop = max(np.flatnonzero(part[-1])[-1:].tolist(), default=0) + 1
            stop = keys if part[:, stop:].any() else stop
        yield slice(first, first + step), slice(stop)


def jensen_shannon(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    entropies: tuple[Rows, Rows] | None = None,
) -> Rows:
    """H((p + q) / 2) − (H(p) + H(q)) / 2 of rows, in nats; 0: they are equal, ln 2: disjoint.

    Both of a shape like (…, queries, keys), with rows that sum to 1, and broadcast; NaN where one
    attends to nothing. The entropies of both are computed where they are not known.
    """
    of_first, of_second = entropies or (row_entropy(first), row_entropy(second))
    between = np.asarray(first + second)
    between /= 2
    divergences: Rows = row_entropy(between) - (of_first + of_second) / 2
    return np.maximum(divergences, 0.0)


def pair_divergences(heads: NDArray[np.floating]) -> Rows:
    """Mean divergence between the rows of every two heads, in nats, shape (heads, heads).

    Heads (heads, queries, keys) have rows that sum to 1, or to 0 where they attend to nothing; NaN
    where two heads have no row in which both attend to anything.
    """
    entropies, parts = row_entropy(heads), [*_parts(np.asarray(heads.any(axis=0)))]
    table = np.zeros((len(heads), len(heads)))
    for place, head in enumerate(heads):
        others = slice(place + 1, None)
        apart = np.empty(entropies[others].shape)
        for rows, keys in parts:
            own = entropies[place, rows], entropies[others, rows]
            apart[:, rows] = jensen_shannon(head[rows, keys], heads[others, rows, keys], own)
        table[place, others] = known_mean(apart)
    return table + table.T


class ScoreStudy:
    """What the scores of a layer's heads say, from tiles of whole rows in any order."""

    def __init__(self, heads: int, rows: int, keys: int, start: int = 0) -> None:
        self.start = start  # the number of the first row in its text
        self.counts, self.highest, self.sharpest, self.entropies = np.zeros((4, heads, rows))
        self.sums = np.zeros((2, heads))
        self.key_sums = np.zeros((heads, keys))

    def add(self, heads: slice, first: int, scores: Array, shares: Array) -> None:
        """Add rows from number `first` on, scores and shares (heads, rows, keys).

        Scores of hidden keys are −∞; keys at the end that no row sees may be missing.
        """
        own = heads, slice(first, first + scores.shape[1])
        visible = scores > -np.inf
        finite = np.where(visible, scores, 0).astype(np.float64)
        self.sums[:, heads] += finite.sum((1, 2)), np.einsum("hij,hij->h", finite, finite)
        self.counts[own], self.highest[own] = visible.sum(-1), scores.max(-1)
        self.sharpest[own], self.entropies[own] = shares.max(-1), row_entropy(shares)
        self.key_sums[heads, : shares.shape[2]] += shares.sum(1, dtype=np.float64)

    def values(self) -> dict[str, Rows]:
        """A number for each head and measure; rows that see no key do not count."""
        some, several = self.counts > 0, self.counts > 1
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, square = self.sums / self.counts.sum(-1)
            totals = np.where(some, self.highest - np.log(self.sharpest), np.nan)
            possible = np.where(several, self.entropies / np.log(self.counts), np.nan)
            full = np.where(several, self.sharpest > SATURATED, np.nan)
        return {
            "score-max": np.where(some, self.highest, -np.inf).max(-1),
            "score-mean": mean,
            "score-std": np.sqrt(np.maximum(square - mean**2, 0)),
            "log-sum-exp": known_mean(np.where(np.isfinite(totals), totals, np.nan)),
            "saturated": known_mean(full),
            ENTROPY: middle(possible),
        }

    def norms(self, query: Array | None, key: Array | None, value: Array) -> dict[str, Rows]:
        """Sizes of vectors (heads, tokens, size), where they are known."""
        sizes = np.linalg.norm(value.astype(np.float64), axis=-1)
        usual = np.median(sizes, axis=-1)
        at_sink = np.take_along_axis(sizes, self.key_sums.argmax(-1)[:, None], -1)[:, 0]
        norms = {"value-norm": usual}
        norms["sink-value"] = np.divide(
            at_sink, usual, where=usual > 0, out=np.full(len(usual), np.nan)
        )
        for name, side in (("query-norm", query), ("key-norm", key)):
            if side is not None:
                norms[name] = np.linalg.norm(side.astype(np.float64), axis=-1).max(-1)
        return norms


def projected_scores(
    sides: Projections, item: AttentionMap, visible: NDArray[np.bool_]
) -> dict[str, Rows]:
    """The measures of a map's scores by its queries and keys, (layers, heads).

    `visible` has the shape (layers or 1, queries, keys). None where the softmax of these is not
    the map: more was done to the products.
    """
    layers = list[dict[str, Rows]]()
    if sides.besides or item.values == "signed" or item.is_pooled:
        return {}
    for place, weights in enumerate(item.weights):
        scores = sides.scale * (sides.query[place] @ sides.key[place].swapaxes(-1, -2))
        scores = np.where(visible[place % len(visible)], scores, -np.inf)
        totals = np.log(np.exp(scores - (highest := scores.max(-1, keepdims=True))).sum(-1))
        # The larger the scores, the more of each weight is their rounding.
        off = 1e-4 + 1e-6 * float(np.abs(highest).max())
        if not np.allclose(np.exp(scores - highest - totals[..., None]), weights, atol=off):
            return {}
        study = ScoreStudy(*weights.shape)
        study.add(slice(None), 0, scores, weights)
        own = study.values()
        if sides.value is not None:
            own |= study.norms(sides.query[place], sides.key[place], sides.value[place])
        if sides.peaks:
            own["massive"] = np.full(len(weights), sides.peaks[place])
        layers.append(own)
    return {name: np.stack([of_layer[name] for of_layer in layers]) for name in layers[0]}


def middle(values: Rows) -> Rows:
    """The median over the last axis of the values that are there; NaN where there is none."""
    numbers = np.where(np.isnan(values).all(-1, keepdims=True), 0, values)
    return np.where(np.isnan(values).all(-1), np.nan, np.nanmedian(numbers, axis=-1))


def peak(residual: Array) -> float:
    """The largest coordinate of a residual stream against the median, by their sizes."""
    sizes = np.abs(residual)
    usual = float(np.median(sizes))
    return float(sizes.max()) / usual if usual else np.nan
