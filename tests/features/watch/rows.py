"""Small random models of other packages, none of them transformers' text families.

Each row says how its model is made from its package, what it is given, and what is to be seen of
it: which streams, in how many calls of an attention.
"""

from ast import literal_eval
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        package: what is installed; `module` is what is imported, where its name is another.
        make: the model, of the module.
        inputs: what it is given, by position and by name.
        seen: the streams, and how many calls of an attention there are.
        exact: in what the model written out runs: in float32 where float64 would not run or makes
            another model.
        half: whether it runs in bfloat16 too.
        windows: how many windows stand between heads and queries; an item is one of them.
        others: which of its softmaxes over the last axis are no attention, by number.
    """

    package: str
    name: str
    make: Callable[[Any], nn.Module]
    inputs: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    seen: tuple[str, int]
    module: str = ""
    exact: torch.dtype = torch.float64
    half: bool = True
    others: tuple[int, ...] = ()
    windows: int = 1

    def __str__(self) -> str:
        return f"{self.package}: {self.name}"

    @property
    def imported(self) -> str:
        """The module that is imported."""
        return self.module or self.package.replace("-", "_")


def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def noise(*shape: int) -> Callable[[], Any]:
    """One input of random numbers."""
    return lambda: given(torch.randn(*shape))


def ids(*shape: int, high: int = 20) -> Any:
    return torch.randint(1, high, shape)


def options_in(written: str) -> dict[str, Any]:
    """The options in words like "depth=2 sizes=(4,4) kind=rotary"."""
    pairs = (word.partition("=") for word in written.split())
    return {
        name: value if value.isalpha() and value.islower() else literal_eval(value)
        for name, _, value in pairs
    }


PICTURE = noise(2, 3, 32, 32)


class Calls(nn.Module):
    """A model that is called by another name or returns more than tensors."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self.model, *args, **kwargs)


# --- diffusers

UNET: dict[str, Any] = {
    "sample_size": 16,
    "layers_per_block": 1,
    "block_out_channels": (32, 64),
    "norm_num_groups": 8,
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}


def unet(package: Any, **options: Any) -> Any:
    return package.UNet2DConditionModel(**(UNET | options))


def unet_written_out(package: Any) -> Any:
    model = unet(package)
    model.set_attn_processor(package.models.attention_processor.AttnProcessor())
    return model


def sd3(package: Any) -> Any:
    return package.SD3Transformer2DModel(
        **options_in(
            "sample_size=8 in_channels=4 num_layers=2 attention_head_dim=8 num_attention_heads=4"
            " joint_attention_dim=32 caption_projection_dim=32 pooled_projection_dim=16"
            " out_channels=4 pos_embed_max_size=8"
        )
    )


def sd3_inputs() -> Any:
    return given(
        torch.randn(2, 4, 8, 8),
        encoder_hidden_states=torch.randn(2, 7, 32),
        pooled_projections=torch.ones(2, 16),
        timestep=torch.tensor([3, 3]),
    )


def flux(package: Any) -> Any:
    return package.FluxTransformer2DModel(
        **options_in(
            "in_channels=4 num_layers=1 num_single_layers=1 attention_head_dim=16"
            " num_attention_heads=2 joint_attention_dim=32 pooled_projection_dim=16"
            " axes_dims_rope=(4,4,8)"
        )
    )


def flux_inputs() -> Any:
    return given(
        hidden_states=torch.randn(2, 16, 4),
        encoder_hidden_states=torch.randn(2, 7, 32),
        pooled_projections=torch.ones(2, 16),
        timestep=torch.tensor([0.3, 0.3]),
        img_ids=torch.zeros(16, 3),
        txt_ids=torch.zeros(7, 3),
    )


def denoised() -> Any:
    return given(torch.randn(2, 4, 16, 16), 3, torch.randn(2, 7, 32))


def decoded(package: Any) -> Any:
    model = package.AutoencoderKL(
        block_out_channels=(32, 32),
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return Calls(model, lambda model, latents: model.decode(latents))


DIFFUSERS = [
    Row("diffusers", "UNet2DConditionModel", unet, denoised, ("cross self", 8)),
    Row("diffusers", "UNet2DConditionModel, sliced", unet_written_out, denoised, ("cross self", 8)),
    Row("diffusers", "AutoencoderKL", decoded, noise(2, 4, 8, 8), ("self", 1)),
    Row("diffusers", "SD3Transformer2DModel", sd3, sd3_inputs, ("self", 2)),
    Row("diffusers", "FluxTransformer2DModel", flux, flux_inputs, ("self", 2)),
]

# --- x-transformers


def x_transformer(kind: str, **options: Any) -> Callable[[Any], Any]:
    def make(package: Any) -> Any:
        layers = getattr(package, kind)(dim=32, depth=2, heads=4, **options)
        return package.TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)

    return make


