"""The mechanisms against numbers worked out on paper, to every printed digit."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnviz.mechanisms.arrays import softmax
from attnviz.mechanisms.dot_product import naive, scaled

EXAMPLES = json.loads(
    (Path(__file__).parents[2] / "sample_inputs" / "worked_examples.json").read_text("utf-8")
)


def same(found, printed):
    np.testing.assert_allclose(found, np.array(printed), rtol=0, atol=1e-6)


def test_the_naive_sentence_is_weighed_over_its_keys():
    example = EXAMPLES["naive"]
    inputs = np.array(example["inputs"])
    output, weights = naive(inputs)
    assert inputs.shape[0] == len(example["tokens"])
    same(inputs @ inputs.T, example["scores"])
    same(weights, example["weights"])
    same(output, example["output"])

    inputs, trap = np.array(example["inputs"]), np.array(example["trap_weights_over_queries"])
    _, weights = naive(inputs)
    np.testing.assert_allclose(trap.sum(axis=0), 1, rtol=0, atol=1e-5)
    trapped = softmax((inputs @ inputs.T).T).T
    same(trapped, trap)
    same(trapped @ inputs, example["trap_output_over_queries"])
    assert abs(weights - trap).max() > 0.03


@pytest.mark.parametrize("name", ["self", "cross"])
def test_one_scaled_head_gives_every_printed_matrix(name):
    example = EXAMPLES[name]
    asking, asked = np.array(example["query_input"]), np.array(example["key_value_input"])
    query = asking @ example["query_projection"]
    key, value = asked @ example["key_projection"], asked @ example["value_projection"]
    for found, printed in ((query, "query"), (key, "key"), (value, "value")):
        same(found, example[printed])
    same(query @ key.T, example["scores"])
    same(query @ key.T / np.sqrt(2), example["scaled_scores"])
    output, weights = scaled(query, key, value)
    same(weights, example["weights"])
    same(output, example["output"])
