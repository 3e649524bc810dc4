import numpy as np

from attnviz.core.registry import MECHANISMS
from attnviz.mechanisms.co_attention import co_alternating

from .rows import HIDDEN_SIZE, SIZE, CoContract
from .test_co_parallel import FIRST, SECOND, shares


def contract_call(function, inputs, seen):
    first, second, *parameters = inputs
    learned = dict(zip(MECHANISMS["co-alternating"].learned, parameters, strict=True))
    return function(first, second, seen, seen, **learned)


UNGUIDED, GUIDED = (
    [(SIZE, HIDDEN_SIZE), (HIDDEN_SIZE,)],
    [(SIZE, HIDDEN_SIZE)] * 2 + [(HIDDEN_SIZE,)],
)
CONTRACT = CoContract(contract_call, parameters=(*UNGUIDED, *GUIDED, *GUIDED))


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


LEARNED = {
    f"w_{turn}_{name}": values for turn, given in TURNS.items() for name, values in given.items()
}


def turn_slowly(inputs, guide, given):
    """One turn by its definition, a position at a time."""
    told = guide @ given["guide"] if guide is not None else 0
    scores = [np.tanh(one @ given["inputs"] + told) @ given["score"] for one in inputs]
    weights = shares(scores)
    return sum(weight * one for weight, one in zip(weights, inputs, strict=True)), weights


def test_it_is_three_turns_position_by_position():
    summaries, weights = co_alternating(FIRST, SECOND, **LEARNED)
    alone, over_first = turn_slowly(FIRST, None, TURNS["first"])
    second, over_second = turn_slowly(SECOND, alone, TURNS["second"])
    first, over_first_again = turn_slowly(FIRST, second, TURNS["first_again"])
    expected = (over_first, over_second, over_first_again)
    for one, other in zip(weights + summaries, (*expected, first, second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)
    _, weights = co_alternating(FIRST, SECOND, np.array([True, False, True]), **LEARNED)
    assert [bool((one == 0).any()) for one in weights] == [True, False, True]
    _, weights = co_alternating(FIRST, SECOND, None, np.array([True] * 4 + [False]), **LEARNED)
    assert [bool((one == 0).any()) for one in weights] == [False, True, False]


def test_dropout_reaches_each_turn():
    (summary, _), (_, _, weights) = co_alternating(
        FIRST, SECOND, dropout=lambda given: 3 * given, **LEARNED
    )
    np.testing.assert_allclose(summary, weights @ FIRST, rtol=0, atol=1e-13)
    assert abs(weights.sum() - 3) < 1e-13
    _, weights = co_alternating(FIRST, SECOND, dropout=np.zeros_like, **LEARNED)
    assert not any(one.any() for one in weights)
