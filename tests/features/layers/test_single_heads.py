"""Self-, causal and cross-attention against torch's functional attention."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.core.errors import InputError
from attnviz.layers import CausalAttention, CrossAttention, SelfAttention

INPUTS = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(25))
SOURCE = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(26))


def projected(layer, target, source):
    return layer.query(target), layer.key(source), layer.value(source)


@pytest.mark.parametrize(
    ("kind", "own", "theirs"),
    [
        (SelfAttention, {"scaled": True}, {}),
        (SelfAttention, {"scaled": False}, {"scale": 1.0}),
        (CausalAttention, {}, {"is_causal": True}),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_attention_over_itself_is_torchs(kind, own, theirs, bias):
    layer = kind(6, 3, bias=bias, **own)
    expected = scaled_dot_product_attention(*projected(layer, INPUTS, INPUTS), **theirs)
    torch.testing.assert_close(layer(INPUTS)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_is_torchs_head_by_head(bias):
    layer = CrossAttention(6, 4, 8, heads=2, bias=bias)
    halves = zip(*(x.chunk(2, dim=-1) for x in projected(layer, INPUTS, SOURCE)), strict=True)
    expected = torch.cat([scaled_dot_product_attention(*half) for half in halves], dim=-1)
    output, weights = layer(INPUTS, SOURCE, need_weights=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    assert weights.shape == (2, 2, 5, 7)


def test_biases_masks_and_contexts():
    assert SelfAttention(6).query.bias is None
    assert SelfAttention(6, bias=True).query.bias is not None
    mask = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(27)) > 0.5
    _, weights = SelfAttention(6)(INPUTS, mask, need_weights=True)
    assert (weights[~mask] == 0).all()
    assert (weights[mask] > 0).all()
    layer = CausalAttention(6, context_length=4)
    layer(INPUTS[:, :4])
    with pytest.raises(InputError, match="5 positions, but the context length is 4"):
        layer(INPUTS)
