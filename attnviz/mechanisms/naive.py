"""The first attention of every course: softmax(X Xᵀ) X."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.single_head import single_head


def naive(
    query: Array, key: Array | None = None, value: Array | None = None, mask: Array | None = None
) -> tuple[Array, Array]:
    """Attention of the inputs over themselves, without projections or scaling.

    Args:
        query: inputs, shape (…, queries, size).
        key: inputs to look at, shape (…, keys, size); None: the queries themselves.
        value: what is mixed, shape (…, keys, size); None: the keys.
        mask: boolean, True where a query may look; None: everywhere.

    Returns:
        output of shape (…, queries, size) and weights of shape (…, queries, keys), rows summing
        to 1.
    """
    key = query if key is None else key
    return single_head(query, key, key if value is None else value, mask)
