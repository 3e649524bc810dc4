"""Scores before the softmax, and norms of what they are products of.

Weights do not tell its size: above some 10 nats to the next key they are 0 and 1, and nothing
is learned any more. Runs that diverge show it in the largest score first (Dehghani 2023), which
clipping of queries and keys bounds (Kimi Team 2025). A few coordinates of the residual stream can
be thousands of times larger than the others, where a head has its sink (Sun 2024).
"""

import numpy as np

from attnviz.analyses.entropy import ENTROPY, middle
from attnviz.analyses.masks import MeasuredMap, Numbers
from attnviz.core.measures import HeadMeasure


def typical_entropy(subject: MeasuredMap) -> Numbers:
    """`ENTROPY` of each head, exact where scores are known, else that of the map's own cells."""
    if ENTROPY in subject.scores:
        return subject.scores[ENTROPY]
    seen = subject.visible.sum(axis=-1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return middle(np.where(seen > 1, subject.entropies[0] / np.log(seen), np.nan))


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
