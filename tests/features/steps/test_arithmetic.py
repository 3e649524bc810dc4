import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from attnviz.core.errors import InputError, UsageError
from attnviz.features.steps.arithmetic import Steps, arithmetic
from attnviz.features.steps.given import CalculationInputs, comparable_names, worked_example
from attnviz.mechanisms.dot_product import causal, naive, scaled

EXAMPLES = Path(__file__).parents[3] / "sample_inputs" / "worked_examples.json"


def worked(name: str) -> dict:
    """One of the sample's examples, its projections under the names of a file of matrices."""
    found = json.loads(EXAMPLES.read_text("utf-8"))[name]
    del found["about"]
    return {_FILE_NAMES.get(matrix, matrix): np.array(rows) for matrix, rows in found.items()}


_FILE_NAMES = {f"{name}_projection": f"w_{name}" for name in ("query", "key", "value")}


def random_given(seed: int, queries: int = 3, keys: int = 5, size: int = 4) -> CalculationInputs:
    draw = np.random.default_rng(seed).standard_normal
    return CalculationInputs(
        "drawn",
        draw((queries, size)),
        draw((keys, size)),
        {name: draw((size, 2)) for name in ("w_query", "w_key", "w_value")},
    )


def test_published_examples_in_every_matrix():
    steps = arithmetic(worked_example())
    assert [matrix.name for matrix in steps] == list(worked("self"))
    for name, expected in worked("self").items():
        np.testing.assert_allclose(steps[name], expected, atol=1e-6)
    inputs = {
        name: rows for name, rows in worked("cross").items() if name not in comparable_names()
    }
    steps = arithmetic(CalculationInputs.from_matrices(inputs, "cross"))
    for name, expected in worked("cross").items():
        np.testing.assert_allclose(steps[name], expected, atol=1e-6)


@settings(max_examples=25, deadline=None)
@examples(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_the_steps_end_where_the_mechanism_does(seed, queries, keys):
    steps = arithmetic(random_given(seed, queries, keys))
    output, weights = scaled(steps["query"], steps["key"], steps["value"])
    np.testing.assert_allclose(steps["weights"], weights, atol=1e-12)
    np.testing.assert_allclose(steps["output"], output, atol=1e-12)


def test_causal_steps_end_where_the_causal_mechanism_does():
    steps = arithmetic(random_given(1, 4, 4), causal=True)
    output, weights = causal(steps["query"], steps["key"], steps["value"])
    np.testing.assert_allclose(steps["weights"], weights, atol=1e-12)
    np.testing.assert_allclose(steps["output"], output, atol=1e-12)
    assert np.array_equal(steps["mask"], np.tril(np.ones((4, 4), dtype=bool)))


def test_naive_attention_and_one_weight_by_hand():
    inputs = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]])
    steps = arithmetic(CalculationInputs("naive", inputs))
    assert [matrix.name for matrix in steps] == ["inputs", "scores", "weights", "output"]
    output, weights = naive(inputs)
    np.testing.assert_allclose(steps["weights"], weights, atol=1e-12)
    np.testing.assert_allclose(steps["output"], output, atol=1e-12)
    steps = arithmetic(CalculationInputs("two", np.array([[1.0], [0.0]])))
    assert steps["weights"][0, 0] == pytest.approx(math.e / (math.e + 1))
    assert steps["weights"][1].tolist() == [0.5, 0.5]


def test_masks_given_and_causal():
    mask = np.array([[1.0, 0.0], [0.0, 0.0]])
    steps = arithmetic(
        CalculationInputs.from_matrices({"inputs": np.eye(2), "mask": mask}, "masked")
    )
    assert steps["weights"].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert steps["output"].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    mask = np.array([[1.0, 1.0], [0.0, 1.0]])
    found = {"inputs": np.eye(2), "mask": mask}
    steps = arithmetic(CalculationInputs.from_matrices(found, "masked"), causal=True)
    assert steps["mask"].tolist() == [[True, False], [False, True]]
    assert steps.matrix("mask").formula.endswith("and as given")


def test_every_formula_names_the_matrices_it_is_made_from():
    for steps in (arithmetic(worked_example(), causal=True), arithmetic(random_given(0))):
        assert all_operands_come_before(steps)
        for matrix in steps:
            assert all(operand in matrix.formula for operand in matrix.operands)


def all_operands_come_before(steps: Steps) -> bool:
    names = [matrix.name for matrix in steps]
    return all(set(matrix.operands) <= set(names[:number]) for number, matrix in enumerate(steps))


def test_what_cannot_be_worked_is_refused():
    with pytest.raises(UsageError, match="3 queries and 5 keys"):
        arithmetic(random_given(0), causal=True)
    with pytest.raises(InputError, match="scores overflows"):
        arithmetic(CalculationInputs("huge", np.full((2, 2), 1e200)))
    with pytest.raises(KeyError, match="query"):
        arithmetic(CalculationInputs("naive", np.eye(2)))["query"]


def test_results_in_a_file_are_compared():
    found = worked("self")
    assert arithmetic(CalculationInputs.from_matrices(found, "worked")).notes == ()
    published = [[0.106, 0.447, 0.447], [0.447, 0.106, 0.447], [0.211, 0.211, 0.577]]
    found = {**worked("self"), "weights": np.array(published)}
    (note,) = arithmetic(CalculationInputs.from_matrices(found, "worked")).notes
    assert note.startswith("'weights' as given differs from the computed by up to 0.317 (row 2, co")
    found = {"inputs": np.eye(2), "query": np.eye(2), "scores": np.ones((1, 2))}
    notes = arithmetic(CalculationInputs.from_matrices(found, "odd")).notes
    assert notes == (
        "'query' was given, but this calculation has no such matrix",
        "'scores' was given as (1, 2), computed as (2, 2)",
    )
