import math

import numpy as np

from attnviz.mechanisms.co_attention import co_parallel

from .rows import HIDDEN_SIZE, SIZE, CoContract


def contract_call(function, inputs, seen):
    first, second, *parameters = inputs
    names = ("affinity", "first", "second", "first_score", "second_score")
    done = function(first, second, dict(zip(names, parameters, strict=True)), seen, seen)
    return done.summaries, done.weights


CONTRACT = CoContract(
    contract_call,
    parameters=(
        (SIZE, SIZE),
        *2 * [(SIZE, HIDDEN_SIZE)],
        *2 * [(HIDDEN_SIZE,)],
    ),
)


RANDOM = np.random.default_rng(11)
FIRST, SECOND = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(5, 2))
PARAMETERS = {
    "affinity": RANDOM.normal(size=(4, 2)),
    "first": RANDOM.normal(size=(4, 6)),
    "second": RANDOM.normal(size=(2, 6)),
    "first_score": RANDOM.normal(size=6),
    "second_score": RANDOM.normal(size=6),
}


def shares(scores):
    raised = [math.exp(score) for score in scores]
    return [one / sum(raised) for one in raised]


def slowly(first, second, given):
    """The definition for two sequences, a position at a time."""
    affinity = np.array(
        [[math.tanh(one @ given["affinity"] @ other) for other in second] for one in first]
    )
    first_scores = []
    for i, one in enumerate(first):
        told = sum(affinity[i, j] * (other @ given["second"]) for j, other in enumerate(second))
        first_scores.append(np.tanh(one @ given["first"] + told) @ given["first_score"])
    second_scores = []
    for j, other in enumerate(second):
        told = sum(affinity[i, j] * (one @ given["first"]) for i, one in enumerate(first))
        second_scores.append(np.tanh(other @ given["second"] + told) @ given["second_score"])
    return affinity, shares(first_scores), shares(second_scores)


def test_it_is_the_definition_position_by_position_for_sizes_that_differ():
    summaries, affinity, weights = co_parallel(FIRST, SECOND, PARAMETERS)
    expected, over_first, over_second = slowly(FIRST, SECOND, PARAMETERS)
    np.testing.assert_allclose(affinity, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights[0], over_first, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights[1], over_second, rtol=0, atol=1e-13)
    np.testing.assert_allclose(summaries[0], over_first @ FIRST, rtol=0, atol=1e-13)
    np.testing.assert_allclose(summaries[1], over_second @ SECOND, rtol=0, atol=1e-13)


def test_hiding_positions_is_the_same_as_leaving_them_out():
    first_seen, second_seen = (
        np.array([True, False, True]),
        np.array([True, True, False] + [True] * 2),
    )
    masked = co_parallel(FIRST, SECOND, PARAMETERS, first_seen, second_seen)
    shorter = co_parallel(FIRST[first_seen], SECOND[second_seen], PARAMETERS)
    for one, other in zip(masked.summaries, shorter.summaries, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)
    assert (masked.affinity[1] == 0).all()
    assert (masked.affinity[:, 2] == 0).all()
    np.testing.assert_allclose(
        masked.affinity[np.ix_(first_seen, second_seen)], shorter.affinity, rtol=0, atol=1e-14
    )


def test_exchanging_the_sequences_turns_the_affinity_over():
    turned = {
        "affinity": PARAMETERS["affinity"].T,
        "first": PARAMETERS["second"],
        "second": PARAMETERS["first"],
        "first_score": PARAMETERS["second_score"],
        "second_score": PARAMETERS["first_score"],
    }
    one, other = co_parallel(FIRST, SECOND, PARAMETERS), co_parallel(SECOND, FIRST, turned)
    np.testing.assert_allclose(one.affinity, other.affinity.T, rtol=0, atol=1e-14)
    np.testing.assert_allclose(one.summaries[0], other.summaries[1], rtol=0, atol=1e-14)
    np.testing.assert_allclose(one.weights[1], other.weights[0], rtol=0, atol=1e-14)


def test_what_dropout_leaves_is_what_is_summed():
    done = co_parallel(FIRST, SECOND, PARAMETERS, dropout=lambda weights: 3 * weights)
    plain = co_parallel(FIRST, SECOND, PARAMETERS)
    for one, other in zip(
        done.weights + done.summaries, plain.weights + plain.summaries, strict=True
    ):
        np.testing.assert_allclose(one, 3 * other, rtol=0, atol=1e-13)
