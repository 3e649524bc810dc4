"""Scores before the softmax, and norms of what they are products of.

Weights do not tell its size: above some 10 nats to the next key they are 0 and 1, and nothing
is learned any more. Runs that diverge show it in the largest score first (Dehghani 2023), which
clipping of queries and keys bounds (Kimi Team 2025). A few coordinates of the residual stream can
be thousands of times larger than the others, where a head has its sink (Sun 2024).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnviz.analyses.entropy import ENTROPY, middle
from attnviz.analyses.masks import MeasuredMap, Numbers
from attnviz.analyses.measures import MEASURES
from attnviz.core.measures import HeadMeasure


def typical_entropy(subject: MeasuredMap) -> Numbers:
    """`ENTROPY` of each head, exact where scores are known, else that of the map's own cells."""
    if ENTROPY in subject.scores:
        return subject.scores[ENTROPY]
    counts = subject.visible.sum(axis=-1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        return middle(np.where(counts > 1, subject.entropies[0] / np.log(counts), np.nan))


def _from_scores(name: str, unit: str, low: str, high: str) -> Callable[[MeasuredMap], Any]:
    """The function of a row: what was measured of the scores, where they are known."""

    def measure(subject: MeasuredMap) -> HeadMeasure | None:
        values = subject.scores.get(name)
        if values is None or np.isnan(values).all():
            return None
        top = float(np.nanmax(np.abs(values))) or 1.0
        return HeadMeasure(name, unit, low, high, values, np.full(values.shape, np.nan), top)

    measure.__doc__ = MEASURES[name].summary
    return measure


score_max = _from_scores("score-max", "nats", "all scores are below 0", "one key far above")
score_mean = _from_scores("score-mean", "nats", "scores far below 0", "scores far above 0")
score_std = _from_scores("score-std", "nats", "all scores alike", "scores far apart")
saturated = _from_scores("saturated", "share", "every row learns", "no row learns")
log_sum_exp = _from_scores("log-sum-exp", "nats", "scores far below 0", "scores far above 0")
query_norm = _from_scores("query-norm", "length", "all queries are 0", "a long query")
key_norm = _from_scores("key-norm", "length", "all keys are 0", "a long key")
value_norm = _from_scores("value-norm", "length", "values are 0", "long values")
sink_value = _from_scores(
    "sink-value", "ratio", "the sink brings nothing", "it brings more than others"
)
massive = _from_scores("massive", "ratio", "coordinates alike", "massive activations")
