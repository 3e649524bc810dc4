import pytest
import torch

from attnviz.core.errors import UsageError
from attnviz.layers.attention import join_head_masks, join_masks

MASK = torch.tensor([[True, False], [True, True]])
KEYS = torch.tensor([[True, True], [False, True]])


def test_no_mask_stays_no_mask():
    assert join_masks(None, None) is None


def test_a_key_mask_hides_a_key_from_every_query():
    assert join_masks(None, KEYS).tolist() == [[[True, True]], [[False, True]]]


def test_two_masks_leave_what_both_leave():
    seen = join_masks(MASK, KEYS)
    assert seen.tolist() == [[[True, False], [True, True]], [[False, False], [False, True]]]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((5, 7), (1, 5, 7)), ((2, 5, 7), (2, 1, 5, 7)), ((2, 3, 5, 7), (2, 3, 5, 7))],
)
def test_an_axis_of_heads_is_put_in_only_where_there_is_none(shape, expected):
    query, mask = torch.zeros(2, 5, 4), torch.ones(shape, dtype=torch.bool)
    assert join_head_masks(query, mask, None).shape == expected
    keys = torch.ones(2, 7, dtype=torch.bool)
    assert join_head_masks(query, mask, keys).expand(2, 3, 5, 7).all()


def test_without_a_batch_three_axes_are_heads():
    mask = torch.ones(3, 5, 7, dtype=torch.bool)
    assert join_head_masks(torch.zeros(5, 4), mask, None).shape == (3, 5, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_numbers_are_refused_as_masks(dtype):
    with pytest.raises(UsageError, match=f"must be boolean.*{dtype}.*mask == 1"):
        join_masks(MASK.to(dtype), None)
    with pytest.raises(UsageError, match="must be boolean"):
        join_masks(None, KEYS.to(dtype))
