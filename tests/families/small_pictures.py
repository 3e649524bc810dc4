"""Small configurations of types that read pictures or films, which are taken before any trial.

Sizes of such models hang together in many ways (stages, windows, levels, feature maps), so that
trial finds them seldom and slowly. Every picture has 64 × 64 or 128 × 128 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.families.by_hand import SMALL

PLAIN = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
VIT: dict[str, Any] = PLAIN | {"image_size": 64, "patch_size": 16}
STAGES = {"stage_names": None, "out_features": None, "out_indices": None}
DEEP_VIT = VIT | {"num_hidden_layers": 4}  # its four layers are the levels of a decoder
SWIN: dict[str, Any] = {
    "image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
    "window_size": 4,
}  # fmt: skip
LEVELS = ["stage2", "stage3", "stage4"]
DEEP_SWIN: dict[str, Any] = SWIN | {
    "model_type": "swin", "depths": [1] * 4, "num_heads": [2] * 4, "image_size": 128,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4,
    "layer_type": "basic",
}  # fmt: skip
HGNET = {
    "model_type": "hgnet_v2", "embedding_size": 8, "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 8, 16, 16], "stage_mid_channels": [8, 8, 8, 8],
    "stage_out_channels": [8, 16, 16, 16], "stage_num_blocks": [1] * 4,
    "stage_numb_of_layers": [1] * 4, "hidden_sizes": [8, 16, 16, 16], "depths": [1] * 4,
}  # fmt: skip
SIDES: dict[str, Any] = {
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 5,
}  # fmt: skip
ALONE = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
DETR = SIDES | ALONE | {"d_model": 32, "backbone_config": RESNET | {"out_features": ["stage4"]}}
RT: dict[str, Any] = {
    "encoder_hidden_dim": 32, "encoder_in_channels": [16, 16, 16], "d_model": 32, "num_queries": 5,
    "decoder_layers": 2, "encoder_layers": 1, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "decoder_ffn_dim": 32, "encoder_ffn_dim": 32,
    "decoder_in_channels": [32] * 3, "backbone_config": HGNET | {"out_features": LEVELS},
}  # fmt: skip
RT_RESNET = RT | {
    "encoder_in_channels": [8, 16, 16],
    "backbone_config": RESNET | {"model_type": "rt_detr_resnet", "out_features": LEVELS},
}
PACKED: dict[str, Any] = {  # towers of Qwen's kind: patches in rows, merged by two times two
    "depth": 2, "num_heads": 4, "hidden_size": 32, "intermediate_size": 64, "patch_size": 8,
    "out_hidden_size": 32, "num_position_embeddings": 64, "image_size": 64,
    "num_key_value_heads": 4,
}  # fmt: skip
DEEPSTACK = PACKED | {"deepstack_visual_indexes": [0, 1]}
SAM_VIT: dict[str, Any] = VIT | {
    "patch_size": 8, "output_channels": 16, "window_size": 4, "global_attn_indexes": [1],
    "mlp_dim": 64, "num_pos_feats": 8,
}  # fmt: skip
PROMPTS = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
MASKS = {
    "hidden_size": 16, "mlp_dim": 32, "num_attention_heads": 2, "iou_head_hidden_dim": 16,
}  # fmt: skip
SAM = {"vision_config": SAM_VIT, "prompt_encoder_config": PROMPTS, "mask_decoder_config": MASKS}
HIERA = {
    "hidden_size": 16, "num_attention_heads": 1, "image_size": [128, 128],
    "window_positional_embedding_background_size": [2, 2], "blocks_per_stage": [1, 1, 2, 1],
    "embed_dim_per_stage": [16, 32, 64, 128], "num_attention_heads_per_stage": [1, 2, 4, 8],
    "window_size_per_stage": [8, 4, 4, 2], "global_attention_blocks": [3],
}  # fmt: skip
SAM2_VISION = {
    "backbone_config": HIERA | {"model_type": "sam2_hiera_det_model"}, "fpn_hidden_size": 16,
    "backbone_channel_list": [128, 64, 32, 16],
    "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
}  # fmt: skip
SAM2 = {
    "vision_config": SAM2_VISION,
    "prompt_encoder_config": PROMPTS | {"image_size": 128, "patch_size": 16},
    "mask_decoder_config": MASKS,
}
SAM3_VIT = VIT | {
    "patch_size": 8, "window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 32,
}  # fmt: skip
SAM3_VISION = {
    "backbone_config": SAM3_VIT | {"model_type": "sam3_vit_model"}, "fpn_hidden_size": 16,
    "backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
}  # fmt: skip
MEMORY = {
    "image_size": 128, "memory_attention_hidden_size": 16, "memory_attention_num_layers": 1,
    "memory_attention_num_attention_heads": 1, "memory_attention_feed_forward_hidden_size": 32,
    "memory_encoder_hidden_size": 16, "memory_encoder_output_channels": 8,
    "mask_downsampler_embed_dim": 16, "memory_fuser_num_layers": 1, "memory_fuser_embed_dim": 16,
    "memory_fuser_intermediate_dim": 32,
}  # fmt: skip
PART = {"hidden_size": 16, "num_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SAM3 = {
    "vision_config": SAM3_VISION,
    "text_config": PLAIN | {"vocab_size": 600, "projection_dim": 16, "max_position_embeddings": 40},
    "geometry_encoder_config": PART, "detr_encoder_config": PART,
    "detr_decoder_config": PART | {"num_queries": 5},
    "mask_decoder_config": {"hidden_size": 16, "num_attention_heads": 2},
}  # fmt: skip
DINOV2 = {"model_type": "dinov2", "hidden_size": 32, "num_hidden_layers": 4,
          "num_attention_heads": 4, "image_size": 64, "patch_size": 16,
          "out_features": ["stage1", "stage2", "stage3", "stage4"]}  # fmt: skip
DEPTH = {
    "backbone_config": DINOV2 | {"reshape_hidden_states": False}, "patch_size": 16,
    "reassemble_hidden_size": 32, "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8,
    "head_hidden_size": 8,
}  # fmt: skip
PYRAMID: dict[str, Any] = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
    "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2],
}  # fmt: skip
OPT = {
    "model_type": "opt", "vocab_size": 600, "hidden_size": 32, "num_hidden_layers": 2,
    "ffn_dim": 64, "num_attention_heads": 4, "word_embed_proj_dim": 32,
    "max_position_embeddings": 128,
}  # fmt: skip
QFORMER = PLAIN | {"vocab_size": 600, "encoder_hidden_size": 32, "max_position_embeddings": 64}
BLIP2 = {
    "vision_config": VIT, "qformer_config": QFORMER, "text_config": OPT, "num_query_tokens": 4,
    "image_text_hidden_size": 16, "image_token_index": 3,
}  # fmt: skip
BERT = PLAIN | {"model_type": "bert", "vocab_size": 600, "max_position_embeddings": 128}
GROUNDING: dict[str, Any] = SIDES | {
    "d_model": 32, "backbone_config": DEEP_SWIN | {"out_features": LEVELS}, "text_config": BERT,
    "num_feature_levels": 4, "num_queries": 10,
}  # fmt: skip
WINDOWED_DINO = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
    "patch_size": 8, "num_windows": 2, "window_block_indexes": [0],
}  # fmt: skip
CLIP_TEXT = PLAIN | {"vocab_size": 600, "max_position_embeddings": 64, "projection_dim": 32}
POINTS = {
    "encoder_hidden_sizes": [8, 8, 8, 8], "decoder_hidden_size": 32, "descriptor_decoder_dim": 32,
    "max_keypoints": 20,
}  # fmt: skip
FILM = PLAIN | {"image_size": 32, "patch_size": 8, "num_frames": 4}
MUSE = PLAIN | {
    "patch_size": 8, "pos_emb_height": 8, "pos_emb_width": 8, "patch_temporal": 2,
    "max_position_embeddings": 64, "layer_types": ["window_attention", "full_attention"],
}  # fmt: skip
MASKED: dict[str, Any] = {
    "feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "encoder_feedforward_dim": 32,
    "encoder_layers": 1, "decoder_layers": 4, "num_attention_heads": 4, "dim_feedforward": 32,
    "num_queries": 5, "backbone_config": DEEP_SWIN | {
        "out_features": ["stage1", "stage2", "stage3", "stage4"]},
}  # fmt: skip


LINE = {"image_size": [48, 320]}  # a picture of one line of a text
CROSSED = {
    "kernel_list": [3, 2, 2], "scale_factor_list": [1, 2, 4, 8],
    "intraclass_block_config": {
        "reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0],
        **{f"vertical_long_to_small_conv_{ratio}ratio": [[k, 1], [1, 1], [k // 2, 0]]
           for ratio, k in (("long", 7), ("mid", 5), ("short", 3))},
        **{f"horizontal_small_to_long_conv_{ratio}ratio": [[1, k], [1, 1], [0, k // 2]]
           for ratio, k in (("long", 7), ("mid", 5), ("short", 3))},
        **{f"symmetric_conv_long_{ratio}ratio": [[k, k], [1, 1], [k // 2, k // 2]]
           for ratio, k in (("long", 7), ("mid", 5), ("short", 3))},
    },
}  # fmt: skip
ALL_STAGES = {
    "model_type": "pp_lcnet_v4", "out_features": ["stage1", *LEVELS], "stem_channels": [3, 8, 16],
    "block_configs": [[[3, 16, 16, 1, True]], [[3, 16, 32, 2, False]], [[3, 32, 48, 2, False]],
                      [[3, 48, 64, 2, False]]],
}  # fmt: skip


def alike(names: str, values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The same values for several types."""
    return dict.fromkeys(names.split(), values)


