"""Scores before the softmax, and norms of what they are products of.

A score is what the softmax is taken of, scaled and with its biases, over the keys that a query may
see. Weights do not tell its size: above some 10 nats to the next key they are 0 and 1, and nothing
is learned any more. Runs that diverge show it in the largest score first (Dehghani 2023), which
clipping of queries and keys bounds (Kimi Team 2025). A few coordinates of the residual stream can
be thousands of times larger than the others, where a head has its sink (Sun 2024).
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy
from attnviz.analyses.masks import MeasuredMap, Numbers, visible_keys
from attnviz.core.attention_map import AttentionMap, Projections, known_mean
from attnviz.core.measures import HeadMeasure

SATURATED = 0.999
"""A row is saturated where one key gets more."""
ENTROPY = "row-entropy"
"""The median over rows of entropy as a share of what is possible, which verdicts are based on."""
Array = NDArray[np.floating]


class ScoreStudy:
    """What the scores of a layer's heads say, from tiles of whole rows in any order."""

    def __init__(self, heads: int, rows: int, keys: int) -> None:
        self.counts, self.highest, self.sharpest, self.entropies = np.zeros((4, heads, rows))
        self.sums = np.zeros((2, heads))
        self.received = np.zeros((heads, keys))

    def add(self, heads: slice, first: int, scores: Array, shares: Array) -> None:
        """Add rows from number `first` on, scores and shares (heads, rows, keys).

        Scores of hidden keys are −∞; keys at the end that no row sees may be missing.
        """
        own = heads, slice(first, first + scores.shape[1])
        seen = scores > -np.inf
        known = np.where(seen, scores, 0).astype(np.float64)
        self.sums[:, heads] += known.sum((1, 2)), np.einsum("hij,hij->h", known, known)
        self.counts[own], self.highest[own] = seen.sum(-1), scores.max(-1)
        self.sharpest[own], self.entropies[own] = shares.max(-1), row_entropy(shares)
        self.received[heads, : shares.shape[2]] += shares.sum(1, dtype=np.float64)

    def values(self) -> dict[str, Numbers]:
        """A number for each head and measure; rows that see no key do not count."""
        shown, several = self.counts > 0, self.counts > 1
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, square = self.sums / self.counts.sum(-1)
            totals = np.where(shown, self.highest - np.log(self.sharpest), np.nan)
            possible = np.where(several, self.entropies / np.log(self.counts), np.nan)
            saturated = np.where(several, self.sharpest > SATURATED, np.nan)
        return {
            "score-max": np.where(shown, self.highest, -np.inf).max(-1),
            "score-mean": mean,
            "score-std": np.sqrt(np.maximum(square - mean**2, 0)),
            "log-sum-exp": known_mean(np.where(np.isfinite(totals), totals, np.nan)),
            "saturated": known_mean(saturated),
            ENTROPY: middle(possible),
        }

    def norms(self, query: Array | None, key: Array | None, value: Array) -> dict[str, Numbers]:
        """Sizes of vectors (heads, tokens, size), where they are known."""
        sizes = np.linalg.norm(value.astype(np.float64), axis=-1)
        usual = np.median(sizes, axis=-1)
        at_sink = np.take_along_axis(sizes, self.received.argmax(-1)[:, None], -1)[:, 0]
        found = {"value-norm": usual}
        found["sink-value"] = np.divide(
            at_sink, usual, where=usual > 0, out=np.full(len(usual), np.nan)
        )
        for name, side in (("query-norm", query), ("key-norm", key)):
            if side is not None:
                found[name] = np.linalg.norm(side.astype(np.float64), axis=-1).max(-1)
        return found


