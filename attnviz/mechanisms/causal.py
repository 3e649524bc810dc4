"""Causal attention (Vaswani 2017, section 3.2.3: masking in the decoder)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, Dropout, namespace
from attnviz.mechanisms.scaled import scaled


def causal_mask(scores_like: Array, queries: int, keys: int) -> Array:
    """True on and below the diagonal, shape (queries, keys), in the given array's kind.

    With more keys than queries the queries are the last positions, as in a model that goes on from
    a cache: the last query sees every key.
    """
    xp = namespace(scores_like)
    device = {} if xp.__name__ == "numpy" else {"device": scores_like.device}
    ones = xp.ones((queries, keys), dtype=xp.bool, **device)
    return xp.tril(ones, k=keys - queries)


def causal(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Scaled dot-product attention in which no position sees a later one.

    Args:
        query: shape (…, queries, head size).
        key: shape (…, keys, head size).
        value: shape (…, keys, value size).
        mask: boolean, True where a query may look, on top of the causal one.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, queries, keys), zero above
        the diagonal.
    """
    triangle = causal_mask(query, query.shape[-2], key.shape[-2])
    mask = triangle if mask is None else mask & triangle
    return scaled(query, key, value, mask, dropout=dropout)
