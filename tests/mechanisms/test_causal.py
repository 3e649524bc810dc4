import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.mechanisms.dot_product import causal, causal_mask, scaled


def tensors(queries=5, keys=5):
    random = torch.Generator().manual_seed(6)
    shapes = ((2, queries, 4), (2, keys, 4), (2, keys, 4))
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]


def test_it_is_torchs_causal_attention():
    query, key, value = tensors()
    expected = scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(causal(query, key, value)[0], expected, rtol=0, atol=1e-12)


def test_the_triangle_is_the_same_in_numpy_and_torch():
    by_numpy = causal_mask(np.zeros(1), 3, 5)
    by_torch = causal_mask(torch.zeros(1), 3, 5)
    np.testing.assert_array_equal(by_numpy, by_torch.numpy())
    np.testing.assert_array_equal(by_numpy.sum(axis=-1), [3, 4, 5])


def test_queries_that_go_on_from_a_cache_see_what_they_saw_without_one():
    query, key, value = tensors()
    whole, _ = causal(query, key, value)
    last, weights = causal(query[:, 3:], key, value)
    torch.testing.assert_close(last, whole[:, 3:], rtol=0, atol=1e-14)
    assert weights[0, -1].min() > 0


def test_a_mask_of_ones_own_stands_on_top_of_the_triangle():
    query, key, value = tensors()
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 0] = False
    _, weights = causal(query, key, value, mask)
    assert (weights[:, 0] == 0).all()
    _, expected = scaled(query, key, value, mask & torch.ones(5, 5).tril().bool())
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)
