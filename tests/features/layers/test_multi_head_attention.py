import pytest
import torch

from attnviz.core.errors import InputError
from attnviz.layers import MultiHeadAttention

SIZE, HEADS = 12, 3


def sequences(*shapes):
    random = torch.Generator().manual_seed(22)
    return [torch.randn(*shape, generator=random) for shape in shapes]


def twins(bias=True, **sizes):
    """Our layer and torch's with the same parameters."""
    torch.manual_seed(23)
    theirs = torch.nn.MultiheadAttention(
        SIZE, HEADS, bias=bias, batch_first=True, kdim=sizes.get("key"), vdim=sizes.get("value")
    )
    ours = MultiHeadAttention(
        SIZE, HEADS, key_size=sizes.get("key"), value_size=sizes.get("value"), bias=bias
    )
    if sizes:
        matrices = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    else:
        matrices = theirs.in_proj_weight.chunk(3)
    with torch.no_grad():
        for linear, matrix in zip((ours.query, ours.key, ours.value), matrices, strict=True):
            linear.weight.copy_(matrix)
        ours.output.weight.copy_(theirs.out_proj.weight)
        if bias:
            theirs.in_proj_bias.normal_()
            theirs.out_proj.bias.normal_()
            for linear, part in zip(
                (ours.query, ours.key, ours.value), theirs.in_proj_bias.chunk(3), strict=True
            ):
                linear.bias.copy_(part)
            ours.output.bias.copy_(theirs.out_proj.bias)
    return ours, theirs


def same(one, other):
    for mine, expected in zip(one, other, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_it_is_torchs(bias):
    ours, theirs = twins(bias)
    inputs, key = sequences((2, 5, SIZE), (2, 6, SIZE))
    expected = theirs(inputs, inputs, inputs, average_attn_weights=False)
    same(ours(inputs, need_weights=True), expected)
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    expected = theirs(inputs, key, key, key_padding_mask=~real, average_attn_weights=False)
    same(ours(inputs, key, key_mask=real, need_weights=True), expected)
    ours.causal = True
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(inputs, inputs, inputs, attn_mask=hidden, average_attn_weights=False)
    same(ours(inputs, need_weights=True), expected)
    ours, theirs = twins(bias, key=7, value=4)
    query, key, value = sequences((2, 5, SIZE), (2, 6, 7), (2, 6, 4))
    expected = theirs(query, key, value, average_attn_weights=False)
    same(ours(query, key, value, need_weights=True), expected)


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_with_a_full_mask_it_is_torchs(axes):
    ours, theirs = twins()
    (inputs,) = sequences((2, 5, SIZE))
    random = torch.Generator().manual_seed(24)
    mask = torch.rand(*(2, HEADS)[: axes - 2], 5, 5, generator=random) > 0.5
    mask[..., 0] = True
    for_each_head = (mask if axes != 3 else mask[:, None]).expand(2, HEADS, 5, 5)
    hidden = ~for_each_head.reshape(2 * HEADS, 5, 5)
    expected = theirs(inputs, inputs, inputs, attn_mask=hidden, average_attn_weights=False)
    same(ours(inputs, mask=mask, need_weights=True), expected)


def test_all_masks_together_are_torchs():
    ours, theirs = twins()
    ours.causal = True
    (inputs,) = sequences((2, 5, SIZE))
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[3, 1] = False
    real = torch.tensor([[True] * 5, [True] * 4 + [False]])
    expected = theirs(
        inputs,
        inputs,
        inputs,
        attn_mask=~(mask & torch.ones(5, 5, dtype=torch.bool).tril()),
        key_padding_mask=~real,
        average_attn_weights=False,
    )
    same(ours(inputs, mask=mask, key_mask=real, need_weights=True), expected)


def test_a_query_that_sees_nothing_gives_the_last_bias():
    ours, theirs = twins()
    (inputs,) = sequences((1, 3, SIZE))
    mask = torch.tensor([[True] * 3, [False] * 3, [True] * 3])
    output, weights = ours(inputs, mask=mask, need_weights=True)
    assert (weights[..., 1, :] == 0).all()
    torch.testing.assert_close(output[0, 1], ours.output.bias)
    expected, _ = theirs(inputs, inputs, inputs, attn_mask=~mask)
    assert expected[0, 1].isnan().all()
    torch.testing.assert_close(output[0, ::2], expected[0, ::2], rtol=0, atol=1e-6)


def test_a_context_and_a_cache():
    layer = MultiHeadAttention(SIZE, HEADS, context_length=4)
    query, key = sequences((6, SIZE), (5, SIZE))
    layer(query, key[:4])
    with pytest.raises(InputError, match="5 positions, but the context length is 4"):
        layer(query, key)
    layer = MultiHeadAttention(SIZE, HEADS, causal=True)
    (inputs,) = sequences((2, 5, SIZE))
    torch.testing.assert_close(layer(inputs[:, 3:], inputs)[0], layer(inputs)[0][:, 3:])
