from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.core.notices import notices_to
from attnviz.features.lenses import rollout as lens
from attnviz.features.lenses.layered import LayerGraph, with_residual
from attnviz.features.lenses.rollout import FLOW_UNIT, MOST_SOLVES, flow, flows


def rows(seed: int, *shape: int) -> np.ndarray:
    drawn = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return drawn / drawn.sum(-1, keepdims=True)


def text(weights: np.ndarray, stream: str = "encoder") -> Attention:
    tokens = tuple(Token(f"t{place}") for place in range(weights.shape[-1]))
    item = AttentionMap(stream, tokens, tokens, weights)
    return Attention((item,), Provenance("file", "test"), text="x")


def smallest_cut(steps: np.ndarray, query: int, key: int) -> float:
    """Maximum flow by its dual: the cheapest of all ways to cut the top from the bottom."""
    depth, length, _ = steps.shape
    inner = [(layer, place) for layer in range(depth + 1) for place in range(length)]
    free = [node for node in inner if node not in ((depth, query), (0, key))]
    best = np.inf
    for choice in product((False, True), repeat=len(free)):
        above = dict(zip(free, choice, strict=True)) | {(depth, query): True, (0, key): False}
        cut = sum(
            steps[layer, start, end]
            for layer, start, end in product(range(depth), range(length), range(length))
            if above[layer + 1, start] and not above[layer, end]
        )
        best = min(best, cut)
    return float(best)


def test_one_and_two_layers_by_hand():
    step = with_residual(rows(0, 1, 3, 3))
    np.testing.assert_allclose(flows(LayerGraph(step)), step[0])
    back = with_residual(np.array([[[1.0, 0.0], [1.0, 0.0]]] * 2))
    np.testing.assert_allclose(flows(LayerGraph(back)), [[1.0, 0.0], [1.0, 0.5]])


@given(st.integers(0, 300))
@pytest.mark.slow
@pytest.mark.core
def test_it_equals_the_smallest_cut(seed):
    steps = with_residual(rows(seed, 2, 3, 3))
    expected = [[smallest_cut(steps, query, key) for key in range(3)] for query in range(3)]
    np.testing.assert_allclose(flows(LayerGraph(steps)), expected, atol=1e-12)


def test_a_decoder_reads_what_cross_attention_lets_through():
    cross = rows(2, 1, 2, 3)
    graph = LayerGraph(with_residual(np.eye(2)[None]), cross, with_residual(np.eye(3)[None]))
    np.testing.assert_allclose(flows(graph), cross[0] / 2)
    # Of rows that sum to a half and to nothing the residual is a larger part.
    graph = replace(graph, across=cross * [[0.5], [0]])
    np.testing.assert_allclose(flows(graph), cross[0] * [[1 / 3], [0]])
    # Of two layers the upper takes a half, and as much of what the lower took.
    one = np.ones((2, 1, 1))
    assert flows(LayerGraph(one, one, one)).item() == pytest.approx(1)
    # Of two positions each takes a half from the first source above, and from the second below
    # what the half that it keeps of itself lets through; both sources come from one input.
    within, below, above = np.full((2, 2, 2), 0.5), [[0, 1], [0, 1]], [[1, 0], [1, 0]]
    graph = LayerGraph(within, np.array([below, above], float), np.array([[[1.0, 0], [1, 0]]]))
    np.testing.assert_allclose(flows(graph), [[1, 0], [1, 0]])


@pytest.mark.slow
@given(st.integers(0, 300), st.lists(st.integers(0, 4), max_size=5, unique=True))
def test_chosen_queries_get_the_rows_of_the_full_flow(seed, queries):
    graph = LayerGraph(with_residual(rows(seed, 2, 5, 5)))
    np.testing.assert_array_equal(flows(graph, queries), flows(graph)[queries])


def test_its_cost_is_said_and_bounded(monkeypatch):
    length = int(MOST_SOLVES**0.5) + 1
    found = flow(text(rows(0, 1, 1, length, length)), (3,))
    assert found.weights.shape == (1, 1, 1, length)
    assert [token.text for token in found.main.query_tokens] == ["t3"]
    heard: list[str] = []
    with notices_to(heard.append):
        found = flow(text(rows(0, 2, 1, 4, 4)))
    assert "16 maximum-flow problems" in heard[0]
    assert heard[0] in found.provenance.notes
    said = (
        r"^flow would solve 10,201 maximum-flow problems, more than 10,000: shorten the text, or "
        r"use --lens rollout$"
    )
    with pytest.raises(UsageError, match=said):
        flow(text(rows(0, 1, 1, length, length)))
    monkeypatch.setattr(lens, "MOST_SOLVES", 16)
    assert flow(text(rows(0, 2, 1, 4, 4))).weights.shape == (1, 1, 4, 4)
    with pytest.raises(UsageError, match=r"20 maximum-flow problems, more than 16: choose fewer$"):
        flow(text(rows(0, 2, 1, 5, 5)), (0, 1, 2, 3), "choose fewer")


def test_a_flow_beyond_the_papers_encoders_is_said():
    (note, cost) = flow(text(np.tril(rows(0, 2, 1, 3, 3)), "causal")).provenance.notes
    assert (
        note
        == "the paper defines flow for encoders only, and attnviz extends it to causal decoders"
    )
    assert cost == "flow takes 9 maximum-flow problems over 2 layers"
    found = flow(text(rows(1, 3, 2, 3, 3))).main
    assert (found.layers, found.heads, found.unit) == (("flow",), ("mean",), FLOW_UNIT)
    assert found.weights.dtype == np.float32
