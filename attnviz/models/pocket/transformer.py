"""The pocket model's weights and forward pass: a pre-norm encoder–decoder, numpy or torch.

An encoder–decoder transformer (Vaswani 2017, section 3) with normalisation before each block
(Xiong 2020) and one embedding for source, target and output (Press & Wolf 2017). Each function is
written once for both kinds of arrays: numpy answers the command line without importing torch, torch
trains and runs on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import ModelError
from attnviz.core.notices import pause
from attnviz.mechanisms.arrays import Array, namespace, transpose
from attnviz.mechanisms.dot_product import causal_mask, multi_head

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StoredWeights(Mapping[str, Array]):
    """Learned arrays by name, from a safetensors file of float16 that is mapped into memory.

    An array is converted at its first use: the attention of one text never touches the decoder.
    """

    def __init__(self, path: Path, dtype: str = "float32", device: str = "cpu") -> None:
        self.dtype, self.device = dtype, device
        # Read by hand: the default run imports no safetensors.
        try:
            stored = np.memmap(path, dtype=np.uint8, mode="r")
            length = int(stored[:8].view("<u8")[0])
            self.contents: dict[str, Any] = json.loads(bytes(stored[8 : 8 + length]))
        except (OSError, ValueError) as error:
            raise ModelError(f"the pocket model's weights '{path}' cannot be read") from error
        self.contents.pop("__metadata__", None)
        self.stored = stored[8 + length :]
        self.converted: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self.converted:
            self.converted[name] = self.convert(self.raw(name))
        return self.converted[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def raw(self, name: str) -> NDArray[np.float16]:
        """The array as the file stores it."""
        entry = self.contents[name]
        start, end = entry["data_offsets"]
        return self.stored[start:end].view("<f2").reshape(entry["shape"])

    def rows(self, name: str, numbers: NDArray[np.int64]) -> Array:
        """Some rows of an array, without converting the others."""
        if name in self.converted:
            return self.converted[name][numbers]
        return self.convert(self.raw(name)[numbers])

    def convert(self, array: NDArray[Any]) -> Array:
        """The numbers in this precision, on this device."""
        if self.device == "cpu":
            return array.astype(self.dtype)
        import torch

        return torch.from_numpy(array.astype(np.float32)).to(
            device=self.device, dtype=getattr(torch, self.dtype)
        )

    def place(self, mask: NDArray[np.bool_]) -> Array:
        """A mask on the same device."""
        if self.device == "cpu":
            return mask
        import torch

        return torch.from_numpy(mask).to(self.device)


Weights = Mapping[str, Array]
"""Every learned array by name; a linear map's weight has the shape (outputs, inputs)."""


@dataclass(frozen=True, slots=True)
class TranslatorSizes:
    """Pieces known, features of a position and of a feed-forward block, heads and layers."""

    vocabulary: int = 8000
    size: int = 192
    heads: int = 6
    feed_forward: int = 768
    encoder_layers: int = 4
    decoder_layers: int = 4


def linear_map(weights: Weights, name: str, inputs: Array) -> Array:
    """Inputs (…, inputs) through a learned linear map as (…, outputs), plus its bias if any."""
    xp, weight = namespace(inputs), transpose(weights[f"{name}.weight"])
    # As one product of two matrices: numpy would multiply the texts of a batch one by one.
    outputs = xp.reshape(inputs, (-1, inputs.shape[-1])) @ weight
    outputs = xp.reshape(outputs, (*inputs.shape[:-1], -1))
    return outputs + weights[f"{name}.bias"] if f"{name}.bias" in weights else outputs


