"""Attention by dot products: without and with scaling, causal, in one head or several."""

from __future__ import annotations

from attnviz.core.errors import UsageError
from attnviz.mechanisms.arrays import Array, Dropout, namespace, softmax, transpose


def scaled(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Scaled dot-product attention: scores divided by the root of the head size.

    See Vaswani 2017, section 3.2.1.

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


def naive(
    query: Array, key: Array | None = None, value: Array | None = None, mask: Array | None = None
) -> tuple[Array, Array]:
    """Attention of the inputs over themselves, without projections or scaling.

    softmax(X Xᵀ) X: the "dot" score of Luong 2015 over the inputs as they are.

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


def single_head(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Attention of one head over projected inputs, without scaling.

    See Luong 2015, section 3.1, the "dot" score.

    The arguments are those of `scaled`: query (…, queries, head size), key (…, keys, head size),
    value (…, keys, value size).

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, queries, keys), rows
        summing to 1.
    """
    weights = softmax(query @ transpose(key), mask)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights


def causal_mask(scores_like: Array, queries: int, keys: int) -> Array:
    """True on and below the diagonal, shape (queries, keys), in the given array's kind.

    With more keys than queries the queries are the last positions, as in a model that continues
    from a cache: the last query sees every key.
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

    See Vaswani 2017, section 3.2.3, masking in the decoder.

    The arguments are those of `scaled`; a mask comes on top of the causal one.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, queries, keys), zero above
        the diagonal.
    """
    triangle = causal_mask(query, query.shape[-2], key.shape[-2])
    mask = triangle if mask is None else mask & triangle
    return scaled(query, key, value, mask, dropout=dropout)


def size_of_head(size: int, heads: int) -> int:
    """How many of the features belong to each head."""
    if heads < 1 or size % heads:
        raise UsageError(f"a size of {size} cannot be split into {heads} heads of equal size")
    return size // heads


def split_heads(inputs: Array, heads: int) -> Array:
    """(…, positions, size) as (…, heads, positions, size / heads)."""
    *batch, positions, size = inputs.shape
    head_size = size_of_head(size, heads)
    parts = namespace(inputs).reshape(inputs, (*batch, positions, heads, head_size))
    return namespace(inputs).moveaxis(parts, -2, -3)


def join_heads(inputs: Array) -> Array:
    """(…, heads, positions, head size) as (…, positions, heads × head size)."""
    parts = namespace(inputs).moveaxis(inputs, -3, -2)
    *batch, heads, head_size = parts.shape
    return namespace(inputs).reshape(parts, (*batch, heads * head_size))


def multi_head(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    heads: int,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Scaled dot-product attention in several heads at once, joined again.

    Each head sees its own slice of the features; scores are divided by the root of the head's size,
    not of the whole (Vaswani 2017, section 3.2.2). Projections before and after are the caller's.

    Args:
        query: shape (…, queries, size).
        key: shape (…, keys, size).
        value: shape (…, keys, value size).
        mask: boolean, broadcastable to (…, heads, queries, keys), True where a query may look.
        heads: how many; must divide both sizes.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    query, key, value = (split_heads(inputs, heads) for inputs in (query, key, value))
    output, weights = scaled(query, key, value, mask, dropout=dropout)
    return join_heads(output), weights


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

    See Vaswani 2017, section 3.2.3, encoder–decoder attention.

    The arguments are those of `multi_head`: query (…, queries, size) of the sequence that
    attends, key and value (…, keys, size) of the one attended to.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    return multi_head(query, key, value, mask, heads=heads, dropout=dropout)
