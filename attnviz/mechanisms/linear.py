"""Linear attention (Katharopoulos 2020, equations 4 to 6), with φ(x) = elu(x) + 1."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, namespace, transpose


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

    Args:
        query: shape (…, queries, head size).
        key: shape (…, keys, head size).
        mask: boolean, True where a query may look.

    Returns:
        Shape (…, queries, keys), rows summing to 1, or to 0 where all is masked.
    """
    xp = namespace(query)
    products = feature_map(query) @ transpose(feature_map(key))
    if mask is not None:
        products = xp.where(mask, products, xp.zeros_like(products))
    total = xp.sum(products, axis=-1, keepdims=True)
    return products / xp.where(total > 0, total, xp.ones_like(total))


def linear(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = True,
) -> tuple[Array, Array | None]:
    """Linear attention: a feature map in place of the softmax, at a cost linear in length.

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
    seen = feature_map(key)
    if mask is not None:
        if mask.ndim > 1 and mask.shape[-2] != 1:
            raise ValueError("linear attention takes one mask row for all queries")
        seen = xp.where(transpose(mask) if mask.ndim > 1 else mask[:, None], seen, 0 * seen)
    asked = feature_map(query)
    total = asked @ xp.sum(seen, axis=-2)[..., None]
    output = asked @ (transpose(seen) @ value) / xp.where(total > 0, total, xp.ones_like(total))
    return output, implied_weights(query, key, mask) if need_weights else None
