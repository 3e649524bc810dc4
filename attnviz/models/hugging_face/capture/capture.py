"""A model and its inputs become attention weights: the one place where they are read out.

One text at a time, all of it, in part or in blocks; `capture_many` reads many texts, all of each.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import IMPLIED, Projections
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.notices import notify
from attnviz.models.hugging_face.capture.exact_links import (
    IgnoredPositions,
    Strongest,
    links_note,
    strongest_in_matrices,
)
from attnviz.models.hugging_face.capture.implied import (
    ROUTE,
    ImpliedMatrices,
    has_attention,
    mixers_of,
    watch_mixers,
)
from attnviz.models.hugging_face.capture.kernel import layer_names
from attnviz.models.hugging_face.capture.passes import (
    NOTHING,
    CallWeights,
    CaptureSpec,
    Sides,
    check_rows,
    eager_layers,
    probe_layers,
)
from attnviz.models.hugging_face.capture.probe import pool_array
from attnviz.models.hugging_face.capture.projections import check_grids, stack_projections
from attnviz.models.hugging_face.capture.region import (
    ALL_TOKENS,
    PooledGrid,
    Region,
    choose_grids,
    each_token,
    region_note,
)
from attnviz.models.hugging_face.load.family import check_family

if TYPE_CHECKING:
    from numpy.typing import NDArray

EAGER_ROUTE = "eager, output_attentions"
"""The route of weights that were not read from a kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The weights of layers of one shape."""

    stream: str  # "self", "causal", "encoder", "decoder" or "cross"
    layers: tuple[str, ...]  # numbers in the stack
    weights: NDArray[np.float32]  # (layers, heads, queries, keys), or blocks of them
    grid: PooledGrid | None = None  # None: every token
    links: tuple[tuple[Strongest, ...], ...] = ()  # for each layer and head, of a pooled map
    route: str = ""  # how the weights were read
    projections: Projections | None = None
    heads: tuple[str, ...] = ()  # their names; none: they are counted
    note: str = ""  # what a reader must know besides
    ignored: IgnoredPositions = NOTHING  # what does not count among the links


def capture(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Sides,
    *,
    region: Region = ALL_TOKENS,
    ignored: Mapping[str, IgnoredPositions] | None = None,
    implied: bool = False,
    grids: Mapping[str, PooledGrid] | None = None,
) -> list[Captured]:
    """The attention of one forward pass over one text, a batch of one on the model's device.

    `model` may be an encoder alone; `sides` are of the streams wanted, in the order wanted, and
    `ignored` what does not count among a stream's strongest links. There is one item for each run
    of a stream's layers that agree in heads, queries and keys. Where `implied` is asked for, what
    layers without attention amount to is a stream of its own behind the others. `grids` are what to
    read of each stream, in place of what `region` says.
    """
    mixing = implied and bool(mixers_of(model))
    if not mixing and region.channels != "mean":
        raise UsageError(
            f"--channels is for layers without attention: '{model.config.model_type}' has none"
        )
    if not mixing:
        check_family(model.config, max(max(side) for side in sides.values()))
    left_out = {
        stream: (ignored or {}).get(stream, IgnoredPositions(itself=stream != "cross"))
        for stream in sides
    }
    if grids is None:
        grids = choose_grids(model, sides, region)
        if region.keep_qk:
            check_grids(grids, sides)
        _announce(grids, sides, region, left_out)
    specs = {
        stream: CaptureSpec(
            grid, region.links if grid.is_pooled else 0, left_out[stream], region.keep_qk
        )
        for stream, grid in grids.items()
    }
    given = without_cache(model, inputs)
    stream, (length, _) = next(iter(sides.items()))
    watching = watch_mixers(model, length, grids[stream], region.channels)
    with watching if mixing else nullcontext(ImpliedMatrices()) as others:
        layers = probe_layers(model, given, sides, specs)
        found = {name: check_calls(name, own, specs[name], model) for name, own in layers.items()}
    if set(found) != set(sides) and not (others.matrices and not has_attention(model)):
        if region.keep_qk:
            raise AttentionError(
                f"architecture '{model.config.model_type}' calls no attention kernel and keeps its "
                "queries and keys to itself: leave --keep-qk out"
            )
        found = _eager(model, given, sides, specs)
    if others.matrices:
        found[IMPLIED] = _implied(others, grids[stream])
    return [item for items in found.values() for item in items]


def _implied(others: ImpliedMatrices, grid: PooledGrid) -> list[Captured]:
    names = layer_names(list(others.matrices))
    arrays = dict(zip(names, others.matrices.values(), strict=True))
    heads = dict(zip(names, others.names.values(), strict=True))
    found = group_layers(IMPLIED, arrays, grid=grid, route=ROUTE, note=others.note)
    return [replace(item, heads=heads[item.layers[0]]) for item in found]


def _announce(
    grids: Mapping[str, PooledGrid],
    sides: Sides,
    region: Region,
    ignored: Mapping[str, IgnoredPositions],
) -> None:
    for stream, grid in grids.items():
        left_out = region_note(grid, sides[stream])
        if left_out:
            notify(left_out)
        if region.links and grid.is_pooled:
            notify(links_note(region.links, ignored[stream]))


def without_cache(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, and that a model which could keep keys and values need not."""
    takes = inspect.signature(model.forward).parameters
    return {**inputs, **({"use_cache": False} if "use_cache" in takes else {})}


