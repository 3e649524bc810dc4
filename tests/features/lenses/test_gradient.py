from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.features.lenses.gradient import (
    gradient,
    normalise_relevance,
    relevance,
    relevance_across,
    weigh_by_gradients,
)
from tests.samples import checked


def tokens(count: int) -> tuple[Token, ...]:
    return tuple(Token(f"t{place}") for place in range(count))


def rows(seed: int, *shape: int) -> np.ndarray:
    drawn = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


def slopes(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed + 500).standard_normal(shape).astype(np.float32)


def item(stream: str, weights: np.ndarray) -> AttentionMap:
    return AttentionMap(stream, tokens(weights.shape[2]), tokens(weights.shape[3]), weights)


def explained(
    stream: str, weights: np.ndarray, changes: np.ndarray, positions: tuple[int, ...] = (0,)
) -> AttentionGradients:
    attention = Attention((item(stream, weights),), Provenance("file", "test"), text="x")
    return AttentionGradients(attention, (changes,), positions, "POSITIVE", 0.981)


def by_the_loop(weights: np.ndarray, changes: np.ndarray) -> list[list[float]]:
    """Rules 5 and 6 number by number."""
    layers, heads, length, _ = weights.shape
    found = [[float(i == j) for j in range(length)] for i in range(length)]
    for layer in range(layers):
        step = [[0.0] * length for _ in range(length)]
        for i in range(length):
            for j in range(length):
                for head in range(heads):
                    product = float(weights[layer, head, i, j]) * float(changes[layer, head, i, j])
                    step[i][j] += max(product, 0.0) / heads
        found = [
            [
                found[i][j] + sum(step[i][k] * found[k][j] for k in range(length))
                for j in range(length)
            ]
            for i in range(length)
        ]
    return found


@checked
@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
def test_it_equals_the_loop(seed, layers, heads, length):
    weights = rows(seed, layers, heads, length, length)
    changes = slopes(seed, layers, heads, length, length)
    expected = by_the_loop(weights, changes)
    np.testing.assert_allclose(relevance(weigh_by_gradients(weights, changes)), expected, rtol=1e-5)


def test_streams_without_gradient_are_named():
    weights = rows(0, 3, 2, 4, 4)
    silent = gradient(explained("self", weights, np.zeros_like(weights)))
    assert not silent.weights.any()
    assert "no weight of stream self contributes to 'POSITIVE'" in silent.provenance.notes
    shapes = {"cross": (4, 5), "encoder": (5, 5), "decoder": (4, 4)}
    maps = tuple(item(name, rows(0, 1, 1, *shape)) for name, shape in shapes.items())
    attention = Attention(maps, Provenance("file", "test"), source="a", target="b")
    silent = tuple(np.zeros_like(one.weights) for one in maps)
    found = gradient(AttentionGradients(attention, silent, (2,), "rouge"))
    said = "no weight of stream cross or decoder contributes to 'rouge'"
    assert said in found.provenance.notes


def test_rows_of_a_normalised_relevance_sum_to_two():
    found = normalise_relevance(np.array([[1.0, 0.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 5.0]]))
    np.testing.assert_allclose(found, [[1, 0, 0], [0.5, 1.5, 0], [0, 0, 2]])


def test_across_two_layers_it_equals_the_rules_written_out():
    encoder, decoder, cross = (
        weigh_by_gradients(rows(seed, 2, 2, *shape), slopes(seed, 2, 2, *shape))
        for seed, shape in ((1, (5, 5)), (2, (4, 4)), (3, (4, 5)))
    )
    ii = np.eye(5)
    for step in encoder:
        ii = ii + step @ ii
    bars = []
    tt, ti = np.eye(4), np.zeros((4, 5))
    for step, across in zip(decoder, cross, strict=True):
        tt, ti = tt + step @ tt, ti + step @ ti
        bars = []
        for full in (tt, ii):
            hat = full - np.eye(len(full))
            bars.append(hat / hat.sum(-1, keepdims=True) + np.eye(len(full)))
        ti = ti + np.einsum("ba,bj,jk->ak", bars[0], across, bars[1])
    own, source = relevance_across(encoder, decoder, cross)
    np.testing.assert_allclose(own, tt)
    np.testing.assert_allclose(source, ti)


