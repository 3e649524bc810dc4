"""A model and its inputs become attention weights: the one place where they are read out.

One text at a time, whole, in part or in blocks; `capture_many` reads many texts whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Projections
from attnviz.core.errors import AttentionError
from attnviz.core.notices import notify
from attnviz.models.hugging_face.capture.exact_links import (
    Hidden,
    Strongest,
    note_on_links,
    strongest_in,
)
from attnviz.models.hugging_face.capture.extent import (
    WHOLE,
    Axis,
    PooledGrid,
    Region,
    frame_streams,
    note_of,
    whole,
)
from attnviz.models.hugging_face.capture.passes import (
    Sides,
    check_rows,
    hand_over_layers,
    highest,
    probe_layers,
)
from attnviz.models.hugging_face.capture.pooling import pool_array
from attnviz.models.hugging_face.capture.projections import check_frames, stacked
from attnviz.models.hugging_face.capture.readings import CaptureSpec
from attnviz.models.hugging_face.load.family import check_family

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    sides: Sides,
    *,
    extent: Region = WHOLE,
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
            notify(left_out)
    if extent.links and any(frame.is_pooled for frame in frames.values()):
        notify(note_on_links(extent.links))
    wishes = {
        stream: CaptureSpec(
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
    model: Any, inputs: Mapping[str, Any], sides: Sides, wishes: Mapping[str, CaptureSpec]
) -> dict[str, Stack]:
    """Each stream's layers, of those whose kernel could be watched.

    Raises:
        AttentionError: a kernel that sees something else than these tokens.
    """
    kind, most = model.config.model_type, highest(model)
    found = dict[str, Stack]()
    for stream, layers in probe_layers(model, inputs, sides, wishes).items():
        for name, layer in layers.items():
            check_rows(layer.weights[0], name, kind, most)
        projected = {name: layer.projected for name, layer in layers.items() if layer.projected}
        found[stream] = Stack(
            {name: layer.weights[0] for name, layer in layers.items()},
            {name: layer.links for name, layer in layers.items() if layer.links},
            f"{model.config._attn_implementation}, probed",
            stacked(projected, kind) if projected else None,
        )
    return found


def by_hand(
    model: Any, inputs: Mapping[str, Any], sides: Sides, wishes: Mapping[str, CaptureSpec]
) -> dict[str, Stack]:
    """Each stream's layers, as the model hands them over when it runs eagerly.

    Raises:
        AttentionError: it hands over none, or something else.
        ModelError: whole matrices of all layers would not fit into memory.
    """
    found = dict[str, Stack]()
    for stream, layers in hand_over_layers(model, inputs, sides).items():
        wish = wishes[stream]
        arrays = {name: layer[0] for name, layer in layers.items()}
        for name, weights in arrays.items():
            check_rows(weights, name, model.config.model_type, highest(model))
        links = {
            name: tuple(strongest_in(weights, wish.hidden, wish.links))
            for name, weights in arrays.items()
            if wish.links
        }
        pooled = {name: pool_array(weights, wish.frame) for name, weights in arrays.items()}
        found[stream] = Stack(pooled, links, HANDED_OVER)
    return found


def group(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> list[Captured]:
    """Runs of neighbouring layers of one shape, each stacked."""
    runs = groupby(arrays.items(), key=lambda item: item[1].shape)
    return [stack(stream, dict(run)) for _, run in runs]


def stack(stream: str, arrays: Mapping[str, NDArray[np.float32]]) -> Captured:
    """Layers of one shape as one array."""
    return Captured(stream, tuple(arrays), np.stack(list(arrays.values())))


# <capture_many> A model and a batch of texts become each text's own attention weights, padding
# left out.


def capture_many(
    model: Any, inputs: Mapping[str, Any], sides: Sequence[Sides], calls: int | None = None
) -> list[list[Captured]]:
    """Every weight of each text of a batch, from one forward pass.

    Args:
        model: a transformers model on its device, or the encoder of one.
        inputs: tensors by name, padded behind each text, on the model's device.
        sides: how many queries and keys each stream of each text has, the shortest text first.
        calls: how many layers there are to read, after which the pass ends; None: it runs through;
            0: none can be read, and the model is to hand them over.

    Returns:
        for each text what `capture` gives of it alone.

    Raises:
        AttentionError: the architecture has no attention weights, or gives out something else.
        ModelError: the model fails, or the weights would not fit into memory.
    """
    longest = {
        stream: (max(side[stream][0] for side in sides), max(side[stream][1] for side in sides))
        for stream in sides[0]
    }
    check_family(model.config, max(max(side) for side in longest.values()))
    layers, route = all_layers(model, without_cache(model, inputs), longest, sides, calls)
    kind, most = model.config.model_type, highest(model)
    found = []
    for number, side in enumerate(sides):
        items = list[Captured]()
        for stream, (queries, keys) in side.items():
            own = {
                name: array[number, :, :queries, :keys] for name, array in layers[stream].items()
            }
            for item in group(stream, own):
                check_rows(item.weights, ", ".join(item.layers), kind, most)
                items.append(replace(item, queries=whole(queries), keys=whole(keys), route=route))
        found.append(items)
    return found


def all_layers(
    model: Any,
    inputs: Mapping[str, Any],
    longest: Sides,
    sides: Sequence[Sides],
    calls: int | None,
) -> tuple[dict[str, dict[str, NDArray[Any]]], str]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), and how they were had."""
    wishes = {
        stream: CaptureSpec(
            PooledGrid(whole(queries), whole(keys)), first=sides[0][stream][0], given=True
        )
        for stream, (queries, keys) in longest.items()
    }
    probed = {}
    if calls != 0:
        probed = probe_layers(model, inputs, longest, wishes, batch=len(sides), calls=calls)
    if set(probed) == set(longest):
        how = next(iter(next(iter(probed.values())).values())).how
        return {
            stream: {name: reading.weights for name, reading in layers.items()}
            for stream, layers in probed.items()
        }, f"{model.config._attn_implementation}, {how}"
    return hand_over_layers(model, inputs, longest, batch=len(sides)), HANDED_OVER
