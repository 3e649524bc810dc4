import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.features.lenses.norm import UNIT, VALUE_UNIT, norm, norms, norms_by_head
from tests.samples import checked


def rows(seed: int, *shape: int) -> np.ndarray:
    drawn = np.exp(2 * np.random.default_rng(seed).standard_normal(shape))
    return drawn / drawn.sum(-1, keepdims=True)


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def transformed(weights: np.ndarray, products: np.ndarray, projected: bool = True) -> ValueVectors:
    tokens = tuple(Token(f"t{place}") for place in range(weights.shape[-1]))
    attention = Attention(
        (AttentionMap("self", tokens, tokens, weights),), Provenance("file", "x"), text="x"
    )
    return ValueVectors(attention, (products,), projected)


@checked
@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_it_equals_the_vectors_added_up_for_each_pair(seed, heads, queries, keys):
    weights = rows(seed, 1, heads, queries, keys)
    value, projection = drawn(seed, heads, keys, 3), drawn(seed + 1, heads * 3, 7)
    slices = projection.reshape(heads, 3, 7)
    vectors = np.einsum("hij,hjd,hdo->ijho", weights[0], value, slices)
    products = inner_products(value, projection)[None]
    together = np.linalg.norm(vectors.sum(axis=2), axis=-1)
    np.testing.assert_allclose(norms(weights, products)[0], together, rtol=1e-12, atol=1e-12)
    apart = np.linalg.norm(vectors, axis=-1).transpose(2, 0, 1)
    np.testing.assert_allclose(norms_by_head(weights, products)[0], apart, rtol=1e-12)


def test_opposite_heads_cancel_in_the_output_projection():
    value = np.ones((2, 1, 1))
    weights = np.ones((1, 2, 1, 1))
    against = inner_products(value, np.array([[3.0], [-3.0]]))[None]
    assert norms(weights, against).item() == 0
    np.testing.assert_array_equal(norms_by_head(weights, against).ravel(), [3, 3])
    assert norms(weights, inner_products(value, None)[None]).item() == pytest.approx(2**0.5)


def test_value_norms_are_those_of_heads_side_by_side(monkeypatch):
    value, weights = drawn(2, 3, 4, 5), rows(2, 1, 3, 2, 4)
    joined = np.einsum("hij,hjd->ijhd", weights[0], value).reshape(2, 4, -1)
    found = norms(weights, inner_products(value, None)[None])[0]
    np.testing.assert_allclose(found, np.linalg.norm(joined, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(
        inner_products(value, np.eye(15)), inner_products(value, None), atol=1e-12
    )
    value, projection = drawn(3, 2, 7, 3), drawn(4, 6, 4)
    expected = inner_products(value, projection)
    monkeypatch.setattr("attnviz.core.lens_inputs.BLOCK", 3)
    np.testing.assert_allclose(inner_products(value, projection), expected, rtol=1e-12)


def test_rows_are_shares_for_all_heads_and_for_each():
    weights = rows(5, 2, 3, 4, 4).astype(np.float32)
    products = np.stack([inner_products(drawn(n, 3, 4, 2), drawn(n + 1, 6, 5)) for n in (0, 1)])
    found = norm(transformed(weights, products))
    assert [item.stream for item in found.maps] == ["self", "self-by-head"]
    assert [item.heads for item in found.maps] == [("sum",), ("0", "1", "2")]
    for item in found.maps:
        np.testing.assert_allclose(item.weights.sum(-1), 1, atol=1e-6)
    lengths = norms(weights, products)
    np.testing.assert_allclose(
        found.weights[:, 0], lengths / lengths.sum(-1, keepdims=True), atol=1e-6
    )
    assert found.provenance.notes == ()


def test_short_vectors_and_triangles():
    value = np.array([[[0.01], [1.0]]])
    found = norm(transformed(np.full((1, 1, 2, 2), 0.5), inner_products(value, None)[None], False))
    np.testing.assert_allclose(found.weights[0, 0, 0], [0.01 / 1.01, 1 / 1.01], rtol=1e-5)
    assert found.provenance.notes[0].startswith("value-norm: ")
    weights = np.tril(rows(6, 1, 2, 4, 4), -1)
    found = norm(transformed(weights, inner_products(drawn(6, 2, 4, 3), None)[None]))
    for item in found.maps:
        np.testing.assert_array_equal(item.weights, np.tril(item.weights, -1))


@pytest.mark.parametrize(("projected", "unit"), [(True, UNIT), (False, VALUE_UNIT)])
def test_the_unit_says_whether_values_were_projected(projected, unit):
    products = inner_products(drawn(2, 2, 3, 2), None)[None]
    found = norm(transformed(rows(2, 1, 2, 3, 3), products, projected))
    assert [item.unit for item in found.maps] == [unit, unit]
