import numpy as np
import torch

from attnviz.mechanisms.dot_product import single_head


def test_what_dropout_leaves_is_what_is_applied_and_given_back():
    query, value = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])
    _, untouched = single_head(query, query, value)
    output, weights = single_head(query, query, value, dropout=lambda given: 2 * np.tril(given))
    np.testing.assert_array_equal(weights, 2 * np.tril(untouched))
    np.testing.assert_array_equal(output, weights @ value)


def test_it_is_torchs_attention_with_a_scale_of_one():
    random = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(2, 5, 4, generator=random).double() for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0)
    torch.testing.assert_close(single_head(query, key, value)[0], expected, rtol=0, atol=1e-12)
