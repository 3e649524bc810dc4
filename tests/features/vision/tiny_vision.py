"""Small vision models with random weights and image processors, saved as folders."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.beit.image_processing_pil_beit import BeitImageProcessorPil
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.hugging_face.tiny_models import SIZES, byte_pieces

PIXELS = {"image_size": 32, "patch_size": 8}
VISION = {**SIZES, **PIXELS, "intermediate_size": 48, "num_hidden_layers": 2}
WHOLE = {"size": {"height": 32, "width": 32}}
MIDDLE = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}


def picture(width: int = 60, height: int = 40) -> Image.Image:
    """A bright disc on a ground that fades: no two parts look alike."""
    down, across = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    disc = (down - 0.4) ** 2 + (across - 0.6) ** 2 < 0.04
    layers = np.stack([down, across, disc.astype(float)], axis=-1)
    return Image.fromarray((layers * 255).astype(np.uint8))


def build(folder: Path, model: str, config: Any, processor: Any) -> Path:
    """A folder with a model of random weights, wide enough that no two heads agree.

    Biases and scales are random too: at their initial 0 and 1 they would hide who ignores them.
    """
    torch.manual_seed(0)
    made = getattr(transformers, model)(config)
    with torch.no_grad():
        for weights in made.parameters():
            weights.copy_(0.3 * torch.randn_like(weights) + (weights if weights.ndim == 1 else 0))
    made.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


TEXT = {**SIZES, "intermediate_size": 48, "vocab_size": 26}
TEXT |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
TOWER_AND_TEXT = {"vision_config": VISION, "text_config": TEXT}
SWIN = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
LARGE = {"size": {"height": 48, "width": 48}}
KINDS: dict[str, tuple[str, str, dict[str, Any], Any, dict[str, Any]]] = {
    "vit": ("ViT", "ForImageClassification", {**VISION, "id2label": {0: "cat", 1: "dog"}},
            ViTImageProcessorPil, WHOLE),
    "deit": ("DeiT", "Model", VISION, ViTImageProcessorPil, WHOLE),
    "dinov2": ("Dinov2", "Model", VISION, BitImageProcessorPil, MIDDLE),
    "dinov2_with_registers": ("Dinov2WithRegisters", "Model",
                              {**VISION, "num_register_tokens": 3}, BitImageProcessorPil, MIDDLE),
    "beit": ("Beit", "Model", {**VISION, "use_relative_position_bias": True},
             BeitImageProcessorPil, WHOLE),
    "siglip": ("Siglip", "Model", TOWER_AND_TEXT, ViTImageProcessorPil, WHOLE),
    "clip": ("CLIP", "Model", TOWER_AND_TEXT, CLIPImageProcessorPil, MIDDLE),
    "clip_vision_model": ("CLIPVision", "Model", VISION, CLIPImageProcessorPil, MIDDLE),
    "swin": ("Swin", "Model", {**SWIN, "image_size": 48, "patch_size": 4}, ViTImageProcessorPil,
             LARGE),
    "convnext": ("ConvNext", "Model", {"hidden_sizes": [8] * 4, "depths": [1] * 4},
                 ViTImageProcessorPil, WHOLE),
    "dinov3_vit": ("DINOv3ViT", "Model", {**VISION, "num_register_tokens": 2},
                   ViTImageProcessorPil, WHOLE),
    "yolos": ("Yolos", "Model", {**VISION, "image_size": [32, 32], "num_detection_tokens": 3},
              ViTImageProcessorPil, WHOLE),
}  # fmt: skip
"""Each kind's classes, by their first and last part, its sizes, its processor and its pictures."""


def _made(kind: str, folder: Path) -> Path:
    name, ending, sizes, processor, pictures = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**deepcopy(sizes))
    return build(folder, f"{name}{ending}", config, processor(**pictures))


VISION_BUILDERS: dict[str, Callable[[Path], Path]] = {kind: partial(_made, kind) for kind in KINDS}


def llava(folder: Path) -> Path:
    """A tiny CLIP tower under a tiny Llama, with the class token left out as LLaVA does."""
    tokenizer = byte_pieces()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    text = transformers.LlamaConfig(
        vocab_size=len(tokenizer), num_key_value_heads=2, **{**SIZES, "intermediate_size": 48},
        bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    processor = transformers.LlavaProcessor(
        image_processor=CLIPImageProcessorPil(**MIDDLE),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return build(folder, "LlavaForConditionalGeneration", config, processor)


VISION_BUILDERS["llava"] = llava
