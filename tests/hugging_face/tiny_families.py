"""A tiny configuration for each of many model families, and how its attention is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Route = Literal["probe", "eager", "refused"]
Kind = Literal["text", "pair", "apart", "image", "speech", "image and text", "joint", "windows"]


@dataclass(frozen=True)
class Family:
    """A family's small configuration, and what is expected of it."""

    sizes: Mapping[str, Any]
    kind: Kind = "text"  # "image and text": a tower each; "joint": one sequence
    route: Route = "probe"  # how its weights are read
    note: str = ""  # for the table in the documentation
    says: str = ""  # what the error of a refused family matches
    std: float = 0.3  # of the random weights


def sizes(*parts: Mapping[str, Any] | str, **more: Any) -> dict[str, Any]:
    """A configuration of others, of texts such as "hidden_size=32 num_heads=4", and of more."""
    made: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, str):
            part = {name: int(number) for name, number in (one.split("=") for one in part.split())}
        made |= part
    return made | more


IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WORDS = sizes(IDS, "vocab_size=50")
PLAIN = sizes(
    "hidden_size=32 num_hidden_layers=2 num_attention_heads=4 intermediate_size=24 "
    "max_position_embeddings=80"
)
TEXT = sizes(PLAIN, WORDS)
GROUPED = sizes(TEXT, "num_key_value_heads=2 head_dim=8")
WINDOW = sizes(GROUPED, "sliding_window=4")
OLD_GPT = sizes(WORDS, "n_embd=32 n_layer=2 n_head=4 n_positions=40")
SEQ2SEQ = sizes(
    WORDS,
    "d_model=32 encoder_layers=2 decoder_layers=2 encoder_attention_heads=4 "
    "decoder_attention_heads=4 encoder_ffn_dim=24 decoder_ffn_dim=24 max_position_embeddings=40 "
    "decoder_start_token_id=2",
)
T5 = sizes(
    WORDS,
    "d_model=32 d_kv=8 d_ff=24 num_layers=2 num_decoder_layers=3 num_heads=4 "
    "decoder_start_token_id=0",
)
EXPERTS = sizes(
    "num_local_experts=4 num_experts=4 num_experts_per_tok=2 moe_intermediate_size=16 "
    "n_routed_experts=4 n_shared_experts=1"
)
LATENT = sizes(
    TEXT,
    EXPERTS,
    "num_key_value_heads=4 q_lora_rank=8 kv_lora_rank=8 qk_rope_head_dim=4 qk_nope_head_dim=4 "
    "v_head_dim=8 n_group=1 topk_group=1 first_k_dense_replace=1",
)
MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 4, "mamba_d_head": 16, "mamba_n_groups": 1}
IMAGE = sizes(PLAIN, "image_size=16 patch_size=4")
STAGES = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
BOTH = {"text_config": TEXT, "vision_config": IMAGE}
FACTORED = sizes(TEXT, "embedding_size=16")
XLM = sizes(WORDS, "emb_dim=32 n_layers=2 n_heads=4 max_position_embeddings=40")

DELTA = sizes(
    GROUPED,
    "linear_num_key_heads=2 linear_num_value_heads=4 linear_key_head_dim=8 linear_value_head_dim=6",
    layer_types=["linear_attention", "full_attention"],
)
PYRAMID = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [3, 3],
    "strides": [2, 2],
    "padding": [1, 1],
}
CONVOLUTIONS = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
INDEXED = sizes(LATENT, "index_n_heads=2 index_head_dim=8 index_topk=40")


def alike(names: str, sizes: Any, *more: Any, **facts: Any) -> dict[str, Family]:
    """Families of one shape."""
    return {name: Family(sizes, *more, **facts) for name in names.split()}


def by_hand(sizes: Mapping[str, Any], note: str = "", **more: Any) -> Family:
    """A family that calls no attention kernel."""
    return Family(sizes, route="eager", note=note, **more)


def none(sizes: Mapping[str, Any], note: str, says: str = "", **more: Any) -> Family:
    """A family that is refused, by default with its note."""
    return Family(sizes, route="refused", note=note, says=says or note, **more)


