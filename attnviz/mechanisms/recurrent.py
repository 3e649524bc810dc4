"""Linear attention that forgets or corrects itself, as the signed weights that it implies.

A state S of (value size, head size) is all that such a layer keeps of the past; what it puts out is
S q. Written out over all positions that is `weights @ value`, with weights that are no shares: they
may be negative, and rows sum to anything. Each is causal by itself.
"""

import numpy as np

from attnviz.mechanisms.arrays import Array, Mask, namespace, transpose
from attnviz.mechanisms.dot_product import LOWER, causal_mask
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    array_like,
    distances,
    hide_keys,
    in_heads,
    join_outputs,
)
from attnviz.mechanisms.relative import turn_pairs


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
