"""Small models of pictures and text with random weights and real processors, saved as folders.

Each family is a row: how its tokens see a picture, and how a tiny one is made. The table
in docs/tables/picture-text.md is written by `python -m tests.features.picture_text.tiny_pictures`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers as t
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.video_utils import VideoMetadata

from attnviz.core.options import InMemoryModel
from attnviz.features.picture_text.layouts import BY_FAMILY, LAYOUTS
from tests.features.vision.tiny_vision import build
from tests.hugging_face.tiny_models import byte_pieces

TEXT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
    "max_position_embeddings": 1024,
}  # fmt: skip
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
SQUARE = {"size": {"height": 32, "width": 32}}


@dataclass(frozen=True, slots=True)
class PictureFamily:
    """A family as it is built for tests: `sheets` is how a picture of 60 × 40 pixels is seen."""

    build: Callable[[Path], Path | InMemoryModel]
    sheets: str
    pictures: bool = True  # whether it reads several
    video: bool = False  # whether it reads frames
    double: bool = True  # whether it runs in float64 too


def words(**named: str) -> Any:
    """A tokenizer that knows special tokens by name."""
    made = byte_pieces()
    return t.PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer,
        **{f"{one}_token": getattr(made, f"{one}_token") for one in ("bos", "eos", "pad", "unk")},
        extra_special_tokens={f"{name}_token": text for name, text in named.items()},
    )


def number(tokenizer: Any, text: str) -> int:
    return int(tokenizer.convert_tokens_to_ids(text))


def language(tokenizer: Any, kind: Any = t.LlamaConfig, **more: Any) -> Any:
    return kind(vocab_size=len(tokenizer), **{**TEXT, **more})


def llava(folder: Path, kind: str = "Llava", **more: Any) -> Path:
    tokenizer = words(image="<image>")
    config = getattr(t, f"{kind}Config")(
        vision_config=t.CLIPVisionConfig(**TOWER),
        text_config=language(tokenizer),
        image_token_index=number(tokenizer, "<image>"),
        **more,
    )
    processor = t.LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return build(folder, f"{kind}ForConditionalGeneration", config, processor)


PINPOINTS = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]


def llava_next(folder: Path) -> Path:
    tokenizer = words(image="<image>")
    config = t.LlavaNextConfig(
        vision_config=t.CLIPVisionConfig(**TOWER),
        text_config=language(tokenizer),
        image_token_index=number(tokenizer, "<image>"),
        image_grid_pinpoints=PINPOINTS,
    )
    processor = t.LlavaNextProcessor(
        image_processor=LlavaNextImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32},
            image_grid_pinpoints=PINPOINTS,
        ),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )  # fmt: skip
    return build(folder, "LlavaNextForConditionalGeneration", config, processor)


def without_video(kind: Any, *parts: Any, **more: Any) -> Any:
    """A processor as attnviz loads it where torchvision is not there."""
    from attnviz.features.picture_text.source import without_videos

    return without_videos(kind)(*parts, **more)


def llava_onevision(folder: Path) -> Path:
    tokenizer = words(image="<image>", video="<video>")
    config = t.LlavaOnevisionConfig(
        vision_config=t.SiglipVisionConfig(**TOWER, vision_use_head=False),
        text_config=language(tokenizer, t.Qwen2Config),
        image_token_index=number(tokenizer, "<image>"),
        video_token_index=number(tokenizer, "<video>"),
        image_grid_pinpoints=PINPOINTS,
        vision_aspect_ratio="anyres_max_9",
    )
    processor = without_video(
        t.LlavaOnevisionProcessor,
        LlavaOnevisionImageProcessorPil(**SQUARE, image_grid_pinpoints=PINPOINTS),
        tokenizer,
        num_image_tokens=16,
        vision_feature_select_strategy="full",
    )
    return build(folder, "LlavaOnevisionForConditionalGeneration", config, processor)


def qwen(
    folder: Path, kind: str, vision: dict[str, Any], text: dict[str, Any], reader: str = ""
) -> Path:
    marks = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    marks |= {"vision_bos": "<|vision_start|>", "vision_eos": "<|vision_end|>"}
    tokenizer = words(**marks)
    sides = {"patch_size": 8, "temporal_patch_size": 2, "spatial_merge_size": 2}
    config_kind = getattr(t, f"{kind}Config")
    config = config_kind(
        vision_config={**sides, **vision},
        text_config={**TEXT, "vocab_size": len(tokenizer), **text},
        image_token_id=number(tokenizer, "<|image_pad|>"),
        video_token_id=number(tokenizer, "<|video_pad|>"),
        vision_start_token_id=number(tokenizer, "<|vision_start|>"),
        vision_end_token_id=number(tokenizer, "<|vision_end|>"),
    )
    processor = without_video(
        getattr(t, f"{reader or kind}Processor"),
        Qwen2VLImageProcessorPil(
            patch_size=8, merge_size=2, size={"shortest_edge": 256, "longest_edge": 64 * 64}
        ),
        tokenizer,
    )
    return build(folder, f"{kind}ForConditionalGeneration", config, processor)


ROPE = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}


def qwen2_vl(folder: Path) -> Path:
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2}
    return qwen(folder, "Qwen2VL", vision, ROPE)


def qwen2_5_vl(folder: Path) -> Path:
    vision = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4,
              "intermediate_size": 48, "window_size": 16, "fullatt_block_indexes": [1]}  # fmt: skip
    return qwen(folder, "Qwen2_5_VL", vision, ROPE)


QWEN3 = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4,
         "intermediate_size": 48, "num_position_embeddings": 64,
         "deepstack_visual_indexes": [0]}  # fmt: skip


def qwen3_vl(folder: Path) -> Path:
    return qwen(folder, "Qwen3VL", QWEN3, {**ROPE, "head_dim": 8})


def gemma3(folder: Path) -> Path:
    tokenizer = words(image="<image>", boi="<boi>", eoi="<eoi>")
    config = t.Gemma3Config(
        vision_config=t.SiglipVisionConfig(**TOWER, vision_use_head=False),
        text_config=language(tokenizer, t.Gemma3TextConfig, head_dim=8),
        mm_tokens_per_image=4,
        image_token_index=number(tokenizer, "<image>"),
        boi_token_index=number(tokenizer, "<boi>"),
        eoi_token_index=number(tokenizer, "<eoi>"),
    )
    processor = t.Gemma3Processor(Gemma3ImageProcessorPil(**SQUARE), tokenizer, image_seq_length=4)
    return build(folder, "Gemma3ForConditionalGeneration", config, processor)


def paligemma(folder: Path) -> Path:
    tokenizer = words(image="<image>")
    images = SiglipImageProcessorPil(**SQUARE)
    images.image_seq_length = 16
    processor = t.PaliGemmaProcessor(images, tokenizer)
    config = t.PaliGemmaConfig(
        vision_config=t.SiglipVisionConfig(**TOWER, vision_use_head=False, projection_dim=32),
        text_config=language(tokenizer, t.GemmaConfig, head_dim=8),
        image_token_index=number(tokenizer, "<image>"),
        projection_dim=32,
    )
    return build(folder, "PaliGemmaForConditionalGeneration", config, processor)


def idefics3(folder: Path, kind: str = "Idefics3") -> Path:
    rows = [f"<row_{row + 1}_col_{column + 1}>" for row in range(6) for column in range(6)]
    tokenizer = words(global_img="<global-img>")
    tokenizer.add_special_tokens({"additional_special_tokens": rows})
    processor = t.Idefics3Processor(
        Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}),
        tokenizer,
        image_seq_len=4,
    )
    config = getattr(t, f"{kind}Config")(
        vision_config=TOWER,
        text_config=language(tokenizer),
        image_token_id=number(tokenizer, "<image>"),
        scale_factor=2,
        pad_token_id=1,
    )
    return build(folder, f"{kind}ForConditionalGeneration", config, processor)


def internvl(folder: Path) -> Path:
    tokenizer = words(
        start_image="<img>", end_image="</img>", context_image="<IMG_CONTEXT>", video="<video>"
    )
    vision = {**TOWER, "image_size": [32, 32], "patch_size": [8, 8]}
    config = t.InternVLConfig(
        vision_config=t.InternVLVisionConfig(**vision),
        text_config=language(tokenizer, t.Qwen2Config),
        image_token_id=number(tokenizer, "<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    processor = without_video(
        t.InternVLProcessor,
        GotOcr2ImageProcessorPil(**SQUARE, crop_to_patches=True, max_patches=6),
        tokenizer,
        image_seq_length=4,
    )
    return build(folder, "InternVLForConditionalGeneration", config, processor)


def aya_vision(folder: Path) -> Path:
    marks = {"image": "<image>", "start_of_img": "<|START_OF_IMG|>", "end_of_img": "<|END_OF_IMG|>"}
    tokenizer = words(**marks, img_patch="<|IMG_PATCH|>", tile="TILE", tile_global="TILE_GLOBAL")
    config = t.AyaVisionConfig(
        vision_config=t.SiglipVisionConfig(**TOWER, vision_use_head=False),
        text_config=language(tokenizer, t.CohereConfig),
        image_token_index=number(tokenizer, "<|IMG_PATCH|>"),
        downsample_factor=2,
    )
    processor = t.AyaVisionProcessor(
        GotOcr2ImageProcessorPil(**SQUARE, crop_to_patches=True, max_patches=6),
        tokenizer,
        patch_size=8,
        img_size=32,
        downsample_factor=2,
    )
    return build(folder, "AyaVisionForConditionalGeneration", config, processor)


def blip_2(folder: Path, text: dict[str, Any] | None = None) -> Path:
    tokenizer = words()
    processor = t.Blip2Processor(BlipImageProcessorPil(**SQUARE), tokenizer, num_query_tokens=5)
    config = t.Blip2Config(
        vision_config=t.Blip2VisionConfig(**TOWER).to_dict(),
        qformer_config={**FORMER, "encoder_hidden_size": 32, "vocab_size": len(tokenizer)},
        text_config=text or opt(tokenizer),
        num_query_tokens=5,
        image_token_index=number(tokenizer, "<image>"),
    )
    return build(folder, "Blip2ForConditionalGeneration", config, processor)


FORMER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 48, "cross_attention_frequency": 1, "bos_token_id": 0,
          "eos_token_id": 2, "pad_token_id": 1}  # fmt: skip


def opt(tokenizer: Any) -> dict[str, Any]:
    config = t.OPTConfig(
        vocab_size=len(tokenizer), hidden_size=32, ffn_dim=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=256, word_embed_proj_dim=32,
        bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    return dict(config.to_dict())


def instructblip(folder: Path) -> Path:
    tokenizer = words()
    processor = t.InstructBlipProcessor(
        BlipImageProcessorPil(**SQUARE), tokenizer, words(), num_query_tokens=5
    )
    config = t.InstructBlipConfig(
        vision_config=t.InstructBlipVisionConfig(**TOWER).to_dict(),
        qformer_config={**FORMER, "encoder_hidden_size": 32, "vocab_size": len(tokenizer)},
        text_config=opt(tokenizer),
        num_query_tokens=5,
        image_token_index=number(tokenizer, "<image>"),
    )
    return build(folder, "InstructBlipForConditionalGeneration", config, processor)


def florence2(folder: Path) -> Path:
    tokenizer = words(image="<image>")
    vision = t.Florence2VisionConfig(
        depths=[1, 1], patch_size=[7, 3], patch_stride=[4, 2], patch_padding=[3, 1],
        patch_prenorm=[False, True], embed_dim=[16, 32], num_heads=[2, 4], num_groups=[2, 4],
        window_size=4, projection_dim=32, max_temporal_embeddings=4, max_position_embeddings=8,
    )  # fmt: skip
    text = t.BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=128, bos_token_id=0, eos_token_id=2,
        pad_token_id=1, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    config = t.Florence2Config(
        vision_config=vision, text_config=text.to_dict(),
        image_token_id=number(tokenizer, "<image>"),
    )  # fmt: skip
    images = CLIPImageProcessorPil(**SQUARE, do_center_crop=False)
    images.image_seq_length = 17
    processor = t.Florence2Processor(images, tokenizer)
    return build(folder, "Florence2ForConditionalGeneration", config, processor)


class RowsReader:
    """Pixtral's processor where torchvision, which transformers' own needs, is not there."""

    image_token, chat_template = "[IMG]", None

    def __init__(self, images: Any, tokenizer: Any, side: int) -> None:
        self.image_processor, self.tokenizer, self.side = images, tokenizer, side

    def __call__(self, text: str, images: Any, return_tensors: str) -> dict[str, Any]:
        sides = {"height": self.side, "width": self.side}
        flat = images[0] if isinstance(images, list) else [images]
        made = self.image_processor(flat, patch_size=sides, return_tensors=return_tensors)
        for high, wide in made["image_sizes"].tolist():
            row = "[IMG]" * (wide // self.side)
            rows = "[IMG_BREAK]".join([row] * (high // self.side)).replace("[IMG]", "[DONE]")
            text = text.replace("[IMG]", f"{rows}[IMG_END]", 1)
        ids = self.tokenizer(text.replace("[DONE]", "[IMG]"), return_tensors=return_tensors)
        return {**ids, "pixel_values": made["pixel_values"], "image_sizes": made["image_sizes"]}


def mistral3(folder: Path, kind: str = "Mistral3", merge: int = 2) -> InMemoryModel:
    tokenizer = words(image="[IMG]", image_break="[IMG_BREAK]", image_end="[IMG_END]")
    own = {"spatial_merge_size": merge} if kind == "Mistral3" else {}
    config = getattr(t, f"{kind}Config")(
        vision_config=t.PixtralVisionConfig(**{**TOWER, "image_size": 64, "head_dim": 8}),
        text_config=language(tokenizer, t.MistralConfig, head_dim=8),
        image_token_index=number(tokenizer, "[IMG]"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        **own,
    )
    images = PixtralImageProcessorPil(
        size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}
    )
    build(folder, f"{kind}ForConditionalGeneration", config, images)
    model = getattr(t, f"{kind}ForConditionalGeneration").from_pretrained(folder).eval()
    model.generation_config.suppress_tokens = [number(tokenizer, "[IMG]")]  # as trained ones do
    return InMemoryModel(model, RowsReader(images, tokenizer, 8 * merge))


def qwen3_vl_moe(folder: Path) -> Path:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return qwen(folder, "Qwen3VLMoe", QWEN3, {**ROPE, "head_dim": 8, **experts}, "Qwen3VL")


def glm4v(folder: Path) -> Path:
    tokenizer = words(image="<|image|>", video="<|video|>")
    marks = {"begin_of_image": "start", "end_of_image": "end"}
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{mark}|>" for mark in marks]})
    config = t.Glm4vConfig(
        vision_config={"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4,
                       "intermediate_size": 48, "patch_size": 8, "image_size": 64},
        text_config={**TEXT, "vocab_size": len(tokenizer), **ROPE},
        image_token_id=number(tokenizer, "<|image|>"),
        video_token_id=number(tokenizer, "<|video|>"),
        image_start_token_id=number(tokenizer, "<|begin_of_image|>"),
        image_end_token_id=number(tokenizer, "<|end_of_image|>"),
    )  # fmt: skip
    processor = without_video(
        t.Glm4vProcessor,
        Glm4vImageProcessorPil(
            patch_size=8, merge_size=2, size={"shortest_edge": 512, "longest_edge": 2 * 64 * 64}
        ),
        tokenizer,
    )
    return build(folder, "Glm4vForConditionalGeneration", config, processor)


def janus(folder: Path) -> Path:
    tokenizer = words(image="<image>", boi="<boi>", eoi="<eoi>")
    config = t.JanusConfig(
        vision_config=t.JanusVisionConfig(**TOWER, projection_dim=32, num_image_tokens=16),
        vq_config={"embed_dim": 8, "num_embeddings": 16, "base_channels": 32,
                   "channel_multiplier": [1, 1], "num_res_blocks": 1, "projection_dim": 32},
        text_config=language(tokenizer),
        image_token_id=number(tokenizer, "<image>"),
    )  # fmt: skip
    images = JanusImageProcessorPil(**SQUARE, min_size=8)
    processor = t.JanusProcessor(images, tokenizer, num_image_tokens=16)
    return build(folder, "JanusForConditionalGeneration", config, processor)


def captioner(folder: Path, encoder: Any = None, images: Any = None) -> Path:
    """A GPT-2 that looks at what a vision model reads, ViT if none is given."""
    tokenizer = words()
    decoder = t.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4,
                           n_positions=64, add_cross_attention=True)  # fmt: skip
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder or t.ViTConfig(**TOWER), decoder
    )
    ends = {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    for name, token in ends.items():
        setattr(config, name, token)
    processor = t.TrOCRProcessor(images or ViTImageProcessorPil(**SQUARE), tokenizer)
    return build(folder, "VisionEncoderDecoderModel", config, processor)


PICTURE_FAMILIES = {
    "llava": PictureFamily(llava, "4 × 4"),
    "vipllava": PictureFamily(
        partial(llava, kind="VipLlava", vision_feature_layers=[-1, -2]), "4 × 4"
    ),
    "llava_next": PictureFamily(llava_next, "picture tiles 6 × 8; picture overview 4 × 4"),
    "llava_onevision": PictureFamily(
        llava_onevision, "picture tiles 6 × 8; picture overview 4 × 4", video=True
    ),
    "qwen2_vl": PictureFamily(qwen2_vl, "2 × 4", video=True),
    "qwen2_5_vl": PictureFamily(qwen2_5_vl, "2 × 4", video=True),
    "qwen3_vl": PictureFamily(qwen3_vl, "2 × 4", video=True),
    "gemma3": PictureFamily(gemma3, "2 × 2"),
    "paligemma": PictureFamily(paligemma, "4 × 4"),
    "idefics3": PictureFamily(idefics3, "picture tiles 4 × 4; picture overview 2 × 2"),
    "smolvlm": PictureFamily(
        partial(idefics3, kind="SmolVLM"), "picture tiles 4 × 4; picture overview 2 × 2"
    ),
    "internvl": PictureFamily(internvl, "picture tiles 4 × 6; picture overview 2 × 2", video=True),
    "aya_vision": PictureFamily(aya_vision, "picture tiles 4 × 6; picture overview 2 × 2"),
    "mistral3": PictureFamily(mistral3, "3 × 4"),
    "pixtral": PictureFamily(partial(mistral3, kind="Llava", merge=1), "5 × 8"),
    "qwen3_vl_moe": PictureFamily(qwen3_vl_moe, "2 × 4", video=True),
    "glm4v": PictureFamily(glm4v, "2 × 4", double=False),
    "janus": PictureFamily(janus, "4 × 4"),
    "blip_2": PictureFamily(blip_2, "4 × 4", pictures=False),
    "instructblip": PictureFamily(instructblip, "4 × 4", pictures=False),
    "florence2": PictureFamily(florence2, "4 × 4", pictures=False),
    "vision-encoder-decoder": PictureFamily(captioner, "4 × 4", pictures=False, double=False),
}
"""Every family, by the name of its builder."""


class FramesReader:
    """What reads videos where torchvision, which transformers' own need, is not there.

    A frame is made to pixels as a picture is; two of them are the two halves of Qwen's patches.
    """

    merge_size = temporal_patch_size = 2

    def __init__(self, images: Any) -> None:
        self.images = images

    def __call__(self, videos: Any, **options: Any) -> dict[str, Any]:
        assert options["do_sample_frames"] is False
        frames = list(videos[0])
        if not hasattr(self.images, "merge_size"):
            one_tile = {"crop_to_patches": False} if hasattr(self.images, "crop_to_patches") else {}
            nested = frames if one_tile else [frames]
            pixels = self.images(nested, return_tensors="pt", **one_tile)["pixel_values"]
            return {"pixel_values_videos": pixels.reshape(1, len(frames), *pixels.shape[-3:])}
        frames += frames[-1:] * (len(frames) % 2)
        made = self.images(frames, return_tensors="pt")
        _, rows, columns = made["image_grid_thw"][0].tolist()
        halves = made["pixel_values"].reshape(-1, 2, rows * columns, 3, 2, 64)
        patches = torch.stack([halves[:, 0, :, :, 0], halves[:, 1, :, :, 1]], dim=3)
        grid = torch.tensor([[len(frames) // 2, rows, columns]])
        told = VideoMetadata(len(frames), fps=2.0, frames_indices=list(range(len(frames))))
        return {
            "pixel_values_videos": patches.reshape(-1, 3 * 2 * 64),
            "video_grid_thw": grid,
            "video_metadata": [told],
        }


def table() -> list[str]:
    """The families as docs/tables/picture-text.md shows them."""
    rows = [
        "| family | tokens are placed by | a tiny one sees 60 × 40 pixels as | several | video |",
        "|---|---|---|---|---|",
    ]
    for name, family in PICTURE_FAMILIES.items():
        kind = name.replace("blip_2", "blip-2")
        placed = f"a row: {LAYOUTS[BY_FAMILY[kind]].why}" if kind in BY_FAMILY else "probes"
        several, video = ("yes" if one else "no" for one in (family.pictures, family.video))
        rows.append(f"| `{kind}` | {placed} | {family.sheets} | {several} | {video} |")
    return rows


PAGE = Path(__file__).parents[3] / "docs" / "tables" / "picture-text.md"


def main() -> None:
    """Write the table into the documentation, in place of the one that is there."""
    before = PAGE.read_text(encoding="utf-8").split("| family |")[0]
    PAGE.write_text(before + "\n".join(table()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
