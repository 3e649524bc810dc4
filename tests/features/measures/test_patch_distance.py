"""How far heads look in a picture."""

import math

import numpy as np
import pytest

from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.tokens import patch_places

GRID = tuple(Token(f"{row},{column}") for row in range(2) for column in range(3))
CLASS = Token("[CLS]", special=True)


def softmax(size: int) -> np.ndarray:
    weights = np.exp(np.random.default_rng(0).normal(size=(1, 2, size, size)))
    return weights / weights.sum(axis=-1, keepdims=True)


def loop(weights: np.ndarray) -> float:
    """Over patches only, each row made to sum to 1 without the class token."""
    ways = []
    for query in range(6):
        row = weights[query + 1, 1:] / weights[query + 1, 1:].sum()
        ways.append(
            sum(
                share * math.dist((query // 3, query % 3), (key // 3, key % 3))
                for key, share in enumerate(row)
            )
        )
    return sum(ways) / len(ways)


def test_only_looks_between_patches_count():
    tokens = (CLASS, *GRID)
    item = AttentionMap("self", tokens, tokens, softmax(7))
    measure = measure_heads(item)["patch-distance"]
    assert (measure.low, measure.high) == ("only itself", "only the far corner")
    expected = [loop(weights) for weights in item.weights[0].astype(np.float64)]
    assert measure.values[0] == pytest.approx(expected, abs=1e-6)
    assert measure.uniform is not None
    assert measure.uniform[0, 0] == pytest.approx(loop(np.full((7, 7), 1 / 7)))
    assert measure.top == pytest.approx(math.sqrt(5))
    weights = softmax(7)
    held = weights * 0.1
    held[..., 0] = 1 - held[..., 1:].sum(axis=-1)
    few, many = (AttentionMap("self", tokens, tokens, item) for item in (weights, held))
    one, other = (measure_heads(item)["patch-distance"].values for item in (few, many))
    assert one == pytest.approx(other, abs=1e-5)


def test_patches_in_no_line_and_texts_have_no_way():
    item = AttentionMap("self", GRID, GRID, np.eye(6)[None, None])
    assert measure_heads(item)["patch-distance"].values == 0
    item = AttentionMap("self", GRID, GRID, softmax(6))
    assert "distance" not in measure_heads(item)
    words = (Token("a"), Token("b"))
    item = AttentionMap("self", words, words, np.full((1, 1, 2, 2), 0.5))
    assert "patch-distance" not in measure_heads(item)


@pytest.mark.parametrize("texts", ["a b", "0,0 0,2", "0,1 0,0", "0,0", "0,0 cat"])
def test_other_tokens_are_no_picture(texts):
    assert patch_places([Token(text) for text in texts.split()]) is None
