"""Small models of random weights, a folder each, whose keys are not all tokens."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from tests.hugging_face.tiny_families import EXPERTS, GROUPED, IDS, sizes
from tests.hugging_face.tiny_models import byte_pieces, unigram_pieces

COMPRESSED = sizes(
    IDS,
    EXPERTS,
    "vocab_size=340 hidden_size=32 num_hidden_layers=4 num_attention_heads=4 head_dim=16 "
    "q_lora_rank=8 max_position_embeddings=200 sliding_window=5 o_groups=2 o_lora_rank=8 "
    "index_n_heads=2 index_head_dim=8 index_topk=2 hc_mult=2",
    partial_rotary_factor=0.25,
    compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 6},
    layer_types=[
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
)
_SIDE = sizes(
    IDS,
    "vocab_size=120 hidden_size=32 num_hidden_layers=2 num_attention_heads=4 "
    "num_key_value_heads=2 head_dim=8 intermediate_size=24 sliding_window=4 "
    "query_pre_attn_scalar=8",
    layer_types=["sliding_attention", "full_attention"],
)
_PICTURES = sizes(
    "hidden_size=32 num_hidden_layers=1 num_attention_heads=4 intermediate_size=24 image_size=16 "
    "patch_size=4"
)
MERGED = {
    "encoder": {
        "text_config": _SIDE,
        "vision_config": _PICTURES,
        "mm_tokens_per_image": 4,
        "boi_token_index": 117,
        "eoi_token_index": 118,
        "image_token_index": 119,
    },
    "decoder": _SIDE,
    "vocab_size": 120,
    "eoi_token_index": 118,
    "image_token_index": 119,
}
LAYERED = sizes(
    IDS,
    EXPERTS,
    "vocab_size=340 unpadded_vocab_size=340 hidden_size=32 num_hidden_layers=5 "
    "num_attention_heads=4 num_key_value_heads=2 head_dim=8 swa_num_attention_heads=4 "
    "swa_num_key_value_heads=2 swa_head_dim=8 sliding_window_size=4 d_rel=4 rel_extent=8 "
    "n_layers_per_attn_res_block=2",
    layer_types=["hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"],
)
INDEXED = sizes(
    IDS,
    EXPERTS,
    "vocab_size=340 hidden_size=32 num_hidden_layers=2 num_attention_heads=4 intermediate_size=24 "
    "max_position_embeddings=80 num_key_value_heads=4 q_lora_rank=8 kv_lora_rank=8 "
    "qk_rope_head_dim=4 qk_nope_head_dim=4 v_head_dim=8 n_group=1 topk_group=1 "
    "first_k_dense_replace=1 index_n_heads=2 index_head_dim=8 index_topk=3",
)
CHUNKED = sizes(
    GROUPED,
    EXPERTS,
    "vocab_size=340 attention_chunk_size=4 intermediate_size_mlp=24 num_hidden_layers=4",
)
MODELS = {
    "deepseek_v4": COMPRESSED,
    "t5gemma2": MERGED,
    "inkling2_text": LAYERED,
    "deepseek_v32": INDEXED,
    "glm_moe_dsa": INDEXED,
    "llama4_text": CHUNKED,
}


def save(folder: Path, kind: str, **more: object) -> Path:
    """A folder with a model of random weights, wide enough that no two heads agree."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**MODELS[kind], **more})
    seq2seq = config.is_encoder_decoder
    make: Any = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    if kind == "deepseek_v4":
        make = AutoModel  # transformers renames "model.norm" of a head's checkpoint, and loses it
    model = make.from_config(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1 or name.endswith(("query", "sinks")):
                weights.normal_(std=0.3)
    model.save_pretrained(folder)
    (unigram_pieces() if seq2seq else byte_pieces()).save_pretrained(folder)
    return folder