def projected_scores(kept: Projections, item: AttentionMap) -> dict[str, Numbers]:
    """The measures of a map's scores by its queries and keys, (layers, heads).

    None where the softmax of these is not the map: more was done to the products.
    """
    visible, layers = visible_keys(item), list[dict[str, Numbers]]()
    if kept.besides or item.values == "signed" or item.is_pooled:
        return {}
    for place, weights in enumerate(item.weights):
        scores = kept.scale * (kept.query[place] @ kept.key[place].swapaxes(-1, -2))
        scores = np.where(visible[place % len(visible)], scores, -np.inf)
        totals = np.log(np.exp(scores - (highest := scores.max(-1, keepdims=True))).sum(-1))
        if not np.allclose(np.exp(scores - highest - totals[..., None]), weights, atol=1e-4):
            return {}
        study = ScoreStudy(*weights.shape)
        study.add(slice(None), 0, scores, weights)
        found = study.values()
        if kept.value is not None:
            found |= study.norms(kept.query[place], kept.key[place], kept.value[place])
        if kept.peaks:
            found["massive"] = np.full(len(weights), kept.peaks[place])
        layers.append(found)
    return {name: np.stack([of_layer[name] for of_layer in layers]) for name in layers[0]}


def typical_entropy(subject: MeasuredMap) -> Numbers:
    """`ENTROPY` of each head, exact where scores are known, else that of the map's own cells."""
    if ENTROPY in subject.scores:
        return subject.scores[ENTROPY]
    seen = subject.visible.sum(axis=-1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return middle(np.where(seen > 1, subject.entropies[0] / np.log(seen), np.nan))


def middle(values: Numbers) -> Numbers:
    """The median over the last axis of the values that are there; NaN where there is none."""
    kept = np.where(np.isnan(values).all(-1, keepdims=True), 0, values)
    return np.where(np.isnan(values).all(-1), np.nan, np.nanmedian(kept, axis=-1))


def peak(residual: Array) -> float:
    """The largest coordinate of a residual stream against the median, by their sizes."""
    sizes = np.abs(residual)
    usual = float(np.median(sizes))
    return float(sizes.max()) / usual if usual else np.nan


def _measure(
    name: str, unit: str, ends: tuple[str, str], subject: MeasuredMap
) -> HeadMeasure | None:
    found = subject.scores.get(name)
    if found is None or np.isnan(found).all():
        return None
    top = float(np.nanmax(np.abs(found))) or 1.0
    return HeadMeasure(name, unit, *ends, found, np.full(found.shape, np.nan), top)


def score_max(subject: MeasuredMap) -> HeadMeasure | None:
    """Largest score before the softmax."""
    return _measure("score-max", "nats", ("all scores are below 0", "one key far above"), subject)


def score_mean(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean score before the softmax."""
    return _measure("score-mean", "nats", ("scores far below 0", "scores far above 0"), subject)


def score_std(subject: MeasuredMap) -> HeadMeasure | None:
    """Standard deviation of scores before the softmax."""
    return _measure("score-std", "nats", ("all scores alike", "scores far apart"), subject)


def saturated(subject: MeasuredMap) -> HeadMeasure | None:
    """Rows of two keys or more that give one key over 0.999."""
    return _measure("saturated", "share", ("every row learns", "no row learns"), subject)


def log_sum_exp(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean over rows of the logarithm of the softmax's denominator."""
    return _measure("log-sum-exp", "nats", ("scores far below 0", "scores far above 0"), subject)


def query_norm(subject: MeasuredMap) -> HeadMeasure | None:
    """Largest norm of a query."""
    return _measure("query-norm", "length", ("all queries are 0", "a long query"), subject)


def key_norm(subject: MeasuredMap) -> HeadMeasure | None:
    """Largest norm of a key."""
    return _measure("key-norm", "length", ("all keys are 0", "a long key"), subject)


def value_norm(subject: MeasuredMap) -> HeadMeasure | None:
    """Median norm of a value."""
    return _measure("value-norm", "length", ("values are 0", "long values"), subject)


def sink_value(subject: MeasuredMap) -> HeadMeasure | None:
    """Norm of the value at the most attended key against the median (Sun 2024)."""
    ends = "the sink brings nothing", "it brings more than others"
    return _measure("sink-value", "ratio", ends, subject)


def massive(subject: MeasuredMap) -> HeadMeasure | None:
    """Largest coordinate of the layer's input against the median (Sun 2024)."""
    return _measure("massive", "ratio", ("coordinates alike", "massive activations"), subject)
