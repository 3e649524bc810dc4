import math

import numpy as np

from attnviz.core.registry import MECHANISMS
from attnviz.mechanisms.co_attention import co_parallel

from .rows import HIDDEN_SIZE, SIZE, CoContract


def contract_call(function, inputs, seen):
    first, second, *parameters = inputs
    learned = dict(zip(MECHANISMS["co-parallel"].learned, parameters, strict=True))
    outputs, weights = function(first, second, seen, seen, **learned)
    return outputs, weights[1:]


CONTRACT = CoContract(
    contract_call, parameters=((SIZE, SIZE), *2 * [(SIZE, HIDDEN_SIZE)], *2 * [(HIDDEN_SIZE,)])
)


RANDOM = np.random.default_rng(11)
FIRST, SECOND = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(5, 2))
PARAMETERS = {
    "w_affinity": RANDOM.normal(size=(4, 2)),
    "w_first": RANDOM.normal(size=(4, 6)),
    "w_second": RANDOM.normal(size=(2, 6)),
    "first_score": RANDOM.normal(size=6),
    "second_score": RANDOM.normal(size=6),
}


def shares(scores):
    raised = [math.exp(score) for score in scores]
    return [one / sum(raised) for one in raised]


def slowly(first, second, given):
    """The definition for two sequences, a position at a time."""
    affinity = np.array(
        [[math.tanh(one @ given["w_affinity"] @ other) for other in second] for one in first]
    )
    first_scores = []
    for i, one in enumerate(first):
        told = sum(affinity[i, j] * (other @ given["w_second"]) for j, other in enumerate(second))
        first_scores.append(np.tanh(one @ given["w_first"] + told) @ given["first_score"])
    second_scores = []
    for j, other in enumerate(second):
        told = sum(affinity[i, j] * (one @ given["w_first"]) for i, one in enumerate(first))
        second_scores.append(np.tanh(other @ given["w_second"] + told) @ given["second_score"])
    return affinity, shares(first_scores), shares(second_scores)


def test_it_is_the_definition_position_by_position():
    summaries, (affinity, *weights) = co_parallel(FIRST, SECOND, **PARAMETERS)
    expected, over_first, over_second = slowly(FIRST, SECOND, PARAMETERS)
    np.testing.assert_allclose(affinity, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights[0], over_first, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights[1], over_second, rtol=0, atol=1e-13)
    np.testing.assert_allclose(summaries[0], over_first @ FIRST, rtol=0, atol=1e-13)
    np.testing.assert_allclose(summaries[1], over_second @ SECOND, rtol=0, atol=1e-13)
    done = co_parallel(FIRST, SECOND, dropout=lambda weights: 3 * weights, **PARAMETERS)
    plain = co_parallel(FIRST, SECOND, **PARAMETERS)
    for one, other in zip(done[0] + done[1][1:], plain[0] + plain[1][1:], strict=True):
        np.testing.assert_allclose(one, 3 * other, rtol=0, atol=1e-13)


def test_hiding_positions_is_leaving_them_out():
    first_seen, second_seen = (
        np.array([True, False, True]),
        np.array([True, True, False] + [True] * 2),
    )
    summaries, (affinity, *_) = co_parallel(FIRST, SECOND, first_seen, second_seen, **PARAMETERS)
    shorter = co_parallel(FIRST[first_seen], SECOND[second_seen], **PARAMETERS)
    for one, other in zip(summaries, shorter[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)
    assert (affinity[1] == 0).all()
    assert (affinity[:, 2] == 0).all()
    np.testing.assert_allclose(
        affinity[np.ix_(first_seen, second_seen)], shorter[1][0], rtol=0, atol=1e-14
    )
