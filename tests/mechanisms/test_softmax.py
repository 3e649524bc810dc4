import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.mechanisms.arrays import softmax

from .properties import checked, matrix


def test_it_is_torchs_softmax_or_zero():
    scores = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(softmax(scores), torch.softmax(scores, -1), rtol=0, atol=1e-14)
    weights = softmax(np.array([[1e4, 0.0, -1e4]], dtype=np.float32))
    np.testing.assert_array_equal(weights, [[1, 0, 0]])
    weights = softmax(np.zeros((2, 2)), np.array([[False, False], [True, True]]))
    np.testing.assert_array_equal(weights, [[0, 0], [0.5, 0.5]])
    scores = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    weights = softmax(scores, torch.tensor([[False, False], [True, False]]))
    (weights * torch.tensor([1.0, 2.0])).sum().backward()
    np.testing.assert_array_equal(scores.grad.numpy(), 0)


@checked
@given(matrix(3, 4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_hiding_keys_is_leaving_them_out(scores, seen):
    weights = softmax(scores, np.array(seen))
    np.testing.assert_array_equal(weights[:, ~np.array(seen)], 0)
    if any(seen):
        np.testing.assert_allclose(weights[:, seen], softmax(scores[:, seen]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0])
def test_gradients_are_finite_differences(scale):
    scores = scale * torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    assert torch.autograd.gradcheck(lambda x: softmax(x, mask), scores.requires_grad_())
