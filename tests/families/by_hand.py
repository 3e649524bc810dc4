"""Values that a default configuration lacks: what has no default, or one that does not build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.hugging_face.tiny_families import EVERY

ROTARY = {"rope_type": "default", "rope_theta": 10_000.0}

VALUES: dict[str, Mapping[str, Any] | Callable[[], Any]] = {
    "bamba": {"attn_layer_indices": [1]},  # by default it has no attention
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": ROTARY, "sliding_attention": ROTARY}
    },
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 8, "clip_qkv": 8}},
    "deepseek_v2": {"topk_group": 1, "n_group": 1, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "glm4v_moe_text": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl_text": {"head_dim": 128},
}
"""By type: values for its configuration, or a function that makes one."""

SMALL: dict[str, Mapping[str, Any]] = {name: family.sizes for name, family in EVERY.items()} | {
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
