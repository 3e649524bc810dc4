"""The architectures that one network runs: what their configurations may say, and their weights.

A row names every key of a configuration that it understands. Any other key or value belongs to
transformers: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, floor, log, pi, sqrt
from typing import Any

import numpy as np

from attnviz.core.records import dataclass, field, replace
from attnviz.models.light.network import Shape, UnknownArchitecture

Config = Mapping[str, Any]
NUMBERS = ["vocabulary", "size", "layers", "heads", "inner", "epsilon", "key_heads", "head_size"]
NUMBERS += ["side", "patch"]
"""The fields of a shape that a configuration names."""
FREE = (
    "_name_or_path attention_dropout attention_probs_dropout_prob attn_pdrop "
    "bos_token_id classifier_dropout dropout embd_pdrop finetuning_task "
    "gradient_checkpointing hidden_dropout hidden_dropout_prob hidden_dropout_rate "
    "initializer_range init_std layerdrop model_type output_past pad_token_id "
    "pretraining_tp problem_type qa_dropout resid_pdrop seq_classif_dropout summary_activation "
    "summary_first_dropout summary_last_dropout summary_proj_to_labels summary_type "
    "summary_use_proj tie_word_embeddings transformers_version "
    "use_cache"
)
"""Keys of any configuration that no attention of a loaded model depends on."""
LISTS = {"architectures": list, "eos_token_id": int | list, "id2label": Mapping} | {
    **dict.fromkeys(("label2id", "task_specific_params"), Mapping)
}
"""Such keys whose values are of these kinds, or none."""
COMMON: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("dtype", "torch_dtype"), (None, "float32", "float16", "bfloat16")),
    **dict.fromkeys(("is_decoder", "is_encoder_decoder", "add_cross_attention"), (False,)),
    **dict.fromkeys(("output_attentions", "output_hidden_states"), (False,)),
    "chunk_size_feed_forward": (0,),
    "return_dict": (True,),
}
"""Keys of any configuration with the values that are allowed."""
FUNCTIONS = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"} | {
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh")
}
"""The activation of each name."""
PATCHES = "embeddings"
"""Before the weights of patches, the class token and their positions."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row: how a configuration becomes a shape, and where its weights lie."""

    shape: Shape  # what all its models have in common
    numbers: str  # the configuration's keys of NUMBERS in order, "-": none; a model has them all
    model: str  # the class of transformers, without its head
    tokenizer: str  # the class of its tokenizer, where tokenizer_config.json names none
    prefix: str  # before its weights in a checkpoint with a head
    words: str  # the embeddings of tokens; "": patches of a picture
    positions: str = ""  # and of positions
    types: str = ""  # and of the first or second text
    embedding_norm: str = ""
    offset: int | None = 0  # unused positions before the first; None: up to the padding's number
    waves: bool = False  # whether positions are sines and cosines where their table is not stored
    encoder: Architecture | None = None  # whose last states this one attends to, without a prefix
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # values allowed, by key
    others: str = ""  # further keys that are read elsewhere or change no attention
    complete: Callable[[Shape, Config], Shape] = lambda shape, _: shape  # by several keys
    bare_maps: Callable[[Config], tuple[str, ...]] = lambda _: ()  # the maps without a bias
    activation: str = ""  # the key of the activation
    width: str = ""  # the key of the size of embeddings, where a map leads to a position's
    projection: str = ""  # that map
    is_transposed: bool = False  # whether maps are stored as (inputs, outputs)
    cuts: str = ""  # "heads": the maps of a stored one for three alternate by head
    left_out: str = ""  # a pattern of weights that no attention depends on
    copies: str = ""  # names of weights that are the embeddings of tokens where they are stored

    @property
    def keys(self) -> dict[str, str]:
        """The configuration's key of each number of a shape."""
        pairs = zip(NUMBERS, self.numbers.split(), strict=False)
        return {name: key for name, key in pairs if key != "-"}

    def shape_of(self, config: Config) -> Shape:
        """The shape that a configuration asks for.

        Raises:
            UnknownArchitecture: a key or a value that the row does not know.
        """
        choices = {**COMMON, **self.choices}
        plain, number_keys = FREE.split(), {self.activation, *self.keys.values()}
        known_keys = {*plain, *LISTS, *choices, *number_keys, *self.others.split()}
        for key, value in config.items():
            if key not in known_keys:
                raise UnknownArchitecture(f"its configuration has the key '{key}'")
            odd = key in choices and value not in choices[key]
            odd |= key in plain and isinstance(value, Mapping | list)
            odd |= key in LISTS and not isinstance(value, LISTS[key] | None)
            if odd:
                raise UnknownArchitecture(f"its configuration has '{key}' {value!r}")
        try:
            shape = self.complete(replace(self.shape, **self._numbers_of(config)), config)
            if shape.size % shape.heads and not shape.head_size:
                raise ValueError("heads")
            groups = 0 if shape.key_heads == shape.heads else shape.key_heads
            if shape.heads % (groups or 1):
                raise ValueError("groups of heads")
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnknownArchitecture(f"its configuration does not add up: {error}") from error
        return replace(shape, key_heads=groups)

    def _numbers_of(self, config: Config) -> dict[str, Any]:
        """The fields of a shape that one key tells: its numbers, its activation."""
        numbers: dict[str, Any] = {}
        for name, key in self.keys.items():
            value = config.get(key)
            kind = int | float if name == "epsilon" else int
            if not isinstance(value, kind) or isinstance(value, bool) or value <= 0:
                raise UnknownArchitecture(f"its configuration has no number '{key}'")
            numbers[name] = value
        if (name := config.get(self.activation, "")) not in FUNCTIONS and name != "":
            raise UnknownArchitecture(f"its activation is {name!r}")
        if name:
            numbers["activation"] = FUNCTIONS[name]
        return numbers

    def weight_shapes(self, config: Config, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight that the network reads, and its shape."""
        size, inner, whole = shape.size, shape.inner, shape.heads * shape.head_features
        some = (shape.key_heads or shape.heads) * shape.head_features
        bare = self.bare_maps(config)
        lines = [(whole, size), (some, size), (some, size), (size, whole)]
        gates = [(inner, size)] * (len(shape.feed_forward.maps) - 1)
        parts = [(shape.attention, lines), (shape.feed_forward, [*gates, (size, inner)])]
        parts += [(shape.cross, lines)] if shape.cross else []
        ends = ("weight", "bias") if shape.norm == "layer" else ("weight",)
        width = config.get(self.width, size)
        yield from self._embeddings(shape, width)
        norms = [shape.last_norm] if shape.last_norm else []
        if self.embedding_norm:
            yield from ((f"{self.embedding_norm}.{end}", (width,)) for end in ends)
        for number in range(shape.layers):
            layer = shape.layer.format(number)
            for block, sizes in parts:
                name = f"{layer}.{block.name}" if block.name else layer
                for one, (outputs, inputs) in zip(block.maps, sizes, strict=True):
                    yield f"{name}.{one}.weight", (outputs, inputs)
                    if one not in bare:
                        yield f"{name}.{one}.bias", (outputs,)
                if block.scale:
                    yield f"{layer}.{block.scale}", (size,)
                own = (block.before, block.within, block.after)
                norms += [f"{layer}.{norm}" for norm in own if norm]
            for norm in (shape.query_norm, shape.key_norm):
                if norm:
                    yield f"{layer}.{shape.attention.name}.{norm}.weight", (shape.head_features,)
        yield from ((f"{norm}.{end}", (size,)) for norm in norms for end in ends)

    def _embeddings(self, shape: Shape, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The weights before the first layer, of tokens with this many features or of patches."""
        size, patch = shape.size, shape.patch
        if patch:
            yield f"{PATCHES}.cls_token", (1, 1, size)
            yield f"{PATCHES}.position_embeddings", (1, shape.patches**2 + 1, size)
            yield f"{PATCHES}.patch_embeddings.projection.weight", (size, 3, patch, patch)
            yield f"{PATCHES}.patch_embeddings.projection.bias", (size,)
            return
        yield f"{self.words}.weight", (shape.vocabulary, width)
        tables = ("" if self.waves else self.positions, self.types)
        yield from ((f"{name}.weight", (-1, width)) for name in tables if name)
        if width != size:
            yield f"{self.projection}.weight", (size, width)
            yield f"{self.projection}.bias", (size,)


def rope_of(config: Config) -> dict[str, Any]:
    """The parameters of turned positions that a configuration names in either way."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if rope.get("partial_rotary_factor", 1.0) != 1:  # which transformers reads in some kinds alone
        raise UnknownArchitecture("its positions turn a part of each head")
    return {"rope_theta": config.get("rope_theta", 10000.0), **rope}


def turns_of(rope: Mapping[str, Any], size: int) -> tuple[float, ...]:
    """The radians by which a position turns each pair of a head's features, by its parameters."""
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    pairs, odd = divmod(int(size * rope.get("partial_rotary_factor", 1.0)), 2)
    keys, more = ({*one.split()} for one in SCALINGS.get(kind, ("", "")))
    all_keys = {"rope_theta", "rope_type", "type", "partial_rotary_factor"} | keys | more
    if odd or kind not in SCALINGS or rope.keys() - all_keys or keys - rope.keys():
        raise UnknownArchitecture(f"its positions are scaled by {dict(rope)}")
    # Rounded where transformers rounds: a bit of a turn is a hundred bits at the hundredth token.
    shares = (float(np.float32(pair) / np.float32(pairs)) for pair in range(pairs))
    slower = [np.float32(float(rope["rope_theta"]) ** share) for share in shares]
    plain = [float(np.float32(1) / one) for one in slower]
    if kind == "linear":
        return tuple(turn / rope["factor"] for turn in plain)
    if kind == "llama3":
        return tuple(_slow_down(turn, rope) for turn in plain)
    if kind == "yarn":
        return tuple(_blend(slower, rope))
    if kind == "longrope":
        if rope["original_max_position_embeddings"] < MOST_READ:
            raise UnknownArchitecture("its positions turn more slowly in long texts")
        return tuple(turn / by for turn, by in zip(plain, rope["short_factor"], strict=True))
    return tuple(plain)


SCALINGS: dict[str, tuple[str, str]] = {
    "default": ("", ""),
    "linear": ("factor", ""),
    "dynamic": ("factor", ""),  # no other turns within the positions that the model has
    "llama3": ("factor low_freq_factor high_freq_factor original_max_position_embeddings", ""),
    "yarn": (
        "factor original_max_position_embeddings",
        "attention_factor beta_fast beta_slow mscale mscale_all_dim truncate",
    ),
    "longrope": (
        "factor short_factor long_factor original_max_position_embeddings",
        "attention_factor",
    ),
}
"""The ways to scale positions for longer texts: the parameters that each needs, and others."""
MOST_READ = 1024
"""Tokens that numpy reads and writes at most, with room to spare."""


def _blend(slower: list[np.float32], rope: Mapping[str, Any]) -> Iterator[float]:
    """Turns as YaRN scales them (Peng 2023): fast ones stay, slow ones are divided, with a ramp.

    They are 1 over the numbers given, and float32 throughout.
    """
    pairs, base = len(slower), float(rope["rope_theta"])
    ends = []
    for rounds in (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1):
        length = rope["original_max_position_embeddings"] / (rounds * 2 * pi)
        ends.append(pairs * log(length) / log(base))
    if rope.get("truncate", True):
        ends = [floor(ends[0]), ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], 2 * pairs - 1)
    high += 0.001 if high == low else 0
    for pair, one in enumerate(slower):
        share = np.float32(1 - min(max((pair - low) / (high - low), 0.0), 1.0))
        slow_turn = np.float32(1) / (np.float32(rope["factor"]) * one)
        yield float(slow_turn * (1 - share) + np.float32(1) / one * share)


def _stretch_of(rope: Mapping[str, Any]) -> float:
    """The factor by which scaled positions lengthen queries and keys (1: not at all)."""
    kind, stretch = rope.get("rope_type", rope.get("type")), rope.get("attention_factor")
    factor = rope["factor"] if kind in ("yarn", "longrope") else 1.0
    if stretch is not None or factor <= 1:
        return 1.0 if stretch is None else float(stretch)
    if kind == "longrope":
        return sqrt(1 + log(factor) / log(rope["original_max_position_embeddings"]))
    above, below = rope.get("mscale"), rope.get("mscale_all_dim")
    scales = (above, below) if above and below else (1, 0)
    return (0.1 * scales[0] * log(factor) + 1) / (0.1 * scales[1] * log(factor) + 1)


def _slow_down(turn: float, rope: Mapping[str, Any]) -> float:
    """A turn as Llama 3 scales it: slow turns by the whole factor, fast ones not at all."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    rounds = rope["original_max_position_embeddings"] * turn / (2 * pi)
    share = min(max((rounds - low) / (high - low), 0.0), 1.0)
    return float(turn * (share + (1 - share) / rope["factor"]))
