"""Capture the attention weights of a model's pass, and make maps of them.

`capture` reads one text: all of it, a part, or blocks. `capture_many` reads whole texts in a batch.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.blocks import SELF, BlockStudy, LayerFolds, looks_ahead
from attnviz.analyses.folds import blocks_of
from attnviz.core.attention_map import (
    IMPLIED,
    LEARNED_SINK,
    AttentionMap,
    Link,
    Projections,
    Provenance,
    Token,
)
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.measures import BlockMeasures
from attnviz.core.notices import notify
from attnviz.core.records import dataclass, replace
from attnviz.models.hugging_face.capture import implied, kernel, probe
from attnviz.models.hugging_face.capture.exact_links import (
    IgnoredPositions,
    Strongest,
    links_note,
    strongest_in_matrices,
)
from attnviz.models.hugging_face.capture.key_kinds import KeyLayout, map_with_kinds
from attnviz.models.hugging_face.capture.passes import (
    NOTHING,
    CallWeights,
    CaptureSpec,
    EagerCalls,
    Sides,
    check_rows,
    eager_layers,
    probe_layers,
)
from attnviz.models.hugging_face.capture.region import (
    ALL_TOKENS,
    PooledGrid,
    Region,
    TokenBlocks,
    choose_grids,
    each_token,
    region_note,
)
from attnviz.models.hugging_face.capture.scores import CallScores, check_grids, stack_projections
from attnviz.models.hugging_face.load.family import check_family

IN_BLOCKS = "in blocks of rows"
EAGER_ROUTE = "eager, output_attentions"
SECOND_PASS = "this family calls no attention kernel: its weights are those of a second, eager pass"


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """The weights of neighbouring layers that have one shape."""

    stream: str  # "self", "causal", "encoder", "decoder" or "cross"
    layers: tuple[str, ...]  # numbers in the stack
    weights: NDArray[np.float32]  # (layers, heads, queries, keys), or blocks of them
    grid: PooledGrid | None = None  # None: every token
    links: tuple[tuple[Strongest, ...], ...] = ()  # of a pooled map, by layer and head
    route: str = ""  # how the weights were read
    projections: Projections | None = None
    heads: tuple[str, ...] = ()  # names; none: numbers from 0
    note: str = ""
    scores: tuple[CallScores, ...] = ()  # of each layer
    # Of each layer, how many query heads share each head of keys and values; none: unknown.
    group_sizes: tuple[int, ...] = ()
    learned_sink: bool = False  # whether a sink that is no token takes a share of rows
    exclusions: IgnoredPositions = NOTHING  # positions whose links do not count
    folds: tuple[LayerFolds, ...] = ()  # of each layer, what has read its rows in blocks
    layout: KeyLayout | None = None  # the kinds of its keys, where its layers declare any


def capture(
    model: Any,  # A whole model or its encoder alone
    inputs: Mapping[str, Any],  # Tensors on the model's device
    sides: Sides,  # The streams to read, in order of the result
    *,
    region: Region = ALL_TOKENS,  # The part to read, and how finely
    # By stream, positions whose links do not count among the strongest
    exclusions: Mapping[str, IgnoredPositions] | None = None,
    # Whether to add the matrices of layers without attention as a stream of their own
    with_mixers: bool = False,
    grids: Mapping[str, PooledGrid] | None = None,  # By stream, what to read; replaces `region`
    # By stream, what reads the rows in blocks; the maps are then one cell each
    studies: Mapping[str, BlockStudy] | None = None,
) -> list[Captured]:
    """The attention of one forward pass over one text, given as a batch of one.

    Returns:
        One item for each run of a stream's layers with equal heads, queries and keys.
    """
    mixing = with_mixers and bool(implied.mixers_of(model))
    if not mixing and region.channels != "mean":
        raise UsageError(
            f"--channels is for layers without attention: '{model.config.model_type}' has none"
        )
    if not mixing:
        check_family(model.config, max(max(side) for side in sides.values()), sides)
    left_out = {
        stream: (exclusions or {}).get(stream, IgnoredPositions(itself=stream != "cross"))
        for stream in sides
    }
    if studies is not None:
        grids = {
            stream: PooledGrid(*(TokenBlocks(0, count, count) for count in side))
            for stream, side in sides.items()
        }
    if grids is None:
        grids = choose_grids(model, sides, region)
        if region.keep_qk:
            check_grids(grids, sides)
        _announce(grids, sides, region, left_out)
    specs = {
        stream: CaptureSpec(
            grid,
            region.links if grid.is_pooled and studies is None else 0,
            left_out[stream],
            region.keep_qk and studies is None,
            keep_scores=region.keep_qk,
            study=studies[stream] if studies else None,
        )
        for stream, grid in grids.items()
    }
    plain_inputs = without_cache(model, inputs, logits_to_keep=1)
    stream, (length, _) = next(iter(sides.items()))
    watching = implied.watch_mixers(model, length, grids[stream], region.channels)
    with watching if mixing else nullcontext(implied.ImpliedMatrices()) as others:
        layers = probe_layers(model, plain_inputs, sides, specs)
        streams = {
            name: check_calls(name, own, _spec_of(name, own, specs), model)
            for name, own in layers.items()
        }
    there = {*streams, *(side for own in layers.values() for side in _streams_under(own))}
    if not there >= set(sides) and not (others.matrices and not implied.has_attention(model)):
        if region.keep_qk:
            raise AttentionError(
                f"architecture '{model.config.model_type}' calls no attention kernel and keeps its "
                "queries and keys to itself: leave --keep-qk out"
            )
        streams = _eager(model, plain_inputs, sides, specs)
    if others.matrices:
        names = kernel.layer_names(list(others.matrices))
        arrays = dict(zip(names, others.matrices.values(), strict=True))
        heads = dict(zip(names, others.names.values(), strict=True))
        captures = group_layers(
            IMPLIED, arrays, grid=grids[stream], route=implied.ROUTE, note=others.note
        )
        streams[IMPLIED] = [replace(item, heads=heads[item.layers[0]]) for item in captures]
    return [item for items in streams.values() for item in items]


def _layout_of(layers: Mapping[str, CallWeights]) -> KeyLayout | None:
    return next(iter(layers.values())).layout


def _streams_under(layers: Mapping[str, CallWeights]) -> tuple[str, ...]:
    """The streams of tokens in whose place that of these layers stands."""
    layout = _layout_of(layers)
    return layout.covers if layout else ()


def _spec_of(
    name: str, layers: Mapping[str, CallWeights], specs: Mapping[str, CaptureSpec]
) -> CaptureSpec:
    layout = _layout_of(layers)
    if layout is None:
        return specs[name]
    base = specs[layout.covers[-1]] if layout.covers else next(iter(specs.values()))
    return replace(base, grid=layout.grid(base.grid), layout=layout)


def _announce(
    grids: Mapping[str, PooledGrid],
    sides: Sides,
    region: Region,
    left_out: Mapping[str, IgnoredPositions],
) -> None:
    for stream, grid in grids.items():
        if note := region_note(grid, sides[stream]):
            notify(note)
        if region.links and grid.is_pooled:
            notify(links_note(region.links, left_out[stream]))


def without_cache(model: Any, inputs: Mapping[str, Any], **others: int) -> dict[str, Any]:
    """The inputs, with the key-value cache switched off, and others that the model takes."""
    takes = inspect.signature(model.forward).parameters
    more = {"use_cache": False, **others}
    return {**inputs, **{name: value for name, value in more.items() if name in takes}}


def check_calls(
    stream: str, layers: Mapping[str, CallWeights], spec: CaptureSpec, model: Any
) -> list[Captured]:
    """A stream's kernel calls; refused if their numbers are no weights."""
    for name, layer in layers.items():
        check_rows(layer.weights[0], name, model, stream)
    qk = {name: layer.projections for name, layer in layers.items() if layer.projections}
    captures = group_layers(
        stream,
        {name: layer.weights[0] for name, layer in layers.items()},
        {name: layer.links for name, layer in layers.items() if layer.links},
        grid=spec.grid,
        exclusions=spec.exclusions,
        route=f"{model.config._attn_implementation}, {IN_BLOCKS if spec.study else 'probed'}",
        projections=stack_projections(qk, model.config.model_type) if qk else None,
        layout=spec.layout,
    )
    sizes = {name: layer.group_size for name, layer in layers.items()}
    has_sink = any(layer.learned_sink for layer in layers.values())
    return [
        replace(
            with_group_sizes(item, sizes),
            learned_sink=has_sink,
            scores=tuple(layers[name].scores for name in item.layers),
            folds=tuple(folds for name in item.layers if (folds := layers[name].folds)),
        )
        for item in captures
    ]


