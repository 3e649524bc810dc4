"""Linear attention, plain and causal (Katharopoulos 2020), and with a state that forgets.

φ(x) is elu(x) + 1. A state S of (value size, head size) is all that a layer keeps of the past; its
output is S q. Over all positions that is `weights @ value`. The weights of `retention` and of the
delta rules are no shares: they may be negative, and rows sum to anything. Each is causal by itself.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from attnviz.mechanisms.arrays import Array, Mask, namespace, transpose
from attnviz.mechanisms.dot_product import LOWER, causal_mask
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    array_like,
    combine_masks,
    distances,
    hide_keys,
    in_heads,
    join_outputs,
)
from attnviz.mechanisms.relative import turn_pairs


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


@Formula
def retention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int = 1,
    keep: Array | None = None,
    base: float | None = 10000.0,
) -> Calculation:
    """Linear attention that keeps a fixed share of its state from position to position.

    See Sun 2023 (RetNet), equations 5 and 8: (Q Kᵀ ∘ D) V, D = keep^(distance), Q and K turned by
    their positions. The arguments are those of `multi_head`, with as many queries as keys and one
    mask row for all of them; what comes behind the heads (GroupNorm, a gate) is the caller's.

    `keep` is what each head keeps, shape (heads,), in the paper 1 − 2^(−5 − head); `base` that of
    the turning, as in `rotary`, or None: nothing is turned.

    Returns:
        output of shape (…, positions, value size) and signed weights of shape (…, heads, positions,
        positions), zero above the diagonal.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    formula = "query @ keyᵀ"
    if base is not None:
        query, key = yield from turn_pairs(query, key, base, "neighbours")
        formula = "turned_query @ turned_keyᵀ"
    scores = yield Part("scores", query @ transpose(key), formula)
    if keep is None:
        keep = array_like(query, 1 - 2.0 ** (-5 - np.arange(heads)))
    past = -distances(query.shape[-2], key.shape[-2])
    powers = array_like(query, np.maximum(past, 0).astype(np.float64))
    decay = xp.where(array_like(query, past >= 0), keep[:, None, None] ** powers, 0 * powers)
    formula = f"{', '.join(f'{float(one):.9g}' for one in keep)} ^ distance, 0 for later keys"
    decay = yield Part("decay", decay, formula)
    condition = "" if mask is None else ", 0 where mask hides it"
    weights = transpose(hide_keys(transpose(scores * decay), mask, "retention"))
    weights = yield Part("weights", weights, f"scores · decay{condition}")
    yield from join_outputs(weights @ value)


@Formula
def delta_rule(
    query: Array, key: Array, value: Array, mask: Mask = None, *, beta: Array, heads: int = 1
) -> Calculation:
    """Linear attention that corrects what its state answers to a key, instead of adding to it.

    See Schlag 2021, section 4.2, and Yang 2024 (DeltaNet), section 2: S ← S + β (v − S k) kᵀ, with
    queries and keys of length 1. The arguments are those of `retention`, and `beta`: how much of
    the error is corrected, from 0 to 1, shape (…, positions, heads).

    Returns:
        output of shape (…, positions, value size) and signed weights of shape (…, heads, positions,
        positions), zero above the diagonal.
    """
    yield from gated_delta_rule.calculation(query, key, value, mask, beta=beta, heads=heads)


@Formula
def gated_delta_rule(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    beta: Array,
    alpha: Array | None = None,
    heads: int = 1,
) -> Calculation:
    """Linear attention by the delta rule, whose state also fades as much as each position says.

    See Yang 2025 (Gated DeltaNet), equation 10: S ← α S (I − β k kᵀ) + β v kᵀ, as in Qwen3-Next.
    The arguments are those of `delta_rule`, and `alpha`: what is kept of the state, above 0 and at
    most 1, shape (…, positions, heads). A hidden position writes nothing and lets nothing fade.

    Returns:
        output of shape (…, positions, value size) and signed weights of shape (…, heads, positions,
        positions), zero above the diagonal.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    query = yield Part("unit_query", _unit(query), f"query{UNIT}", "qf")
    key = yield Part("unit_key", _unit(key), f"key{UNIT}", "kf")
    lower = causal_mask(query, query.shape[-2], key.shape[-2])
    where = ("", "") if mask is None else (" (0 where mask hides it)", " (1 where mask hides it)")
    beta = hide_keys(xp.matrix_transpose(beta)[..., None], mask, "the delta rule")
    fade, formula = xp.astype(lower, query.dtype), LOWER
    if alpha is not None:
        alpha = hide_keys(xp.matrix_transpose(alpha)[..., None], mask, "the delta rule", 1.0)
        logs = xp.cumulative_sum(xp.log(alpha), axis=-2)
        fade = fade * xp.exp(xp.where(lower, logs - transpose(logs), 0 * transpose(logs)))
        formula = (
            f"alpha{where[1]} multiplied up, from behind the key position to the query position"
        )
    fade = yield Part("decay", fade, formula)
    size = query.shape[-1]
    scores = query @ transpose(key) / size**0.5 * fade
    scores = yield Part("scores", scores, f"unit_query @ unit_keyᵀ / √{size} · decay")
    earlier = xp.tril(xp.ones_like(fade), k=-1)
    overlaps = beta * (key @ transpose(key)) * fade * earlier
    formula = f"beta{where[0]} · (unit_key @ unit_keyᵀ) · decay, below the diagonal"
    overlaps = yield Part("known", overlaps, formula, "kk")
    writes = _solve_writes(overlaps, beta)
    writes = yield Part("writes", writes, f"(identity + known)⁻¹ · beta{where[0]}", "kk")
    weights = yield Part("weights", scores @ writes, "scores @ writes")
    yield from join_outputs(weights @ value)


UNIT = " / √(Σ its squares + 10⁻⁶)"


def _unit(vectors: Array) -> Array:
    """Vectors of length 1; the 10⁻⁶ is that of the models' kernels."""
    squares = namespace(vectors).sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors / (squares + 1e-6) ** 0.5


def _solve_writes(overlaps: Array, beta: Array) -> Array:
    """(I + known)⁻¹ diag(beta), for beta (…, positions, 1)."""
    xp, dtype = namespace(overlaps), overlaps.dtype
    if dtype.itemsize < 4:  # neither library solves in 16 bits
        overlaps, beta = (xp.astype(one, xp.float32) for one in (overlaps, beta))
    identity = array_like(overlaps, np.eye(overlaps.shape[-1]))
    return xp.astype(xp.linalg.solve(identity + overlaps, identity * beta), dtype)
