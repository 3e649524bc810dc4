"""The architectures that one network runs: what their configurations may say, and their weights.

A row names every key of a configuration that it understands. Any other key or value belongs to
transformers: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import pi
from typing import Any

from attnviz.models.light.network import Block, Shape, UnknownArchitecture

Config = Mapping[str, Any]
FREE = (
    "_name_or_path architectures attention_dropout attention_probs_dropout_prob attn_pdrop "
    "bos_token_id classifier_dropout dropout dtype embd_pdrop eos_token_id finetuning_task "
    "gradient_checkpointing hidden_dropout hidden_dropout_prob hidden_dropout_rate id2label "
    "initializer_range init_std label2id layerdrop model_type output_past pad_token_id "
    "pretraining_tp problem_type qa_dropout resid_pdrop seq_classif_dropout summary_activation "
    "summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type "
    "summary_use_proj task_specific_params tie_word_embeddings torch_dtype transformers_version "
    "use_cache"
)
"""Keys of any configuration that no attention of a loaded model depends on."""
COMMON: Config = {
    "chunk_size_feed_forward": 0,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "output_attentions": False,
    "output_hidden_states": False,
    "return_dict": True,
}
"""Keys of any configuration that must have these values, where they are there."""
FUNCTIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""The activation of each name."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row: how a configuration becomes a shape, and where its weights lie.

    Attributes:
        shape: what all its models have in common.
        numbers: fields of a shape, and the configuration's key of each; a model has them all.
        model: the class of transformers, without its head.
        tokenizer: the class of its tokenizer, where tokenizer_config.json names none.
        prefix: stands before its weights in a checkpoint with a head.
        words: its embeddings, and those of positions, of the first or second text, their norm.
        offset: unused positions before the first; None: up to the padding's number.
        scaled: whether embeddings are multiplied by the root of their size.
        choices: further keys, with the values allowed; the first where the key is missing.
        unused: further keys that no attention depends on.
        complete: sets what depends on several keys.
        unbiased: the maps without a bias.
        transposed: whether maps are stored as (inputs, outputs).
        cuts: maps that are a third of one, "heads" by heads: a stored map for all three.
        left_out: beginnings of weights that no attention depends on.
    """

    shape: Shape
    numbers: Mapping[str, str]
    model: str
    tokenizer: str
    prefix: str
    words: str
    positions: str = ""
    types: str = ""
    embedding_norm: str = ""
    offset: int | None = 0
    scaled: bool = False
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    unused: str = ""
    complete: Callable[[Shape, Config], Shape] = lambda shape, _: shape
    unbiased: Callable[[Config], tuple[str, ...]] = lambda _: ()
    transposed: bool = False
    cuts: str = ""
    left_out: tuple[str, ...] = ()

    def shape_of(self, config: Config) -> Shape:
        """The shape that a configuration asks for.

        Raises:
            UnknownArchitecture: a key or a value that the row does not know.
        """
        choices = {**{key: (value,) for key, value in COMMON.items()}, **self.choices}
        known = {*FREE.split(), *choices, *self.numbers.values(), *self.unused.split()}
        for key, value in config.items():
            if key not in known:
                raise UnknownArchitecture(f"its configuration has the key '{key}'")
            if key in choices and value not in choices[key]:
                raise UnknownArchitecture(f"its configuration has '{key}' {value!r}")
        found = {}
        for name, key in self.numbers.items():
            value = config.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                raise UnknownArchitecture(f"its configuration has no number '{key}'")
            found[name] = value
        shape = self.complete(replace(self.shape, **found), config)
        if shape.key_heads == shape.heads:
            shape = replace(shape, key_heads=0)
        if shape.heads % (shape.key_heads or 1) or (
            shape.size % shape.heads and not shape.head_size
        ):
            raise UnknownArchitecture("its heads do not divide its size")
        return shape

    def expected(self, config: Config, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight that the network reads, and its shape."""
        size, inner, whole = shape.size, shape.inner, shape.heads * shape.head_features
        some, bare = (shape.key_heads or shape.heads) * shape.head_features, self.unbiased(config)
        lines = [(whole, size), (some, size), (some, size), (size, whole)]
        parts = [(shape.attention, lines)]
        parts += [(shape.cross, lines)] if shape.cross else []
        gates = [(inner, size)] * (len(shape.feed_forward.maps) - 1)
        parts += [(shape.feed_forward, [*gates, (size, inner)])]
        ends = ("weight", "bias") if shape.norm == "layer" else ("weight",)
        yield f"{self.words}.weight", (shape.vocabulary, size)
        yield from ((f"{name}.weight", (-1, size)) for name in (self.positions, self.types) if name)
        norms = [name for name in (self.embedding_norm, shape.last_norm) if name]
        for number in range(shape.layers):
            layer = shape.layer.format(number)
            for block, sizes in parts:
                name = f"{layer}.{block.name}" if block.name else layer
                for one, (outputs, inputs) in zip(block.maps, sizes, strict=True):
                    yield f"{name}.{one}.weight", (outputs, inputs)
                    if one not in bare:
                        yield f"{name}.{one}.bias", (outputs,)
                own = (block.before, block.within, block.after)
                norms += [f"{layer}.{norm}" for norm in own if norm]
            for norm in (shape.query_norm, shape.key_norm):
                if norm:
                    yield f"{layer}.{shape.attention.name}.{norm}.weight", (shape.head_features,)
        yield from ((f"{norm}.{end}", (size,)) for norm in norms for end in ends)


def turns_of(
    config: Config, size: int, given: Mapping[str, Any] | None = None, base: float = 10000.0
) -> tuple[float, ...]:
    """The radians by which a position turns each pair of a head's features.

    `given` are its parameters; None: those that the configuration names in either way.
    """
    if given is None:
        given = config.get("rope_parameters") or config.get("rope_scaling") or {}
        given = {"rope_theta": config.get("rope_theta", base), **given}
    kind = str(given.get("rope_type", given.get("type", "default")))
    pairs = int(size * given.get("partial_rotary_factor", 1.0)) // 2
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor", *SCALINGS.get(kind, ())}
    if kind not in SCALINGS or given.keys() - known or {*SCALINGS[kind]} - given.keys():
        raise UnknownArchitecture(f"its positions are scaled by {dict(given)}")
    plain = [float(given["rope_theta"]) ** (-pair / pairs) for pair in range(pairs)]
    if kind == "linear":
        return tuple(turn / given["factor"] for turn in plain)
    if kind == "llama3":
        return tuple(_slow_down(turn, given) for turn in plain)
    return tuple(plain)


SCALINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}
"""The ways to scale positions for longer texts, with the parameters of each."""


def _slow_down(turn: float, given: Mapping[str, Any]) -> float:
    """A turn as Llama 3 scales it: slow ones by the factor, fast ones not, between them in part."""
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    rounds = given["original_max_position_embeddings"] * turn / (2 * pi)
    share = min(max((rounds - low) / (high - low), 0.0), 1.0)
    return turn * (share + (1 - share) / given["factor"])


def _choose_activation(shape: Shape, config: Config, key: str, usual: str) -> Shape:
    name = config.get(key, usual)
    if name not in FUNCTIONS:
        raise UnknownArchitecture(f"its activation is '{name}'")
    return replace(shape, activation=FUNCTIONS[name])


def _complete_bert(shape: Shape, config: Config) -> Shape:
    return _choose_activation(shape, config, "hidden_act", "gelu")


def _complete_llama(shape: Shape, config: Config) -> Shape:
    shape = _choose_activation(shape, config, "hidden_act", "silu")
    size = config.get("head_dim") or shape.head_features
    shape = replace(shape, head_size=int(size), turns=turns_of(config, int(size)))
    return replace(shape, key_heads=int(config.get("num_key_value_heads") or shape.heads))


def _unbiased_llama(config: Config) -> tuple[str, ...]:
    attention = () if config.get("attention_bias") else LLAMA.attention.maps
    return (*attention, *(() if config.get("mlp_bias") else LLAMA.feed_forward.maps))


SIZES = {
    "vocabulary": "vocab_size",
    "size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
}
BERT = Shape(
    layer="encoder.layer.{}",
    attention=Block(
        "attention",
        ("self.query", "self.key", "self.value", "output.dense"),
        after="attention.output.LayerNorm",
    ),
    feed_forward=Block("", ("intermediate.dense", "output.dense"), after="output.LayerNorm"),
)
LLAMA = Shape(
    layer="layers.{}",
    attention=Block(
        "self_attn", ("q_proj", "k_proj", "v_proj", "o_proj"), before="input_layernorm"
    ),
    feed_forward=Block(
        "mlp", ("gate_proj", "up_proj", "down_proj"), before="post_attention_layernorm"
    ),
    last_norm="norm",
    norm="rms",
    epsilon=1e-6,
    activation="silu",
    causal=True,
)
VIT = Shape(
    layer="encoder.layer.{}",
    attention=Block(
        "attention",
        ("attention.query", "attention.key", "attention.value", "output.dense"),
        before="layernorm_before",
    ),
    feed_forward=Block("", ("intermediate.dense", "output.dense"), before="layernorm_after"),
    last_norm="layernorm",
)
ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(
        BERT,
        {**SIZES, "epsilon": "layer_norm_eps"},
        model="BertModel",
        tokenizer="BertTokenizer",
        prefix="bert",
        words="embeddings.word_embeddings",
        positions="embeddings.position_embeddings",
        types="embeddings.token_type_embeddings",
        embedding_norm="embeddings.LayerNorm",
        choices={"position_embedding_type": ("absolute",)},
        unused="max_position_embeddings type_vocab_size hidden_act",
        complete=_complete_bert,
        left_out=("embeddings.position_ids", "pooler.", "cls."),
    ),
    "llama": Architecture(
        LLAMA,
        {**SIZES, "epsilon": "rms_norm_eps"},
        model="LlamaModel",
        tokenizer="",
        prefix="model",
        words="embed_tokens",
        choices={"attention_bias": (False, True), "mlp_bias": (False, True)},
        unused="max_position_embeddings hidden_act head_dim num_key_value_heads rope_theta "
        "rope_scaling rope_parameters",
        complete=_complete_llama,
        unbiased=_unbiased_llama,
        left_out=("lm_head.", "rotary_emb."),
    ),
}
"""The rows by model type."""


def with_prefix(shape: Shape, prefix: str) -> Shape:
    """The shape for weights that all have a word before their names."""
    last = shape.last_norm and f"{prefix}.{shape.last_norm}"
    return replace(shape, layer=f"{prefix}.{shape.layer}", last_norm=last)