def with_group_sizes(item: Captured, sizes: Mapping[str, int]) -> Captured:
    """Captured layers with the heads that share keys and values, by the layers' names."""
    return replace(item, group_sizes=tuple(sizes.get(name, 0) for name in item.layers))


def _eager(
    model: Any, inputs: Mapping[str, Any], sides: Sides, specs: Mapping[str, CaptureSpec]
) -> dict[str, list[Captured]]:
    captures = dict[str, list[Captured]]()
    for stream, layers in eager_layers(model, inputs, sides).items():
        spec, arrays, links, folds = specs[stream], {}, {}, dict[str, LayerFolds]()
        for name, (weights,) in layers.items():
            check_rows(weights, name, model, stream)
            arrays[name] = probe.pool_array(weights, spec.grid)
            if spec.study is not None:
                folds[name] = spec.study.start()
                for block in blocks_of(weights):
                    folds[name].add(folds[name].parts([block]))
            if spec.links:
                links[name] = tuple(strongest_in_matrices(weights, spec.exclusions, spec.links))
        facts = {"grid": spec.grid, "exclusions": spec.exclusions, "route": EAGER_ROUTE}
        items = group_layers(stream, arrays, links, **facts)
        sizes = EagerCalls(model).by_layer(stream, sides)
        captures[stream] = [
            replace(
                with_group_sizes(item, sizes),
                folds=tuple(folds[name] for name in item.layers if folds),
            )
            for item in items
        ]
    return captures


