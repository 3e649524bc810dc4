"""Layers of attention weights by their numbers, checked to be weights and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture.extent import heads_of
from attnviz.models.hugging_face.capture.kernel import (
    Call,
    eager_twin,
    handed_over,
    layer_names,
    match_stream,
    stream_of,
)
from attnviz.models.hugging_face.capture.readings import CallWeights, CaptureSpec, read_calls
from attnviz.models.hugging_face.load.devices import BYTES, check_fit
from attnviz.models.hugging_face.load.errors import running

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = {"float16": 1e-2, "bfloat16": 2e-2}
"""How far above 1 the rows of half-precision weights may sum; elsewhere 1e-3."""


def highest(model: Any) -> float:
    """The most that a row may sum to."""
    return 1 + TOLERANCE.get(str(model.dtype).removeprefix("torch."), 1e-3)


def refuse_shape(
    name: str, kind: str, shape: Sequence[int], side: tuple[int, int], batch: int = 1
) -> AttentionError:
    """The error for attention that is not between these tokens."""
    return AttentionError(
        f"layer {name} of architecture '{kind}' gives out attention of shape {tuple(shape)}, "
        f"which is not ({batch}, heads, {side[0]} queries, {side[1]} keys): windows or blocks of "
        "it, not the weights between all tokens"
    )


def read_layers(
    layers: Sequence[Any] | None, config: Any, side: tuple[int, int], highest: float
) -> dict[str, NDArray[np.float32]]:
    """Each layer's weights of one text, shape (heads, queries, keys), by the layer's number.

    Raises:
        AttentionError: there are none, or they cannot be weights of these tokens.
    """
    arrays = {number: array[0] for number, array in read_batch(layers, config, side).items()}
    for number, array in arrays.items():
        check_rows(array, number, config.model_type, highest)
    return arrays


def read_batch(
    layers: Sequence[Any] | None, config: Any, side: tuple[int, int], batch: int = 1
) -> dict[str, NDArray[np.float32]]:
    """What is given out of each layer, shape (batch, heads, queries, keys), by its number.

    Raises:
        AttentionError: there is nothing, or it is not between these tokens.
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
        if getattr(layer, "ndim", 0) != 4 or layer.shape[0] != batch or layer.shape[2:] != side:
            raise refuse_shape(number, kind, tuple(getattr(layer, "shape", ())), side, batch)
        arrays[number] = np.asarray(layer.float().cpu().numpy(), dtype=np.float32)
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


def attending(config: Any) -> list[int]:
    """The layers that have attention, of a model whose configuration names each layer's kind."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return [
        number for number, kind in enumerate(kinds) if "attention" in kind and "linear" not in kind
    ]


def layer_numbers(config: Any, layers: Sequence[Any]) -> list[str]:
    """The number of each layer that has attention, counted among all layers of the model.

    A model that mixes attention with other layers either leaves gaps in what it gives out, or
    leaves those layers out; its configuration says which they are.
    """
    numbers = attending(config)
    if all(layer is not None for layer in layers) and len(numbers) == len(layers):
        return [str(number) for number in numbers]
    return [str(number) for number, layer in enumerate(layers) if layer is not None]


# <passes> One pass of a model over a batch, and what each layer of it attends to.
#
# Weights are read from the kernel that the model runs with. Models that compute attention by hand
# run again eagerly and hand their matrices over.

Sides = Mapping[str, tuple[int, int]]
"""How many queries and keys each stream has; in a batch those of its longest texts."""


def probe_layers(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Sides,
    wishes: Mapping[str, CaptureSpec],
    *,
    batch: int = 1,
    calls: int | None = None,
) -> dict[str, dict[str, CallWeights]]:
    """Each stream's layers by name, of those whose kernel could be watched.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name.
        sides: of each stream wanted.
        wishes: what to read of each.
        batch: how many texts there are.
        calls: how many layers there are to read, after which the pass ends; None: it runs through.

    Raises:
        AttentionError: a kernel that sees something else than these tokens.
        ModelError: the model fails.
    """
    import torch

    kind = model.config.model_type

    def wish_for(path: str, call: Call) -> CaptureSpec | None:
        stream = match_stream(stream_of(path), sides)
        if stream is None:
            return None
        seen, heads, queries, _ = call.query.shape
        keys = call.key.shape[2]
        if (seen, queries, keys) != (batch, *sides[stream]):
            raise refuse_shape(path, kind, (seen, heads, queries, keys), sides[stream], batch)
        return wishes[stream]

    devices = [model.device] if model.device.type == "cuda" else []
    # A model that draws by chance (ViLT its patches) must draw the same if it has to run again.
    with running(model), torch.random.fork_rng(devices):
        readings = read_calls(model, inputs, wish_for, calls)
    found = dict[str, dict[str, CallWeights]]()
    for stream in sides:
        own = [
            reading
            for reading in readings
            if match_stream(stream_of(reading.path), sides) == stream
        ]
        names = layer_names([reading.path for reading in own], attending(model.config))
        if own:
            found[stream] = dict(zip(names, own, strict=True))
    return found


def hand_over_layers(
    model: Any, inputs: Mapping[str, Any], sides: Sides, *, batch: int = 1
) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), as a model gives them out.

    Raises:
        AttentionError: it gives out none, or something else.
        ModelError: the model fails, or whole matrices of all layers would not fit into memory.
    """
    import torch

    check_memory(model, sides, batch)
    with running(model), torch.no_grad():
        given = handed_over(eager_twin(model), inputs, list(sides))
    return {
        stream: read_batch(given[stream], model.config, side, batch)
        for stream, side in sides.items()
    }


def check_memory(model: Any, sides: Sides, batch: int = 1) -> None:
    """Refuse a text whose whole matrices would not fit, where a model hands over only such.

    A matrix exists twice for a while: as the model holds it, and as float32 for the map.

    Raises:
        ModelError: less memory is free than that.
    """
    dtype = str(model.dtype).removeprefix("torch.")
    cells = sum(
        heads_of(model.config, stream) * queries * keys for stream, (queries, keys) in sides.items()
    )
    heads = sum(heads_of(model.config, stream) for stream in sides)
    check_fit(
        batch * cells * (BYTES.get(dtype, 4) + 4),
        model.device,
        f"'{model.config.model_type}' computes attention by hand and hands over whole matrices "
        f"only: {heads} heads × {max(max(side) for side in sides.values()):,} tokens²",
        "give a shorter text",
    )
