"""The Poisson bootstrap against an ordinary one, and against theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.corpus.bootstrap import intervals, poisson_weights, replicate_sums


def interval(values: np.ndarray, replicates: int, seed: int = 0) -> tuple[float, float]:
    shaped = values[:, None, None]
    weights = poisson_weights(seed, range(len(values)), replicates)
    totals, counts = replicate_sums(weights, shaped)
    texts = np.isfinite(shaped).sum(axis=0)
    low, high = intervals(totals, counts, texts)
    return low.item(), high.item()


def test_weights_are_poisson_of_mean_one() -> None:
    weights = poisson_weights(0, range(2000), 200)
    for count in range(5):
        expected = math.exp(-1) / math.factorial(count)
        assert (weights == count).mean() == pytest.approx(expected, abs=0.003)
    assert weights.mean() == pytest.approx(1, abs=0.005)
    assert np.corrcoef(weights[:, 0], weights[:, 1])[0, 1] == pytest.approx(0, abs=0.08)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), st.integers(1, 20))
def test_the_weights_of_a_text_depend_on_no_other(numbers: list[int], replicates: int) -> None:
    together = poisson_weights(7, numbers, replicates)
    alone = [poisson_weights(7, [number], replicates)[0] for number in numbers]
    assert together.tolist() == np.array(alone).tolist()


def test_a_run_of_numbers_is_drawn_as_each_alone() -> None:
    run = poisson_weights(3, [5, 6, 7, 20, 21], 13)
    assert run.tolist() == [poisson_weights(3, [n], 13)[0].tolist() for n in (5, 6, 7, 20, 21)]


def test_another_seed_draws_otherwise() -> None:
    assert (poisson_weights(0, [1], 200) != poisson_weights(1, [1], 200)).any()


@pytest.mark.parametrize("draw", ["exponential", "random"])
def test_the_interval_is_that_of_an_ordinary_bootstrap(draw: str) -> None:
    generator = np.random.default_rng(0)
    values = getattr(generator, draw)(size=300)
    found = interval(values, 4000)
    chosen = generator.integers(0, 300, size=(4000, 300))
    expected = np.quantile(values[chosen].mean(axis=1), [0.025, 0.975])
    width = expected[1] - expected[0]
    assert found == pytest.approx(expected, abs=0.05 * width)


@pytest.mark.slow
def test_the_interval_of_many_texts_is_that_of_theory() -> None:
    values = np.random.default_rng(1).random(2000)
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    found = interval(values, 4000)
    assert found == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_texts_that_say_nothing_are_left_out() -> None:
    values = np.random.default_rng(2).random(60)
    holed = np.where(np.arange(60) % 3 == 0, np.nan, values)
    weights = poisson_weights(0, range(60), 50)
    totals, counts = replicate_sums(weights, holed[:, None, None])
    kept = np.arange(60) % 3 != 0
    assert counts[:, 0, 0].tolist() == weights[kept].sum(axis=0).tolist()
    expected = weights[kept].T @ np.rint(values[kept] * 2**20) / 2**20
    assert totals[:, 0, 0].tolist() == expected.tolist()


def test_heads_may_differ_in_what_texts_say_of_them() -> None:
    values = np.array([[[1.0, np.nan]], [[1.0, 2.0]]])
    weights = poisson_weights(0, range(2), 8)
    _, counts = replicate_sums(weights, values)
    assert counts[:, 0, 0].tolist() == weights.sum(axis=0).tolist()
    assert counts[:, 0, 1].tolist() == weights[1].tolist()


def test_one_text_has_no_interval() -> None:
    assert np.isnan(interval(np.array([0.5]), 50)).all()
