import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.mechanisms.dot_product import scaled, single_head


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
