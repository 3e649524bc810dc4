"""Small models with queries for objects, of random weights, on a ResNet without timm."""

from typing import Any

import torch
import transformers as tf
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

LABELS = {"id2label": {0: "cat", 1: "dog"}}
HALVES = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 5,
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
}  # fmt: skip
WIDE = {"d_model": 32, **HALVES}
RESNET = {
    "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "layer_type": "basic",
}  # fmt: skip
SWIN = {
    "embed_dim": 16, "depths": [1] * 4, "num_heads": [2] * 4, "window_size": 4,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}  # fmt: skip


def backbone(*stages: str, kind: str = "ResNet") -> Any:
    return getattr(tf, f"{kind}Config")(**RESNET, out_features=[*(stages or ["stage4"])])


LEVELS = "stage2", "stage3", "stage4"
RT = {
    "encoder_hidden_dim": 32, "encoder_in_channels": [8, 16, 16], "d_model": 32, "num_queries": 5,
    "decoder_layers": 2, "encoder_layers": 1, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "decoder_ffn_dim": 32, "encoder_ffn_dim": 32,
    "decoder_in_channels": [32] * 3,
}  # fmt: skip
MASKS = {
    "feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "encoder_feedforward_dim": 32,
    "encoder_layers": 1, "decoder_layers": 4, "num_attention_heads": 4, "dim_feedforward": 32,
    "num_queries": 5,
}  # fmt: skip
VIT = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 16,
}  # fmt: skip
MODELS = {
    "detr": ("DetrForObjectDetection", lambda: WIDE | LABELS | {"backbone_config": backbone()}),
    "conditional_detr": (
        "ConditionalDetrForObjectDetection", lambda: WIDE | {"backbone_config": backbone()},
    ),
    "table_transformer": (
        "TableTransformerForObjectDetection", lambda: WIDE | {"backbone_config": backbone()},
    ),
    "dab_detr": (
        "DabDetrForObjectDetection",
        lambda: HALVES | {"hidden_size": 32, "backbone_config": backbone()},
    ),
    "deformable_detr": (
        "DeformableDetrForObjectDetection",
        lambda: WIDE | {"backbone_config": backbone(*LEVELS)},
    ),
    "rt_detr": (
        "RTDetrForObjectDetection",
        lambda: RT | {"backbone_config": backbone(*LEVELS, kind="RTDetrResNet")},
    ),
    "maskformer": (
        "MaskFormerForInstanceSegmentation",
        lambda: {
            "backbone_config": tf.SwinConfig(**SWIN),
            "decoder_config": tf.DetrConfig(**WIDE, backbone_config=backbone()),
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
        },
    ),
    "mask2former": (
        "Mask2FormerForUniversalSegmentation",
        lambda: MASKS | {"backbone_config": tf.SwinConfig(**SWIN)},
    ),
    "yolos": (
        "YolosForObjectDetection",
        lambda: VIT | LABELS | {
            "image_size": [64, 96], "num_detection_tokens": 5, "intermediate_size": 32,
        },
    ),
    "eomt": (
        "EomtForUniversalSegmentation",
        lambda: VIT | {"image_size": 64, "num_blocks": 1, "num_queries": 5,
                       "num_upscale_blocks": 1},
    ),
    "videomt": (
        "VideomtForUniversalSegmentation",
        lambda: VIT | {"image_size": 64, "num_blocks": 1, "num_queries": 5,
                       "num_upscale_blocks": 1},
    ),
}  # fmt: skip


def model_of(kind: str) -> Any:
    """A model in memory; what is not its backbone has weights that tell queries apart."""
    name, sizes = MODELS[kind]
    torch.manual_seed(0)
    made = getattr(tf, name)(getattr(tf, name).config_class(**sizes()))
    with torch.no_grad():
        for path, weights in made.named_parameters():
            if "backbone" not in path and "pixel_level" not in path:
                noise = 0.3 * torch.randn_like(weights)
                weights.copy_(noise + (weights if weights.ndim == 1 else 0))
    return made.eval()


def processor(kind: str = "detr") -> Any:
    """Pictures of 64 × 96 pixels, or square ones where a model reads no others."""
    width = 64 if kind in ("eomt", "videomt") else 96
    return DetrImageProcessorPil(size={"height": 64, "width": width})
