"""Gradients of the pocket model against its numpy pass nudged by hand, and what is explained."""

import numpy as np
import pytest

from attnviz.core.errors import UsageError
from attnviz.core.query import Query
from attnviz.features.lenses.gradient import gradient
from attnviz.mechanisms.arrays import Array, softmax
from attnviz.models.light import network
from attnviz.models.pocket import model
from attnviz.models.pocket.text import MASK
from attnviz.models.pocket.translator import Pocket, encode_query, load_pocket

TEXT = "The red car is fast"
TEXT_QUERY = Query(TEXT)
PAIR = Query(TEXT, "La voiture rouge est rapide", "cross")


@pytest.fixture(scope="module")
def pocket() -> Pocket:
    return load_pocket(dtype="float64")


def nudged(monkeypatch: pytest.MonkeyPatch, call: int, place: tuple[int, ...], by: float) -> None:
    """Add to one weight of one attention, after the softmax, in the order of the calls."""
    calls = iter(range(1000))

    def shares(scores: Array, mask: Array = None) -> Array:
        weights = softmax(scores, mask).copy()
        if next(calls) == call:
            weights[place] += by
        return weights

    monkeypatch.setattr(network, "softmax", shares)


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "layer", "call"), [("encoder", 3, 3), ("cross", 1, 7)])
def test_a_gradient_is_what_a_nudge_of_the_weight_changes(stream, layer, call, pocket, monkeypatch):
    explained = pocket.gradients(PAIR, "rouge[3]")
    inputs = encode_query(pocket, PAIR)
    (row,) = explained.positions
    at = [item.stream for item in explained.attention.maps].index(stream)
    place = (2, min(row, 2), 1)

    def score() -> float:
        memory, _ = model.run_encoder(pocket.weights, pocket.sizes, pocket.embed(inputs.source_ids))
        target = pocket.embed(inputs.target_ids)
        states, _, _ = model.run_decoder(pocket.weights, pocket.sizes, target, memory)
        logits = model.predict_pieces(pocket.weights, states[row])
        return float(logits[inputs.target_ids[row + 1]])

    found = []
    for by in (1e-4, -1e-4):
        with monkeypatch.context() as patch:
            nudged(patch, call, place, by)
            found.append(score())
    expected = (found[0] - found[1]) / 2e-4
    assert explained.gradients[at][(layer, *place)] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_what_is_explained_of_a_pair_and_of_a_causal_text(pocket):
    result = gradient(pocket.gradients(PAIR, "rouge[3]"))
    keys = [token.text for token in result.main.key_tokens]
    assert keys[int(result.weights[0, 0, 0].argmax())] == "red"
    assert result.main.query_tokens[0].text.startswith("→ rouge[3] .")
    assert [item.stream for item in result.maps] == ["cross", "decoder"]
    assert [token.text for token in result.maps[1].key_tokens] == ["<fr>", "La", "voiture"]
    assert pocket.gradients(PAIR).output == "rapide (token 5)"
    assert pocket.gradients(PAIR, "1").output == "La (token 1)"
    causal = load_pocket(causal=True)
    explained = causal.gradients(Query("The cat sat on the"))
    assert explained.positions == (len(explained.attention.tokens) - 1,)
    assert not explained.output.startswith("<")
    assert causal.gradients(Query("The cat sat on the"), "cat[2]").output == "cat (token 2)"


def test_a_word_is_masked_to_attribute_its_prediction(pocket):
    explained = pocket.gradients(TEXT_QUERY, "car")
    assert (explained.output, explained.positions) == ("car (token 2)", (2,))
    assert explained.attention.tokens[2] == "<mask>"
    assert "'car' is masked, so that the model predicts it" in explained.attention.provenance.notes
    ids = encode_query(pocket, TEXT_QUERY).source_ids
    masked = [MASK if place == 2 else number for place, number in enumerate(ids)]
    _, shares = model.run_encoder(pocket.weights, pocket.sizes, pocket.embed(masked))
    np.testing.assert_allclose(explained.attention.weights, np.stack(shares), atol=1e-6)
    assert pocket.gradients(TEXT_QUERY).output == "fast (token 4)"


@pytest.mark.parametrize("wanted", ["walrus", "99", "<eos>"])
def test_what_is_no_word_of_the_text_is_refused(wanted, pocket):
    with pytest.raises(UsageError, match=r"no token of the text|no word that could be masked"):
        pocket.gradients(TEXT_QUERY, wanted)
