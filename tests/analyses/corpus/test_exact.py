"""Sums in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.corpus.bootstrap import (
    carry,
    deviation,
    limbs_of,
    mean,
    squares_of,
    summed,
    to_floats,
)

NUMBERS = st.lists(st.floats(-2000, 2000, allow_nan=False), min_size=1, max_size=30)


def test_a_number_is_its_whole_part_and_parts_of_two_to_the_32() -> None:
    assert limbs_of(np.array([2.5, -0.25])).tolist() == [[2, -1], [2**31, 3 * 2**30]]


def test_what_rounds_up_to_one_is_one() -> None:
    assert limbs_of(np.array([1 - 2.0**-40])).tolist() == [[1], [0]]


def test_a_square_keeps_every_bit() -> None:
    limbs = limbs_of(np.array([2.0**-32, 3 + 2.0**-32, -1.5]))
    assert squares_of(limbs).T.tolist() == [[0, 0, 1], [9, 6, 1], [2, 2**30, 0]]


@given(NUMBERS, st.randoms(use_true_random=False))
def test_any_order_gives_the_same_sum(numbers: list[float], random) -> None:
    shuffled = random.sample(numbers, len(numbers))
    for shape in (limbs_of, lambda values: squares_of(limbs_of(values))):
        first, second = (summed(shape(np.array(found))) for found in (numbers, shuffled))
        assert first.tolist() == second.tolist()


@given(NUMBERS, st.integers(0, 30))
def test_any_grouping_gives_the_same_sum(numbers: list[float], cut: int) -> None:
    limbs = limbs_of(np.array(numbers))
    parts = summed(limbs[:, :cut]) + summed(limbs[:, cut:])
    assert carry(parts).tolist() == summed(limbs).tolist()


@given(NUMBERS)
@pytest.mark.slow
def test_means_and_deviations_are_those_of_numpy(numbers: list[float]) -> None:
    limbs = limbs_of(np.array(numbers))[:, :, None]
    count = np.array([len(numbers)])
    total, squares = summed(limbs), summed(squares_of(limbs))
    assert mean(count, total)[0] == pytest.approx(np.mean(numbers), abs=1e-9)
    found = deviation(count, total, squares)[0]
    if len(numbers) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(np.std(numbers, ddof=1), rel=1e-6, abs=1e-9)


def test_a_deviation_does_not_cancel() -> None:
    numbers = 1000 + np.array([0, 1e-6, 2e-6])
    limbs = limbs_of(numbers)[:, :, None]
    found = deviation(np.array([3]), summed(limbs), summed(squares_of(limbs)))
    assert found[0] == pytest.approx(1e-6, rel=1e-3)


def test_nothing_has_no_mean() -> None:
    assert np.isnan(mean(np.array([0]), np.zeros((2, 1), dtype=np.int64)))


def test_limbs_give_their_number_back() -> None:
    values = np.array([0.1, -7.3, 12345.678])
    assert to_floats(limbs_of(values)) == pytest.approx(values, abs=2.0**-32)
