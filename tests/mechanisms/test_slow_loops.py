"""Each formula against a loop over heads, queries and keys that follows its paper word by word."""

from collections.abc import Callable
from math import cos, exp, log, sin, sqrt, tanh

import numpy as np
import pytest

from attnviz.core.errors import UsageError
from attnviz.mechanisms.dot_product import grouped_query, latent, multi_query
from attnviz.mechanisms.formula import Formula
from attnviz.mechanisms.linear import delta_rule, gated_delta_rule, retention
from attnviz.mechanisms.relative import (
    alibi,
    global_window,
    relative,
    relative_bias,
    rotary,
    sliding_window,
)
from attnviz.mechanisms.weighing import (
    additive,
    differential,
    gated,
    online,
    sigmoid,
    sinks,
    soft_cap,
)

LENGTH, HEADS, HEAD = 6, 2, 4
SIZE = HEADS * HEAD
draw = np.random.default_rng(3)
QUERY, KEY, VALUE = (draw.normal(size=(LENGTH, SIZE)) for _ in range(3))
SEEN = np.array([True, True, False, True, True, False])
Vector = np.ndarray
Score = Callable[[int, Vector, int, Vector, int], float]
"""(head, query, its position, key, its position) → score."""

masked = pytest.mark.parametrize("seen", [np.ones(LENGTH, bool), SEEN], ids=["all", "padded"])


def dot(one: Vector, other: Vector) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other, strict=True))


def part(vector: Vector, head: int, size: int = HEAD) -> Vector:
    return vector[head * size : (head + 1) * size]


