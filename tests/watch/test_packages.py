"""Models of other packages with random weights; each test runs where the package is installed.

The reference is the model's own attention written out: its fused function is replaced by a softmax
in float64, which also writes down the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from attnviz import Result, watch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def written_out(noted: list[np.ndarray]) -> Callable[..., Any]:
    """The fused function in float64, which notes the weights of its first item."""

    def attend(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        heads = query.shape[1] // key.shape[1]
        assert dropout_p == 0
        assert enable_gqa or heads == 1
        scores = torch.einsum(
            "bhqd,bhkd->bhqk", query.double(), key.double().repeat_interleave(heads, 1)
        )
        scores *= query.shape[-1] ** -0.5 if scale is None else scale
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask.double()
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = powers / powers.sum(-1, keepdim=True)
        noted.append(weights[0].numpy())
        values = value.double().repeat_interleave(heads, 1)
        return torch.einsum("bhqk,bhkd->bhqd", weights, values).to(value.dtype)

    return attend


def check(
    model: torch.nn.Module, run: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> Result:
    """What is seen, where the bits stay and the weights are those of the function written out."""
    model.eval()
    noted: list[np.ndarray] = []
    with torch.no_grad():
        before = run()
        with watch(model) as seen:
            after = run()
        assert torch.equal(before, after)
        with monkeypatch.context() as patch:
            patch.setattr(F, "scaled_dot_product_attention", written_out(noted))
            again = run()
    assert (again - before).abs().max() < 1e-3
    assert not seen.seen.failures
    kept = seen.seen.kept
    assert len(kept) == len(noted) > 0
    for one, truth in zip(kept, noted, strict=True):
        assert one.weights.shape == truth.shape
        assert np.abs(one.weights - truth).max() < 1e-5
    return seen.attention()


def streams(result: Result) -> set[str]:
    return {item.stream for item in result.maps}


TEXT = (1, 7, 32)


def test_a_denoising_unet_of_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(1)
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        cross_attention_dim=32,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    latents, text = torch.randn(1, 4, 16, 16), torch.randn(TEXT)
    result = check(model, lambda: model(latents, 3, text).sample, monkeypatch)
    assert streams(result) == {"self", "cross"}
    assert result.map_of("cross").weights.shape[2:] == (256, 7)
    fused = result
    model.set_attn_processor(diffusers.models.attention_processor.AttnProcessor())
    with torch.no_grad(), watch(model) as seen:
        model(latents, 3, text)
    for one, other in zip(fused.maps, seen.attention().maps, strict=True):
        assert one.layers == other.layers
        assert np.abs(one.weights - other.weights).max() < 1e-5


def test_an_autoencoder_of_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(1)
    model = diffusers.AutoencoderKL(
        block_out_channels=(32, 32),
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    latents = torch.randn(1, 4, 8, 8)
    assert streams(check(model, lambda: model.decode(latents).sample, monkeypatch)) == {"self"}


def test_stable_diffusion_3(monkeypatch: pytest.MonkeyPatch) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(1)
    model = diffusers.SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=16,
        out_channels=4,
        pos_embed_max_size=8,
    )
    given = {
        "encoder_hidden_states": torch.randn(TEXT),
        "pooled_projections": torch.ones(1, 16),
        "timestep": torch.tensor([3]),
    }
    latents = torch.randn(1, 4, 8, 8)
    result = check(model, lambda: model(latents, **given).sample, monkeypatch)
    assert streams(result) == {"self"}  # of one sequence, pictures and text
    assert result.main.weights.shape == (2, 4, 23, 23)


def test_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(1)
    model = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
    )
    given = {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": torch.randn(TEXT),
        "pooled_projections": torch.ones(1, 16),
        "timestep": torch.tensor([0.3]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(7, 3),
    }
    result = check(model, lambda: model(**given).sample, monkeypatch)
    assert (streams(result), result.main.weights.shape) == ({"self"}, (2, 2, 23, 23))


def test_pixart(monkeypatch: pytest.MonkeyPatch) -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(1)
    model = diffusers.PixArtTransformer2DModel(
        sample_size=8,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        cross_attention_dim=32,
        caption_channels=32,
    )
    given = {
        "encoder_hidden_states": torch.randn(TEXT),
        "timestep": torch.tensor([3]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    latents = torch.randn(1, 4, 8, 8)
    result = check(model, lambda: model(latents, **given).sample, monkeypatch)
    assert streams(result) == {"self", "cross"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Encoder", {}),
        ("Decoder", {"rotary_pos_emb": True}),
        ("Decoder", {"alibi_pos_bias": True}),
        ("Decoder", {"attn_kv_heads": 1}),
        ("Decoder", {"attn_qk_norm": True}),
        ("Decoder", {"cross_attend": True}),
    ],
)
def test_x_transformers_by_hand_and_fused_agree(kind: str, options: dict[str, Any]) -> None:
    package = pytest.importorskip("x_transformers")
    found = []
    ids, other = torch.randint(30, (2, 7)), torch.randn(2, 7, 32)
    for flash in (False, True):
        torch.manual_seed(1)
        layers = getattr(package, kind)(dim=32, depth=2, heads=4, attn_flash=flash, **options)
        model = package.TransformerWrapper(num_tokens=30, max_seq_len=16, attn_layers=layers).eval()
        given = {"context": other} if "cross_attend" in options else {}
        with torch.no_grad():
            before = model(ids, **given)
            with watch(model) as seen:
                assert torch.equal(model(ids, **given), before)
        found.append(seen.attention())
        assert not seen.seen.failures
    by_hand, fused = found
    assert [item.stream for item in by_hand.maps] == [item.stream for item in fused.maps]
    for one, two in zip(by_hand.maps, fused.maps, strict=True):
        assert one.layers == two.layers
        assert np.abs(one.weights - two.weights).max() < 1e-5
    assert streams(fused) == (
        {"causal", "cross"} if given else {"self" if kind == "Encoder" else "causal"}
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("vit_tiny_patch16_224", 224),
        ("deit3_small_patch16_224", 224),
        ("eva02_tiny_patch14_224", 224),
        ("swin_tiny_patch4_window7_224", 224),
        ("maxvit_rmlp_pico_rw_256", 256),
        ("twins_svt_small", 224),
        ("mvitv2_tiny", 224),
        ("levit_128", 224),
    ],
)
def test_timm_by_hand_and_fused_agree(name: str, size: int) -> None:
    timm = pytest.importorskip("timm")
    found = []
    for fused in (0, 1):
        timm.layers.set_fused_attn(enable=bool(fused))
        torch.manual_seed(1)
        model, picture = timm.create_model(name).eval(), torch.randn(1, 3, size, size)
        with torch.no_grad():
            before = model(picture)
            with watch(model, max_size=64) as seen:
                assert torch.equal(model(picture), before)
        found.append(seen.attention())
        assert not seen.seen.failures
    for one, two in zip(*(result.maps for result in found), strict=True):
        assert (one.stream, one.layers) == (two.stream, two.layers)
        assert np.abs(one.weights - two.weights).max() < 1e-5
