"""Values that a default configuration lacks: what has no default, or one that does not build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.hugging_face.tiny_families import EVERY, GROUPED

ROTARY = {"rope_type": "default", "rope_theta": 10_000.0}


def codes(name: str) -> dict[str, int]:
    """The numbers of a hundred tokens that stand for codes of a picture, by their names."""
    return {name.format(number): 100 + number for number in range(100)}


VALUES: dict[str, Mapping[str, Any] | Callable[[], Any]] = {
    "aria": {
        "vision_config": {"model_type": "idefics3_vision", "patch_size": 14, "image_size": 980}
    },
    "bamba": {"attn_layer_indices": [1]},  # by default it has no attention
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": ROTARY, "sliding_attention": ROTARY}
    },
    "chameleon": {
        "vocabulary_map": {
            "<image>": 7,
            **{
                f"IMGIMG{'ABCDEFGHIJ'[n // 10]}{'ABCDEFGHIJ'[n % 10]}Z": 100 + n for n in range(100)
            },
        }
    },
    "cohere_compass": {
        "text_config": {"rope_parameters": {"full_attention": ROTARY, "sliding_attention": ROTARY}}
    },
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 8, "clip_qkv": 8}},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense"] + ["sparse"] * 11}},
    "deepseek_v2": {"topk_group": 1, "n_group": 1, "num_experts_per_tok": 2},
    **{name: {"vision_config": {}} for name in ("embedding_gemma2", "gemma4", "gemma4_unified")},
    "emu3": {
        "vocabulary_map": {"<image>": 8, "<|extra_200|>": 9, **codes("<|visual token {:06}|>")}
    },
    "perception_lm": {
        "projector_pooling_ratio": 2,
        "vision_config": {
            "model_type": "timm_wrapper",
            "architecture": "vit_pe_core_large_patch14_336",
            "num_labels": 1,
            "patch_size": 14,
            "image_size": 56,
            "model_args": {
                "embed_dim": 64,
                "depth": 2,
                "num_heads": 4,
                "img_size": [56, 56],
                "ref_feat_shape": [4, 4],
                "global_pool": "",
                "use_post_transformer_norm": False,
            },
        },
    },
    "granite4_vision": {
        "downsample_rate": "1/2",
        "deepstack_layer_map": [[-1, 0]],
        "spatial_target_layers": [1],
        "image_grid_pinpoints": [[224, 448], [448, 224], [448, 448]],
    },
    "hunyuan_vl": {"text_config": {"rope_parameters": {**ROTARY, "mrope_section": [16] * 4}}},
    "fast_vlm": {
        "vision_config": {
            "model_type": "timm_wrapper",
            "architecture": "fastvit_mci3",
            "do_pooling": True,
            "global_pool": "avg",
            "hidden_size": 3072,
            "initializer_range": 0.02,
            "model_args": {"inference_mode": True, "layers": [1, 1, 1, 1, 1]},
            "patch_size": 64,
            "image_size": 256,
        }
    },
    "diffusion_gemma": {
        "text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
    },
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "qwen2_5_omni": {"enable_audio_output": False, "thinker_config": {"vision_start_token_id": 1}},
    "qwen3_omni_moe": {
        "enable_audio_output": False,
        "thinker_config": {"vision_start_token_id": 1},
    },
    "qwen2_5_omni_thinker": {"vision_start_token_id": 1, "vision_end_token_id": 2},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 1, "vision_end_token_id": 2},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "voxtral": {"audio_token_id": 24},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "glm4v_moe_text": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
}
"""By type: values for its configuration, or a function that makes one."""

FEW_CODES = {"base_channels": 32, "num_res_blocks": 1}

AFTER: dict[str, Mapping[str, Any]] = {
    "ernie4_5_vl_moe": {"text_config": {"rope_parameters": {**ROTARY, "mrope_section": [3, 3, 2]}}},
    "gemma4_unified": {"vision_config": {"output_proj_dims": 64}},
    "phi4_multimodal": {"vision_config": {"image_size": 448, "crop_size": 448}},
    **{name: {"quantization_dim": 128} for name in ("neucodec", "xcodec2")},
    "xcodec": {"codebook_dim": 128},
    "clap": {"audio_config": {"hidden_size": 128}},
    "align": {"projection_dim": 640},
    "gemma3n": {"vision_soft_tokens_per_image": 256, "vision_config": {"hidden_size": 2048}},
    "emu3": {"vq_config": {**FEW_CODES, "codebook_size": 100, "hidden_size": 128}},
    "apertus1p5": {
        "image_token_offset": 500,
        "audio_token_offset": 600,
        "vision_config": {**FEW_CODES, "codebook_size": 100},
        "audio_config": {"codebook_size": 100},
    },
    "chameleon": {"vq_config": {**FEW_CODES, "num_embeddings": 100}},
    "hunyuan_vl": {"text_config": {"rope_parameters": {**ROTARY, "mrope_section": [2, 2, 2, 2]}}},
    **{
        name: {"vision_config": {"insert_layer_id": 1}}
        for name in ("minicpm_ocr", "minicpmv4_6", "minicpmv4_7")
    },
    "llama4": {"vision_config": {"intermediate_size": 256}},
    "muse_glimmer": {"out_hidden_size": 256},
    "muse_spark": {"out_hidden_size": 256},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 16}},
}
"""By type: values that its small configuration must have."""

PROCESSORS: dict[str, Mapping[str, Any]] = {
    "aria": {"max_image_size": 490},
    "deepseek_vl_hybrid": {"high_res_size": {"height": 128, "width": 128}},
    "dots3_note": {"temporal_patch_size": 1},
    "imagegpt": {"clusters": [[number / 4 - 1] * 3 for number in range(8)]},
    "perception_lm": {"tile_size": 56},
    "emu3": {"min_pixels": 64 * 64, "max_pixels": 128 * 128},
    "clap": {"truncation": "rand_trunc"},
}
"""By type: values of the part of its processor that reads pictures or sounds."""

READS_WITH = {
    "wav2vec2-bert": "SeamlessM4TFeatureExtractor",
    **dict.fromkeys(("glm_ocr", "glmga"), "Glm46VProcessor"),
    "cosmos3_omni": "Qwen3VLProcessor",
    "fast_vlm": "LlavaProcessor",
}
"""By type: what its checkpoints read with, where transformers' table names another, or none."""

