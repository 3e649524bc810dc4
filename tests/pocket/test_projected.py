"""Kept queries and keys of the pocket model against the weights that they stand behind."""

import numpy as np
import pytest

from attnviz.core.attention_map import Attention
from attnviz.models.pocket.translator import Pocket, load_pocket
from tests.asked import over_itself, over_source

PAIR = "The red car is fast", "La voiture rouge est rapide"


def check(attention: Attention) -> None:
    """Softmax(q kᵀ / √d) of every stream is its map, where no later position is seen."""
    assert set(attention.projections) == {item.stream for item in attention.maps}
    for item in attention.maps:
        kept = attention.projections[item.stream]
        products = np.einsum("lhqd,lhkd->lhqk", kept.query, kept.key)
        scores = products / np.sqrt(kept.query.shape[-1])
        np.testing.assert_allclose(products * kept.scale, scores, rtol=1e-6)
        if item.stream in {"causal", "decoder"}:
            scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(item.weights, expected, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_of_a_text_they_give_its_weights(causal):
    check(over_itself(load_pocket(causal=causal, keep_qk=True), PAIR[0]))


def test_pairs_keep_theirs_and_nothing_unasked():
    check(over_source(load_pocket(keep_qk=True), *PAIR))
    assert not over_itself(load_pocket(), PAIR[0]).projections


@pytest.mark.slow
def test_torch_keeps_what_numpy_keeps():
    expected = over_source(load_pocket(keep_qk=True), *PAIR)
    # Any device but "cpu" is torch's.
    found = over_source(Pocket(device="cpu:0", keep_qk=True), *PAIR)
    check(found)
    for stream, kept in expected.projections.items():
        np.testing.assert_allclose(found.projections[stream].query, kept.query, atol=1e-4)
        np.testing.assert_allclose(found.projections[stream].key, kept.key, atol=1e-4)
