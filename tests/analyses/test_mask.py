"""What each row may see, inferred from maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.masks import uniform_attention, visible_keys
from attnviz.core.attention_map import AttentionMap, Token
from tests.analyses.heads import even_rows, map_of, random_map


def windowed(length: int, reach: int, *, causal: bool) -> np.ndarray:
    """Which keys lie within reach."""
    positions = np.arange(length)
    apart = positions[:, None] - positions
    near = np.abs(apart) <= reach
    return near & (apart >= 0) if causal else near


def softmax_within(visible: np.ndarray, heads: int = 2, seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=(heads, *visible.shape))
    weights = np.where(visible, np.exp(scores), 0)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_what_sees_everything():
    assert visible_keys(random_map(5)).all()
    assert visible_keys(map_of(random_map(4).weights, stream="decoder")).all()
    lower = np.tri(3) / np.tri(3).sum(axis=1, keepdims=True)
    words = tuple(map(Token, "abc"))
    item = AttentionMap(
        "cross", words, words, lower[None, None], query_side="target", key_side="source"
    )
    assert visible_keys(item).all()


@pytest.mark.parametrize("stream", ["causal", "decoder"])
def test_a_causal_stream_sees_the_triangle_exactly(stream):
    item = random_map(6, causal=True)
    item = AttentionMap(stream, item.query_tokens, item.key_tokens, item.weights)
    visible = visible_keys(item)
    assert visible.shape == (1, 6, 6)
    assert (visible[0] == np.tri(6, dtype=bool)).all()


def test_what_is_causal():
    item = map_of(random_map(6, causal=True).weights, stream="self")
    assert (visible_keys(item)[0] == np.tri(6, dtype=bool)).all()
    visible = visible_keys(map_of(np.eye(5), stream="causal"))
    assert (visible[0] == np.tri(5, dtype=bool)).all()


@pytest.mark.parametrize("offset", [0, -1])
def test_a_sharp_head_of_an_encoder_is_no_mask(offset):
    weights = np.eye(6, k=offset)
    weights[0, 0] = 1
    assert visible_keys(map_of(weights)).all()


@pytest.mark.parametrize("causal", [True, False])
def test_a_sliding_window_is_seen_in_its_layer(causal):
    band = windowed(9, 3, causal=causal)
    whole = windowed(9, 8, causal=causal)
    weights = np.stack([softmax_within(band), softmax_within(whole)])
    visible = visible_keys(map_of(weights, stream="causal" if causal else "self"))
    assert (visible[0] == band).all()
    assert (visible[1] == whole).all()


def test_padded_positions_are_out():
    weights = np.zeros((4, 4))
    weights[:3, :3] = 1 / 3
    visible = visible_keys(map_of(weights))[0]
    assert visible[:3, :3].all()
    assert not visible[3].any()
    assert not visible[:, 3].any()


@given(st.integers(1, 8), st.booleans())
def test_an_even_look_is_the_loop_over_what_is_visible(length, causal):
    visible = visible_keys(random_map(length, causal=causal))
    np.testing.assert_allclose(uniform_attention(visible)[0], even_rows(visible[0]), rtol=1e-15)


def test_a_row_that_sees_nothing_stays_zero():
    assert uniform_attention(np.zeros((2, 3), dtype=bool)).tolist() == [[0, 0, 0], [0, 0, 0]]
