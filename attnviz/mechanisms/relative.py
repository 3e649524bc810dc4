"""Attention that knows positions: waves, relative embeddings, biases, turned pairs, windows.

Distances are key position − query position; with more keys than queries the queries are the last
positions, as behind a cache.
"""

from collections.abc import Generator
from math import log, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import UsageError
from attnviz.mechanisms.arrays import Array, Mask, namespace, transpose
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    array_like,
    combine_masks,
    distances,
    in_heads,
    join_outputs,
    scaled_scores,
    weigh_keys,
    weigh_values,
)

Pairs = Literal["neighbours", "halves"]  # features 0 and 1 (Su 2021), or 0 and half (Llama)


@Formula
def relative(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    relative_key: Array,
    relative_value: Array | None = None,
    heads: int = 1,
) -> Calculation:
    """Attention with a learned vector for each distance, added to the keys and to the values.

    See Shaw 2018, equations 3 to 5. The shapes are those of `multi_head`. All heads share
    `relative_key` of shape (2 × reach + 1, head size): its middle row is for distance 0, its last
    for all keys beyond the reach. `relative_value` is the same for values; many models have none.
    """
    xp, reach = namespace(query), len(relative_key) // 2
    query, key, value = yield from in_heads(query, key, value, heads)
    size = query.shape[-1]
    apart = np.clip(distances(query.shape[-2], key.shape[-2]), -reach, reach)
    apart = yield Part(
        "distance", array_like(query, apart), f"key position − query position, −{reach} to {reach}"
    )
    scores = yield Part("scores", query @ transpose(key), "query @ keyᵀ")
    rows = xp.broadcast_to(apart + reach, scores.shape)
    more = xp.take_along_axis(query @ transpose(relative_key), rows, axis=-1)
    more = yield Part("position_scores", more, "query · relative_key's row for the distance")
    scores = (scores + more) / size**0.5
    scores = yield Part("scaled_scores", scores, f"(scores + position_scores) / √{size}")
    if relative_value is None:
        yield from weigh_values(scores, value, mask)
        return
    weights = yield from weigh_keys(scores, mask, "scaled_scores")
    steps = xp.sum(weights[..., None] * relative_value[apart + reach], axis=-2)
    steps = yield Part("position_output", steps, "Σ weights · relative_value's row", "qf")
    yield from join_outputs(weights @ value + steps, "weights @ value + position_output")


@Formula
def relative_bias(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    bias: Array,
    heads: int = 1,
    furthest: int = 128,
    both_ways: bool = True,
) -> Calculation:
    """Attention with a learned number for each range of distances, added to the scores (T5).

    See Raffel 2020, section 2.1: scores are not scaled, half of the ranges are single distances,
    the others grow. The shapes are those of `multi_head`; `bias` has the shape (ranges, heads).
    All distances from `furthest` on share the last range. `both_ways` keeps half of the ranges for
    later keys; without it, as in a decoder, later keys have range 0.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    apart = distances(query.shape[-2], key.shape[-2])
    ranges = array_like(query, _ranges(apart, len(bias), furthest, both_ways=both_ways))
    ranges = yield Part("range", ranges, "the range of key position − query position")
    biases = namespace(query).moveaxis(bias[ranges], -1, -3)
    biases = yield Part("position_bias", biases, "bias's number for the range")
    scores = yield Part("scores", query @ transpose(key), "query @ keyᵀ")
    scores = yield Part("biased_scores", scores + biases, "scores + position_bias")
    yield from weigh_values(scores, value, mask, "biased_scores")


def _ranges(apart: Array, count: int, furthest: int, *, both_ways: bool) -> Array:
    """The number of each distance's range, as T5 counts them."""
    if both_ways:
        count //= 2
    first = count * (apart > 0) if both_ways else 0 * apart
    away = np.abs(apart) if both_ways else np.maximum(-apart, 0)
    single = count // 2
    # float32, as in T5: in float64 distances at the borders of ranges would fall into other ranges
    growth = np.log(np.maximum(away, 1).astype(np.float32) / np.float32(single))
    wide = single + (growth / np.float32(log(furthest / single)) * (count - single)).astype(int)
    return first + np.where(away < single, away, np.minimum(wide, count - 1))


@Formula
def alibi(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1
) -> Calculation:
    """Attention with a penalty that grows with distance, at a slope of its own for each head.

    See Press 2022 (ALiBi), section 3: slopes are a geometric sequence from 2^(−8/heads) to 2^−8.
    The shapes are those of `multi_head`. Both directions are penalised alike; with a causal
    mask it is the paper's.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    away = -np.abs(distances(query.shape[-2], key.shape[-2])).astype(np.float64)
    slopes = slopes_of(heads)
    formula = f"−|distance| × slope {', '.join(f'{slope:.9g}' for slope in slopes)}"
    penalty = yield Part("penalty", array_like(query, slopes[:, None, None] * away), formula)
    scores = yield from scaled_scores(query, key)
    scores = yield Part("biased_scores", scores + penalty, "scaled_scores + penalty")
    yield from weigh_values(scores, value, mask, "biased_scores")


def slopes_of(heads: int) -> Array:
    """ALiBi's slope for each head; other counts take every second slope of twice as many heads."""
    power = 2 ** int(log2(heads))
    slopes = [2 ** (-8 * (number + 1) / power) for number in range(power)]
    slopes += [2 ** (-4 * (2 * number + 1) / power) for number in range(heads - power)]
    return np.array(slopes)