FAMILIES: dict[str, Family] = {
    **alike("bart blenderbot blenderbot-small m2m_100 marian mbart pegasus plbart", SEQ2SEQ,
        "pair"),
    **alike("beit clip_vision_model deit dinov2 dinov2_with_registers siglip_vision_model vit",
        IMAGE, "image"),
    **alike("cohere exaone4 gemma glm glm4 granite helium llama nemotron olmo olmo2 phi phi3 "
        "qwen2 qwen3 smollm3 stablelm", GROUPED),
    **alike("bert camembert ernie layoutlm roberta splinter xlm-roberta biogpt gpt_neox persimmon",
        TEXT),
    # encoders
    "albert": Family(FACTORED, note="one module for all layers: numbered by the order of calls"),
    "big_bird": by_hand(sizes(TEXT, "block_size=2 num_random_blocks=1"),
        "full attention up to (5 + 2 × random blocks) × block size tokens; beyond refused"),
    "canine": none(sizes(TEXT, "num_hash_buckets=32"), "characters in windows, pooled", "windows"),
    "convbert": by_hand(sizes(FACTORED, "head_ratio=2 conv_kernel_size=3"),
        "half of its heads are convolutions"),
    "deberta": by_hand(TEXT),
    "deberta-v2": by_hand(sizes(TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "distilbert": Family(sizes(WORDS, "dim=32 n_layers=2 n_heads=4 hidden_dim=24")),
    "electra": Family(FACTORED),
    "esm": Family(sizes(TEXT, "mask_token_id=3", position_embedding_type="absolute")),
    "flaubert": by_hand(XLM),
    "fnet": none(TEXT, "Fourier transforms in place of attention", "no attention"),
    "funnel": none(sizes(WORDS, "d_model=32 n_head=4 d_head=8 d_inner=24 num_decoder_layers=1",
        block_sizes=[1, 1], architectures=["FunnelModel"]), "pools its tokens",
        "pool their tokens"),
    "ibert": by_hand(TEXT),
    "longformer": none(sizes(TEXT, "attention_window=4"), "windows and global tokens", "windows"),
    "luke": by_hand(sizes(TEXT, "entity_vocab_size=20 entity_emb_size=16")),
    "megatron-bert": by_hand(TEXT),
    "mobilebert": Family(sizes(TEXT, "embedding_size=16 intra_bottleneck_size=32 "
        "true_hidden_size=32"), std=0.1),
    "modernbert": Family(sizes(TEXT, "local_attention=4 global_attn_every_n_layers=2"),
        note="windows are zeros in the map"),
    "mpnet": by_hand(TEXT),
    "mra": none(TEXT, "multi-resolution approximation, kept to itself", "keeps it to itself"),
    "nystromformer": none(sizes(TEXT, "num_landmarks=7 segment_means_seq_len=7 "
        "conv_kernel_size=5"), "softmax and convolution, through landmarks where tokens are more",
        "landmarks"),
    "reformer": none(sizes(WORDS, "feed_forward_size=24 hidden_size=32 num_attention_heads=2 "
        "attention_head_size=16 local_attn_chunk_length=4 lsh_attn_chunk_length=4 num_buckets=2",
        axial_pos_embds=False, attn_layers=["local", "lsh"]), "buckets of a hash", "buckets"),
    "rembert": by_hand(sizes(TEXT, "input_embedding_size=16 output_embedding_size=16")),
    "roformer": by_hand(sizes(TEXT, "embedding_size=32")),
    "squeezebert": none(sizes(TEXT, "embedding_size=32 q_groups=1 k_groups=1 v_groups=1 "
        "post_attention_groups=1 intermediate_groups=1 output_groups=1"),
        "hands over scores before the softmax", "scores"),
    "xlm": by_hand(XLM),
    "xlnet": by_hand(sizes(WORDS, "d_model=32 n_layer=2 n_head=4 d_inner=24")),
    "yoso": none(TEXT, "samples by a hash", "samples"),
    # decoders
    "bamba": Family(sizes(GROUPED, MAMBA, attn_layer_indices=[1]),
        note="mamba layers in between: true layer numbers"),
    "bloom": by_hand(sizes(WORDS, "hidden_size=32 n_layer=2 n_head=4")),
    "codegen": Family(sizes(OLD_GPT, "rotary_dim=4")),
    "cohere2": Family(sizes(WINDOW, layer_types=["sliding_attention", "full_attention"])),
    "ctrl": Family(sizes(OLD_GPT, "dff=24")),
    "deepseek_v2": Family(LATENT, note="latent attention: values narrower than keys"),
    "deepseek_v3": Family(LATENT, note="latent attention: values narrower than keys"),
    "diffllama": none(GROUPED, "one attention minus another, so signed", "signed"),
    "falcon": by_hand(TEXT),
    "falcon_h1": Family(sizes(GROUPED, MAMBA, "mamba_d_ssm=32 mamba_d_head=8"),
        note="attention beside a mamba in each layer"),
    "falcon_mamba": none(sizes(WORDS, "hidden_size=16 num_hidden_layers=2 state_size=4"),
        "no attention"),
    "gemma2": Family(WINDOW, note="soft cap, so it runs eagerly; sliding windows are zeros"),
    "gemma3_text": Family(WINDOW, note="sliding windows are zeros"),
    "gemma3n_text": Family(sizes(WINDOW, "num_hidden_layers=4 num_kv_shared_layers=2 "
        "vocab_size_per_layer_input=50 hidden_size_per_layer_input=8 laurel_rank=4 "
        "altup_num_inputs=2", layer_types=["sliding_attention", "full_attention"] * 2,
        activation_sparsity_pattern=[0.0] * 4), note="its last layers take the keys and values of "
        "earlier ones; sliding windows are zeros"),
    "gpt2": Family(OLD_GPT),
    "gpt_bigcode": Family(OLD_GPT, note="one group of keys for all heads"),
    "gpt_neo": by_hand(sizes(WORDS, "max_position_embeddings=40 hidden_size=32 num_layers=2 "
        "num_heads=4 window_size=4", attention_types=[[["global", "local"], 1]]),
        "local windows are zeros"),
    "gpt_oss": Family(sizes(WINDOW, EXPERTS), note="sinks: rows sum to less than 1"),
    "gptj": Family(sizes(OLD_GPT, "rotary_dim=4")),
    "granitemoehybrid": Family(sizes(GROUPED, MAMBA,
        "num_local_experts=0 shared_intermediate_size=24", layer_types=["mamba", "attention"]),
        note="mamba layers in between: true layer numbers"),
    "jamba": Family(sizes(GROUPED, EXPERTS, "num_hidden_layers=4 attn_layer_period=2 "
        "attn_layer_offset=1 expert_layer_period=2 expert_layer_offset=1 mamba_d_state=4 "
        "mamba_dt_rank=4", use_mamba_kernels=False), note="mamba layers in between: true layer "
        "numbers"),
    "lfm2": Family(sizes(GROUPED, layer_types=["conv", "full_attention"]),
        note="convolutions in between: true layer numbers"),
    "llama4_text": Family(sizes(GROUPED, EXPERTS, "attention_chunk_size=4 "
        "intermediate_size_mlp=24 num_hidden_layers=4"), note="chunks are zeros in the map"),
    "mamba": none(sizes(WORDS, "hidden_size=16 num_hidden_layers=2 state_size=4"), "no attention"),
    "mamba2": none(sizes(WORDS, "hidden_size=32 num_hidden_layers=2 state_size=4 head_dim=16 "
        "num_heads=4 n_groups=1 expand=2"), "no attention"),
    "mistral": Family(WINDOW, note="sliding windows are zeros"),
    "mixtral": Family(sizes(WINDOW, EXPERTS)),
    "mpt": by_hand(sizes(WORDS, "d_model=32 n_layers=2 n_heads=4 max_seq_len=40")),
    "openai-gpt": by_hand(OLD_GPT),
    "opt": Family(sizes(TEXT, "ffn_dim=24 word_embed_proj_dim=32")),
    "qwen2_moe": Family(sizes(GROUPED, EXPERTS, "shared_expert_intermediate_size=16")),
    "qwen3_moe": Family(sizes(GROUPED, EXPERTS)),
    "qwen3_next": Family(sizes(GROUPED, EXPERTS, "num_hidden_layers=4 linear_num_key_heads=2 "
        "linear_num_value_heads=2 linear_key_head_dim=8 linear_value_head_dim=8 "
        "shared_expert_intermediate_size=16", layer_types=["linear_attention",
        "full_attention"] * 2), note="linear attention in between: true layer numbers"),
    "recurrent_gemma": Family(sizes(GROUPED, "attention_window_size=4 num_hidden_layers=3 "
        "lru_width=32"), note="recurrences in between: true layer numbers"),
    "rwkv": none(sizes(WORDS, "hidden_size=32 num_hidden_layers=2 attention_hidden_size=32"),
        "a recurrence", "recurrence"),
    "starcoder2": Family(WINDOW),
    "xglm": by_hand(sizes(WORDS, "d_model=32 num_layers=2 attention_heads=4 ffn_dim=24")),
    "zamba2": Family(sizes(TEXT, "num_hidden_layers=3 mamba_d_state=4 n_mamba_heads=4 "
        "mamba_headdim=16 chunk_size=4 num_mem_blocks=1 attention_head_dim=16 adapter_rank=4 "
        "num_key_value_heads=4", layers_block_type=["mamba", "hybrid", "hybrid"],
        use_mem_rope=False), note="one attention shared by layers: true layer numbers from the "
        "configuration"),
    # encoder–decoders
    "bigbird_pegasus": by_hand(sizes(SEQ2SEQ, "block_size=2 num_random_blocks=1"),
        "full attention up to (5 + 2 × random blocks) × block size tokens; beyond refused",
        kind="pair"),
    "fsmt": by_hand(sizes(SEQ2SEQ, "src_vocab_size=50 tgt_vocab_size=50", langs=["a", "b"]),
        kind="pair"),
    "led": by_hand(sizes(SEQ2SEQ, attention_window=[4, 4]), "the encoder, in windows and with "
        "tokens that see all, is left out", kind="apart"),
    "longt5": Family(sizes(T5, "local_radius=3"), "apart", std=0.2, note="the encoder, in windows "
        "or with summaries of blocks, is left out"),
    "mt5": Family(T5, "pair", std=0.2),
    "mvp": by_hand(SEQ2SEQ, kind="pair"),
    "nllb-moe": Family(sizes(SEQ2SEQ, "num_experts=2 expert_capacity=20", router_dtype="float32"),
        "pair"),
    "pegasus_x": Family(sizes(SEQ2SEQ, "block_size=4 num_global_tokens=2"), "apart",
        note="the encoder, in blocks and with tokens that see all, is left out"),
    "prophetnet": none(sizes(WORDS, "hidden_size=32 num_encoder_layers=2 num_decoder_layers=2 "
        "num_encoder_attention_heads=4 num_decoder_attention_heads=4 encoder_ffn_dim=24 "
        "decoder_ffn_dim=24 max_position_embeddings=40 ngram=2"), "several streams a decoder",
        "streams", kind="pair"),
    "switch_transformers": Family(sizes(T5, "num_experts=2 expert_capacity=20"), "pair"),
    "t5": Family(T5, "pair", std=0.2),
    "umt5": Family(T5, "pair", std=0.2),
    "whisper": Family(sizes(SEQ2SEQ, "num_mel_bins=8 max_source_positions=10 "
        "max_target_positions=40 vocab_size=60"), "speech"),
    # images
    "blip": none({"text_config": sizes(TEXT, "encoder_hidden_size=32 projection_dim=32"),
        "vision_config": IMAGE}, "without a kernel, and kept to itself where both towers run",
        "keeps it to itself", kind="image and text"),
    "clip": Family(BOTH, "image and text", note="both towers"),
    "convnext": none({"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, "convolutions",
        "no attention", kind="image"),
    "data2vec-vision": by_hand(IMAGE, kind="image"),
    "git": by_hand(sizes(TEXT, vision_config=IMAGE), "patches and text in one sequence; its "
        "vision tower can be probed", kind="joint"),
    "layoutlmv3": Family(sizes(TEXT, "input_size=16 patch_size=4 coordinate_size=5 shape_size=6 "
        "max_2d_position_embeddings=64")),
    "llava": Family({"text_config": sizes(GROUPED, model_type="llama"),
        "vision_config": sizes(IMAGE, model_type="clip_vision_model"), "image_token_index": 49,
        "image_token_id": 49}, "joint", note="patches and text in one sequence; the vision tower "
        "is a stream of its own"),
    "segformer": Family({"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
        "hidden_sizes": [16, 32], "num_attention_heads": [2, 4], "patch_sizes": [3, 3],
        "strides": [2, 2], "mlp_ratios": [1, 1]}, "windows",
        note="keys are patches made coarser; each stage has its own sizes"),
    "siglip": Family(BOTH, "image and text", note="both towers"),
    "swin": Family(sizes(STAGES, "window_size=4"), "windows",
        note="windows stand in the batch axis"),
    "swinv2": none(sizes(STAGES, "window_size=4"), "without a kernel, in windows", "windows",
        kind="image"),
    "vilt": by_hand(sizes(TEXT, "image_size=16 patch_size=4"), "text and patches in one sequence",
        kind="joint"),
    "vit_mae": Family(sizes(IMAGE, "decoder_hidden_size=16 decoder_num_attention_heads=2 "
        "decoder_num_hidden_layers=1", mask_ratio=0.0), "image",
        note="a drawn part of the patches"),
    "yolos": Family(sizes(IMAGE, "num_detection_tokens=3", image_size=[16, 16]), "image"),
}  # fmt: skip

MORE: dict[str, Family] = {
    **alike("bert-generation data2vec-text esmc eurobert gpt-sw3 gte jina_embeddings_v3 "
        "nomic_bert roberta-prelayernorm ultrabert xlm-roberta-xl clip_text_model", TEXT),
    "gpt_neox_japanese": by_hand(TEXT),
    "lilt": by_hand(sizes(TEXT, "max_2d_position_embeddings=64 channel_shrink_ratio=2 "
        "hidden_size=48")),
    "markuplm": Family(sizes(TEXT, "max_depth=4 xpath_unit_hidden_size=4 "
        "max_xpath_tag_unit_embeddings=10 max_xpath_subs_unit_embeddings=10 tag_pad_id=1 "
        "subs_pad_id=1")),
    "roc_bert": Family(sizes(TEXT, "pronunciation_vocab_size=20 shape_vocab_size=20 "
        "pronunciation_embed_dim=8 shape_embed_dim=8")),
    "tapas": by_hand(TEXT),
    "visual_bert": by_hand(sizes(TEXT, "visual_embedding_dim=8")),
    "xmod": Family(sizes(TEXT, languages=["en_XX"], default_language="en_XX")),
    **alike("afmoe apertus arcee aria_text bitnet cohere2_moe cwm doge dots1 ernie4_5 "
        "ernie4_5_moe exaone_moe flex_olmo flint glm4_moe granitemoe granitemoeshared "
        "hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax internlm3 iquestcoder jais2 jetmoe "
        "kolibri1 laguna mellum mimo_v2_flash minimax_m2 ministral ministral3 modernbert-decoder "
        "nanochat olmo3 olmoe phimoe seed_oss solar_open vaultgemma", {**GROUPED, **EXPERTS}),
    **alike("axk1 glm4_moe_lite minicpm3 youtu", LATENT, note="latent attention: values narrower "
        "than keys"),
    **alike("axk2 deepseek_v32 glm_moe_dsa", INDEXED, note="an indexer chooses keys: those left "
        "out are zeros"),
    "gemma4_text": Family(sizes(WINDOW, "vocab_size_per_layer_input=50 "
        "hidden_size_per_layer_input=8 global_head_dim=8 num_global_key_value_heads=2"),
        note="sliding windows are zeros"),
    "zaya": Family(sizes(GROUPED, EXPERTS, "num_experts_per_tok=1 hidden_size=64")),
    "t5gemma": Family({"encoder": WINDOW, "decoder": WINDOW, "vocab_size": 50}, "pair"),
    # with layers that have no attention
    "bailing_hybrid": none(sizes(TEXT, EXPERTS), "no attention"),
    "kimi_linear": Family(sizes(LATENT, "linear_num_heads=2 linear_head_dim=8",
        layer_types=["linear_attention", "full_attention"]),
        note="linear attention in between: true layer numbers"),
    **alike("lfm2_moe lfm3", {**GROUPED, **EXPERTS, "layer_types": ["conv", "full_attention"]},
        note="convolutions in between: true layer numbers"),
    "minimax": Family(sizes(GROUPED, EXPERTS, "block_size=4", layer_types=["full_attention",
        "linear_attention"]), note="linear attention in between: true layer numbers"),
    "nemotron_h": Family(sizes(GROUPED, EXPERTS, "mamba_num_heads=4 mamba_head_dim=16 "
        "ssm_state_size=4 n_groups=2", layers_block_type=["mamba", "attention"]),
        note="mamba layers in between: true layer numbers"),
    **alike("olmo_hybrid qwen3_5_text qwen3_5_moe_text", {**DELTA, **EXPERTS,
        "shared_expert_intermediate_size": 16}, note="linear attention in between: true layer "
        "numbers"),
    "xlstm": none(sizes(WORDS, "hidden_size=32 num_blocks=2 num_heads=4 chunk_size=4"),
        "no attention"),
    "encoder-decoder": Family({"encoder": sizes(TEXT, model_type="bert"), "decoder": sizes(TEXT,
        model_type="bert", is_decoder=True, add_cross_attention=True)}, "pair",
        note="two models: the decoder may be of an encoder's kind, with cross-attention"),
    # images
    **alike("aimv2_vision_model chinese_clip_vision_model dinov3_vit dpt ijepa mlcd_vision_model "
        "pixio tipsv2_vision_model vit_msn", IMAGE, "image"),
    **alike("altclip chinese_clip clipseg metaclip_2 owlvit tipsv2", BOTH, "image and text"),
    "donut-swin": none(sizes(STAGES, "window_size=4"), "without a kernel, in windows", "windows",
        kind="image"),
    "vitdet": by_hand(IMAGE, kind="image"),
    **{
        name: none(sizes, "no attention", kind="image")
        for name, sizes in {
            "focalnet": {"image_size": 16, "embed_dim": 8, "depths": [1, 1]},
            "mobilenet_v2": {"image_size": 16, "depth_multiplier": 0.1},
            "poolformer": PYRAMID,
            "regnet": CONVOLUTIONS,
            "resnet": CONVOLUTIONS,
        }.items()
    },
}  # fmt: skip
"""Further families, which only the tests of weights and of the documentation take."""

EVERY = {**FAMILIES, **MORE}


STREAMS: dict[str, list[str]] = {
    "text": ["self"],
    "joint": ["self"],
    "pair": ["cross", "encoder", "decoder"],
    "apart": ["cross", "decoder"],
    "speech": ["cross", "encoder", "decoder"],
    "image": ["vision"],
    "windows": ["vision"],
    "image and text": ["text", "vision"],
}


def streams_of(name: str) -> list[str]:
    """What is read of a family, in order."""
    family = FAMILIES[name]
    return [] if family.route == "refused" else STREAMS[family.kind]


ALIKE = """
blenderbot-small camembert cohere2 deepseek_v3 electra ernie exaone4 glm4 granite helium ibert
layoutlm megatron-bert mt5 mvp nemotron olmo2 phi3 plbart qwen2 qwen3_moe smollm3 splinter stablelm
starcoder2 umt5 xlm-roberta
"""
"""Families that mask, count positions and attend as others do: their weights alone are compared."""
UNLIKE = {name: family for name, family in FAMILIES.items() if name not in ALIKE.split()}
