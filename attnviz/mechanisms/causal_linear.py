"""Causal linear attention (Katharopoulos 2020, equations 8 to 12)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, namespace
from attnviz.mechanisms.causal import causal_mask
from attnviz.mechanisms.linear import feature_map, implied_weights


def causal_linear(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = True,
) -> tuple[Array, Array | None]:
    """Linear attention by prefix sums, in which no position sees a later one.

    The sums S = Σ φ(k)vᵀ and z = Σ φ(k) grow by one term a position, so the cost is linear in the
    length; they are kept for every position, positions × head size × value size numbers.

    Args:
        query: shape (…, positions, head size).
        key: shape (…, positions, head size).
        value: shape (…, positions, value size).
        mask: boolean, True for keys that may be seen, one row for all queries: shape (…, 1, keys).
        need_weights: False leaves out the implied weights, which alone cost positions².

    Returns:
        output of shape (…, positions, value size), and the implied weights of shape
        (…, positions, positions), zero above the diagonal, or None.

    Raises:
        ValueError: queries and keys of different length, or a mask that differs between queries.
    """
    if query.shape[-2] != key.shape[-2]:
        raise ValueError("causal linear attention needs as many queries as keys")
    xp = namespace(query)
    seen = feature_map(key)
    if mask is not None:
        if mask.ndim > 1 and mask.shape[-2] != 1:
            raise ValueError("linear attention takes one mask row for all queries")
        seen = xp.where((mask if mask.ndim == 1 else mask[..., 0, :])[..., None], seen, 0 * seen)
    sums = xp.cumulative_sum(seen[..., :, None] * value[..., None, :], axis=-3)
    asked = feature_map(query)
    total = xp.sum(asked * xp.cumulative_sum(seen, axis=-2), axis=-1)[..., None]
    output = (asked[..., None, :] @ sums)[..., 0, :]
    output = output / xp.where(total > 0, total, xp.ones_like(total))
    if not need_weights:
        return output, None
    triangle = causal_mask(query, query.shape[-2], key.shape[-2])
    return output, implied_weights(query, key, triangle if mask is None else mask & triangle)
