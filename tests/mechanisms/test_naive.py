import numpy as np

from attnviz.mechanisms.dot_product import naive

INPUTS = np.random.default_rng(3).normal(size=(2, 4, 3))


def test_the_inputs_stand_for_what_is_left_out():
    for one, other in zip(naive(INPUTS), naive(INPUTS, INPUTS, INPUTS), strict=True):
        np.testing.assert_array_equal(one, other)


def test_keys_stand_for_values_that_are_left_out():
    keys = INPUTS[:, :3] + 1
    for one, other in zip(naive(INPUTS, keys), naive(INPUTS, keys, keys), strict=True):
        np.testing.assert_array_equal(one, other)


def test_values_of_their_own_are_what_is_mixed():
    keys, values = INPUTS + 1, INPUTS[..., :2] - 3
    output, weights = naive(INPUTS, keys, values)
    np.testing.assert_allclose(output, weights @ values, rtol=0, atol=1e-13)
