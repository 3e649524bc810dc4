import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from attnviz.mechanisms.dot_product import scaled, single_head

from .properties import checked, matrix


def tensors(*shapes):
    random = torch.Generator().manual_seed(4)
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_torchs_scaled_dot_product_attention(batch, masked):
    query, key, value = tensors((*batch, 5, 4), (*batch, 7, 4), (*batch, 7, 6))
    mask = None
    if masked:
        mask = torch.rand(*batch, 5, 7, generator=torch.Generator().manual_seed(5)) > 0.4
        mask[..., 0] = True
    expected = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    output, weights = scaled(query, key, value, mask)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(weights @ value, expected, rtol=0, atol=1e-12)


def test_the_scale_is_the_root_of_the_head_size_not_of_the_length():
    query, key, value = tensors((3, 16), (5, 16), (5, 2))
    for one, other in zip(
        scaled(query, key, value), single_head(query / 4, key, value), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-15)


@checked
@given(matrix(3, 2), matrix(4, 2), matrix(4, 5), st.permutations(range(4)))
def test_permuting_the_keys_permutes_the_weights_and_not_the_output(query, key, value, order):
    output, weights = scaled(query, key, value)
    permuted, moved = scaled(query, key[order], value[order])
    np.testing.assert_allclose(moved, weights[:, order], rtol=0, atol=1e-12)
    np.testing.assert_allclose(permuted, output, rtol=0, atol=1e-12)


@checked
@given(matrix(3, 2), matrix(4, 2), matrix(4, 5), matrix(2))
def test_adding_one_vector_to_every_key_changes_nothing(query, key, value, vector):
    _, weights = scaled(query, key, value)
    _, shifted = scaled(query, key + vector, value)
    np.testing.assert_allclose(shifted, weights, rtol=0, atol=1e-11)


@checked
@given(matrix(3, 2), matrix(4, 2), matrix(4, 5))
def test_an_output_lies_within_the_range_of_the_values(query, key, value):
    output, _ = scaled(query, key, value)
    assert (output >= value.min(axis=0) - 1e-12).all()
    assert (output <= value.max(axis=0) + 1e-12).all()