SEES_WITH = {
    "colmodernvbert": "Idefics3ImageProcessorPil",
    "fast_vlm": "CLIPImageProcessorPil",
    "fuyu": "FuyuImageProcessor",  # its twin without torchvision fails
}
"""By type: what its checkpoints read pictures with, where transformers' table does not say it."""

NO_TEXT = ("gemma4_assistant", "gemma4_unified_assistant")
"""Types whose class names ids as its input and asks for the states of another model instead."""

SMALL: dict[str, Mapping[str, Any]] = {name: family.sizes for name, family in EVERY.items()} | {
    "mistral4": {
        **EVERY["deepseek_v3"].sizes,
        "rope_parameters": {
            **ROTARY,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 64,
        },
        "head_dim": 4,
    },
    "reformer": {**EVERY["reformer"].sizes, "is_decoder": True},
    "hunyuan_vl_text": {
        **GROUPED,
        "rope_parameters": {**ROTARY, "mrope_section": [1, 1, 1, 1]},
    },
    "qwen4_exp_text": {
        **GROUPED,
        "layer_types": ["linear_attention", "indexed_attention"],
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "num_experts_per_tok": 2,
        "num_experts": 4,
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
    "hrm_text": {
        "vocab_size": 400,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "head_dim": 8,
    },
}
"""By type: a small configuration, which is taken where no trial leads to one."""
