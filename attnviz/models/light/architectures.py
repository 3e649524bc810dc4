"""The rows of the architectures that one network runs: shapes, configuration keys, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attnviz.models.light.architecture import Architecture, Config, _stretch_of, rope_of, turns_of
from attnviz.models.light.network import LayerPart, Shape, UnknownArchitecture


def _pair_turns(shape: Shape, config: Config) -> Shape:
    """With the size of a head, the heads that share keys, and the turns of positions."""
    size = int(shape.head_size or config.get("head_dim") or shape.head_features)
    key_heads = shape.key_heads or int(config.get("num_key_value_heads") or shape.heads)
    return _with_turns(replace(shape, head_size=size, key_heads=key_heads), rope_of(config))


def _with_turns(shape: Shape, rope: Mapping[str, Any]) -> Shape:
    return replace(shape, turns=turns_of(rope, shape.head_features), stretch=_stretch_of(rope))


def _complete_mistral(shape: Shape, config: Config) -> Shape:
    window = config.get("sliding_window", 4096)
    if window == 0:  # no window here, and one without keys in transformers
        raise UnknownArchitecture("its window has no token")
    windows = (window,) * shape.layers if window else ()
    return replace(_pair_turns(shape, config), windows=windows)


def _complete_qwen(shape: Shape, config: Config) -> Shape:
    if {*(config.get("layer_types") or ())} - {"full_attention"}:
        raise UnknownArchitecture("some of its layers have windows")
    return _pair_turns(shape, config)


def _complete_gemma(shape: Shape, config: Config, pattern: int = 2) -> Shape:
    kinds = ("full_attention", "sliding_attention")
    usual = [kinds[(n + 1) % pattern != 0] for n in range(shape.layers)]
    types, window = config.get("layer_types") or usual, config.get("sliding_window", 4096)
    if len(types) != shape.layers or {*types} - {*kinds} or not window:
        raise UnknownArchitecture("its layers have no windows")
    return replace(
        shape,
        multiplier=config.get("query_pre_attn_scalar", 256) ** -0.5,
        windows=tuple(0 if kind == "full_attention" else int(window) for kind in types),
    )


def _complete_gemma2(shape: Shape, config: Config) -> Shape:
    cap = config.get("attn_logit_softcapping", 50.0)
    if cap == 0:  # by which transformers divides
        raise UnknownArchitecture("its cap of scores is 0")
    return _complete_gemma(replace(_pair_turns(shape, config), cap=cap), config)


def _complete_gemma3(shape: Shape, config: Config) -> Shape:
    rope = config.get("rope_parameters") or {}
    if rope.keys() - {"full_attention", "sliding_attention"}:
        raise UnknownArchitecture("its positions have no kinds")
    whole, local = (dict(rope.get(f"{name}_attention") or {}) for name in ("full", "sliding"))
    whole |= config.get("rope_scaling") or {}
    whole.setdefault("rope_theta", config.get("rope_theta", 1e6))
    local.setdefault("rope_theta", config.get("rope_local_base_freq", 1e4))
    if "_sliding_window_pattern" in config and not config.get("layer_types"):
        raise UnknownArchitecture("its pattern of windows is transformers' own")
    pattern = config.get("sliding_window_pattern", 6)
    if _stretch_of(whole) != 1 or _stretch_of(local) != 1:
        raise UnknownArchitecture("its positions of one kind are stretched")
    turns, others = (turns_of(one, shape.head_size) for one in (whole, local))
    return _complete_gemma(replace(shape, turns=turns, window_turns=others), config, pattern)


def _complete_neox(shape: Shape, config: Config) -> Shape:
    rope = {
        "rope_theta": config.get("rotary_emb_base", 1e4),
        "partial_rotary_factor": config.get("rotary_pct", 0.25),
        **(config.get("rope_scaling") or config.get("rope_parameters") or {}),
    }
    parallel = config.get("use_parallel_residual", True)
    return _with_turns(replace(shape, parallel=bool(parallel)), rope)


def _complete_opt(shape: Shape, config: Config) -> Shape:
    if config.get("word_embed_proj_dim", shape.size) != shape.size:
        raise UnknownArchitecture("its embeddings have another size")
    if config.get("do_layer_norm_before", True):
        return shape
    after: dict[str, Any] = {
        name: replace(block, before="", after=block.before)
        for name, block in (("attention", shape.attention), ("feed_forward", shape.feed_forward))
    }
    return replace(shape, last_norm="", **after)


def _complete_bart(shape: Shape, config: Config) -> Shape:
    usual = {"num_hidden_layers": "encoder_layers", "decoder_vocab_size": "vocab_size"}
    for key, like in usual.items():
        if config.get(key) not in (None, config[like]):
            raise UnknownArchitecture(f"its configuration has '{key}' {config[key]!r}")
    return replace(shape, scales_embeddings=bool(config.get("scale_embedding", False)))


def _bare_maps(shape: Shape, *, attention: bool, inner: bool = False) -> tuple[str, ...]:
    """The maps without a bias, where those of attention and of feed-forward parts have one."""
    first = () if attention else shape.attention.maps
    return (*first, *(() if inner else shape.feed_forward.maps))


SIZES = "vocab_size hidden_size num_hidden_layers num_attention_heads"
SELF = "self.query self.key self.value output.dense"
BERT = Shape(
    layer="encoder.layer.{}",
    attention=LayerPart("attention", SELF, after="attention.output.LayerNorm"),
    feed_forward=LayerPart("", "intermediate.dense output.dense", after="output.LayerNorm"),
    activation="gelu",
)
ROTARY = Shape(
    layer="layers.{}",
    attention=LayerPart("self_attn", "q_proj k_proj v_proj o_proj", before="input_layernorm"),
    feed_forward=LayerPart("mlp", "gate_proj up_proj down_proj", before="post_attention_layernorm"),
    last_norm="norm",
    norm="rms",
    activation="silu",
    causal=True,
)
GEMMA = replace(
    ROTARY,
    attention=replace(ROTARY.attention, within="post_attention_layernorm"),
    feed_forward=replace(
        ROTARY.feed_forward, before="pre_feedforward_layernorm", within="post_feedforward_layernorm"
    ),
    norm="rms from 0",
    activation="gelu_tanh",
    scales_embeddings=True,
)
BERT_ROW = Architecture(
    BERT,
    f"{SIZES} intermediate_size layer_norm_eps",
    model="BertModel",
    tokenizer="BertTokenizer",
    prefix="bert",
    words="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    types="embeddings.token_type_embeddings",
    embedding_norm="embeddings.LayerNorm",
    activation="hidden_act",
    choices={"position_embedding_type": ("absolute",)},
    others="max_position_embeddings type_vocab_size",
    left_out=r"(embeddings\.position_ids|pooler\.|cls\.)",
)
ROBERTA_ROW = replace(
    BERT_ROW,
    model="RobertaModel",
    tokenizer="RobertaTokenizer",
    prefix="roberta",
    offset=None,
    left_out=r"(embeddings\.position_ids|pooler\.|lm_head\.)",
)
LLAMA_ROW = Architecture(
    ROTARY,
    f"{SIZES} intermediate_size rms_norm_eps",
    model="LlamaModel",
    tokenizer="",
    prefix="model",
    words="embed_tokens",
    activation="hidden_act",
    choices={"attention_bias": (False, True), "mlp_bias": (False, True)},
    others="max_position_embeddings head_dim num_key_value_heads rope_theta rope_scaling "
    "rope_parameters",
    complete=_pair_turns,
    bare_maps=lambda config: _bare_maps(
        ROTARY, attention=bool(config.get("attention_bias")), inner=bool(config.get("mlp_bias"))
    ),
    left_out=r"(lm_head\.|.*rotary_emb\.inv_freq$)",
)
GROUPED = f"{LLAMA_ROW.numbers} num_key_value_heads"
QWEN3_ROW = replace(
    LLAMA_ROW,
    shape=replace(ROTARY, query_norm="q_norm", key_norm="k_norm"),
    numbers=f"{GROUPED} head_dim",
    model="Qwen3Model",
    tokenizer="Qwen2Tokenizer",
    choices={"attention_bias": (False, True), "use_sliding_window": (False,)},
    others=f"{LLAMA_ROW.others} sliding_window max_window_layers layer_types",
    complete=_complete_qwen,
)
GEMMA2_ROW = replace(
    QWEN3_ROW,
    shape=GEMMA,
    model="Gemma2Model",
    tokenizer="GemmaTokenizer",
    activation="hidden_activation",
    choices={"attention_bias": (False, True), "use_bidirectional_attention": (None, False)},
    others=f"{LLAMA_ROW.others} sliding_window layer_types query_pre_attn_scalar hidden_act "
    "attn_logit_softcapping final_logit_softcapping cache_implementation",
    complete=_complete_gemma2,
)
BART = Shape(
    layer="encoder.layers.{}",
    attention=LayerPart("self_attn", "q_proj k_proj v_proj out_proj", after="self_attn_layer_norm"),
    feed_forward=LayerPart("", "fc1 fc2", after="final_layer_norm"),
    activation="gelu",
)
BART_ENCODER = Architecture(
    BART,
    "vocab_size d_model encoder_layers encoder_attention_heads encoder_ffn_dim",
    model="BartModel",
    tokenizer="RobertaTokenizer",
    prefix="model",
    words="shared",
    positions="encoder.embed_positions",
    embedding_norm="encoder.layernorm_embedding",
    offset=2,
    activation="activation_function",
    choices={
        "is_encoder_decoder": (True,),
        "tie_word_embeddings": (True,),
        "scale_embedding": (False, True),
        "share_encoder_decoder_embeddings": (True,),
        # Read by no version that loads them.
        **dict.fromkeys(("normalize_before", "add_bias_logits", "add_final_layer_norm"), (False,)),
        **dict.fromkeys(("normalize_embedding", "static_position_embeddings"), (False, True)),
    },
    others="encoder_layers encoder_attention_heads encoder_ffn_dim decoder_layers "
    "decoder_attention_heads decoder_ffn_dim decoder_vocab_size num_hidden_layers "
    "max_position_embeddings activation_dropout classif_dropout encoder_layerdrop "
    "decoder_layerdrop decoder_start_token_id forced_eos_token_id",
    complete=_complete_bart,
    left_out=r"(lm_head\.|final_logits_bias$|(en|de)coder\.(embed_tokens|version))",
    copies="encoder.embed_tokens decoder.embed_tokens",
)
BART_ROW = replace(
    BART_ENCODER,
    shape=replace(
        BART,
        layer="decoder.layers.{}",
        cross=replace(BART.attention, name="encoder_attn", after="encoder_attn_layer_norm"),
        causal=True,
    ),
    numbers="vocab_size d_model decoder_layers decoder_attention_heads decoder_ffn_dim",
    positions="decoder.embed_positions",
    embedding_norm="decoder.layernorm_embedding",
    encoder=BART_ENCODER,
)
MARIAN: dict[str, Any] = {"model": "MarianModel", "embedding_norm": "", "offset": 0, "waves": True}
MARIAN["left_out"] = BART_ROW.left_out.replace("embed_tokens", "embed_tokens|embed_positions")
ARCHITECTURES: dict[str, Architecture] = {
    "bart": BART_ROW,
    "marian": replace(BART_ROW, **MARIAN, encoder=replace(BART_ENCODER, **MARIAN)),
    "bert": BERT_ROW,
    "roberta": ROBERTA_ROW,
    "xlm-roberta": replace(ROBERTA_ROW, model="XLMRobertaModel", tokenizer="XLMRobertaTokenizer"),
    "distilbert": replace(
        BERT_ROW,
        shape=Shape(
            layer="transformer.layer.{}",
            attention=LayerPart("attention", "q_lin k_lin v_lin out_lin", after="sa_layer_norm"),
            feed_forward=LayerPart("ffn", "lin1 lin2", after="output_layer_norm"),
            activation="gelu",
            epsilon=1e-12,
        ),
        numbers="vocab_size dim n_layers n_heads hidden_dim",
        model="DistilBertModel",
        prefix="distilbert",
        types="",
        activation="activation",
        choices={"sinusoidal_pos_embds": (False, True)},
        others="max_position_embeddings tie_weights_",
        left_out=r"(embeddings\.position_ids|vocab_)",
    ),
    "electra": replace(
        BERT_ROW,
        model="ElectraModel",
        prefix="electra",
        width="embedding_size",
        projection="embeddings_project",
        others=f"{BERT_ROW.others} embedding_size",
        left_out=r"(embeddings\.position_ids|generator_|discriminator_)",
    ),
    "llama": LLAMA_ROW,
    "mistral": replace(
        LLAMA_ROW,
        numbers=GROUPED,
        model="MistralModel",
        choices={},
        others=f"{LLAMA_ROW.others} sliding_window",
        complete=_complete_mistral,
        bare_maps=lambda _: _bare_maps(ROTARY, attention=False),
    ),
    "qwen2": replace(
        QWEN3_ROW,
        shape=ROTARY,
        numbers=GROUPED,
        model="Qwen2Model",
        choices={"use_sliding_window": (False,)},
        bare_maps=lambda _: ("o_proj", *ROTARY.feed_forward.maps),
    ),
    "qwen3": QWEN3_ROW,
    "gemma2": GEMMA2_ROW,
    "gemma3_text": replace(
        GEMMA2_ROW,
        shape=replace(GEMMA, query_norm="q_norm", key_norm="k_norm"),
        model="Gemma3TextModel",
        choices={**GEMMA2_ROW.choices, "attn_logit_softcapping": (None,)},
        others=f"{GEMMA2_ROW.others} rope_local_base_freq sliding_window_pattern "
        "_sliding_window_pattern",
        complete=_complete_gemma3,
    ),
    "gpt2": Architecture(
        Shape(
            layer="h.{}",
            attention=LayerPart("attn", "c_attn#0 c_attn#1 c_attn#2 c_proj", before="ln_1"),
            feed_forward=LayerPart("mlp", "c_fc c_proj", before="ln_2"),
            last_norm="ln_f",
            causal=True,
        ),
        "vocab_size n_embd n_layer n_head - layer_norm_epsilon",
        model="GPT2Model",
        tokenizer="GPT2Tokenizer",
        prefix="transformer",
        words="wte",
        positions="wpe",
        activation="activation_function",
        choices={
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "reorder_and_upcast_attn": (False, True),
        },
        others="n_positions n_ctx n_inner",
        complete=lambda shape, config: replace(
            shape, inner=config.get("n_inner") or 4 * shape.size
        ),
        is_transposed=True,
        left_out=r"(lm_head\.|h\.\d+\.attn\.(masked_)?bias$)",
    ),
    "opt": Architecture(
        Shape(
            layer="decoder.layers.{}",
            attention=LayerPart(
                "self_attn", "q_proj k_proj v_proj out_proj", before="self_attn_layer_norm"
            ),
            feed_forward=LayerPart("", "fc1 fc2", before="final_layer_norm"),
            last_norm="decoder.final_layer_norm",
            activation="relu",
            causal=True,
        ),
        f"{SIZES} ffn_dim",
        model="OPTModel",
        tokenizer="GPT2Tokenizer",
        prefix="model",
        words="decoder.embed_tokens",
        positions="decoder.embed_positions",
        offset=2,
        activation="activation_function",
        choices={
            "enable_bias": (True,),
            "layer_norm_elementwise_affine": (True,),
            "_remove_final_layer_norm": (False,),
            "do_layer_norm_before": (True, False),
        },
        others="max_position_embeddings word_embed_proj_dim prefix activation_dropout",
        complete=_complete_opt,
        left_out=r"lm_head\.",
    ),
    "gpt_neox": Architecture(
        Shape(
            layer="layers.{}",
            attention=LayerPart(
                "attention",
                "query_key_value#0 query_key_value#1 query_key_value#2 dense",
                before="input_layernorm",
            ),
            feed_forward=LayerPart(
                "mlp", "dense_h_to_4h dense_4h_to_h", before="post_attention_layernorm"
            ),
            last_norm="final_layer_norm",
            activation="gelu",
            causal=True,
        ),
        f"{SIZES} intermediate_size layer_norm_eps",
        model="GPTNeoXModel",
        tokenizer="GPTNeoXTokenizer",
        prefix="gpt_neox",
        words="embed_in",
        activation="hidden_act",
        choices={"attention_bias": (True, False), "use_parallel_residual": (True, False)},
        others="max_position_embeddings rotary_pct rotary_emb_base rope_theta rope_scaling "
        "rope_parameters",
        complete=_complete_neox,
        bare_maps=lambda config: (
            ()
            if config.get("attention_bias", True)
            else ARCHITECTURES["gpt_neox"].shape.attention.maps
        ),
        cuts="heads",
        left_out=r"(embed_out\.|.*\.rotary_emb\.inv_freq$|.*\.attention\.(masked_)?bias$)",
    ),
}
"""The rows by model type."""


def with_prefix(shape: Shape, prefix: str) -> Shape:
    """The shape for weights that all have a word before their names."""
    last = shape.last_norm and f"{prefix}.{shape.last_norm}"
    return replace(shape, layer=f"{prefix}.{shape.layer}", last_norm=last)
