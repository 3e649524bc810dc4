"""Sums of a stream against `math.fsum` and `statistics`, which round once."""

import math
import statistics
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.features.corpus.figures import COUNT, MEASURED, ROWS
from attnviz.features.measures.sums import HeadSums

# Squares of smaller numbers than these are no numbers any more.
FLOATS = st.floats(-1e12, 1e12, allow_nan=False).map(lambda x: x if abs(x) > 1e-100 else 0.0)
NUMBERS = st.lists(FLOATS, min_size=1, max_size=40)
PLACE = ROWS["value"].start


def sums_of(numbers: list[float]) -> HeadSums:
    """The sums of one value of one head; every other figure says nothing."""
    found = HeadSums((COUNT, 1, 1), len(MEASURED))
    for value in numbers:
        figures = np.full((COUNT, 1, 1), np.nan)
        figures[PLACE] = value
        found.add(figures)
    found.settle()
    return found


def merged(numbers: list[float], cuts: list[int]) -> HeadSums:
    whole = sums_of([])
    for start, end in pairwise([0, *sorted(min(cut, len(numbers)) for cut in cuts), len(numbers)]):
        whole.merge(sums_of(numbers[start:end]).sums)
    return whole


@pytest.mark.slow
@pytest.mark.core
@given(NUMBERS, st.lists(st.integers(0, 40), max_size=4))
def test_sums_and_deviations_are_those_of_exact_arithmetic(numbers, cuts):
    found = merged(numbers, cuts).sums
    size = math.fsum(map(abs, numbers))
    assert found["count"][PLACE] == len(numbers)
    assert found["total"][PLACE].item() == pytest.approx(math.fsum(numbers), abs=1e-12 * size)
    if len(numbers) > 1:
        deviation = math.sqrt(found["spread"][PLACE].item() / (len(numbers) - 1))
        largest = max(map(abs, numbers))
        expected = statistics.stdev(numbers)
        assert deviation == pytest.approx(expected, rel=1e-12, abs=1e-12 * largest)


def test_many_sums_lose_nothing_that_counts():
    generator = np.random.default_rng(0)
    numbers = (1e9 * generator.gamma(2.0, size=20_000)).tolist()
    found = merged(numbers, list(range(0, 20_000, 1024))).sums
    assert found["total"][PLACE].item() == pytest.approx(math.fsum(numbers), rel=1e-12)
    deviation = math.sqrt(found["spread"][PLACE].item() / (len(numbers) - 1))
    assert deviation == pytest.approx(statistics.stdev(numbers), rel=1e-12)


def test_sums_neither_cancel_nor_count_nothing():
    for cuts in ([], [1], [1, 2]):
        found = merged([1000, 1000 + 1e-6, 1000 + 2e-6], cuts)
        assert math.sqrt(found.sums["spread"][PLACE].item() / 2) == pytest.approx(1e-6, rel=1e-3)
    found = merged([math.nan, 3.0, math.nan], [1])
    assert [found.sums[name][PLACE].item() for name in ("count", "total", "spread")] == [1, 3, 0]
    assert found.sums["skew"][PLACE].item() == 0
    numbers = np.random.default_rng(1).normal(size=2000).tolist()
    first, second = (merged(numbers, [700, 1400]) for _ in range(2))
    assert all(first.sums[name].tobytes() == second.sums[name].tobytes() for name in first.sums)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=40), st.lists(st.integers(0, 40)))
def test_cubes_add_up_to_those_of_the_whole(numbers, cuts):
    found = merged(numbers, cuts).sums
    exact = [Fraction(value) for value in numbers]
    mean = sum(exact) / len(exact)
    expected = float(sum((value - mean) ** 3 for value in exact))
    size = float(sum(abs(value - mean) ** 3 for value in exact))
    assert found["skew"][PLACE].item() == pytest.approx(expected, abs=1e-9 * max(size, 1e-3))
