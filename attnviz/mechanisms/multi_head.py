"""Multi-head attention (Vaswani 2017, section 3.2.2), between its input and output projections."""

from __future__ import annotations

from attnviz.errors import UsageError
from attnviz.mechanisms.arrays import Array, Dropout, namespace
from attnviz.mechanisms.scaled import scaled


def size_of_head(size: int, heads: int) -> int:
    """How many of the features belong to each head.

    Raises:
        UsageError: the size cannot be shared out among the heads.
    """
    if heads < 1 or size % heads:
        raise UsageError(f"a size of {size} cannot be split into {heads} heads of equal size")
    return size // heads


def split_heads(inputs: Array, heads: int) -> Array:
    """(…, positions, size) as (…, heads, positions, size / heads).

    Raises:
        UsageError: the size cannot be shared out among the heads.
    """
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
    not of the whole.

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

    Raises:
        UsageError: a size that the heads do not divide.
    """
    query, key, value = (split_heads(inputs, heads) for inputs in (query, key, value))
    output, weights = scaled(query, key, value, mask, dropout=dropout)
    return join_heads(output), weights
