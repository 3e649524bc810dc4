"""Figures of a real pretrained model, measured once by hand."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions, strongest_in_matrices
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend

TEXT = "the professor who supervised the student published the paper"

pytestmark = pytest.mark.minilm


@pytest.fixture(scope="module")
def model(minilm):
    return load_model(str(minilm), device="cpu")


@pytest.fixture(scope="module")
def attention(model):
    return attend(model, TEXT)


@pytest.mark.core
def test_figures_of_layers_heads_and_tokens(attention):
    assert attention.tokens == ("[CLS]", *TEXT.split(), "[SEP]")
    assert attention.weights.shape == (6, 12, 11, 11)
    assert attention.main.stream == "self"
    previous = attention.weights[0, 2].diagonal(-1)
    assert previous.mean() == pytest.approx(0.9996, abs=1e-4)


def test_shares_of_special_tokens_and_one_head(attention):
    assert attention.weights[..., 0].mean() == pytest.approx(0.49, abs=0.005)
    special = [token.special for token in attention.main.key_tokens]
    shares = attention.weights[..., special].sum(-1).mean((1, 2))
    assert shares == pytest.approx([0.35, 0.61, 0.65, 0.61, 0.57, 0.46], abs=0.006)
    professor, student, published = (
        attention.tokens.index(word) for word in ("professor", "student", "published")
    )
    last = attention.weights[5]
    assert last[3, student, professor] == pytest.approx(0.74, abs=0.005)
    assert last[3, published, professor] == pytest.approx(0.28, abs=0.005)
    assert last[:, student, professor].mean() < 0.15


@pytest.mark.parametrize("most", [64, 20, 7])
@pytest.mark.core
def test_no_head_of_a_long_text_misses_a_link(model, most):
    text = " ".join([TEXT, "while", "an editor who had read it twice was still not sure"] * 20)
    pooled = attend(replace(model, region=Region(max_size=most)), text).main
    whole = attend(replace(model, region=Region(max_size=512)), text).main
    special = tuple(place for place, token in enumerate(whole.query_tokens) if token.special)
    hidden = IgnoredPositions(special, special, itself=True)
    heads = [strongest_in_matrices(layer, hidden, 20) for layer in whole.weights]
    expected = [cell for layer in heads for head in layer for cell in head]
    assert len(pooled.links) == 72 * 20
    np.testing.assert_allclose(
        [link.weight for link in pooled.links], [cell.weight for cell in expected], atol=1e-5
    )
    same = [
        (link.query_position, link.key_position) == (cell.query, cell.key)
        for link, cell in zip(pooled.links, expected, strict=True)
    ]
    assert np.mean(same) > 0.99
