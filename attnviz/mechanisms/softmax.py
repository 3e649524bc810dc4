"""Scores into weights: the one softmax that every mechanism shares."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, namespace


def softmax(scores: Array, mask: Array | None = None) -> Array:
    """Weights over the keys (the last axis): each row sums to 1, or to 0 where all is masked.

    The axis is always the keys'. Notebooks in circulation normalise over the queries instead, which
    makes columns sum to 1 and rows mean nothing.

    Args:
        scores: shape (…, queries, keys), any finite numbers.
        mask: boolean, broadcastable to the scores, True where a query may look; None: everywhere.

    Returns:
        Shape of the scores, each value from 0 to 1.
    """
    xp = namespace(scores)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    highest = xp.max(scores, axis=-1, keepdims=True)
    if mask is not None:
        highest = xp.where(highest > -xp.inf, highest, xp.zeros_like(highest))
    exponentials = xp.exp(scores - highest)
    total = xp.sum(exponentials, axis=-1, keepdims=True)
    if mask is not None:
        total = xp.where(total > 0, total, xp.ones_like(total))
    return exponentials / total