def x_row(name: str, kind: str, seen: tuple[str, int], inputs: Any = None, **options: Any) -> Row:
    make = x_transformer(kind, **options)
    return Row("x-transformers", name, make, inputs or (lambda: given(ids(2, 7))), seen)


def with_context() -> Any:
    return given(ids(2, 7), context=torch.randn(2, 7, 32))


X_TRANSFORMERS = [
    x_row("Encoder", "Encoder", ("self", 2)),
    x_row("Decoder, rotary", "Decoder", ("causal", 2), rotary_pos_emb=True),
    x_row("Decoder, ALiBi", "Decoder", ("causal", 2), alibi_pos_bias=True),
    x_row("Decoder, grouped", "Decoder", ("causal", 2), attn_kv_heads=1, attn_flash=True),
    x_row("Decoder, cross", "Decoder", ("causal cross", 4), with_context, cross_attend=True),
]

# --- pictures


def timm(name: str, **options: Any) -> Callable[[Any], Any]:
    return lambda package: package.create_model(name, num_classes=5, **options)


def timm_row(name: str, calls: int, size: int = 64, streams: str = "self", **options: Any) -> Row:
    return Row("timm", name, timm(name, **options), noise(2, 3, size, size), (streams, calls))


TIMM = [
    timm_row("vit_tiny_patch16_224", 2, img_size=64, depth=2),
    timm_row("eva02_tiny_patch14_224", 2, size=56, img_size=56, depth=2),
    timm_row("swin_tiny_patch4_window7_224", 3, img_size=64, depths=(1, 1, 1), window_size=4),
    timm_row("beit_base_patch16_224", 2, img_size=64, depth=2, embed_dim=96, num_heads=3),
    timm_row("levit_128", 14, size=224, streams="cross self"),
]


def vit(module: str, name: str, **options: Any) -> Callable[[Any], Any]:
    base = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2}
    base |= {"heads": 4, "mlp_dim": 32} | options
    base = {key: value for key, value in base.items() if value is not None}

    def make(_: Any) -> Any:
        return getattr(import_module(f"vit_pytorch.{module}"), name)(**base)

    return make


def vit_row(module: str, name: str, calls: int, inputs: Any = PICTURE, **options: Any) -> Row:
    streams = options.pop("streams", "self")
    make = vit(module, name, **options)
    return Row("vit-pytorch", f"{module}.{name}", make, inputs, (streams, calls))


VIT_PYTORCH = [
    vit_row("vit", "ViT", 2),
    vit_row("simple_flash_attn_vit", "SimpleViT", 2),
    vit_row("parallel_vit", "ViT", 4),
    vit_row("vit_with_patch_merger", "ViT", 3, streams="cross self"),
    vit_row("vit_for_small_dataset", "ViT", 2),
    vit_row("learnable_memory_vit", "ViT", 2),
    vit_row("vit_3d", "ViT", 2, noise(2, 3, 4, 32, 32), frames=4, frame_patch_size=2,
            image_patch_size=8, patch_size=None),
]  # fmt: skip


def from_(path: str, options: str) -> Callable[[Any], Any]:
    """Make the object named "module:name" with options."""
    home, _, name = path.partition(":")
    return lambda _: getattr(import_module(home), name)(**options_in(options))


def row(
    path: str,
    options: str,
    inputs: Any,
    seen: str,
    *,
    package: str = "",
    name: str = "",
    **more: Any,
) -> Row:
    """The row of the object named "module:name", made with options; seen as in "cross self 4"."""
    streams, _, calls = seen.rpartition(" ")
    home, _, own = path.partition(":")
    root = home.partition(".")[0]
    package, name = package or root.replace("_", "-"), name or own
    return Row(package, name, from_(path, options), inputs, (streams, int(calls)), root, **more)


def open_clip(package: Any) -> Any:
    vision = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 8}
    text = {"context_length": 9, "vocab_size": 20, "width": 32, "heads": 4, "layers": 2}
    return package.CLIP(16, vision, text)


NO_MORE = ("futr_exog", "hist_exog", "stat_exog")


def forecast(name: str, **options: Any) -> Callable[[Any], Any]:
    base = {"h": 4, "input_size": 24, "max_steps": 1} | options

    def make(package: Any) -> Any:
        model = getattr(import_module("neuralforecast.models"), name)(**base)
        return Calls(model, lambda model, y: model({"insample_y": y} | dict.fromkeys(NO_MORE)))

    return make


