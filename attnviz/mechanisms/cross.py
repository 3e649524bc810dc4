"""Cross-attention (Vaswani 2017, section 3.2.3: encoder–decoder attention)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, Dropout
from attnviz.mechanisms.multi_head import multi_head


def cross(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    heads: int = 1,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Multi-head attention of one sequence's queries over another's keys and values.

    Args:
        query: from the sequence that attends, shape (…, queries, size).
        key: from the sequence attended to, shape (…, keys, size).
        value: from the same sequence as the keys, shape (…, keys, value size).
        mask: boolean, True where a query may look (False for padded keys).
        heads: how many; must divide both sizes.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    return multi_head(query, key, value, mask, heads=heads, dropout=dropout)