def group_layers(
    stream: str,
    arrays: Mapping[str, NDArray[np.float32]],
    links: Mapping[str, tuple[Strongest, ...]] | None = None,
    **facts: Any,
) -> list[Captured]:
    """Stack each run of neighbouring layers of one shape; `facts` are further fields."""
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
    """Every weight of each text of a batch, without padding, as `capture` reads each text alone.

    Inputs are padded behind each text, the shortest text first. The pass stops after `calls` layers
    were read; None: it runs to its end; 0: the model calls no kernel and runs eagerly.
    """
    longest = longest_sides(sides)
    check_family(model.config, max(max(side) for side in longest.values()), longest)
    layers, sizes, route = _all_layers(model, without_cache(model, inputs), longest, sides, calls)
    return split_texts(model, layers, sizes, sides, route)


def longest_sides(sides: Sequence[Sides]) -> dict[str, tuple[int, int]]:
    """The most queries and keys of each stream in some texts, to which the others are padded."""
    return {
        stream: (max(side[stream][0] for side in sides), max(side[stream][1] for side in sides))
        for stream in sides[0]
    }


def split_texts(
    model: Any,
    layers: Mapping[str, Mapping[str, NDArray[Any]]],
    sizes: Mapping[str, Mapping[str, int]],
    sides: Sequence[Sides],
    route: str,
) -> list[list[Captured]]:
    """Each text of a batch without padding, of each stream's layers by name and their groups."""
    texts = []
    for number, side in enumerate(sides):
        items = list[Captured]()
        for stream, (queries, keys) in side.items():
            own = {
                name: array[number, :, :queries, :keys] for name, array in layers[stream].items()
            }
            for name, array in own.items():
                check_rows(array, name, model, stream)
            grid = PooledGrid(each_token(queries), each_token(keys))
            captures = group_layers(stream, own, grid=grid, route=route)
            items += [with_group_sizes(item, sizes[stream]) for item in captures]
        texts.append(items)
    return texts


