"""Windows, pools, packed patches: weights against each family's own, put back by a slow loop.

The places of the oracle are made by the family's own functions: numbers of patches take the way of
its hidden states.
"""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.hiera import modeling_hiera
from transformers.models.swinv2 import modeling_swinv2

from attnviz.features.windows.geometry import pixel_places
from attnviz.features.windows.layers import read_layers

pytestmark = pytest.mark.models

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
AT = (5, 2)


def make(name, **sizes):
    """A model and its eager twin, wide enough that no two heads agree."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**sizes)
    fast = "sdpa" if kind._supports_sdpa else "eager"
    models = [kind._from_config(config, attn_implementation=how) for how in (fast, "eager")]
    with torch.no_grad():
        for one in models[0].parameters():
            if one.ndim > 1:
                one.normal_(std=min(0.3, 1.7 / max(one[0].numel(), 1) ** 0.5))
    models[1].load_state_dict(models[0].state_dict())
    return [one.eval() for one in models]


def read(model, pixels, at=AT):
    return read_layers(model, {"pixel_values": pixels}, {"pixel_values": pixel_places(pixels)}, at)[
        0
    ]


def eager(model, pixels):
    with torch.no_grad():
        return model(pixel_values=pixels, output_attentions=True).attentions


def put_back(weights, asking, asked, counts):
    """A map (heads, queries, keys) of windows' weights, by the numbers of their patches."""
    whole = np.zeros((weights.shape[1], *counts))
    for window in range(len(weights)):
        for query, place in enumerate(asking[window]):
            for key, there in enumerate(asked[window]):
                if place >= 0 and there >= 0:
                    whole[:, place, there] += weights[window, :, query, key]
    return whole


def agree(layer, whole, number=None):
    np.testing.assert_allclose(layer.mean, whole.mean(1), atol=1e-5)
    if number is not None:
        np.testing.assert_allclose(layer.asked, whole[:, number], atol=1e-5)
    if layer.whole is not None:
        np.testing.assert_allclose(layer.whole, whole, atol=1e-5)


def number_patches(rows, columns):
    """Numbers of patches as hidden states (1, rows, columns, 1), from 1: padding is 0."""
    return torch.arange(1.0, rows * columns + 1).reshape(1, rows, columns, 1)


def patches(numbers):
    return numbers.round().long().numpy() - 1


