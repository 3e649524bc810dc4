import numpy as np

from attnviz.mechanisms.co_attention import co_alternating, guided_summary

from .rows import HIDDEN_SIZE, SIZE, CoContract
from .test_co_parallel import FIRST, SECOND, shares


def contract_call(function, inputs, seen):
    first, second, *parameters = inputs
    turns = {
        turn: dict(zip(("inputs", "guide", "score"), parameters[at : at + 3], strict=True))
        for turn, at in (("first", 0), ("second", 3), ("first_again", 6))
    }
    return function(first, second, turns, seen, seen)


TURN = [(SIZE, HIDDEN_SIZE), (SIZE, HIDDEN_SIZE), (HIDDEN_SIZE,)]
CONTRACT = CoContract(contract_call, parameters=(*3 * TURN,))


RANDOM = np.random.default_rng(12)
TURNS = {
    "first": {"inputs": RANDOM.normal(size=(4, 6)), "score": RANDOM.normal(size=6)},
    "second": {
        "inputs": RANDOM.normal(size=(2, 6)),
        "guide": RANDOM.normal(size=(4, 6)),
        "score": RANDOM.normal(size=6),
    },
    "first_again": {
        "inputs": RANDOM.normal(size=(4, 6)),
        "guide": RANDOM.normal(size=(2, 6)),
        "score": RANDOM.normal(size=6),
    },
}


def turn_slowly(inputs, guide, given):
    """One turn by its definition, a position at a time."""
    told = guide @ given["guide"] if guide is not None else 0
    scores = [np.tanh(one @ given["inputs"] + told) @ given["score"] for one in inputs]
    weights = shares(scores)
    return sum(weight * one for weight, one in zip(weights, inputs, strict=True)), weights


def test_it_is_three_turns_position_by_position_for_sizes_that_differ():
    summaries, weights = co_alternating(FIRST, SECOND, TURNS)
    alone, over_first = turn_slowly(FIRST, None, TURNS["first"])
    second, over_second = turn_slowly(SECOND, alone, TURNS["second"])
    first, over_first_again = turn_slowly(FIRST, second, TURNS["first_again"])
    expected = (over_first, over_second, over_first_again)
    for one, other in zip(weights + summaries, (*expected, first, second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


def test_an_unguided_turn_is_one_guided_by_zeros():
    given = {**TURNS["first"], "guide": RANDOM.normal(size=(3, 6))}
    for one, other in zip(
        guided_summary(FIRST, None, given), guided_summary(FIRST, np.zeros(3), given), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_second_sequence_changes_only_the_turns_that_see_it():
    _, before = co_alternating(FIRST, SECOND, TURNS)
    _, after = co_alternating(FIRST, SECOND[::-1] + 1, TURNS)
    np.testing.assert_array_equal(before[0], after[0])
    assert abs(before[2] - after[2]).max() > 1e-3


def test_what_dropout_leaves_is_what_is_summed():
    summary, weights = guided_summary(FIRST, None, TURNS["first"], dropout=lambda given: 3 * given)
    plain, untouched = guided_summary(FIRST, None, TURNS["first"])
    np.testing.assert_allclose(weights, 3 * untouched, rtol=0, atol=1e-13)
    np.testing.assert_allclose(summary, 3 * plain, rtol=0, atol=1e-13)


def test_dropout_reaches_each_turn():
    _, weights = co_alternating(FIRST, SECOND, TURNS, dropout=np.zeros_like)
    assert not any(one.any() for one in weights)


def test_each_mask_hides_positions_in_its_turns_only():
    _, weights = co_alternating(FIRST, SECOND, TURNS, np.array([True, False, True]))
    assert [bool((one == 0).any()) for one in weights] == [True, False, True]
    _, weights = co_alternating(FIRST, SECOND, TURNS, None, np.array([True] * 4 + [False]))
    assert [bool((one == 0).any()) for one in weights] == [False, True, False]