def _all_layers(
    model: Any, inputs: Mapping[str, Any], longest: Sides, sides: Sequence[Sides], calls: int | None
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, dict[str, int]], str]:
    """Each stream's layers by name, (batch, heads, queries, keys), their groups and route."""
    by_kernel = {}
    if calls != 0:
        specs = batch_specs(longest, sides)
        by_kernel = probe_layers(model, inputs, longest, specs, batch=len(sides), calls=calls)
    if set(by_kernel) == set(longest):
        return by_name(model, by_kernel)
    arrays = eager_layers(model, inputs, longest, batch=len(sides))
    eager = EagerCalls(model)
    return arrays, {stream: eager.by_layer(stream, longest) for stream in longest}, EAGER_ROUTE


def batch_specs(longest: Sides, sides: Sequence[Sides]) -> dict[str, CaptureSpec]:
    """What to read of each stream of a batch: every weight."""
    return {
        stream: CaptureSpec(
            PooledGrid(each_token(queries), each_token(keys)),
            first=sides[0][stream][0],
            from_kernel=True,
        )
        for stream, (queries, keys) in longest.items()
    }


def by_name(
    model: Any, streams: Mapping[str, Mapping[str, CallWeights]]
) -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, dict[str, int]], str]:
    """The weights and the groups of each stream's calls, by the layers' names, and their route."""
    how = next(iter(next(iter(streams.values())).values())).how
    arrays, sizes = (
        {
            stream: {name: getattr(layer, what) for name, layer in layers.items()}
            for stream, layers in streams.items()
        }
        for what in ("weights", "group_size")
    )
    return arrays, sizes, f"{model.config._attn_implementation}, {how}"


def as_map(
    item: Captured,
    tokens: Mapping[str, tuple[Token, ...]],
    side: str,
    key_side: str,
    length: int = 0,
) -> AttentionMap:
    """Captured weights with their tokens; `length`: of the queries' text, in characters.

    The weights decide whether a map is causal, not the family: some decoders look ahead (prefix
    language models) and some encoders do not. With one token the family decides.
    """
    stream = item.stream
    lengths = len(tokens[side]), len(tokens[key_side])
    grid = item.grid or PooledGrid(*map(each_token, lengths))
    queries, keys = grid.queries, grid.keys
    if item.layout is not None and not item.folds and not grid.is_pooled:
        names = {"layers": item.layers, "heads": item.heads}
        texts = side, key_side
        return map_with_kinds(item.layout, item.weights, tokens, texts, queries, length, **names)
    if item.folds and stream in SELF:
        stream = "self" if any(map(looks_ahead, item.folds)) else "causal"
    elif stream in {"self", "causal"} and len(tokens[side]) > 1:
        first = (queries.start - keys.start) // keys.length
        ahead = any(np.triu(layer, 1 + first).any() for layer in item.weights)
        stream = "self" if ahead else "causal"
    links = (
        Link(query.text, key.text, cell.weight, layer, str(head), cell.query, cell.key)
        for layer, heads in zip(item.layers, item.links, strict=False)
        for head, strongest in enumerate(heads)
        for cell in strongest
        for query, key in [(tokens[side][cell.query], tokens[key_side][cell.key])]
    )
    more: dict[str, Any] = {"values": "signed", "unit": implied.UNIT} if stream == IMPLIED else {}
    return AttentionMap(
        stream,
        queries.tokens(tokens[side]),
        keys.tokens(tokens[key_side]),
        item.weights,
        layers=item.layers,
        query_side=side,
        key_side=key_side,
        blocks=(queries.length, keys.length),
        starts=(queries.start, keys.start),
        links=tuple(links),
        heads=item.heads,
        **more,
    )