@Formula
def rotary(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int = 1,
    base: float = 10000.0,
    pairs: Pairs = "neighbours",
) -> Calculation:
    """Attention whose queries and keys are turned, pair by pair, by their position (RoPE).

    See Su 2021, section 3.2: pair p turns by position / base^(2p/head size), so that a score
    depends on the distance alone. The shapes are those of `multi_head`.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    query, key = yield from turn_pairs(query, key, base, pairs)
    scores = yield from scaled_scores(query, key, "turned_query @ turned_keyᵀ")
    yield from weigh_values(scores, value, mask)


def turn_pairs(
    query: Array, key: Array, base: float, pairs: Pairs, names: tuple[str, str] = ("query", "key")
) -> Generator[Part, Array, tuple[Array, Array]]:
    """Queries and keys (…, positions, head size), turned by position; formulas use these names."""
    size = key.shape[-1]
    if size % 2:
        raise UsageError(f"turning features in pairs needs an even head size, not {size}")
    waves = np.arange(key.shape[-2])[:, None] / base ** (np.arange(0, size, 2) / size)
    formula = f"position / {base:g}^(2·pair/{size})"
    angle = yield Part("angle", array_like(key, waves), formula, "kf")
    own = angle[key.shape[-2] - query.shape[-2] :]
    query = yield Part("turned_query", turn(query, own, pairs), f"{TURNED} of {names[0]}", "qf")
    key = yield Part("turned_key", turn(key, angle, pairs), f"{TURNED} of {names[1]}", "kf")
    return query, key


TURNED = "(a·cos − b·sin, a·sin + b·cos) by angle, of each pair (a, b)"


def turn(inputs: Array, angle: Array, pairs: Pairs) -> Array:
    """Pairs of features (…, positions, size) turned by angles (positions, size / 2)."""
    xp, half = namespace(inputs), inputs.shape[-1] // 2
    by = (slice(0, None, 2), slice(1, None, 2))
    first, second = (slice(half), slice(half, None)) if pairs == "halves" else by
    a, b, cos, sin = inputs[..., first], inputs[..., second], xp.cos(angle), xp.sin(angle)
    axis = -2 if pairs == "halves" else -1
    return xp.reshape(xp.stack([a * cos - b * sin, a * sin + b * cos], axis=axis), inputs.shape)


@Formula
def sliding_window(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1, window: int = 2
) -> Calculation:
    """Scaled dot-product attention to near keys only, so many positions to either side.

    See Beltagy 2020 (Longformer), section 3.1. The arguments are those of `multi_head`; with a
    causal mask, a window of w − 1 is what Mistral calls a window of w.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1, zero outside the window.
    """
    yield from global_window.calculation(
        query, key, value, mask, heads=heads, window=window, everywhere=0
    )


@Formula
def global_window(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int = 1,
    window: int = 1,
    everywhere: int = 1,
) -> Calculation:
    """Window attention with a few first positions that see everything and are seen by all.

    See Beltagy 2020 (Longformer), section 3.1, with one set of projections; with a causal mask it
    keeps the first keys as sinks beside the window (Xiao 2023, StreamingLLM). The arguments are
    those of `multi_head`, the positions of the window to either side, and how many are everywhere.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    queries, keys = query.shape[-2], key.shape[-2]
    apart = distances(queries, keys)
    near = np.abs(apart) <= window
    near |= (np.arange(keys) < everywhere) | (np.arange(keys) - apart < everywhere)
    formula = f"1 where |distance| ≤ {window}"
    formula += f" or a position is below {everywhere}" if everywhere else ""
    formula += "" if mask is None else ", and as given"
    mask = yield Part("mask", combine_masks(mask, array_like(query, near)), formula)
    scores = yield from scaled_scores(query, key)
    yield from weigh_values(scores, value, mask)


def sinusoidal_positions(length: int, size: int, base: float = 10000.0) -> NDArray[np.float32]:
    """A wave for each pair of columns: even columns sin, odd columns cos of pos / base^(2k/size).

    See Vaswani 2017, section 3.5.

    Args:
        length: how many positions, counted from 0.
        size: how many columns; an odd size ends on a sine.
        base: the longest wave is 2π × base positions long.

    Returns:
        float32 of shape (length, size), each value from −1 to 1.
    """
    pairs = np.arange(0, size, 2)
    angles = np.arange(length)[:, None] / base ** (pairs / size)
    encoding = np.empty((length, size))
    encoding[:, 0::2] = np.sin(angles)
    encoding[:, 1::2] = np.cos(angles[:, : size // 2])
    return encoding.astype(np.float32)