def fusion(package: Any) -> Any:
    return package.TemporalFusionTransformer(
        hidden_size=16,
        attention_head_size=4,
        dropout=0.0,
        hidden_continuous_size=8,
        output_size=3,
        x_reals=["t", "y"],
        time_varying_reals_encoder=["t", "y"],
        time_varying_reals_decoder=["t"],
        output_transformer=lambda given: given["prediction"],
    )


def fusion_inputs() -> Any:
    sides = {}
    for side, length in (("encoder", 12), ("decoder", 4)):
        sides[f"{side}_cat"] = torch.zeros(2, length, 0, dtype=torch.long)
        sides[f"{side}_cont"] = torch.randn(2, length, 2)
        sides[f"{side}_lengths"] = torch.tensor([length, length - 2])
    return given(sides | {"target_scale": torch.ones(2, 2)})


OTHERS = [
    Row(
        "open_clip_torch",
        "CLIP",
        open_clip,
        lambda: given(torch.randn(2, 3, 32, 32), ids(2, 9)),
        ("causal self", 4),
        "open_clip",
    ),
    row(
        "open_clip.transformer:MultimodalTransformer",
        "width=32 layers=2 heads=4 context_length=9 output_dim=8",
        lambda: given(torch.randn(2, 17, 32), torch.randn(2, 9, 32)),
        "causal cross 4",
        package="open_clip_torch",
        name="CoCa text",
    ),
    row("torchvision.models:SwinTransformer",
        "patch_size=[4,4] embed_dim=32 depths=[1,1] num_heads=[2,4] window_size=[4,4]", PICTURE,
        "self 2"),
    row(
        "perceiver_pytorch:Perceiver",
        "num_freq_bands=4 depth=2 max_freq=10.0 num_latents=6 latent_dim=32 latent_heads=4",
        lambda: given(torch.randn(2, 8, 8, 3)),
        "cross self 4",
    ),
    row("linformer:Linformer", "dim=32 seq_len=16 depth=2 k=4 heads=4", noise(2, 16, 32),
        "cross 2"),
    row(
        "local_attention:LocalTransformer",
        "num_tokens=20 max_seq_len=16 dim=32 depth=2 heads=4 local_attn_window_size=8",
        lambda: given(ids(2, 16)),
        "cross 2",
        half=False,
        windows=2,
    ),
    row("axial_attention:AxialAttention", "dim=32 heads=4 dim_index=1", noise(2, 32, 5, 6),
        "self 2"),
    row(
        "esm:ESM2",
        "num_layers=2 embed_dim=32 attention_heads=4",
        lambda: given(ids(2, 9, high=24) + 4),
        "self 2",
        package="fair-esm",
        name="ESM-2",
    ),
    row(
        "rtdl_revisiting_models:FTTransformer",
        "n_cont_features=5 cat_cardinalities=[3,4] d_out=2 n_blocks=2 d_block=32"
        " attention_n_heads=4 attention_dropout=0.0 ffn_d_hidden_multiplier=2.0"
        " ffn_dropout=0.0 residual_dropout=0.0",
        lambda: given(torch.randn(2, 5), ids(2, 2, high=3)),
        "cross self 2",
        package="rtdl_revisiting_models",
    ),
    row("segment_anything.modeling:ImageEncoderViT",
        "img_size=64 patch_size=8 embed_dim=32 depth=2 num_heads=4 out_chans=8"
        " window_size=4 use_rel_pos=True global_attn_indexes=(1,)", noise(2, 3, 64, 64), "self 2"),
    row(
        "segment_anything.modeling:TwoWayTransformer",
        "depth=2 embedding_dim=32 num_heads=4 mlp_dim=32",
        lambda: given(torch.randn(2, 32, 4, 4), torch.randn(2, 32, 4, 4), torch.randn(2, 5, 32)),
        "cross self 7",
    ),
    row("conformer:Conformer", "dim=32 depth=2 dim_head=8 heads=4", noise(2, 9, 32), "self 2"),
    row("iTransformer:iTransformer",
        "num_variates=5 lookback_len=16 depth=2 dim=32 pred_length=4 dim_head=8 flash_attn=False",
        noise(2, 16, 5), "self 2", name="iTransformer, by hand"),
    row("iTransformer:iTransformer2D",
        "num_variates=5 lookback_len=16 num_time_tokens=4 depth=1 dim=32 pred_length=4 dim_head=8",
        noise(2, 16, 5), "causal self 2"),
    row(
        "demucs.transformer:CrossTransformerEncoder",
        "dim=32 num_heads=4 num_layers=2",
        lambda: given(torch.randn(2, 32, 3, 4), torch.randn(2, 32, 9)),
        "cross self 4",
        half=False,
    ),
    row(
        "denoising_diffusion_pytorch:Unet",
        "dim=32 dim_mults=(1,2)",
        lambda: given(torch.randn(2, 3, 16, 16), torch.tensor([3, 3])),
        "cross 3",
        exact=torch.float32,
        half=False,
        others=(0, 4),
    ),
    row(
        "coca_pytorch:CoCa",
        "dim=32 num_tokens=20 unimodal_depth=1 multimodal_depth=1"
        " num_img_queries=5 dim_head=8 heads=4",
        lambda: given(ids(2, 9), image_tokens=torch.randn(2, 6, 32)),
        "causal cross 4",
    ),
    Row("pytorch-forecasting", "TemporalFusionTransformer", fusion, fusion_inputs, ("cross", 4),
        others=(0,)),
    Row("neuralforecast", "Informer", forecast("Informer", hidden_size=32, n_head=4),
        noise(2, 24, 1), ("cross", 4), half=False),
    Row("neuralforecast", "TFT", forecast("TFT", hidden_size=32, n_head=4), noise(2, 28, 1),
        ("causal cross self", 3), exact=torch.float32, half=False),
]  # fmt: skip