def scores_of(
    maps: Sequence[AttentionMap], captures: Sequence[Captured]
) -> dict[tuple[str, str, str], dict[str, float]]:
    """What was measured of each head's scores, by stream, layer and head."""
    return {
        (item.stream, layer, head): {name: float(own[place]) for name, own in of_layer.items()}
        for item, one in zip(maps, captures, strict=True)
        for layer, of_layer in zip(item.layers, one.scores, strict=False)
        if of_layer
        for place, head in enumerate(item.heads)
    }


def group_sizes_of(
    maps: Sequence[AttentionMap], captures: Sequence[Captured]
) -> dict[str, dict[str, int]]:
    """How many heads share each head of keys and values, by stream and layer, where known."""
    sizes = dict[str, dict[str, int]]()
    for item, one in zip(maps, captures, strict=True):
        own = {n: x for n, x in zip(item.layers, one.group_sizes, strict=False) if x}
        sizes[item.stream] = sizes.get(item.stream, {}) | own
    return {stream: own for stream, own in sizes.items() if own}


def measures_of(
    maps: Sequence[AttentionMap], captures: Sequence[Captured], studies: Mapping[str, BlockStudy]
) -> tuple[BlockMeasures, ...]:
    """The measures of maps whose rows were read in blocks."""
    measures = []
    for item, one in zip(maps, captures, strict=True):
        names = dict.fromkeys(name for layer in one.scores for name in layer)
        blank = np.full(len(item.heads), np.nan)
        scores = {name: np.stack([of.get(name, blank) for of in one.scores]) for name in names}
        study = studies.get(one.stream) or next(iter(studies.values()))
        measures.append(study.end(one.folds, (item.layers, item.heads), scores))
    return tuple(measures)


def ignored_positions(tokens: tuple[Token, ...], *, causal: bool) -> IgnoredPositions:
    """Positions left out of the strongest links: special tokens and a decoder's first."""
    special = tuple(place for place, token in enumerate(tokens) if token.special)
    keys = tuple(dict.fromkeys((*special, 0))) if causal else special
    return IgnoredPositions(special, keys, itself=True)


def with_routes(
    provenance: Provenance, routes: Iterable[str], *, learned_sink: bool = False
) -> Provenance:
    """The provenance, with how the weights were read, and whether there is a learned sink."""
    settings = {**provenance.settings, "attention": ", ".join(dict.fromkeys(routes))}
    return replace(provenance, settings=settings | ({LEARNED_SINK: True} if learned_sink else {}))


def capture_notes(
    captures: Sequence[Captured], sides: Mapping[str, tuple[int, int]]
) -> tuple[str, ...]:
    """Notes on maps that are pooled, partial, or from a second pass."""
    notes = dict[str, None]()
    if any(item.route == EAGER_ROUTE for item in captures):
        notes[SECOND_PASS] = None
    for item in captures:
        if item.folds:
            side = sides.get(item.stream) or next(iter(sides.values()))
            note = f"{side[0]:,} tokens: weights were read in blocks of rows, and every number is "
            groups = item.route == EAGER_ROUTE and any(size > 1 for size in item.group_sizes)
            left_out = "; kv-likeness needs whole maps and is left out" if groups else ""
            notes[f"{note}exact{left_out}"] = None
        elif item.grid is not None:
            side = sides.get(item.stream) or next(iter(sides.values()))
            notes[region_note(item.grid, side)] = None
        notes[item.note] = None
        most = max((len(head) for layer in item.links for head in layer), default=0)
        notes[links_note(most, item.exclusions) if most else ""] = None
    return tuple(note for note in notes if note)
