"""Encoder and decoder block against torch's own, with the same parameters."""

import pytest
import torch

from attnviz.layers import DecoderBlock, EncoderBlock

SIZE, HEADS, HIDDEN_SIZE = 8, 2, 20
TARGET = torch.randn(2, 5, SIZE, generator=torch.Generator().manual_seed(34))
SOURCE = torch.randn(2, 6, SIZE, generator=torch.Generator().manual_seed(35))


def copy_attention(ours, theirs):
    for linear, weight, bias in zip(
        (ours.query, ours.key, ours.value),
        theirs.in_proj_weight.chunk(3),
        theirs.in_proj_bias.chunk(3),
        strict=True,
    ):
        linear.load_state_dict({"weight": weight, "bias": bias})
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def twins(ours, theirs):
    """Ours with the parameters of torch's, none of them left at its starting value."""
    torch.manual_seed(36)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.5)
    copy_attention(ours.attention, theirs.self_attn)
    ours.feed_forward[0].load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward[3].load_state_dict(theirs.linear2.state_dict())
    ours.attention_norm.load_state_dict(theirs.norm1.state_dict())
    return ours, theirs


def options():
    return {
        "d_model": SIZE,
        "nhead": HEADS,
        "dim_feedforward": HIDDEN_SIZE,
        "dropout": 0.0,
        "activation": "gelu",
        "batch_first": True,
        "norm_first": True,
    }


@pytest.mark.parametrize("padded", [False, True])
def test_blocks_are_torchs(padded):
    theirs = torch.nn.TransformerEncoderLayer(**options())
    ours, theirs = twins(EncoderBlock(SIZE, HEADS, HIDDEN_SIZE), theirs)
    ours.feed_forward_norm.load_state_dict(theirs.norm2.state_dict())
    real = torch.ones(2, 5, dtype=torch.bool)
    real[1, 3:] = not padded
    expected = theirs(TARGET, src_key_padding_mask=~real)
    torch.testing.assert_close(ours(TARGET, key_mask=real)[0], expected, rtol=0, atol=1e-5)
    theirs = torch.nn.TransformerDecoderLayer(**options())
    ours, theirs = twins(DecoderBlock(SIZE, HEADS, HIDDEN_SIZE), theirs)
    copy_attention(ours.cross, theirs.multihead_attn)
    ours.cross_norm.load_state_dict(theirs.norm2.state_dict())
    ours.feed_forward_norm.load_state_dict(theirs.norm3.state_dict())
    target_real, source_real = torch.ones(2, 5) > 0, torch.ones(2, 6) > 0
    target_real[1, 3:] = not padded
    source_real[0, 4:] = not padded
    expected = theirs(
        TARGET,
        SOURCE,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~target_real,
        memory_key_padding_mask=~source_real,
    )
    found, _ = ours(TARGET, SOURCE, target_mask=target_real, source_mask=source_real)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_decoder_block_gives_both_its_weights():
    _, (over_target, over_source) = DecoderBlock(SIZE, HEADS)(TARGET, SOURCE, need_weights=True)
    assert over_target.shape == (2, HEADS, 5, 5)
    assert over_source.shape == (2, HEADS, 5, 6)
    torch.testing.assert_close(over_target, over_target.tril(), rtol=0, atol=0)