def layer_norm(weights: Weights, name: str, inputs: Array) -> Array:
    """Inputs with mean 0 and variance 1 over their features, then scaled and shifted (Ba 2016)."""
    xp = namespace(inputs)
    centred = inputs - xp.mean(inputs, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(inputs: Array) -> Array:
    """X · Φ(x) in its tanh form (Hendrycks & Gimpel 2016, section 2)."""
    inner = sqrt(2 / pi) * (inputs + 0.044715 * inputs * inputs * inputs)
    return 0.5 * inputs * (1 + namespace(inputs).tanh(inner))


def embed_pieces(pieces: Array, positions: Array) -> Array:
    """Rows of the embedding (…, positions, size), scaled, plus the positions' waves."""
    return pieces * (0.5 * sqrt(pieces.shape[-1])) + positions


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """One attention of a pass: its projections, outputs (…, positions, size) and weights."""

    name: str  # "encoder.0.self_attention"
    query: Array
    key: Array
    value: Array
    output: Array  # of all heads, side by side, before the output projection
    shares: Array  # (…, heads, queries, keys)
    inputs: Array | None = None  # queries are projected from these
    memory: Array | None = None  # keys and values from these
    residual: Array | None = None  # the stream that the output is added to


Watch = Callable[[Attended], Array]
"""Sees each attention of a pass and returns the output that the model goes on with."""


PROJECTIONS = ("query", "key", "value", "output")


def attend_heads(  # noqa: PLR0913, PLR0917 - one attention of three kinds of models
    weights: Weights,
    name: str,
    inputs: Array,
    memory: Array,
    mask: Array | None,
    heads: int,
    watch: Watch | None = None,
    residual: Array | None = None,
    projections: tuple[str, ...] = PROJECTIONS,
    prepare: Callable[[Array, Array, Array], tuple[Array, ...]] | None = None,
) -> tuple[Array, Array]:
    """Multi-head attention of inputs over a memory between its four learned projections.

    `prepare` changes query, key and value before they meet: turned by position, from a cache.
    """
    pause()
    sides = zip(projections, (inputs, memory, memory), strict=False)
    query, key, value = (linear_map(weights, f"{name}.{part}", side) for part, side in sides)
    if prepare is not None:
        query, key, value = prepare(query, key, value)
    output, shares = multi_head(query, key, value, mask, heads=heads)
    if watch is not None:
        output = watch(Attended(name, query, key, value, output, shares, inputs, memory, residual))
    return linear_map(weights, f"{name}.{projections[-1]}", output), shares


@dataclass(frozen=True, slots=True)
class BlockNames:
    """The names of a block's parts among the weights."""

    attention_norm: str = "self_attention_norm"
    attention: str = "self_attention"
    projections: tuple[str, ...] = PROJECTIONS
    feed_forward_norm: str = "feed_forward_norm"
    inner: str = "feed_forward.in"
    outer: str = "feed_forward.out"


TRANSLATOR = BlockNames()


def feed_forward(
    weights: Weights, layer: str, inputs: Array, names: BlockNames = TRANSLATOR
) -> Array:
    """The update of each position by a layer's feed-forward part, of the inputs' shape."""
    normal = layer_norm(weights, f"{layer}.{names.feed_forward_norm}", inputs)
    inner = gelu(linear_map(weights, f"{layer}.{names.inner}", normal))
    return linear_map(weights, f"{layer}.{names.outer}", inner)


def run_block(
    weights: Weights,
    layer: str,
    inputs: Array,
    heads: int,
    mask: Array | None = None,
    watch: Watch | None = None,
    names: BlockNames = TRANSLATOR,
) -> tuple[Array, Array]:
    """Self-attention, then feed-forward, each added to its normalised input; and the weights."""
    normal = layer_norm(weights, f"{layer}.{names.attention_norm}", inputs)
    name, own = f"{layer}.{names.attention}", names.projections
    update, shares = attend_heads(weights, name, normal, normal, mask, heads, watch, inputs, own)
    inputs = inputs + update
    return inputs + feed_forward(weights, layer, inputs, names), shares


def run_encoder(
    weights: Weights,
    sizes: TranslatorSizes,
    inputs: Array,
    mask: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, list[Array]]:
    """The encoder's states of an embedded source, and each layer's weights."""
    shares = []
    for number in range(sizes.encoder_layers):
        layer = f"encoder.{number}"
        inputs, share = run_block(weights, layer, inputs, sizes.heads, mask, watch)
        shares.append(share)
    return layer_norm(weights, "encoder_norm", inputs), shares


def run_decoder(
    weights: Weights,
    sizes: TranslatorSizes,
    inputs: Array,
    memory: Array,
    mask: Array | None = None,
    watch: Watch | None = None,
) -> tuple[Array, list[Array], list[Array]]:
    """The decoder's states of an embedded target (…, queries, size), its own weights and cross.

    The mask hides positions of the memory; no position of the target sees a later one.
    """
    own_shares, cross_shares = [], []
    triangle = causal_mask(inputs, inputs.shape[-2], inputs.shape[-2])
    for number in range(sizes.decoder_layers):
        layer = f"decoder.{number}"
        normal = layer_norm(weights, f"{layer}.self_attention_norm", inputs)
        update, own = attend_heads(
            weights, f"{layer}.self_attention", normal, normal, triangle, sizes.heads, watch, inputs
        )
        inputs = inputs + update
        normal = layer_norm(weights, f"{layer}.cross_attention_norm", inputs)
        update, cross = attend_heads(
            weights, f"{layer}.cross_attention", normal, memory, mask, sizes.heads, watch, inputs
        )
        inputs = inputs + update
        inputs = inputs + feed_forward(weights, layer, inputs)
        own_shares.append(own)
        cross_shares.append(cross)
    return layer_norm(weights, "decoder_norm", inputs), own_shares, cross_shares


def predict_pieces(weights: Weights, states: Array, embedding: str = "embedding") -> Array:
    """Scores of every piece (…, vocabulary) for states (…, size), by the transposed embedding."""
    return linear_map(weights, embedding, states)