def coarse(at, shape, finest):
    row, column = (one * many // whole for one, many, whole in zip(at, shape, finest, strict=True))
    return row * shape[1] + column


def test_windows_that_are_padded_and_whole_pictures_of_sam():
    sizes = {"image_size": 64, "patch_size": 8, "window_size": 3, "global_attn_indexes": [1]}
    model, own = make("SamVisionModel", **SMALL, **sizes, mlp_dim=48, output_channels=16)
    pixels = torch.randn(1, 3, 64, 64)
    windows, all_patches = eager(own, pixels)
    layers = read(model, pixels).layers
    places = own.vision_encoder.layers[0].window_partition(number_patches(8, 8), 3)[0].flatten(1)
    split = windows.unflatten(0, (9, 4)).numpy()
    numbers = patches(places)
    agree(layers[0], put_back(split, numbers, numbers, (64, 64)), coarse(AT, (8, 8), (8, 8)))
    agree(layers[1], all_patches.reshape(4, 64, 64).numpy(), 5 * 8 + 2)
    assert [layer.windows for layer in layers] == [9, 1]
    assert layers[0].padded == pytest.approx(1 - layers[0].mean.sum(-1).mean(), abs=1e-5)


def test_weights_of_sam_are_those_of_its_queries_keys_and_relative_positions():
    sizes = {"image_size": 48, "patch_size": 8, "window_size": 0, "global_attn_indexes": [0, 1]}
    model, _ = make("SamVisionModel", **SMALL, **sizes, mlp_dim=48, output_channels=16)
    pixels = torch.randn(1, 3, 48, 48)
    seen = []
    part = model.vision_encoder.layers[0].attn
    part.qkv.register_forward_hook(lambda _part, _given, output: seen.append(output))
    layer = read(model, pixels).layers[0]
    query, key, _ = seen[0].reshape(36, 3, 4, 8).permute(1, 2, 0, 3).double()
    high, wide = (one.detach().double() for one in (part.rel_pos_h, part.rel_pos_w))
    scores = np.zeros((4, 36, 36))
    for asks in range(36):
        for asked in range(36):
            down, across = asks // 6 - asked // 6 + 5, asks % 6 - asked % 6 + 5
            bias = query[:, asks] @ (high[down] + wide[across])
            score = (query[:, asks] * key[:, asked]).sum(-1) / 8**0.5 + bias
            scores[:, asks, asked] = score.detach().numpy()
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    agree(layer, shares / shares.sum(-1, keepdims=True), 5 * 6 + 2)


def test_windows_of_swinv2_shifted_and_merged():
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    model, own = make("Swinv2Model", **sizes, image_size=48, patch_size=4)
    pixels = torch.randn(1, 3, 48, 48)
    given = []
    for part in own.modules():
        if isinstance(part, modeling_swinv2.Swinv2Attention):
            part.register_forward_hook(lambda _part, _given, output: given.append(output[1]))
    eager(own, pixels)
    layers = read(model, pixels).layers
    blocks = [block for stage in own.encoder.layers for block in stage.blocks]
    for layer, block, weights in zip(layers, blocks, given, strict=True):
        side = layer.queries.grid.shape[0]
        states, _ = block.maybe_pad(number_patches(side, side), side, side)
        states = torch.roll(states, (-block.shift_size, -block.shift_size), (1, 2))
        numbers = modeling_swinv2.window_partition(states, block.window_size).flatten(1)
        numbers = patches(numbers)
        whole = put_back(weights.numpy(), numbers, numbers, (side**2, side**2))
        agree(layer, whole, coarse(AT, (side, side), (12, 12)))
    assert [block.shift_size for block in blocks] == [0, 2, 0, 2]


def test_mask_units_and_pooled_queries_of_hiera():
    sizes = {"embed_dim": 16, "image_size": [64, 64], "depths": [1, 2, 2], "num_heads": [1, 2, 4]}
    units = {"masked_unit_attention": [True, True, False], "masked_unit_size": [4, 4]}
    model, own = make("HieraModel", **sizes, **units, num_query_pool=2)
    pixels = torch.randn(1, 3, 64, 64)
    given = []
    for part in own.modules():
        if isinstance(part, modeling_hiera.HieraMaskUnitAttention):
            part.register_forward_hook(lambda part, _given, out: given.append((part, out[1])))
    eager(own, pixels)
    layers = read(model, pixels).layers
    numbers = modeling_hiera.unroll(
        number_patches(16, 16).reshape(1, 256, 1), (16, 16), (1, 1), own.unroll_schedule
    )
    numbers, side, found = patches(numbers)[0, :, 0], 16, []
    for layer, (part, weights) in zip(layers, given, strict=True):
        windows = weights.shape[2]
        asked = numbers.reshape(-1, windows).T
        asking, new_side = asked, side
        if part.query_stride > 1:
            # The strongest of four neighbours: they are one patch of a coarser grid.
            first = asked.reshape(windows, part.query_stride, -1)
            new_side = side // 2
            coarser = (first // side // 2) * new_side + first % side // 2
            assert (coarser == coarser[:, :1]).all()
            asking = coarser[:, 0]
        whole = put_back(weights[0].transpose(0, 1).numpy(), asking, asked, (new_side**2, side**2))
        agree(layer, whole, coarse(AT, (new_side, new_side), (16, 16)))
        numbers, side = asking.T.reshape(-1), new_side
        found.append((layer.windows, layer.queries.grid.shape[0], layer.keys.grid.shape[0]))
    assert found == [(16, 16, 16), (16, 8, 16), (16, 8, 8), (16, 4, 8), (1, 4, 4)]


@pytest.mark.parametrize(
    ("name", "sizes", "grids"),
    [
        (
            "SegformerModel",
            {
                "num_encoder_blocks": 2,
                "depths": [2, 2],
                "sr_ratios": [4, 2],
                "hidden_sizes": [16, 32],
                "patch_sizes": [7, 3],
                "strides": [4, 2],
                "num_attention_heads": [2, 4],
                "mlp_ratios": [2, 2],
            },
            [(16, 4), (16, 4), (8, 4), (8, 4)],
        ),
        (
            "PvtModel",
            {
                "image_size": 64,
                "num_encoder_blocks": 2,
                "depths": [2, 1],
                "sequence_reduction_ratios": [4, 1],
                "hidden_sizes": [16, 32],
                "patch_sizes": [4, 2],
                "strides": [4, 2],
                "num_attention_heads": [2, 4],
                "mlp_ratios": [2, 2],
            },
            [(16, 4), (16, 4), (8, 8)],
        ),
    ],
)
def test_keys_of_a_coarser_grid(name, sizes, grids):
    model, own = make(name, **sizes)
    pixels = torch.randn(1, 3, 64, 64)
    layers = read(model, pixels).layers
    for layer, weights, (queries, keys) in zip(layers, eager(own, pixels), grids, strict=True):
        assert layer.queries.grid.shape == (queries, queries)
        assert layer.keys.grid.shape == (keys, keys)
        whole, specials = weights[0].numpy(), len(layer.keys.names)
        place = coarse(AT, (queries, queries), (16, 16))
        np.testing.assert_allclose(layer.mean, whole[:, specials:].mean(1), atol=1e-5)
        np.testing.assert_allclose(layer.asked, whole[:, specials + place], atol=1e-5)


def test_detection_tokens_stand_before_the_patches():
    sizes = {**SMALL, "intermediate_size": 48, "image_size": [32, 48], "patch_size": 8}
    model, own = make("YolosModel", **sizes, num_detection_tokens=3)
    pixels = torch.randn(1, 3, 32, 48)
    layers = read(model, pixels).layers
    order = [0, 25, 26, 27, *range(1, 25)]
    for layer, weights in zip(layers, eager(own, pixels), strict=True):
        expected = weights[0].numpy()[:, order][:, :, order]
        np.testing.assert_allclose(layer.whole, expected, atol=1e-5)


def test_patches_of_mobilevit_lie_apart():
    sizes = {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [4, 8, 12, 16, 16, 16, 64]}
    model, own = make("MobileViTModel", **sizes, image_size=128)
    pixels = torch.randn(1, 3, 128, 128)
    layers, given = read(model, pixels).layers, []
    for part in own.modules():
        if type(part).__name__ == "MobileViTSelfAttention":
            part.query.register_forward_hook(lambda part, _given, out: given.append([out]))
            part.key.register_forward_hook(lambda part, _given, out: given[-1].append(out))
    with torch.no_grad():
        own(pixel_values=pixels)
    for layer, (query, key) in zip(layers, given, strict=True):
        side, heads = layer.queries.grid.shape[0], 4
        query, key = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, key))
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
        numbers = patches(number_patches(side, side)).reshape(side // 2, 2, side // 2, 2)
        numbers = numbers.transpose(1, 3, 0, 2).reshape(4, -1)
        whole = put_back(weights.detach().numpy(), numbers, numbers, (side**2, side**2))
        agree(layer, whole, coarse(AT, (side, side), layers[0].queries.grid.shape))
