"""How much heads say of a text: what distance and keys explain, of pieces, pictures and pads."""

import numpy as np
import pytest

from attnviz.analyses import word_links as distance
from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.tokens import patch_tokens
from attnviz.features.measures.distance import informative
from tests.analyses.heads import Apart, map_of, random_map, says

PICTURE = (Token("[CLS]", special=True), *patch_tokens(3, 3))


def values_of(item: AttentionMap, text: str = "") -> np.ndarray:
    measure = informative(MeasuredMap(item, (text, text)))
    return measure.values


def loop(item: AttentionMap, apart: Apart) -> list[list[float]]:
    """The measure of each head cell by cell, where every row sees every key."""
    words, cells = [token.text for token in item.key_tokens], item.weights.astype(np.float64)
    visible = np.ones(cells.shape[2:], dtype=bool)
    return [[says(head, visible, words, apart) for head in heads] for heads in cells]


def test_what_counts_as_said():
    drawn = random_map(7)
    item = drawn.with_weights(
        drawn.weights[:, :, :5],
        query_tokens=drawn.query_tokens[:5],
        query_side="target",
        key_side="source",
    )
    np.testing.assert_allclose(values_of(item), loop(item, None), atol=1e-3)

    drawn = random_map(10)
    item = drawn.with_weights(drawn.weights, query_tokens=PICTURE, key_tokens=PICTURE)

    def apart(query: int, key: int) -> tuple[int, int]:
        return (key - 1) // 3 - (query - 1) // 3, (key - 1) % 3 - (query - 1) % 3

    np.testing.assert_allclose(values_of(item), loop(item, apart), atol=1e-6)

    popular = np.full((8, 8), 0.05)
    popular[:, 3] = 0.65
    own = popular.copy()
    own[5] = 0.05
    own[5, 1] = 0.65
    nothing, something = values_of(map_of(np.stack([popular, own])))[0]
    assert nothing < 0.02 < something

    words, drawn = "[CLS] a b c d e f g", random_map(8, seed=3).weights
    whole = values_of(map_of(drawn, words))
    for share in (0.06, 0.04):
        resting = drawn.copy()
        resting[..., 1:] *= share / resting[..., 1:].sum(axis=-1, keepdims=True)
        resting[..., 0] = 1 - share
        expected = whole if share >= 0.05 else 0
        np.testing.assert_allclose(values_of(map_of(resting, words)), expected, atol=1e-4)


def test_pieces_count_as_their_words():
    text, ends = "unhappy cats sat down here", [2, 7, 12, 16, 19, 21, 26]
    starts = [0, 2, 8, 13, 17, 19, 22]
    tokens = tuple(
        Token(text[start:end], start, end) for start, end in zip(starts, ends, strict=True)
    )
    drawn = random_map(7)
    item = drawn.with_weights(drawn.weights, query_tokens=tokens, key_tokens=tokens)
    joined = merge_words(item, text, text)
    assert len(joined.key_tokens) == 5
    np.testing.assert_allclose(values_of(item, text), values_of(joined), atol=1e-6)
    assert not np.allclose(values_of(item), values_of(joined), atol=1e-3)
    text = "ab cd ef"
    tokens = tuple(Token(text[at], at, at + 1) for at in (0, 1, 3, 4, 6, 7))
    weights = np.random.default_rng(0).uniform(0.3, 1, (1, 2, 6, 6)).astype(np.float32)
    item = AttentionMap("self", tokens, tokens, weights)
    np.testing.assert_array_equal(values_of(item, text), values_of(item))


@pytest.mark.parametrize("text", ["护士感谢了年轻的医生", "ฉันชอบอ่านหนังสือมาก"])
def test_scripts_without_spaces_say_something(text):
    tokens = tuple(Token(letter, at, at + 1) for at, letter in enumerate(text))
    drawn = random_map(len(text))
    item = drawn.with_weights(drawn.weights, query_tokens=tokens, key_tokens=tokens)
    by_word = values_of(merge_words(item, text, text))
    assert (by_word > 0).all()
    np.testing.assert_allclose(values_of(item, text), by_word, atol=1e-6)


def test_padding_and_position_say_little():
    bare = random_map(5)
    padded = np.zeros((2, 3, 8, 8), np.float32)
    padded[..., :5, :5] = bare.weights
    np.testing.assert_allclose(values_of(map_of(padded)), values_of(bare), atol=1e-6)
    before, jumps = np.eye(8, k=-1), np.zeros((8, 8))
    before[0, 0] = 1
    jumps[range(8), [3, 5, 7, 1, 0, 2, 4, 6]] = 1
    one, other = values_of(map_of(np.stack([before, jumps])))[0]
    assert one < 0.3 < 1 < other


@pytest.mark.parametrize("causal", [False, True])
def test_long_maps_are_measured_part_by_part(causal, monkeypatch):
    item = random_map(9, causal=causal)
    whole = values_of(item)
    monkeypatch.setattr(distance, "AT_ONCE", 1)
    np.testing.assert_allclose(values_of(item), whole, atol=1e-6)


@pytest.mark.parametrize(
    "item", [random_map(4), map_of(np.zeros((1, 2, 6, 6))), map_of(np.eye(6), "a b c d . ,")]
)
def test_fewer_than_five_words_say_nothing(item):
    assert informative(MeasuredMap(item)) is None
