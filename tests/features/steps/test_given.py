import json

import numpy as np
import pytest
import torch

from attnviz import steps
from attnviz.core.errors import InputError, UsageError
from attnviz.features.steps.given import CalculationInputs

SQUARE = np.eye(3)
GIVEN = {"query": SQUARE, "key": SQUARE, "value": SQUARE}


def build(**found: object) -> CalculationInputs:
    return CalculationInputs.from_matrices(found, "test")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {
                "query_input": np.ones((2, 4)),
                "key_value_input": np.ones((3, 4)),
                "w_query": np.ones((3, 2)),
                "w_key": np.ones((4, 2)),
                "w_value": np.ones((4, 2)),
            },
            "query_input has 4 columns but w_query has 3 rows",
        ),
        (
            {"inputs": SQUARE, "w_query": SQUARE, "w_key": SQUARE[:, :2], "w_value": SQUARE},
            "w_query has 3 columns but w_key has 2",
        ),
        (
            {"query_input": np.ones((2, 4)), "key_value_input": np.ones((3, 5))},
            "query_input has 4 columns but key_value_input has 5",
        ),
        ({"inputs": SQUARE, "w_query": SQUARE}, "w_key and w_value missing"),
        ({"query_input": SQUARE}, "query_input needs key_value_input beside it"),
        ({}, "or query, key and value; got nothing"),
        (
            {"inputs": SQUARE, "query_input": SQUARE},
            "give either inputs, query_input and key_value_input, or .*; got inputs, query_input",
        ),
        ({"inputs": SQUARE, "wq": SQUARE}, "unknown matrix 'wq': known are inputs, query_input"),
        ({"inputs": np.ones(3)}, "inputs has 1 axes, not 2"),
        ({"query": SQUARE, "key": SQUARE}, "or query, key and value; got query, key"),
        ({**GIVEN, "value": SQUARE[:2]}, "key and value have 3 and 2 rows: one each"),
        ({**GIVEN, "query": SQUARE[:, :2]}, "query has 2 columns but key has 3"),
        ({**GIVEN, "value": np.ones(3)}, "value has 1 axes, not 2"),
        ({"inputs": np.ones((0, 3))}, r"inputs is empty: its shape is \(0, 3\)"),
        ({"inputs": SQUARE, "mask": np.ones((2, 3))}, r"mask has the shape \(2, 3\), not \(3, 3\)"),
        ({"inputs": SQUARE, "mask": -SQUARE}, "mask holds other numbers than 1"),
        ({"inputs": SQUARE, "tokens": ["a", "b"]}, "inputs has 3 rows, but there are 2 query tok"),
    ],
)
def test_what_does_not_fit_is_named(found, message):
    with pytest.raises(InputError, match=message):
        build(**found)


@pytest.mark.parametrize("causal", [False, True])
def test_given_sides_are_weighed_as_torch_does(causal, tmp_path):
    draw = np.random.default_rng(0)
    query, key, value = (draw.normal(size=(5, size)) for size in (4, 4, 6))
    arrays = {"query": query, "key": torch.tensor(key), "value": value, "tokens": list("abcde")}
    np.savez(tmp_path / "a.npz", **{**arrays, "tokens": np.array(arrays["tokens"])})
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(one)[None, None] for one in (query, key, value)), is_causal=causal
    )[0, 0]
    for given in (arrays, tmp_path / "a.npz"):
        found = steps(given, causal=causal).value
        np.testing.assert_allclose(found["output"], expected, atol=1e-12)
        assert [m.name for m in found if not m.formula] == ["query", "key", "value"]
        assert found.key_tokens == tuple("abcde")


def test_a_mechanism_that_makes_its_own_queries_takes_none():
    for name in ("latent", "multi-query", "co-parallel"):
        with pytest.raises(UsageError, match="makes queries and keys: give inputs"):
            steps(GIVEN, mechanism=name)
    for other in (5, [SQUARE]):
        with pytest.raises(UsageError, match="is no file, sentence or dictionary of arrays"):
            steps(other)


def test_tokens_name_queries_and_keys():
    given = build(inputs=SQUARE, tokens=["a", "b", "c"])
    assert given.query_tokens == given.key_tokens == ("a", "b", "c")
    given = build(
        query_input=SQUARE[:1],
        key_value_input=SQUARE,
        query_tokens=["q"],
        key_tokens=["a", "b", "c"],
    )
    assert given.query_tokens == ("q",)
    assert given.key_tokens == ("a", "b", "c")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[1, 2]",
        '{"inputs": [[1, 2], [3]]}',
        '{"inputs": [[1, NaN]]}',
        '{"inputs": [["a"]]}',
        '{"inputs": {"a": 1}}',
        '{"inputs": [[1, 2]], "wquery": [[1]]}',
    ],
)
def test_a_bad_file_is_one_line_that_names_it(text, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        CalculationInputs.from_file(path)
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_have_a_title_and_hold_no_objects(tmp_path):
    path = tmp_path / "pickled.npz"
    np.savez(path, inputs=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"pickled\.npz"):
        CalculationInputs.from_file(path)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"inputs": [[1, 2]], "note": "any words"}))
    assert CalculationInputs.from_file(path).title == "mine.json"
