import numpy as np
import pytest

from attnviz.mechanisms.linear import causal_linear

from .test_linear import slowly


def arrays(positions=5):
    random = np.random.default_rng(10)
    return [random.normal(size=(positions, size)) for size in (3, 3, 2)]


@pytest.mark.parametrize("hidden", [(), (0,), (1, 3)], ids=str)
def test_it_is_the_definition_summed_over_what_came_before(hidden):
    seen = np.ones((1, 5), dtype=bool)
    seen[:, list(hidden)] = False
    output, weights = causal_linear(*arrays(), seen)
    expected, shares = slowly(*arrays(), np.tril(np.ones((5, 5))) * seen)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weights, shares, rtol=0, atol=1e-13)


def test_a_flat_mask_says_the_same_as_one_of_one_row():
    seen = np.array([True, False, True, True, False])
    for one, other in zip(
        causal_linear(*arrays(), seen), causal_linear(*arrays(), seen[None]), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_weights_nobody_asked_for_are_not_made():
    output, weights = causal_linear(*arrays(), need_weights=False)
    assert weights is None
    np.testing.assert_array_equal(output, causal_linear(*arrays())[0])


def test_queries_and_keys_of_different_length_are_refused():
    query, key, value = arrays()
    with pytest.raises(ValueError, match="as many queries as keys"):
        causal_linear(query[:3], key, value)


def test_a_mask_that_differs_between_queries_is_refused():
    with pytest.raises(ValueError, match="one mask row"):
        causal_linear(*arrays(), np.ones((5, 5), dtype=bool))