def looped(
    score: Score,
    seen: Vector,
    visible: Callable[[int, int], bool] = lambda i, j: True,
    value_of: Callable[[int, int, int], Vector] = lambda h, i, j: part(VALUE[j], h),
    key_of: Callable[[int, int], Vector] = lambda h, j: part(KEY[j], h),
    sink: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Softmax attention of every head, one number after the other."""
    weights = np.zeros((HEADS, LENGTH, LENGTH))
    output = np.zeros((LENGTH, SIZE))
    for h in range(HEADS):
        for i in range(LENGTH):
            powers = {
                j: exp(score(h, part(QUERY[i], h), i, key_of(h, j), j))
                for j in range(LENGTH)
                if seen[j] and visible(i, j)
            }
            total = sum(powers.values()) + (exp(sink[h]) if sink is not None else 0)
            for j, power in powers.items():
                weights[h, i, j] = power / total
                output[i, h * HEAD : (h + 1) * HEAD] += weights[h, i, j] * value_of(h, i, j)
    return output, weights


def check(formula: Formula, expected: tuple[Vector, Vector], seen: Vector, **options) -> None:
    mask = None if seen.all() else seen[None, None]
    output, weights = formula(QUERY, KEY, VALUE, mask, heads=HEADS, **options)
    np.testing.assert_allclose(weights, expected[1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(output, expected[0], rtol=0, atol=1e-9)


def scaled(h: int, q: Vector, i: int, k: Vector, j: int) -> float:
    return dot(q, k) / sqrt(HEAD)


@masked
def test_additive(seen):
    vector = draw.normal(size=HEAD)
    expected = looped(
        lambda h, q, i, k, j: sum(v * tanh(a + b) for v, a, b in zip(vector, q, k, strict=True)),
        seen,
    )
    check(additive, expected, seen, w_score=vector[:, None])


@masked
def test_relative(seen):
    keys, values = draw.normal(size=(2, 5, HEAD))

    def row(i: int, j: int) -> int:
        return max(-2, min(2, j - i)) + 2

    expected = looped(
        lambda h, q, i, k, j: dot(q, k + keys[row(i, j)]) / sqrt(HEAD),
        seen,
        value_of=lambda h, i, j: part(VALUE[j], h) + values[row(i, j)],
    )
    check(relative, expected, seen, relative_key=keys, relative_value=values)

    table = draw.normal(size=(8, HEADS))

    def number(i: int, j: int) -> int:
        """8 ranges: 4 behind (0, 1, 2–…), 4 ahead; two single distances, then logarithmic."""
        away = abs(j - i)
        found = away if away < 2 else min(3, 2 + int(log(away / 2) / log(128 / 2) * 2))
        return found + (4 if j > i else 0)

    expected = looped(lambda h, q, i, k, j: dot(q, k) + table[number(i, j), h], seen)
    check(relative_bias, expected, seen, bias=table)
    slopes = (1 / 16, 1 / 256)
    expected = looped(lambda h, q, i, k, j: scaled(h, q, i, k, j) - slopes[h] * abs(i - j), seen)
    check(alibi, expected, seen)


def turned(vector: Vector, position: int) -> Vector:
    found = []
    for pair in range(len(vector) // 2):
        angle = position / 10000 ** (2 * pair / len(vector))
        a, b = vector[2 * pair], vector[2 * pair + 1]
        found += [a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)]
    return np.array(found)


@masked
def test_rotary(seen):
    expected = looped(lambda h, q, i, k, j: dot(turned(q, i), turned(k, j)) / sqrt(HEAD), seen)
    check(rotary, expected, seen)


def test_queries_behind_a_cache_are_the_last_positions():
    whole, _ = rotary(QUERY, KEY, VALUE, heads=HEADS)
    last, _ = rotary(QUERY[-2:], KEY, VALUE, heads=HEADS)
    np.testing.assert_allclose(last, whole[-2:], rtol=0, atol=1e-12)
    one, _ = grouped_query(QUERY, KEY[:, :4], VALUE[:, :4], heads=4)
    for head, group in enumerate((0, 0, 1, 1)):
        q, k = QUERY[:, 2 * head :][:, :2], KEY[:, 2 * group :][:, :2]
        powers = np.exp(q @ k.T / sqrt(2))
        alone = powers / powers.sum(1, keepdims=True) @ VALUE[:, 2 * group :][:, :2]
        np.testing.assert_allclose(one[:, 2 * head :][:, :2], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("formula", [rotary, differential, retention])
def test_an_odd_head_size_has_no_pairs(formula):
    sides = [np.ones((2, 3))] * 3
    balance = {"balance": np.ones((4, 1))} if formula is differential else {}
    with pytest.raises(UsageError, match=r"even head size, not 3|3 features are odd"):
        formula(*sides, **balance)


@masked
@pytest.mark.parametrize("formula", [grouped_query, multi_query])
def test_shared_keys(formula, seen):
    columns = slice(0, HEAD)
    expected = looped(
        scaled,
        seen,
        key_of=lambda h, j: KEY[j, columns],
        value_of=lambda h, i, j: VALUE[j, columns],
    )
    mask = seen[None, None]
    found = formula(QUERY, KEY[:, columns], VALUE[:, columns], mask, heads=HEADS)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-12)


@masked
def test_latent(seen):
    shapes = {
        "w_query": (SIZE, SIZE),
        "w_turned_query": (SIZE, 2 * HEADS),
        "w_latent": (SIZE, 3),
        "w_up_key": (3, SIZE),
        "w_up_value": (3, SIZE),
        "w_turned_key": (SIZE, 2),
    }
    w = {name: draw.normal(size=shape) / 3 for name, shape in shapes.items()}
    folded = [row @ w["w_latent"] for row in KEY]

    def score(h: int, q: Vector, i: int, k: Vector, j: int) -> float:
        content = dot(part(QUERY[i] @ w["w_query"], h), part(folded[j] @ w["w_up_key"], h))
        asked = turned(part(QUERY[i] @ w["w_turned_query"], h, 2), i)
        return (content + dot(asked, turned(KEY[j] @ w["w_turned_key"], j))) / sqrt(HEAD + 2)

    expected = looped(score, seen, value_of=lambda h, i, j: part(folded[j] @ w["w_up_value"], h))
    mask = seen[None, None]
    output, weights = latent(QUERY, KEY, KEY, mask, heads=HEADS, **w)
    np.testing.assert_allclose(weights, expected[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(output, expected[0], rtol=0, atol=1e-12)


@masked
def test_windows(seen):
    check(sliding_window, looped(scaled, seen, lambda i, j: abs(i - j) <= 2), seen, window=2)
    expected = looped(scaled, seen, lambda i, j: abs(i - j) <= 1 or i < 2 or j < 2)
    check(global_window, expected, seen, window=1, everywhere=2)


@masked
def test_sinks_and_soft_cap(seen):
    sink = draw.normal(size=HEADS)
    check(sinks, looped(scaled, seen, sink=sink), seen, sink=sink)
    expected = looped(lambda h, q, i, k, j: 3 * tanh(scaled(h, q, i, k, j) / 3), seen)
    check(soft_cap, expected, seen, cap=3.0)


@masked
def test_sigmoid(seen):
    count = int(seen.sum())
    output, weights = np.zeros((LENGTH, SIZE)), np.zeros((HEADS, LENGTH, LENGTH))
    for h in range(HEADS):
        for i in range(LENGTH):
            for j in np.flatnonzero(seen):
                score = scaled(h, part(QUERY[i], h), i, part(KEY[j], h), j) - log(count)
                weights[h, i, j] = 1 / (1 + exp(-score))
                output[i, h * HEAD : (h + 1) * HEAD] += weights[h, i, j] * part(VALUE[j], h)
    check(sigmoid, (output, weights), seen)


@masked
def test_differential(seen):
    balance = draw.normal(size=(4, 2)) / 3
    taken = exp(dot(balance[0], balance[1])) - exp(dot(balance[2], balance[3])) + 0.2

    def half(number: int) -> Score:
        return lambda h, q, i, k, j: dot(part(q, number, 2), part(k, number, 2)) / sqrt(2)

    (first, one), (second, other) = looped(half(0), seen), looped(half(1), seen)
    mixed = (first - taken * second).reshape(LENGTH, HEADS, HEAD)
    for i in range(LENGTH):
        for h in range(HEADS):
            mixed[i, h] *= 0.8 / sqrt(dot(mixed[i, h], mixed[i, h]) / HEAD + 1e-5)
    check(differential, (mixed.reshape(LENGTH, SIZE), one - taken * other), seen, balance=balance)


@masked
def test_gated(seen):
    gate = draw.uniform(size=(LENGTH, SIZE))
    output, weights = looped(scaled, seen)
    check(gated, (output * gate, weights), seen, gate=gate)


@masked
@pytest.mark.parametrize("tile", [1, 2, 4, 100])
def test_online(seen, tile):
    check(online, looped(scaled, seen), seen, tile=tile)


def test_running_sums_end_at_the_whole_row():
    parts = {part.name: part.value for part in online.parts(QUERY, KEY, VALUE, heads=HEADS)}
    scores = parts["scaled_scores"]
    assert parts["running_maximum"].shape == (HEADS, LENGTH, LENGTH // 2)
    for tile in range(LENGTH // 2):
        seen = scores[..., : 2 * tile + 2]
        highest = seen.max(-1)
        np.testing.assert_array_equal(parts["running_maximum"][..., tile], highest)
        total = np.exp(seen - highest[..., None]).sum(-1)
        np.testing.assert_allclose(parts["running_sum"][..., tile], total, rtol=1e-12)


def recurrent(write: Callable[..., Vector], seen: Vector, prepare=lambda v, i: v) -> Vector:
    """What a state puts out that each seen position changes: S ← write(S, key, value, h, i)."""
    output = np.zeros((LENGTH, SIZE))
    for h in range(HEADS):
        state = np.zeros((HEAD, HEAD))
        for i in range(LENGTH):
            state = write(state, prepare(part(KEY[i], h), i), part(VALUE[i], h), h, i, seen[i])
            output[i, h * HEAD : (h + 1) * HEAD] = state @ prepare(part(QUERY[i], h), i)
    return output


@masked
def test_retention(seen):
    def write(state, k, v, h, i, shown):
        return (1 - 2.0 ** (-5 - h)) * state + (np.outer(v, k) if shown else 0)

    expected = recurrent(write, seen, turned)
    output, weights = retention(QUERY, KEY, VALUE, seen[None, None], heads=HEADS)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-9)
    assert not np.triu(weights, 1).any()


@masked
@pytest.mark.parametrize("fading", [False, True])
def test_delta_rules(seen, fading):
    beta, alpha = draw.uniform(0.1, 0.9, size=(2, LENGTH, HEADS))

    def unit(vector: Vector, _: int) -> Vector:
        return vector / sqrt(dot(vector, vector) + 1e-6)

    def write(state, k, v, h, i, shown):
        if not shown:
            return state
        kept = alpha[i, h] * state if fading else state
        return kept + beta[i, h] * np.outer(v - kept @ k, k)

    expected = recurrent(write, seen, unit) / sqrt(HEAD)
    formula, more = (gated_delta_rule, {"alpha": alpha}) if fading else (delta_rule, {})
    output, weights = formula(QUERY, KEY, VALUE, seen[None, None], heads=HEADS, beta=beta, **more)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-9)
    assert not np.triu(weights, 1).any()


def test_a_full_correction_answers_with_the_last_value():
    key = np.eye(4)[[0, 1, 0, 2, 0]]
    value = np.arange(5.0)[:, None] + 1
    output, weights = delta_rule(key, key, np.tile(value, 4), beta=np.ones((5, 1)))
    np.testing.assert_allclose(2 * output[:, 0], value[:, 0], atol=1e-5)
    np.testing.assert_allclose(2 * weights[0, 4], [0, 0, 0, 0, 1], atol=1e-5)
    mask = np.tri(LENGTH, dtype=bool)
    beta = np.ones((LENGTH, HEADS))
    for formula, more in ((retention, {}), (delta_rule, {"beta": beta})):
        with pytest.raises(ValueError, match="one mask row for all queries"):
            formula(QUERY, KEY, VALUE, mask, heads=HEADS, **more)
