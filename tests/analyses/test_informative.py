"""How much heads say of a text: what position predicts, of pieces, pictures, sinks and pads.

The measure's own loop stands with the others in `test_measures.py`.
"""

from collections.abc import Callable

import numpy as np
import pytest

from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.measures import distance
from attnviz.analyses.measures.distance import informative
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.tokens import patch_tokens
from tests.analyses.heads import map_of, random_map

Same = Callable[[int, int, int, int], bool]
PICTURE = (Token("[CLS]", special=True), *patch_tokens(3, 3))


def values_of(item: AttentionMap, text: str = "") -> np.ndarray:
    found = informative(MeasuredMap(item, (text, text)))
    assert found is not None
    return found.values


def loop(item: AttentionMap, same: Same, special: tuple[int, ...] = ()) -> np.ndarray:
    """The measure cell by cell where every row sees every key; `same` says which of another row's
    cells position cannot tell from a cell."""
    found = np.zeros(item.weights.shape[:2])
    queries, keys = item.weights.shape[2:]
    rows = [row for row in range(queries) if not item.query_tokens[row].special]
    for layer, head in np.ndindex(found.shape):
        weights = item.weights[layer, head].astype(np.float64)
        for i in rows:
            predicted = []
            for j in range(keys):
                cells = [(k, at) for k in rows if k != i for at in range(keys)]
                other = [weights[cell] for cell in cells if same(i, j, *cell)]
                predicted.append((sum(other) + weights[i].sum() / keys) / (len(other) + 1))
            scale = weights[i].sum() / sum(predicted)
            for j in range(keys):
                if j not in special:
                    found[layer, head] += weights[i, j] * np.log(
                        weights[i, j] / (predicted[j] * scale)
                    )
    return np.maximum(found, 0) / len(rows)


def test_between_two_texts_only_the_key_counts():
    drawn = random_map(6)
    item = drawn.with_weights(
        drawn.weights[:, :, :4],
        query_tokens=drawn.query_tokens[:4],
        query_side="target",
        key_side="source",
    )
    expected = loop(item, lambda i, j, k, at: at == j)
    np.testing.assert_allclose(values_of(item), expected, atol=1e-6)


def test_patches_lie_apart_in_rows_and_columns():
    drawn = random_map(10)
    item = drawn.with_weights(drawn.weights, query_tokens=PICTURE, key_tokens=PICTURE)

    def step(query: int, key: int) -> tuple[int, int]:
        return (key - 1) // 3 - (query - 1) // 3, (key - 1) % 3 - (query - 1) % 3

    def same(i: int, j: int, k: int, at: int) -> bool:
        return at == j if 0 in (j, at) else step(i, j) == step(k, at)

    np.testing.assert_allclose(values_of(item), loop(item, same, special=(0,)), atol=1e-6)


def test_a_sink_is_held_against_its_column_as_special_tokens_are():
    drawn = random_map(8, seed=3)
    weights = 0.3 * drawn.weights
    weights[..., 0] += 0.7
    item = map_of(weights)

    def same(i: int, j: int, k: int, at: int) -> bool:
        return at == j if 0 in (j, at) else at - k == j - i

    np.testing.assert_allclose(values_of(item), loop(item, same, special=(0,)), atol=1e-6)


def test_pieces_count_as_the_words_that_they_make():
    text, ends = "unhappy cats sat down", [2, 7, 12, 16, 19, 21]
    starts = [0, 2, 8, 13, 17, 19]
    tokens = tuple(
        Token(text[start:end], start, end) for start, end in zip(starts, ends, strict=True)
    )
    drawn = random_map(6)
    item = drawn.with_weights(drawn.weights, query_tokens=tokens, key_tokens=tokens)
    joined = merge_words(item, text, text)
    assert len(joined.key_tokens) == 4
    np.testing.assert_allclose(values_of(item, text), values_of(joined), atol=1e-6)
    assert not np.allclose(values_of(item), values_of(joined), atol=1e-3)


def test_rows_of_more_than_one_are_not_joined():
    text = "ab cd ef"
    tokens = tuple(Token(text[at], at, at + 1) for at in (0, 1, 3, 4, 6, 7))
    weights = np.random.default_rng(0).uniform(0.3, 1, (1, 2, 6, 6)).astype(np.float32)
    item = AttentionMap("self", tokens, tokens, weights)
    np.testing.assert_array_equal(values_of(item, text), values_of(item))


def test_padding_takes_no_part():
    bare = random_map(5)
    padded = np.zeros((2, 3, 8, 8), np.float32)
    padded[..., :5, :5] = bare.weights
    np.testing.assert_allclose(values_of(map_of(padded)), values_of(bare), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_long_maps_are_measured_part_by_part(causal, monkeypatch):
    item = random_map(9, causal=causal)
    whole = values_of(item)
    monkeypatch.setattr(distance, "AT_ONCE", 1)
    np.testing.assert_allclose(values_of(item), whole, atol=1e-6)


def test_heads_of_position_say_little_and_heads_of_content_much():
    before, jumps = np.eye(8, k=-1), np.zeros((8, 8))
    before[0, 0] = 1
    jumps[range(8), [3, 5, 7, 1, 0, 2, 4, 6]] = 1
    one, other = values_of(map_of(np.stack([before, jumps])))[0]
    assert one < 0.7 < 1.5 < other


@pytest.mark.parametrize("item", [random_map(2), map_of(np.zeros((1, 2, 4, 4)))])
def test_fewer_than_three_words_say_nothing(item):
    assert informative(MeasuredMap(item)) is None
