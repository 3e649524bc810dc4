"""A model and its inputs become attention weights: the one place where they are read out.

They are read from the kernel that the model runs with. Models that compute attention by hand run
again eagerly and hand their matrices over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.announce import announce
from attnviz.attention_map import Projections
from attnviz.errors import AttentionError
from attnviz.hugging_face.blocks import Axis
from attnviz.hugging_face.border import running
from attnviz.hugging_face.devices import BYTES, check_fit
from attnviz.hugging_face.exact_links import Hidden, Strongest, strongest_in
from attnviz.hugging_face.extent import WHOLE, Extent, frame_streams, heads_of, note_of
from attnviz.hugging_face.interface import Call
from attnviz.hugging_face.pooling import pool_array
from attnviz.hugging_face.projections import check_frames, stacked
from attnviz.hugging_face.readings import Wish, read_calls
from attnviz.hugging_face.refusals import check_family
from attnviz.hugging_face.streams import layer_names, stream_of, take
from attnviz.hugging_face.twin import eager_twin, handed_over

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = {"float16": 1e-2, "bfloat16": 2e-2}
"""How far above 1 the rows of half-precision weights may sum; elsewhere 1e-3."""


HANDED_OVER = "eager, handed over"
"""The route of weights that no kernel was asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The weights of layers of one shape.

    Attributes:
        stream: which attention: "self", "causal", "encoder", "decoder" or "cross".
        layers: each layer's number in its stack, as text.
        weights: float32 of shape (layers, heads, queries, keys), or blocks of them.
        queries: what the rows stand for; None: every token.
        keys: what the columns stand for; None: every token.
        links: for each layer and head its strongest links, where the map is pooled.
        route: how the weights were had.
        projections: queries and keys of every layer of the stream, where they were asked for.
    """

    stream: str
    layers: tuple[str, ...]
    weights: NDArray[np.float32]
    queries: Axis | None = None
    keys: Axis | None = None
    links: tuple[tuple[Strongest, ...], ...] = ()
    route: str = ""
    projections: Projections | None = None


def capture(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Mapping[str, tuple[int, int]],
    *,
    extent: Extent = WHOLE,
    hidden: Mapping[str, Hidden] | None = None,
) -> list[Captured]:
    """The attention of one forward pass over one text.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name, a batch of one, on the model's device.
        sides: how many queries and keys each stream has, of those wanted, in the order wanted.
        extent: which part is wanted, and how finely.
        hidden: for a stream, what does not count among the strongest links of a pooled map.

    Returns:
        for each stream one item for each run of layers that agree in heads, queries and keys.

    Raises:
        UsageError: rows or a window that the text does not have, or queries and keys of a part.
        AttentionError: the architecture has no attention weights, or gives out something else; or
            keeps its queries and keys to itself, where they were asked for.
        ModelError: the weights would not fit into memory.
    """
    check_family(model.config, max(max(side) for side in sides.values()))
    frames = frame_streams(model, sides, extent)
    if extent.keep_qk:
        check_frames(frames, sides)
    for stream, frame in frames.items():
        left_out = note_of(frame, sides[stream])
        if left_out:
            announce(left_out)
    wishes = {
        stream: Wish(
            frame,
            extent.links if frame.is_pooled else 0,
            (hidden or {}).get(stream, Hidden(itself=stream != "cross")),
            extent.keep_qk,
        )
        for stream, frame in frames.items()
    }
    kept = without_cache(model, inputs)
    found = from_kernels(model, kept, sides, wishes)
    if set(found) != set(sides):
        if extent.keep_qk:
            raise AttentionError(
                f"architecture '{model.config.model_type}' computes attention by hand and keeps "
                "its queries and keys to itself: leave --keep-qk out"
            )
        found = by_hand(model, kept, sides, wishes)
    return [
        replace(
            item,
            queries=frames[stream].queries,
            keys=frames[stream].keys,
            links=tuple(layers.links[name] for name in item.layers if layers.links),
            route=layers.route,
            projections=layers.projections,
        )
        for stream, layers in found.items()
        for item in group(stream, layers.arrays)
    ]


def without_cache(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, and no cache of keys and values where the model would fill one."""
    import inspect

    takes = inspect.signature(model.forward).parameters
    return {**inputs, **({"use_cache": False} if "use_cache" in takes else {})}


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """The layers of one stream by number.

    Attributes:
        arrays: weights of shape (heads, queries, keys).
        links: each head's strongest; empty where none were asked for.
        route: how they were had.
        projections: queries and keys of all layers; None where none were asked for.
    """

    arrays: dict[str, NDArray[np.float32]]
    links: dict[str, tuple[Strongest, ...]]
    route: str
    projections: Projections | None = None