SMALL_PICTURES: dict[str, Mapping[str, Any]] = {
    "imagegpt": {"vocab_size": 513, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "qwen4_exp": {
        "text_config": {**SMALL["qwen4_exp_text"], "vocab_size": 600},
        "vision_config": {**PACKED, "out_hidden_size": SMALL["qwen4_exp_text"]["hidden_size"]},
    },
    **alike(
        "aimv2_vision_model beit chinese_clip_vision_model clip_vision_model data2vec-vision deit "
        "dinov2 dinov2_with_registers dinov3_vit ijepa pixio siglip_vision_model "
        "tipsv2_vision_model vit vit_mae vit_msn mlcd mlcd_vision_model vitdet vitpose_backbone "
        "idefics3_vision smolvlm_vision",
        VIT,
    ),
    **alike("swin swinv2 donut-swin maskformer-swin", SWIN),
    **alike("detr conditional_detr table-transformer", DETR),
    **alike("d_fine deimv2 pp_doclayout_v4", RT),
    **alike("rt_detr rt_detr_v2", RT_RESNET),
    **alike(
        "qwen2_5_vl_vision exaone4_5_vision qwen3_5_vision qwen3_5_moe_vision qwen4_exp_vision "
        "glm4v_vision glm4v_moe_vision glm_ocr_vision glm5_next_vision",
        PACKED,
    ),
    **alike("qwen3_vl_vision qwen3_vl_moe_vision cohere_compass_vision", DEEPSTACK),
    **alike("sam_vision_model sam_hq_vision_model", SAM_VIT),
    **alike("sam3_vit_model", SAM3_VIT),
    **alike("sam3_vision_model", SAM3_VISION),
    **alike("sam2_vision_model", SAM2_VISION),
    **alike("sam2_hiera_det_model", HIERA),
    **alike("sam3 sam3_lite_text", SAM3),
    **alike("segformer glpn", PYRAMID | {"decoder_hidden_size": 16}),
    **alike("blip-2 instructblip instructblipvideo", BLIP2),
    **alike("grounding-dino mm-grounding-dino", GROUNDING),
    **alike("depth_anything prompt_depth_anything", DEPTH),
    **alike(
        "minicpm_ocr_vision minicpmv4_7_vision",
        VIT | {"patch_size": 8, "insert_layer_id": 1, "image_size": 128},
    ),
    **alike("muse_glimmer_vision muse_spark_vision", MUSE),
    **alike("efficientloftr pp_ocrv5_mobile_det slanet", {}),
    **alike("pp_ocrv5_mobile_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec", LINE),
    "uvdoc": {
        "backbone_config": {"model_type": "uvdoc_backbone",
                            "out_features": [f"stage{one}" for one in range(1, 7)]},
    },
    "pp_ocrv5_server_det": CROSSED,
    "pp_ocrv6_medium_det": CROSSED | {"backbone_config": ALL_STAGES},
    "pp_ocrv6_small_det": {
        "backbone_config": ALL_STAGES, "layer_list_out_channels": [16, 32, 48, 64],
    },
    "sam": SAM,
    "sam_hq": SAM | {"mask_decoder_config": MASKS | {"vit_dim": 32}},
    "sam2": SAM2,
    "sam3_tracker": {**SAM, "vision_config": SAM3_VISION},
    "chmv2": {
        "backbone_config": DINOV2 | {"model_type": "dinov3_vit", "intermediate_size": 64,
                                     "return_class_token": True, "num_register_tokens": 1},
        "patch_size": 16, "post_process_channels": [8, 8, 16, 16], "fusion_hidden_size": 8,
        "head_hidden_size": 8, "number_output_channels": 16,
    },
    "sam2_video": SAM2 | MEMORY,
    "edgetam_video": SAM2 | MEMORY,
    "sam3_tracker_video": SAM | MEMORY | {"vision_config": SAM3_VISION},
    "sam3_video": {
        "detector_config": SAM3,
        "tracker_config": SAM | MEMORY | {"vision_config": SAM3_VISION},
    },
    "cosmos3_edge_vision": PLAIN | {"patch_size": 8, "num_patches": 64},
    "dab-detr": SIDES | ALONE | {
        "hidden_size": 32, "backbone_config": RESNET | {"out_features": ["stage4"]},
    },
    "deformable_detr": DETR | {
        "backbone_config": RESNET | {"out_features": LEVELS}, "num_feature_levels": 4,
    },
    "depth_pro": {
        "fusion_hidden_size": 8, "patch_size": 32, "intermediate_hook_ids": [1, 0],
        "intermediate_feature_dims": [8, 8], "scaled_images_feature_dims": [16, 16, 8],
        "image_model_config": DINOV2 | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8,
                                        "out_features": ["stage2"]},
        "patch_model_config": DINOV2 | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8,
                                        "out_features": ["stage2"]},
        "fov_model_config": DINOV2 | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8,
                                      "out_features": ["stage2"]},
    },
    "dpt": DEEP_VIT | {
        "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 16, 16],
        "fusion_hidden_size": 8,
    },
    "efficientnet": {
        "image_size": 64, "width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128,
    },
    "eomt": VIT | {"num_hidden_layers": 3, "num_blocks": 1, "num_queries": 5,
                   "num_upscale_blocks": 1},
    "eomt_dinov3": VIT | {"num_hidden_layers": 3, "num_blocks": 1, "num_queries": 5,
                          "num_upscale_blocks": 1},
    "gemma4_vision": PLAIN | {
        "patch_size": 8, "num_key_value_heads": 4, "head_dim": 8, "position_embedding_size": 64,
    },
    "granite_docling_vision": VIT | {
        "out_hidden_size": 32, "scale_factor": 2, "deepstack_visual_indexes": [0],
    },
    "lfm3_vl_vision": PLAIN | {
        "patch_size": 8, "num_key_value_heads": 4, "layer_types": ["conv", "full_attention"],
    },
    "kimi_k25_vision": PLAIN | {"patch_size": 8, "pos_emb_height": 8, "pos_emb_width": 8},
    "glm_image_vision": PACKED | {"temporal_patch_size": 1},
    "hiera": {
        "embed_dim": 16, "image_size": [64, 64], "depths": [1, 1, 1], "num_heads": [1, 2, 4],
        "num_query_pool": 2, "masked_unit_size": [4, 4],
        "masked_unit_attention": [True, True, False],
    },
    "hunyuan_vl_vision": PLAIN | {
        "patch_size": 8, "out_hidden_size": 32, "text_hidden_size": 32, "num_key_value_heads": 4,
        "max_image_size": 64, "min_image_size": 32, "img_max_token_num": 64,
        "max_vit_seq_len": 256,
    },
    "hy_v4_vl_vision": PLAIN | {
        "patch_size": 8, "out_hidden_size": 32, "num_key_value_heads": 4, "max_image_size": 64,
    },
    "inkling2_vision": PLAIN | {
        "patch_size": 8, "posemb_grid_size": 8, "projection_hidden_dim": 32,
        "text_hidden_size": 32,
    },
    "internvl_vision": VIT | {"image_size": [64, 64], "patch_size": [16, 16]},
    "qianfan_ocr_vision": VIT | {"image_size": [64, 64], "patch_size": [16, 16]},
    "kosmos-2": {
        "text_config": {
            "vocab_size": 600, "embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4,
            "max_position_embeddings": 128,
        },
        "vision_config": VIT, "latent_query_num": 4,
    },
    "levit": {
        "image_size": 64, "hidden_sizes": [16, 32, 32], "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1], "key_dim": [8, 8, 8],
    },
    "lightglue": {
        "keypoint_detector_config": POINTS, "descriptor_dim": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2,
    },
    "superglue": {
        "keypoint_detector_config": POINTS, "hidden_size": 32, "keypoint_encoder_sizes": [8, 16],
        "gnn_layers_types": ["self", "cross"], "num_attention_heads": 2,
    },
    "lw_detr_vit": VIT | {
        "patch_size": 8, "pretrain_image_size": 32, "num_windows": 4, "window_block_indices": [0],
    },
    "lw_detr": {
        "backbone_config": VIT | {
            "model_type": "lw_detr_vit", "pretrain_image_size": 32, "num_windows": 4,
            "patch_size": 8, "window_block_indices": [0], "out_features": ["stage1", "stage2"],
        },
        "projector_scale_factors": [1.0], "d_model": 32, "decoder_ffn_dim": 32,
        "decoder_layers": 2, "decoder_self_attention_heads": 4, "decoder_cross_attention_heads": 4,
        "num_queries": 5, "group_detr": 2, "c2f_num_blocks": 1,
    },
    "mask2former": MASKED,
    "maskformer": {
        "backbone_config": MASKED["backbone_config"], "decoder_config": DETR | {
            "model_type": "detr"},
        "fpn_feature_size": 32, "mask_feature_size": 32,
    },
    "mgp-str": {
        "image_size": [32, 64], "patch_size": 8, "max_token_length": 8, "num_character_labels": 10,
        "num_bpe_labels": 20, "num_wordpiece_labels": 20, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4,
    },
    "mobilevit": {
        "image_size": 128, "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32], "num_attention_heads": 2,
    },
    "mobilevitv2": {
        "image_size": 128, "width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1],
        "base_attn_unit_dims": [64, 64, 64],
    },
    "oneformer": {
        "backbone_config": MASKED["backbone_config"], "num_queries": 5, "conv_dim": 32,
        "mask_dim": 32, "hidden_dim": 32, "encoder_feedforward_dim": 32, "encoder_layers": 1,
        "decoder_layers": 2, "num_attention_heads": 4, "dim_feedforward": 32,
        "text_encoder_width": 32, "text_encoder_num_layers": 1, "text_encoder_vocab_size": 600,
    },
    "omdet-turbo": ALONE | {
        "text_config": CLIP_TEXT | {"model_type": "clip_text_model"}, "image_size": 128,
        "backbone_config": DEEP_SWIN | {"out_features": LEVELS},
        "apply_layernorm_after_vision_backbone": False, "text_projection_in_dim": 32,
        "text_projection_out_dim": 32, "task_encoder_hidden_dim": 32, "class_embed_dim": 32,
        "num_queries": 5, "d_model": 32, "encoder_hidden_dim": 32,
        "vision_features_channels": [32] * 3, "encoder_in_channels": [32, 64, 128],
        "encoder_attention_heads": 4, "encoder_dim_feedforward": 32, "decoder_hidden_dim": 32,
        "decoder_num_heads": 4, "decoder_num_layers": 2, "decoder_dim_feedforward": 32,
    },
    "pix2struct": {
        "text_config": {
            "vocab_size": 600, "hidden_size": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2,
            "num_heads": 4,
        },
        "vision_config": {
            "hidden_size": 32, "patch_embed_hidden_size": 768, "d_ff": 32, "d_kv": 8,
            "num_hidden_layers": 2, "num_attention_heads": 4, "seq_len": 64,
        },
    },
    "pixtral": VIT | {"patch_size": 8},
    "pp_doclayout_v2": RT | {
        "class_thresholds": [0.5] * 25, "class_order": [0] * 25, "num_labels": 25,
        "reading_order_config": PLAIN,
    },
    "pp_doclayout_v3": RT | {
        "x4_feat_dim": 8,
        "mask_feature_channels": [8, 8], "num_prototypes": 4,
        "backbone_config": HGNET | {"out_features": ["stage1", *LEVELS]},
    },
    "pp_formulanet": {
        "text_config": {
            "vocab_size": 600, "max_position_embeddings": 64, "encoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_layers": 2, "decoder_ffn_dim": 32,
            "decoder_attention_heads": 4, "d_model": 32,
        },
        "vision_config": SAM_VIT | {
            "post_conv_in_channels": 16, "post_conv_out_channels": 32,
            "post_conv_mid_channels": 16, "decoder_hidden_size": 32,
        },
    },
    "pp_ocrv5_server_rec": {
        **LINE, "hidden_size": 32, "head_out_channels": 20, "num_attention_heads": 4,
        "backbone_config": HGNET | {
            "stem_strides": [2, 1, 1, 1, 1], "stage_downsample": [True] * 4,
            "stage_downsample_strides": [[2, 1], [1, 2], [2, 1], [2, 1]],
        },
    },
    "pvt": {
        "image_size": 64, "depths": [1] * 4, "hidden_sizes": [16, 16, 32, 32],
        "num_attention_heads": [1, 2, 2, 4],
    },
    "pvt_v2": {
        "image_size": [64, 64], "depths": [1] * 4, "hidden_sizes": [16, 16, 32, 32],
        "num_attention_heads": [1, 2, 2, 4],
    },
    "radio": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
        "patch_size": 16, "max_img_size": 128,
    },
    "rf_detr_dinov2": WINDOWED_DINO,
    "rf_detr": {
        "backbone_config": WINDOWED_DINO | {
            "model_type": "rf_detr_dinov2", "out_features": ["stage1", "stage2"]},
        "d_model": 32, "decoder_ffn_dim": 32, "decoder_layers": 2,
        "decoder_self_attention_heads": 4, "decoder_cross_attention_heads": 4, "num_queries": 5,
        "group_detr": 2, "c2f_num_blocks": 1, "intermediate_size": 32,
    },
    "sapiens2": VIT | {
        "num_key_value_attention_heads": 2, "num_first_full_attention_layers": 1,
        "num_last_full_attention_layers": 0, "num_register_tokens": 2,
    },
    "seggpt": {
        "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "image_size": [64, 32], "patch_size": 8, "mlp_dim": 64, "pretrain_image_size": 32,
        "decoder_hidden_size": 8, "merge_index": 0,
        "intermediate_hidden_state_indices": [0, 1, 2, 3],
    },
    "siglip2_vision_model": PLAIN | {"num_patches": 64, "patch_size": 8},
    "slanext": {
        "vision_config": SAM_VIT, "post_conv_in_channels": 16, "post_conv_out_channels": 32,
        "out_channels": 10, "hidden_size": 32, "max_text_length": 8,
    },
    "swin2sr": {
        "image_size": 32, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 8,
    },
    "swiftformer": {"image_size": 64, "depths": [1] * 4, "embed_dims": [8, 8, 16, 16]},
    "tipsv2_dpt": {
        "backbone_config": DINOV2 | {
            "model_type": "tipsv2_vision_model", "reshape_hidden_states": False},
        "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8, "num_depth_bins": 8,
    },
    "upernet": {
        "backbone_config": DEEP_SWIN | {"out_features": ["stage1", *LEVELS]}, "hidden_size": 16,
        "auxiliary_in_channels": 64, "auxiliary_channels": 8,
    },
    "video_llama_3_vision": PLAIN | {"patch_size": 8},
    "vision-encoder-decoder": {
        "encoder": VIT | {"model_type": "vit"},
        "decoder": BERT | {"is_decoder": True, "add_cross_attention": True},
        "decoder_start_token_id": 1, "pad_token_id": 0,
    },
    "vitmatte": {
        "backbone_config": VIT | {"model_type": "vitdet", "num_channels": 4,
                                  "out_features": ["stage2"]},
        "hidden_size": 32, "fusion_hidden_sizes": [32, 16, 8, 4],
        "convstream_hidden_sizes": [8, 8, 8],
    },
    "vitpose": {
        "backbone_config": VIT | {
            "model_type": "vitpose_backbone", "out_features": ["stage2"], "image_size": [64, 64],
            "patch_size": [16, 16],
        },
    },
    "yolos": VIT | {"image_size": [64, 64], "num_detection_tokens": 3},
    "zoedepth": {
        "backbone_config": VIT | {
            "model_type": "beit", "num_hidden_layers": 4, "reshape_hidden_states": False,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
        "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8,
        "bottleneck_features": 8, "num_relative_features": 8, "bin_embedding_dim": 8,
        "num_attractors": [4, 2, 2, 1],
    },
    "timesformer": FILM,
    "videomae": FILM | {"tubelet_size": 2, "decoder_hidden_size": 16,
                        "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 1,
                        "decoder_intermediate_size": 16},
    "vivit": FILM | {"tubelet_size": [2, 8, 8]},
    "vjepa2": FILM | {
        "crop_size": 32, "frames_per_clip": 4, "tubelet_size": 2, "pred_hidden_size": 16,
        "pred_num_attention_heads": 2, "pred_num_hidden_layers": 2,
    },
    "videoprism_vision_model": FILM | {
        "tubelet_size": [1, 8, 8], "num_spatial_layers": 2, "num_temporal_layers": 2,
    },
    "videoprism": {
        "text_config": PLAIN | {"vocab_size": 600}, "vision_config": FILM | {
            "tubelet_size": [1, 8, 8], "num_spatial_layers": 2, "num_temporal_layers": 2,
            "num_auxiliary_layers": 1},
    },
    "videomt": VIT | {
        "num_hidden_layers": 3, "num_blocks": 1, "num_queries": 5, "num_upscale_blocks": 1,
        "num_frames": 2,
    },
    "tvp": {
        "backbone_config": RESNET | {"out_features": ["stage4"]}, "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "vocab_size": 600, "max_position_embeddings": 64, "max_img_size": 64, "num_frames": 2,
        "visual_prompt_size": 8, "max_grid_col_position_embeddings": 8,
        "max_grid_row_position_embeddings": 8,
    },
}  # fmt: skip
"""By type."""
