"""Patch embedding and vision transformer block."""

import pytest
import torch

from attnviz.core.errors import InputError, UsageError
from attnviz.layers import PatchEmbedding, VisionTransformerBlock


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(37))


def test_shapes_are_those_of_the_base_model():
    block = VisionTransformerBlock(size=24, heads=3)
    output, weights = block(images(2, 3, 224, 224), need_weights=True)
    assert output.shape == (2, 197, 24)
    assert weights.shape == (2, 3, 197, 197)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 197))
    with torch.device("meta"):
        block = VisionTransformerBlock()
    parameters = sum(p.numel() for p in block.block.parameters())
    assert parameters == 7_087_872
    assert block.embedding.positions.shape == (197, 768)


def test_patches_are_projected_in_their_order():
    embedding = PatchEmbedding(12, 4, 2, 5)
    convolution = torch.nn.Conv2d(2, 5, kernel_size=4, stride=4)
    with torch.no_grad():
        convolution.weight.copy_(embedding.projection.weight.reshape(5, 2, 4, 4))
        convolution.bias.copy_(embedding.projection.bias)
    given = images(3, 2, 12, 12)
    expected = convolution(given).flatten(2).mT
    found = embedding(given) - embedding.positions
    torch.testing.assert_close(found[:, 1:], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(found[1, 0], embedding.class_token, rtol=0, atol=1e-6)
    pixels = torch.arange(16.0).reshape(1, 4, 4)
    assert PatchEmbedding(4, 2, 1, 3).patches(pixels).tolist() == [
        [0, 1, 4, 5],
        [2, 3, 6, 7],
        [8, 9, 12, 13],
        [10, 11, 14, 15],
    ]


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
def test_any_leading_axes_are_a_batch(batch):
    block = VisionTransformerBlock(8, 4, 3, 6, 2)
    given = images(*batch, 3, 8, 8)
    output, nothing = block(given)
    assert nothing is None
    assert output.shape == (*batch, 5, 6)
    first = (0,) * len(batch)
    torch.testing.assert_close(output[first], block(given[first])[0], rtol=0, atol=1e-5)


def test_parameters_are_learned_and_patches_fill_the_image():
    block = VisionTransformerBlock(8, 4, 3, 6, 2)
    block(images(2, 3, 8, 8))[0].square().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0 or "key.bias" in name, name
    with pytest.raises(UsageError, match="patches of 15 pixels do not fill an image of 224"):
        PatchEmbedding(224, 15)


@pytest.mark.parametrize("shape", [(3, 8, 12), (1, 8, 8), (8, 8)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(InputError, match=r"the last three axes must be \(3, 8, 8\)"):
        PatchEmbedding(8, 4, 3, 6)(images(*shape))