def test_the_output_is_one_row_of_shares_named_after_it():
    weights, changes = rows(3, 2, 2, 4, 4), slopes(3, 2, 2, 4, 4)
    found = gradient(explained("self", weights, changes, (1,)))
    (token,) = found.main.query_tokens
    assert (token.text, token.special) == ("→ POSITIVE .98", True)
    assert found.weights.shape == (1, 1, 1, 4)
    expected = relevance(weigh_by_gradients(weights, changes))[1] - np.eye(4)[1]
    np.testing.assert_allclose(found.weights[0, 0, 0], expected / expected.sum(), atol=1e-6)
    assert found.provenance.settings["relevance"] == {"self": pytest.approx(expected.sum(), 1e-5)}
    assert found.provenance.steps == ("lens gradient",)
    found = gradient(explained("self", weights, changes))
    shown = found.main
    assert (shown.query_side, shown.key_side, shown.heads) == ("output", "text", ("mean",))
    assert shown.layers == ("gradient",)
    assert found.provenance.settings["probability"] == 0.981
    assert found.provenance.settings["output"] == "POSITIVE"
    assert found.provenance.settings["read from"] == [0]
    precise = replace(explained("self", weights, changes), probability=0.12345678)
    assert gradient(precise).provenance.settings["probability"] == 0.123457
    assert found.provenance.notes == gradient(explained("self", weights, changes)).provenance.notes
    assert not any("contributes" in note for note in found.provenance.notes)
    weights, changes = rows(3, 1, 1, 2, 2), slopes(3, 1, 1, 2, 2)
    for probability, said in ((0.004, "<.01"), (0.006, ".01"), (1.0, "1.00")):
        unlikely = replace(explained("self", weights, changes), probability=probability)
        assert gradient(unlikely).main.query_tokens[0].text == f"→ POSITIVE {said}"


def test_positions_from_which_an_output_is_read():
    weights, changes = rows(4, 1, 1, 3, 3), slopes(4, 1, 1, 3, 3)
    found = gradient(explained("self", weights, changes, (0, 1, 2)))
    expected = (relevance(weigh_by_gradients(weights, changes)) - np.eye(3)).mean(axis=0)
    np.testing.assert_allclose(found.weights[0, 0, 0], expected / expected.sum(), atol=1e-6)
    weights, changes = np.tril(rows(5, 2, 2, 5, 5)), slopes(5, 2, 2, 5, 5)
    found = gradient(explained("causal", weights, changes, (2,)))
    assert [token.text for token in found.main.key_tokens] == ["t0", "t1", "t2"]


def test_a_pair_gives_source_and_target_or_is_refused():
    parts = {"cross": (4, 5), "encoder": (5, 5), "decoder": (4, 4)}
    maps = tuple(item(name, rows(n, 2, 3, *shape)) for n, (name, shape) in enumerate(parts.items()))
    attention = Attention(maps, Provenance("file", "test"), source="a", target="b")
    changes = tuple(slopes(n, 2, 3, *shape) for n, shape in enumerate(parts.values()))
    found = gradient(AttentionGradients(attention, changes, (2,), "rouge"))
    assert [item.stream for item in found.maps] == ["cross", "decoder"]
    assert [item.weights.shape for item in found.maps] == [(1, 1, 1, 5), (1, 1, 1, 3)]
    assert found.main.query_tokens[0].text == "→ rouge"
    np.testing.assert_allclose([item.weights.sum() for item in found.maps], 1, rtol=1e-6)
    with pytest.raises(UsageError, match="needs stream 'encoder'"):
        gradient(explained("cross", rows(0, 1, 1, 2, 3), slopes(0, 1, 1, 2, 3)))