def from_kernels(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Mapping[str, tuple[int, int]],
    wishes: Mapping[str, Wish],
) -> dict[str, Stack]:
    """Each stream's layers, of those whose kernel could be watched.

    Raises:
        AttentionError: a kernel that sees something else than these tokens.
    """
    kind = model.config.model_type

    def wish_for(path: str, call: Call) -> Wish | None:
        stream = take(stream_of(path), sides)
        if stream is None:
            return None
        batch, _, queries, _ = call.query.shape
        keys = call.key.shape[2]
        if (batch, queries, keys) != (1, *sides[stream]):
            raise refuse_shape(
                path, kind, (batch, call.query.shape[1], queries, keys), sides[stream]
            )
        return wishes[stream]

    import torch

    devices = [model.device] if model.device.type == "cuda" else []
    # A model that draws by chance (ViLT its patches) must draw the same if it has to run again.
    with running(model), torch.random.fork_rng(devices):
        readings = read_calls(model, inputs, wish_for)
    found = dict[str, Stack]()
    for stream in sides:
        own = [reading for reading in readings if take(stream_of(reading.path), sides) == stream]
        names = layer_names([reading.path for reading in own], attending(model.config))
        for name, reading in zip(names, own, strict=True):
            check_rows(reading.weights[0], name, kind, highest(model))
        projected = {
            name: reading.projected
            for name, reading in zip(names, own, strict=True)
            if reading.projected
        }
        if own:
            found[stream] = Stack(
                {name: reading.weights[0] for name, reading in zip(names, own, strict=True)},
                {
                    name: reading.links
                    for name, reading in zip(names, own, strict=True)
                    if reading.links
                },
                f"{model.config._attn_implementation}, probed",
                stacked(projected, kind) if projected else None,
            )
    return found


def by_hand(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Mapping[str, tuple[int, int]],
    wishes: Mapping[str, Wish],
) -> dict[str, Stack]:
    """Each stream's layers, as the model hands them over when it runs eagerly.

    Raises:
        AttentionError: it hands over none, or something else.
        ModelError: whole matrices of all layers would not fit into memory.
    """
    import torch

    check_memory(model, sides)
    with running(model), torch.no_grad():
        given = handed_over(eager_twin(model), inputs, list(sides))
    found = dict[str, Stack]()
    for stream, side in sides.items():
        wish = wishes[stream]
        arrays = read_layers(given[stream], model.config, side, highest(model))
        links = {
            name: tuple(strongest_in(weights, wish.hidden, wish.links))
            for name, weights in arrays.items()
            if wish.links
        }
        pooled = {name: pool_array(weights, wish.frame) for name, weights in arrays.items()}
        found[stream] = Stack(pooled, links, HANDED_OVER)
    return found


def check_memory(model: Any, sides: Mapping[str, tuple[int, int]]) -> None:
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
        cells * (BYTES.get(dtype, 4) + 4),
        model.device,
        f"'{model.config.model_type}' computes attention by hand and hands over whole matrices "
        f"only: {heads} heads × {max(max(side) for side in sides.values()):,} tokens²",
        "give a shorter text",
    )


def highest(model: Any) -> float:
    """The most that a row may sum to."""
    return 1 + TOLERANCE.get(str(model.dtype).removeprefix("torch."), 1e-3)


def refuse_shape(
    name: str, kind: str, shape: Sequence[int], side: tuple[int, int]
) -> AttentionError:
    """The error for attention that is not between these tokens."""
    return AttentionError(
        f"layer {name} of architecture '{kind}' gives out attention of shape {tuple(shape)}, "
        f"which is not (1, heads, {side[0]} queries, {side[1]} keys): windows or blocks of "
        "it, not the weights between all tokens"
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
            raise refuse_shape(number, kind, tuple(getattr(layer, "shape", ())), side)
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


def group(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> list[Captured]:
    """Runs of neighbouring layers of one shape, each stacked."""
    runs = groupby(arrays.items(), key=lambda item: item[1].shape)
    return [stack(stream, dict(run)) for _, run in runs]


def stack(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> Captured:
    """Layers of one shape as one array."""
    return Captured(stream, tuple(arrays), np.stack(list(arrays.values())))
