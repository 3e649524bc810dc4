"""The causal pocket model's forward pass: a decoder of the Llama shape, numpy or torch.

Pre-norm layers with root-mean-square norms (Zhang & Sennrich 2019), rotary positions (Su 2021,
section 3.4.2) and gated feed-forward blocks (Shazeer 2020, "SwiGLU"), as in Llama (Touvron 2023,
section 2.2). The weights have the names that transformers gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from attnviz.mechanisms.arrays import Array, namespace
from attnviz.mechanisms.dot_product import causal_mask, size_of_head
from attnviz.models.pocket.transformer import Watch, Weights, attend_heads, linear_map

EMBEDDING = "model.embed_tokens.weight"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True, slots=True)
class CausalSizes:
    """Pieces known, features of a position and of a feed-forward block, heads and layers."""

    vocabulary: int = 8000
    size: int = 160
    heads: int = 5
    feed_forward: int = 432
    layers: int = 3
    base: float = 10000.0

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> CausalSizes:
        """The sizes that a configuration of transformers tells."""
        names = "vocab_size hidden_size num_attention_heads intermediate_size num_hidden_layers"
        return cls(*(config[name] for name in (*names.split(), "rope_theta")))


def root_mean_square_norm(weights: Weights, name: str, inputs: Array) -> Array:
    """Inputs with a mean square of 1 over their features, then scaled."""
    xp = namespace(inputs)
    square = xp.mean(inputs * inputs, axis=-1, keepdims=True)
    return inputs / xp.sqrt(square + 1e-6) * weights[f"{name}.weight"]


def angles(like: Array, first: int, last: int, sizes: CausalSizes) -> Array:
    """The angles by which each pair of a head's features turns, from position first to before last.

    Returns:
        Radians, shape (positions, 1, head size / 2), in the given array's kind.
    """
    xp, half = namespace(like), size_of_head(sizes.size, sizes.heads) // 2
    place = {"device": like.device, "dtype": xp.float32}
    slower = sizes.base ** (-xp.arange(half, **place) / half)
    return xp.arange(first, last, **place)[:, None, None] * slower


def rotate_pairs(inputs: Array, by: Array, heads: int) -> Array:
    """Queries or keys (…, positions, size) with the pairs of features of each head turned.

    A pair is a feature of a head's first half and the one at its place in the second half.
    """
    xp = namespace(inputs)
    pairs = xp.reshape(inputs, (*inputs.shape[:-1], heads, 2, by.shape[-1]))
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    sine, cosine = (xp.astype(wave(by), inputs.dtype) for wave in (xp.sin, xp.cos))
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return xp.reshape(xp.concat(turned, axis=-1), inputs.shape)


class Cache:
    """Keys and values (…, positions, size) of the pieces read so far, by layer."""

    def __init__(self) -> None:
        self.length = 0
        self.layers: dict[int, tuple[Array, Array]] = {}

    def extend(self, layer: int, key: Array, value: Array) -> tuple[Array, Array]:
        """All keys and values so far, these last."""
        if known := self.layers.get(layer):
            xp = namespace(key)
            key, value = (
                xp.concat(both, axis=-2) for both in zip(known, (key, value), strict=True)
            )
        self.layers[layer] = key, value
        return key, value


def run_layers(
    weights: Weights,
    sizes: CausalSizes,
    inputs: Array,
    watch: Watch | None = None,
    cache: Cache | None = None,
) -> tuple[Array, list[Array]]:
    """The last states of embedded pieces (…, queries, size), and each layer's weights.

    The pieces follow those in the cache, which then holds them too.
    """
    shares, before = [], cache.length if cache else 0
    length = before + inputs.shape[-2]
    mask, by = causal_mask(inputs, inputs.shape[-2], length), angles(inputs, before, length, sizes)

    def rotate(number: int, query: Array, key: Array, value: Array) -> tuple[Array, ...]:
        query, key = (rotate_pairs(side, by, sizes.heads) for side in (query, key))
        return query, *((key, value) if cache is None else cache.extend(number, key, value))

    for number in range(sizes.layers):
        layer = f"model.layers.{number}"
        normal = root_mean_square_norm(weights, f"{layer}.input_layernorm", inputs)
        update, share = attend_heads(
            weights,
            f"{layer}.self_attn",
            normal,
            normal,
            mask,
            sizes.heads,
            watch,
            inputs,
            PROJECTIONS,
            partial(rotate, number),
        )
        inputs = inputs + update
        normal = root_mean_square_norm(weights, f"{layer}.post_attention_layernorm", inputs)
        inputs = inputs + gated_feed_forward(weights, f"{layer}.mlp", normal)
        shares.append(share)
    if cache is not None:
        cache.length = length
    return root_mean_square_norm(weights, "model.norm", inputs), shares


def gated_feed_forward(weights: Weights, name: str, inputs: Array) -> Array:
    """A feed-forward block whose inner features are gated by SiLU, of the inputs' shape."""
    gate = linear_map(weights, f"{name}.gate_proj", inputs)
    silu = 0.5 * gate * (1 + namespace(gate).tanh(0.5 * gate))  # x · sigmoid(x), never overflowing
    gated = silu * linear_map(weights, f"{name}.up_proj", inputs)
    return linear_map(weights, f"{name}.down_proj", gated)
