"""Scaled dot-product attention (Vaswani 2017, section 3.2.1)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, Dropout
from attnviz.mechanisms.single_head import single_head


def scaled(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Scaled dot-product attention: scores divided by the root of the head size.

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
    return single_head(query / query.shape[-1] ** 0.5, key, value, mask, dropout=dropout)
