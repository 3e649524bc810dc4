from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention, AttentionMap, Focus, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.features.lenses.layered import layer_graph
from attnviz.features.lenses.rollout import rollout


def tokens(count: int) -> tuple[Token, ...]:
    return tuple(Token(f"t{place}") for place in range(count))


def rows(seed: int, *shape: int) -> np.ndarray:
    drawn = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


def text(*maps: AttentionMap) -> Attention:
    return Attention(maps, Provenance("file", "test"), text="x")


def square(stream: str, weights: np.ndarray) -> AttentionMap:
    return AttentionMap(stream, tokens(weights.shape[-1]), tokens(weights.shape[-1]), weights)


def by_the_loop(weights: np.ndarray) -> np.ndarray:
    """The paper's definition, number by number."""
    layers, heads, length, _ = weights.shape
    joint = [[float(i == j) for j in range(length)] for i in range(length)]
    for layer in range(layers):
        step = []
        for i in range(length):
            row = [
                sum(float(weights[layer, head, i, j]) for head in range(heads)) / heads
                + float(i == j)
                for j in range(length)
            ]
            step.append([value / sum(row) for value in row])
        joint = [
            [sum(step[i][k] * joint[k][j] for k in range(length)) for j in range(length)]
            for i in range(length)
        ]
    return np.array(joint)


def test_three_layers_by_hand_in_double_precision():
    back = np.array([[1.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    found = rollout(text(square("causal", np.stack([back[None]] * 3)))).weights
    # The second position keeps half of itself a layer: 1/2, 1/4, 1/8.
    np.testing.assert_allclose(found[:, 0, 1, 1], [0.5, 0.25, 0.125])
    weights = np.zeros((1, 3, 2, 2), np.float32)
    weights[0, :, 0, 0] = weights[0, :, 1, 1] = [1, 1e-8, 1e-8]
    across = AttentionMap("cross", tokens(2), tokens(2), weights)
    parts = (across, square("encoder", weights), square("decoder", weights))
    mean = layer_graph(text(*parts)).across
    assert mean is not None
    assert float(mean[0, 0, 0]) == pytest.approx((1 + 2 * float(np.float32(1e-8))) / 3, rel=1e-14)


@pytest.mark.slow
@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
def test_it_equals_the_loop(seed, layers, heads, length):
    weights = rows(seed, layers, heads, length, length)
    weights[:, :, ::2] *= seed % 3 / 2  # sums of 0, 1/2 or 1: a sink takes the rest
    found = rollout(text(square("self", weights))).weights
    np.testing.assert_allclose(found[-1, 0], by_the_loop(weights), atol=1e-6)


def pair(seed: int, sums: tuple[float, ...] = (1, 1, 1, 1)) -> Attention:
    causal = np.tril(rows(seed + 2, 3, 2, 4, 4))
    shares = rows(seed, 3, 2, 4, 5) * np.array(sums, np.float32)[:, None]
    cross = AttentionMap("cross", tokens(4), tokens(5), shares)
    encoder = square("encoder", rows(seed + 1, 4, 2, 5, 5))
    return text(cross, encoder, square("decoder", causal / causal.sum(-1, keepdims=True)))


# A sink outside of the keys takes a part of a row, or all of it.
@pytest.mark.parametrize("sums", [(1, 1, 1, 1), (1, 0.5, 0.2, 0)])
def test_a_decoder_is_the_rollout_of_both_sequences_as_one(sums):
    given_pair = pair(3, sums)
    found = rollout(given_pair)
    # The independent form: one matrix over source and target positions side by side.
    joint = np.eye(9)
    encoder, decoder, cross = (
        given_pair.map_of(name).weights.mean(1) for name in ("encoder", "decoder", "cross")
    )
    for step in encoder:
        block = np.eye(9)
        block[:5, :5] = (step + np.eye(5)) / 2
        joint = block @ joint
    for own, across in zip(decoder, cross, strict=True):
        first, second = np.eye(9), np.eye(9)
        first[5:, 5:] = (own + np.eye(4)) / 2
        second[5:] = np.hstack([across, np.eye(4)]) / (1 + np.array(sums))[:, None]
        joint = second @ first @ joint
    np.testing.assert_allclose(found.map_of("cross").weights[-1, 0], joint[5:, :5], atol=1e-6)
    np.testing.assert_allclose(found.map_of("decoder").weights[-1, 0], joint[5:, 5:], atol=1e-6)
    np.testing.assert_allclose(found.map_of("encoder").weights[-1, 0], joint[:5, :5], atol=1e-6)


def test_use_beyond_the_paper_is_said_and_no_focus_stays():
    assert "attnviz extends it to" in rollout(pair(0)).provenance.notes[0]
    assert not rollout(text(square("encoder", rows(0, 1, 1, 2, 2)))).provenance.notes
    focused = text(square("self", rows(0, 1, 1, 2, 2)))
    assert rollout(replace(focused, focus={"self": Focus("0", "0", "why")})).focus == {}


def test_maps_that_cannot_be_rolled_out_are_refused():
    one = square("self", rows(0, 1, 1, 3, 3)).with_weights(rows(0, 1, 1, 3, 3), layers=("2",))
    with pytest.raises(UsageError, match="needs all of them"):
        rollout(text(one))
    two = square("self", rows(0, 2, 1, 3, 3)).with_weights(rows(0, 2, 1, 3, 3), layers=("1", "0"))
    said = r"^stream 'self' holds layers 1, 0: this lens needs all of them, from 0 on$"
    with pytest.raises(UsageError, match=said):
        rollout(text(two))
    wide = AttentionMap("cross", tokens(2), tokens(3), rows(0, 1, 1, 2, 3))
    with pytest.raises(UsageError, match="no encoder stream"):
        rollout(text(wide))
    other = AttentionMap("a", tokens(3), tokens(3), rows(0, 1, 1, 3, 3))
    with pytest.raises(UsageError, match="attends to itself, not stream 'a': use --lens raw"):
        rollout(text(other))
    wide = AttentionMap("self", tokens(2), tokens(3), rows(0, 1, 1, 2, 3))
    with pytest.raises(UsageError, match="stream 'self' has other queries than keys"):
        rollout(text(wide))
    twice = [square("self", rows(0, 1, 1, size, size)) for size in (2, 3)]
    with pytest.raises(UsageError, match=r"^layers of different sizes cannot be joined"):
        rollout(text(*twice))
