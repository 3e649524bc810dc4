import pytest
import torch

from attnviz.core.errors import UsageError
from attnviz.features.layers.attention import join_head_masks, join_masks

MASK = torch.tensor([[True, False], [True, True]])
KEYS = torch.tensor([[True, True], [False, True]])


def test_without_a_batch_three_axes_are_heads():
    mask = torch.ones(3, 5, 7, dtype=torch.bool)
    assert join_head_masks(torch.zeros(5, 4), mask, None).shape == (3, 5, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_numbers_are_refused_as_masks(dtype):
    with pytest.raises(UsageError, match=f"must be boolean.*{dtype}.*mask == 1"):
        join_masks(MASK.to(dtype), None)
    with pytest.raises(UsageError, match="must be boolean"):
        join_masks(None, KEYS.to(dtype))
