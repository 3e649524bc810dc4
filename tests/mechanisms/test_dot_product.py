"""Attention by dot products against torch's own, and head by head."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.core.errors import UsageError
from attnviz.mechanisms.dot_product import (
    causal,
    causal_mask,
    cross,
    join_heads,
    multi_head,
    naive,
    scaled,
    single_head,
    split_heads,
)

INPUTS = np.random.default_rng(3).normal(size=(2, 4, 3))


def test_what_is_left_out_stands_for_the_inputs():
    for one, other in zip(naive(INPUTS), naive(INPUTS, INPUTS, INPUTS), strict=True):
        np.testing.assert_array_equal(one, other)
    keys = INPUTS[:, :3] + 1
    for one, other in zip(naive(INPUTS, keys), naive(INPUTS, keys, keys), strict=True):
        np.testing.assert_array_equal(one, other)
    keys, values = INPUTS + 1, INPUTS[..., :2] - 3
    output, weights = naive(INPUTS, keys, values)
    np.testing.assert_allclose(output, weights @ values, rtol=0, atol=1e-13)


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


def test_dropout_scale_and_triangle_are_torchs():
    query, value = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])
    _, untouched = single_head(query, query, value)
    output, weights = single_head(query, query, value, dropout=lambda given: 2 * np.tril(given))
    np.testing.assert_array_equal(weights, 2 * np.tril(untouched))
    np.testing.assert_array_equal(output, weights @ value)
    random = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(2, 5, 4, generator=random).double() for _ in range(3))
    expected = scaled_dot_product_attention(query, key, value, scale=1.0)
    torch.testing.assert_close(single_head(query, key, value)[0], expected, rtol=0, atol=1e-12)
    query, key, value = sides()
    expected = scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(causal(query, key, value)[0], expected, rtol=0, atol=1e-12)
    by_numpy = causal_mask(np.zeros(1), 3, 5)
    by_torch = causal_mask(torch.zeros(1), 3, 5)
    np.testing.assert_array_equal(by_numpy, by_torch.numpy())
    np.testing.assert_array_equal(by_numpy.sum(axis=-1), [3, 4, 5])


def sides(queries=5, keys=5):
    random = torch.Generator().manual_seed(6)
    shapes = ((2, queries, 4), (2, keys, 4), (2, keys, 4))
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]


def test_a_cache_and_a_mask_meet_the_triangle():
    query, key, value = sides()
    whole, _ = causal(query, key, value)
    last, weights = causal(query[:, 3:], key, value)
    torch.testing.assert_close(last, whole[:, 3:], rtol=0, atol=1e-14)
    assert weights[0, -1].min() > 0

    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 0] = False
    _, weights = causal(query, key, value, mask)
    assert (weights[:, 0] == 0).all()
    _, expected = scaled(query, key, value, mask & torch.ones(5, 5).tril().bool())
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)


def arrays(*shapes):
    random = np.random.default_rng(8)
    return [random.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_each_head_is_scaled_attention_of_its_columns(heads):
    query, key, value = arrays((2, 4, 6), (2, 5, 6), (2, 5, 12))
    output, weights = multi_head(query, key, value, heads=heads)
    wide, size = 12 // heads, 6 // heads
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        alone, seen = scaled(
            query[..., columns], key[..., columns], value[..., head * wide : (head + 1) * wide]
        )
        np.testing.assert_allclose(weights[:, head], seen, rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            output[..., head * wide : (head + 1) * wide], alone, rtol=0, atol=1e-14
        )


def test_heads_split_join_and_may_have_masks():
    (inputs,) = arrays((2, 3, 4, 6))
    assert split_heads(inputs, 3).shape == (2, 3, 3, 4, 2)
    np.testing.assert_array_equal(join_heads(split_heads(inputs, 3)), inputs)
    query, key, value = arrays((4, 6), (4, 6), (4, 6))
    mask = np.ones((2, 4, 4), dtype=bool)
    mask[1, :, 0] = False
    _, weights = multi_head(query, key, value, mask, heads=2)
    assert (weights[0, :, 0] > 0).all()
    assert (weights[1, :, 0] == 0).all()
    query, key, value = arrays((2, 6), (5, 6), (5, 6))
    for one, other in zip(
        cross(query, key, value, heads=3), multi_head(query, key, value, heads=3), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("heads", [0, -1, 4])
def test_heads_that_do_not_divide_are_refused(heads):
    query, key, value = arrays((4, 6), (4, 6), (4, 6))
    with pytest.raises(UsageError, match=f"a size of 6 cannot be split into {heads} heads"):
        multi_head(query, key, value, heads=heads)