def hf(kind: str, config: str, written: str, **options: Any) -> Callable[[Any], Any]:
    options |= options_in(written)
    return lambda package: getattr(package, kind)(getattr(package, config)(**options))


SERIES = {"context_length": 16, "prediction_length": 4, "d_model": 32}


def informer_inputs() -> Any:
    return given(
        past_values=torch.randn(2, 23),
        past_time_features=torch.randn(2, 23, 1),
        past_observed_mask=torch.ones(2, 23),
        future_values=torch.randn(2, 4),
        future_time_features=torch.randn(2, 4, 1),
    )


INFORMER = SERIES | options_in(
    "num_time_features=1 encoder_layers=2 decoder_layers=1 encoder_attention_heads=4"
    " decoder_attention_heads=4 encoder_ffn_dim=32 decoder_ffn_dim=32"
)
TRANSFORMERS = [
    Row("transformers", "PatchTST", hf("PatchTSTForPrediction", "PatchTSTConfig",
        "num_input_channels=2 patch_length=4 patch_stride=4 num_attention_heads=4"
        " ffn_dim=32 num_hidden_layers=2", **SERIES), noise(2, 16, 2), ("self", 2)),
    Row("transformers", "Informer", hf("InformerForPrediction", "InformerConfig", "", **INFORMER),
        informer_inputs, ("cross self", 4)),
    Row("transformers", "TimeSeriesTransformer",
        hf("TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig", "", **INFORMER),
        informer_inputs, ("causal cross self", 4)),
    Row(
        "transformers",
        "Whisper",
        hf(
            "WhisperModel",
            "WhisperConfig",
            "vocab_size=20 d_model=32 encoder_layers=1 decoder_layers=1"
            " encoder_attention_heads=4 decoder_attention_heads=4 encoder_ffn_dim=32"
            " decoder_ffn_dim=32 num_mel_bins=8 max_source_positions=16"
            " max_target_positions=16 pad_token_id=0 decoder_start_token_id=1",
        ),
        lambda: given(torch.randn(2, 8, 32), decoder_input_ids=ids(2, 5)),
        ("causal cross self", 3),
    ),
]  # fmt: skip

ROWS = [*DIFFUSERS, *X_TRANSFORMERS, *TIMM, *VIT_PYTORCH, *OTHERS, *TRANSFORMERS]

LINEAR = [
    row(
        "kornia.feature:LoFTR",
        "pretrained=None",
        lambda: given({"image0": torch.randn(1, 1, 32, 32), "image1": torch.randn(1, 1, 32, 32)}),
        "none 0",
    ),
    row("performer_pytorch:Performer", "dim=32 depth=1 heads=4 dim_head=8", noise(2, 9, 32),
        "none 0"),
    row("linear_attention_transformer:LinearAttentionTransformer",
        "dim=32 depth=1 max_seq_len=16 heads=4", noise(2, 16, 32), "none 0"),
]  # fmt: skip

DOCUMENT = Path(__file__).parents[3] / "docs" / "tables" / "packages.md"


def document() -> Iterator[str]:
    """The documentation's table of models, line by line."""
    yield "| package | model | streams | attention calls |"
    yield "|---|---|---|---|"
    for row in sorted(ROWS, key=lambda row: str(row).lower()):
        yield f"| {row.package} | {row.name} | {row.seen[0].replace(' ', ', ')} | {row.seen[1]} |"


def main() -> None:
    """Write the table into the documentation, in place of the one that is there."""
    before = DOCUMENT.read_text(encoding="utf-8").split("| package |")[0]
    DOCUMENT.write_text(before + "\n".join(document()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
