"""A model and its inputs become attention weights: the one place where they are read out.

Here transformers' own eager attention hands over the whole matrices, layers × heads × queries ×
keys of them, so memory is estimated first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.errors import AttentionError
from attnviz.hugging_face.border import running
from attnviz.hugging_face.devices import BYTES, check_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMPLEMENTATION = "eager"
"""The attention that a model is loaded with, as transformers names it."""

TOLERANCE = {"float16": 1e-2, "bfloat16": 2e-2}
"""How far above 1 the rows of half-precision weights may sum; elsewhere 1e-3."""


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The weights of layers of one shape.

    Attributes:
        stream: which attention: "self", "causal", "encoder", "decoder" or "cross".
        layers: each layer's number in its stack, as text.
        weights: float32 of shape (layers, heads, queries, keys).
    """

    stream: str
    layers: tuple[str, ...]
    weights: NDArray[np.float32]


def capture(
    model: Any, inputs: Mapping[str, Any], sides: Mapping[str, tuple[int, int]]
) -> list[Captured]:
    """Every attention weight of one forward pass over one text.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name, a batch of one, on the model's device.
        sides: how many queries and keys each stream has, of those wanted, in the order wanted.

    Returns:
        for each stream one item for each run of layers that agree in heads, queries and keys.

    Raises:
        AttentionError: the architecture has no attention weights, or gives out something else.
        ModelError: the weights would not fit into memory.
    """
    import torch

    dtype = str(model.dtype).removeprefix("torch.")
    check_memory(model, sides, dtype)
    with running(model), torch.inference_mode():
        output = model(**inputs, output_attentions=True, return_dict=True, use_cache=False)
    names = {
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    }
    split = getattr(output, "attentions", None) is None
    captured = list[Captured]()
    for stream, side in sides.items():
        layers = getattr(output, names[stream] if split and stream in names else "attentions", None)
        arrays = read_layers(layers, model.config, side, 1 + TOLERANCE.get(dtype, 1e-3))
        captured += group(stream, arrays)
    return captured


def check_memory(model: Any, sides: Mapping[str, tuple[int, int]], dtype: str) -> None:
    """Refuse a text whose attention would not fit.

    A matrix exists twice for a while: as the model holds it, and as float32 for the map.

    Raises:
        ModelError: less memory is free than that.
    """
    config = model.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None) or 1
    heads = getattr(config, "num_attention_heads", None) or 1
    cells = layers * heads * sum(queries * keys for queries, keys in sides.values())
    longest = max(max(side) for side in sides.values())
    check_fit(
        cells * (BYTES.get(dtype, 4) + 4),
        model.device,
        f"attention of {longest:,} tokens ({layers} layers × {heads} heads × tokens²)",
        "give a shorter text",
    )


def read_layers(
    layers: Sequence[Any] | None, config: Any, side: tuple[int, int], highest: float
) -> dict[str, NDArray[np.float32]]:
    """Each layer's weights, shape (heads, queries, keys), by the layer's number.

    Raises:
        AttentionError: there are none, or they cannot be weights of these tokens.
    """
    kind = config.model_type
    found = [layer for layer in layers or () if layer is not None]
    if not found:
        raise AttentionError(
            f"architecture '{kind}' gives out no attention weights: it has no attention, or keeps "
            "it to itself"
        )
    arrays = {}
    for number, layer in zip(layer_numbers(config, list(layers or ())), found, strict=True):
        if getattr(layer, "ndim", 0) != 4 or layer.shape[0] != 1 or layer.shape[2:] != side:
            shape = tuple(getattr(layer, "shape", ()))
            raise AttentionError(
                f"layer {number} of architecture '{kind}' gives out attention of shape {shape}, "
                f"which is not (1, heads, {side[0]} queries, {side[1]} keys): windows or blocks of "
                "it, not the weights between all tokens"
            )
        array = np.asarray(layer[0].float().cpu().numpy(), dtype=np.float32)
        check_rows(array, number, kind, highest)
        arrays[number] = array
    return arrays


def check_rows(array: NDArray[np.float32], number: str, kind: str, highest: float) -> None:
    """Refuse numbers that are no shares of attention (scores before the softmax, for one).

    Raises:
        AttentionError: a value that is negative or not finite, or a row that sums to over 1.
    """
    lowest, largest = float(array.min()), float(array.sum(axis=-1).max())
    if not (lowest >= 0 and largest <= highest):
        raise AttentionError(
            f"layer {number} of architecture '{kind}' gives out values down to {lowest:.4g} in "
            f"rows that sum to as much as {largest:.4g}: these are not attention weights"
        )


def layer_numbers(config: Any, layers: Sequence[Any]) -> list[str]:
    """The number of each layer that has attention, counted among all layers of the model.

    A model that mixes attention with other layers either leaves gaps in what it gives out, or
    leaves those layers out; its configuration says which they are.
    """
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    attending = [
        number for number, kind in enumerate(kinds) if "attention" in kind and "linear" not in kind
    ]
    if len(layers) < len(kinds) and len(attending) == len(layers):
        return [str(number) for number in attending]
    return [str(number) for number, layer in enumerate(layers) if layer is not None]


def group(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> list[Captured]:
    """Runs of neighbouring layers of one shape, each stacked."""
    runs = groupby(arrays.items(), key=lambda item: item[1].shape)
    return [stack(stream, dict(run)) for _, run in runs]


def stack(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> Captured:
    """Layers of one shape as one array."""
    return Captured(stream, tuple(arrays), np.stack(list(arrays.values())))