def check_calls(
    stream: str, layers: Mapping[str, CallWeights], spec: CaptureSpec, model: Any
) -> list[Captured]:
    """What was read of a stream's kernel calls, checked to be weights."""
    for name, layer in layers.items():
        check_rows(layer.weights[0], name, model, stream)
    projected = {name: layer.projected for name, layer in layers.items() if layer.projected}
    return group_layers(
        stream,
        {name: layer.weights[0] for name, layer in layers.items()},
        {name: layer.links for name, layer in layers.items() if layer.links},
        grid=spec.grid,
        ignored=spec.ignored,
        route=f"{model.config._attn_implementation}, probed",
        projections=stack_projections(projected, model.config.model_type) if projected else None,
    )


def _eager(
    model: Any, inputs: Mapping[str, Any], sides: Sides, specs: Mapping[str, CaptureSpec]
) -> dict[str, list[Captured]]:
    found = dict[str, list[Captured]]()
    for stream, layers in eager_layers(model, inputs, sides).items():
        spec, arrays, links = specs[stream], {}, {}
        for name, (weights,) in layers.items():
            check_rows(weights, name, model, stream)
            arrays[name] = pool_array(weights, spec.grid)
            if spec.links:
                links[name] = tuple(strongest_in_matrices(weights, spec.ignored, spec.links))
        facts = {"grid": spec.grid, "ignored": spec.ignored, "route": EAGER_ROUTE}
        found[stream] = group_layers(stream, arrays, links, **facts)
    return found


def group_layers(
    stream: str,
    arrays: Mapping[str, NDArray[np.float32]],
    links: Mapping[str, tuple[Strongest, ...]] | None = None,
    **facts: Any,
) -> list[Captured]:
    """Runs of neighbouring layers of one shape, each stacked, with the other fields given."""
    runs = (dict(run) for _, run in groupby(arrays.items(), key=lambda item: item[1].shape))
    return [
        Captured(
            stream,
            tuple(run),
            np.stack(list(run.values())),
            links=tuple(links[name] for name in run) if links else (),
            **facts,
        )
        for run in runs
    ]


def capture_many(
    model: Any, inputs: Mapping[str, Any], sides: Sequence[Sides], calls: int | None = None
) -> list[list[Captured]]:
    """Every weight of each text of a batch, from one forward pass, padding left out.

    Inputs are padded behind each text, the shortest text first. `calls` is how many layers there
    are to read, after which the pass ends; None: it runs through; 0: no kernel is called, and an
    eager pass gives them out. Each text gets what `capture` gives of it alone.
    """
    longest = {
        stream: (max(side[stream][0] for side in sides), max(side[stream][1] for side in sides))
        for stream in sides[0]
    }
    check_family(model.config, max(max(side) for side in longest.values()))
    layers, route = _all_layers(model, without_cache(model, inputs), longest, sides, calls)
    found = []
    for number, side in enumerate(sides):
        items = list[Captured]()
        for stream, (queries, keys) in side.items():
            own = {
                name: array[number, :, :queries, :keys] for name, array in layers[stream].items()
            }
            for name, array in own.items():
                check_rows(array, name, model, stream)
            grid = PooledGrid(each_token(queries), each_token(keys))
            items += group_layers(stream, own, grid=grid, route=route)
        found.append(items)
    return found


def _all_layers(
    model: Any,
    inputs: Mapping[str, Any],
    longest: Sides,
    sides: Sequence[Sides],
    calls: int | None,
) -> tuple[dict[str, dict[str, NDArray[Any]]], str]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), and how they were read."""
    specs = {
        stream: CaptureSpec(
            PooledGrid(each_token(queries), each_token(keys)), first=sides[0][stream][0], given=True
        )
        for stream, (queries, keys) in longest.items()
    }
    probed = {}
    if calls != 0:
        probed = probe_layers(model, inputs, longest, specs, batch=len(sides), calls=calls)
    if set(probed) == set(longest):
        how = next(iter(next(iter(probed.values())).values())).how
        return {
            stream: {name: layer.weights for name, layer in layers.items()}
            for stream, layers in probed.items()
        }, f"{model.config._attn_implementation}, {how}"
    return eager_layers(model, inputs, longest, batch=len(sides)), EAGER_ROUTE
