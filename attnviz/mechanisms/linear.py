"""Linear attention, plain and causal (Katharopoulos 2020), with φ(x) = elu(x) + 1."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, namespace, transpose
from attnviz.mechanisms.dot_product import causal_mask


def feature_map(inputs: Array) -> Array:
    """φ(x) = elu(x) + 1, above 0 everywhere: x + 1 where x is positive, exp(x) elsewhere."""
    xp = namespace(inputs)
    positive = inputs > 0
    # exp only ever sees what is not positive, so it cannot overflow; `minimum` would do for the
    # value, but at 0 autograd shares a tie out and halves the slope, which is 1
    below = xp.exp(xp.where(positive, xp.zeros_like(inputs), inputs))
    return xp.where(positive, inputs + 1, below)


def implied_weights(query: Array, key: Array, mask: Array | None = None) -> Array:
    """The weights that linear attention applies without ever forming them; only for drawing.

    Returns:
        Shape (…, queries, keys), rows summing to 1, or to 0 where all is masked.
    """
    xp = namespace(query)
    products = feature_map(query) @ transpose(feature_map(key))
    if mask is not None:
        products = xp.where(mask, products, xp.zeros_like(products))
    total = xp.sum(products, axis=-1, keepdims=True)
    return products / xp.where(total > 0, total, xp.ones_like(total))


def _seen_keys(key: Array, mask: Array | None) -> Array:
    seen = feature_map(key)
    if mask is None:
        return seen
    if mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError("linear attention takes one mask row for all queries")
    kept = transpose(mask) if mask.ndim > 1 else mask[:, None]
    return namespace(key).where(kept, seen, 0 * seen)


def linear(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = True,
) -> tuple[Array, Array | None]:
    """Linear attention: a feature map in place of the softmax, at a cost linear in length.

    See Katharopoulos 2020, equations 4 to 6.

    Args:
        query: shape (…, queries, head size).
        key: shape (…, keys, head size).
        value: shape (…, keys, value size).
        mask: boolean, True for keys that may be seen, one row for all queries: shape (…, 1, keys).
        need_weights: False leaves out the implied weights, which alone cost queries × keys.

    Returns:
        output of shape (…, queries, value size), and the implied weights of shape
        (…, queries, keys) or None.

    Raises:
        ValueError: a mask that differs from query to query; its sums cannot be shared.
    """
    xp = namespace(query)
    seen, asked = _seen_keys(key, mask), feature_map(query)
    total = asked @ xp.sum(seen, axis=-2)[..., None]
    output = asked @ (transpose(seen) @ value) / xp.where(total > 0, total, xp.ones_like(total))
    return output, implied_weights(query, key, mask) if need_weights else None


def causal_linear(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = True,
) -> tuple[Array, Array | None]:
    """Linear attention by prefix sums, in which no position sees a later one.

    See Katharopoulos 2020, equations 8 to 12.

    The sums S = Σ φ(k)vᵀ and z = Σ φ(k) grow by one term a position, so the cost is linear in the
    length; they are kept for every position, positions × head size × value size numbers.

    The arguments are those of `linear`, with as many queries as keys.

    Returns:
        output of shape (…, positions, value size), and the implied weights of shape
        (…, positions, positions), zero above the diagonal, or None.

    Raises:
        ValueError: queries and keys of different length, or a mask that differs between queries.
    """
    if query.shape[-2] != key.shape[-2]:
        raise ValueError("causal linear attention needs as many queries as keys")
    xp = namespace(query)
    seen, asked = _seen_keys(key, mask), feature_map(query)
    sums = xp.cumulative_sum(seen[..., :, None] * value[..., None, :], axis=-3)
    total = xp.sum(asked * xp.cumulative_sum(seen, axis=-2), axis=-1)[..., None]
    output = (asked[..., None, :] @ sums)[..., 0, :]
    output = output / xp.where(total > 0, total, xp.ones_like(total))
    if not need_weights:
        return output, None
    triangle = causal_mask(query, query.shape[-2], key.shape[-2])
    return output, implied_weights(query, key, triangle if mask is None else mask & triangle)
