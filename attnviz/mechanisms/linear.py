"""Linear attention, plain and causal (Katharopoulos 2020), with φ(x) = elu(x) + 1."""

from collections.abc import Generator
from typing import Any

from attnviz.mechanisms.arrays import Array, Mask, namespace, transpose
from attnviz.mechanisms.dot_product import causal_mask
from attnviz.mechanisms.formula import Calculation, Formula, Part, combine_masks, hide_keys


def feature_map(inputs: Array) -> Array:
    """φ(x) = elu(x) + 1, above 0 everywhere: x + 1 where x is positive, exp(x) elsewhere."""
    xp = namespace(inputs)
    positive = inputs > 0
    # exp only ever sees what is not positive, so it cannot overflow; `minimum` would do for the
    # value, but at 0 autograd shares a tie out and halves the slope, which is 1
    below = xp.exp(xp.where(positive, xp.zeros_like(inputs), inputs))
    return xp.where(positive, inputs + 1, below)


def implied_weights(query: Array, key: Array, mask: Mask = None) -> Array:
    """The weights that linear attention applies without ever forming them; only for drawing.

    Returns:
        Shape (…, queries, keys), rows summing to 1, or to 0 where all is masked.
    """
    xp = namespace(query)
    products = feature_map(query) @ transpose(feature_map(key))
    if mask is not None:
        products = xp.where(mask, products, xp.zeros_like(products))
    return _shares(products, xp.sum(products, axis=-1, keepdims=True))


def _shares(sums: Array, total: Array) -> Array:
    """Parts divided by their total; 0 if the total is 0."""
    xp = namespace(sums)
    return sums / xp.where(total > 0, total, xp.ones_like(total))


@Formula
def linear(
    query: Array, key: Array, value: Array, mask: Mask = None, *, need_weights: bool = True
) -> Calculation:
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
    queries, keys, empty = yield from _map_features(query, key, mask)
    state = yield Part("state", transpose(keys) @ value, "mapped_keyᵀ @ value", "ff")
    total = queries @ namespace(query).sum(keys, axis=-2)[..., None]
    total = yield Part("total", total, "mapped_query @ the sum of mapped_key's rows", "qn")
    if need_weights:
        weights = implied_weights(query, key, mask)
        formula = f"mapped_query @ mapped_keyᵀ / total{empty}, only for drawing"
        yield Part("weights", weights, formula)
    formula = f"mapped_query @ state / total{empty}"
    yield Part("output", _shares(queries @ state, total), formula, "qf")


def _map_features(query: Array, key: Array, mask: Mask) -> Generator[Part, Array, Any]:
    queries = yield Part("mapped_query", feature_map(query), "elu(query) + 1", "qf")
    condition = "" if mask is None else ", 0 where mask hides it"
    keys = hide_keys(feature_map(key), mask, "linear attention")
    keys = yield Part("mapped_key", keys, f"elu(key) + 1{condition}", "kf")
    return queries, keys, "" if mask is None else " (0 where total is 0)"


@Formula
def causal_linear(
    query: Array, key: Array, value: Array, mask: Mask = None, *, need_weights: bool = True
) -> Calculation:
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
    queries, keys, empty = yield from _map_features(query, key, mask)
    sums = xp.cumulative_sum(keys[..., :, None] * value[..., None, :], axis=-3)
    formula = "the running sum of mapped_key's row × value's row"
    sums = yield Part("state", sums, formula, "qff")
    total = xp.sum(queries * xp.cumulative_sum(keys, axis=-2), axis=-1)[..., None]
    formula = "mapped_query · the running sum of mapped_key's rows"
    total = yield Part("total", total, formula, "qn")
    if need_weights:
        triangle = combine_masks(mask, causal_mask(query, query.shape[-2], key.shape[-2]))
        weights = implied_weights(query, key, triangle)
        formula = f"mapped_query @ mapped_keyᵀ / total{empty} up to the diagonal, only for drawing"
        yield Part("weights", weights, formula)
    output = (queries[..., None, :] @ sums)[..., 0, :]
    formula = f"mapped_query's row @ its state / total{empty}"
    yield Part("output", _shares(output, total), formula, "qf")
