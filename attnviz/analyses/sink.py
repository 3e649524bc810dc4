"""Attention sinks: keys that gather attention whatever they say (Gu et al. 2024, section 3).

A key's score is the mean attention it gets from the rows that can see it, α_k = Σ_{i≥k} A_ik / (T −
k) in a causal map of T tokens; above 0.3 the key counts as a sink of that head.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.subject import Numbers, Subject
from attnviz.measures import HeadMeasure

THRESHOLD = 0.3


def sink_scores(weights: NDArray[np.floating], visible: NDArray[np.bool_]) -> Numbers:
    """Mean attention that each key gets from the rows that see it.

    Args:
        weights: shape (layers, heads, queries, keys).
        visible: shape (layers or 1, queries, keys).

    Returns:
        Shape (layers, heads, keys), from 0 to 1; 0 for a key that nobody sees.
    """
    received = np.ones(weights.shape[-2], dtype=weights.dtype) @ weights
    seen_by = np.maximum(visible.sum(axis=-2), 1)[:, None]
    scores: Numbers = received / seen_by
    return scores


def sink(subject: Subject) -> HeadMeasure:
    """The highest score of a key that at least half of the rows see.

    The last keys of a causal map are seen by few rows, each of which would weigh too much.
    """
    known = _well_seen(subject)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        strongest: Numbers = np.where(known, sink_scores(weights, subject.visible), 0).max(axis=-1)
        return strongest

    return subject.measure("sink", "share", ("no key stands out", "one key gets all"), formula)


def sink_fractions(subject: Subject) -> Numbers:
    """For each key the share of all heads of which it is a sink, shape (keys,).

    In a short text, where even an even look passes the threshold, nothing is a sink.
    """
    scores = sink_scores(subject.item.weights, subject.visible)
    even = sink_scores(subject.uniform, subject.visible)
    sinks = _well_seen(subject) & (scores > THRESHOLD) & (even <= THRESHOLD)
    fractions: Numbers = sinks.mean(axis=(0, 1))
    return fractions


def _well_seen(subject: Subject) -> NDArray[np.bool_]:
    counts = subject.visible.sum(axis=-2)
    rows = subject.rows.sum(axis=-1, keepdims=True)
    well: NDArray[np.bool_] = (2 * counts >= rows)[:, None]
    return well
