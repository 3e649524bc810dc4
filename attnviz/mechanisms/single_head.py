"""Dot-product attention without scaling (Luong 2015, the "dot" score)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, Dropout, transpose
from attnviz.mechanisms.softmax import softmax


def single_head(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Attention of one head over projected inputs, without scaling.

    Args:
        query: shape (…, queries, head size).
        key: shape (…, keys, head size).
        value: shape (…, keys, value size).
        mask: boolean, True where a query may look; None: everywhere.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, queries, keys), rows
        summing to 1.
    """
    weights = softmax(query @ transpose(key), mask)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights
