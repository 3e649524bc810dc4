import numpy as np
import pytest

from attnviz.core.errors import UsageError
from attnviz.mechanisms.dot_product import cross, join_heads, multi_head, scaled, split_heads


def arrays(*shapes):
    random = np.random.default_rng(8)
    return [random.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_each_head_is_scaled_attention_over_its_own_columns(heads):
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


def test_heads_split_and_join_again():
    (inputs,) = arrays((2, 3, 4, 6))
    assert split_heads(inputs, 3).shape == (2, 3, 3, 4, 2)
    np.testing.assert_array_equal(join_heads(split_heads(inputs, 3)), inputs)


def test_a_mask_may_differ_between_heads():
    query, key, value = arrays((4, 6), (4, 6), (4, 6))
    mask = np.ones((2, 4, 4), dtype=bool)
    mask[1, :, 0] = False
    _, weights = multi_head(query, key, value, mask, heads=2)
    assert (weights[0, :, 0] > 0).all()
    assert (weights[1, :, 0] == 0).all()


@pytest.mark.parametrize("heads", [0, -1, 4])
def test_heads_that_do_not_divide_the_size_are_refused(heads):
    query, key, value = arrays((4, 6), (4, 6), (4, 6))
    with pytest.raises(UsageError, match=f"a size of 6 cannot be split into {heads} heads"):
        multi_head(query, key, value, heads=heads)


def test_cross_attention_is_the_same_formula_over_another_sequence():
    query, key, value = arrays((2, 6), (5, 6), (5, 6))
    for one, other in zip(
        cross(query, key, value, heads=3), multi_head(query, key, value, heads=3), strict=True
    ):
        np.testing.assert_array_equal(one, other)
