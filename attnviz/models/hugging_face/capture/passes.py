"""Read each layer's weights in one pass over a batch, and check that they are weights.

They are read from the kernel that the model runs with. Models that call no kernel run a second
time, eagerly, and return their matrices (`output_attentions`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.blocks import BlockStudy, LayerFolds
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Projections, check_finite, not_finite
from attnviz.core.errors import AttentionError
from attnviz.core.records import dataclass, field, replace
from attnviz.models.hugging_face.capture import (
    blocks,
    exact_links,
    kernel,
    key_kinds,
    probe,
    region,
)
from attnviz.models.hugging_face.capture.scores import (
    CallScores,
    project_call,
    read_scores,
    read_tiles,
    watch_peaks,
)
from attnviz.models.hugging_face.load.devices import (
    BYTES,
    check_fit,
    computed_dtype,
    running_errors,
)

TOLERANCE = {"float16": 1e-2, "bfloat16": 2e-2}  # how far above 1 rows may sum; else 1e-3
QUERIES = ("query", "key", "value")  # what three queries of one site are made for
NOTHING = exact_links.IgnoredPositions()
Sides = Mapping[str, tuple[int, int]]  # numbers of queries and keys by stream


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """Which part of a call to read, and how."""

    grid: region.PooledGrid
    links: int = 0  # how many of the strongest of each head
    exclusions: exact_links.IgnoredPositions = NOTHING  # positions whose links do not count
    keep_qk: bool = False  # whether to keep queries and keys
    keep_scores: bool = False  # whether to measure the scores before the softmax
    first: int | None = None  # queries of the first text of a batch; None: all
    from_kernel: bool = False  # whether to take weights that the kernel returns
    study: BlockStudy | None = None  # what reads the rows instead, in blocks
    layout: key_kinds.KeyLayout | None = None  # the kinds of its keys, where it declares any
    positions: tuple[int, int] = (0, 0)  # first and one past the last, where they stand for heads


@dataclass(frozen=True, slots=True, eq=False)
class CallWeights:
    """The attention of one call."""

    path: str  # the module that called, by its dotted name
    weights: NDArray[np.float32]  # (batch, heads, query blocks, key blocks)
    links: tuple[exact_links.Strongest, ...] = ()  # of each head
    projections: Projections | None = None
    how: str = "probed"  # or "given by its kernel"
    faulty_head: int | None = None  # a head whose attention is not finite; then nothing was read
    scores: CallScores = field(default_factory=dict)  # by measure, a number for each head
    group_size: int = 0  # how many heads share each head of keys and values
    learned_sink: bool = False  # whether a sink that is no token takes a share of each row
    folds: LayerFolds | None = None  # what has read the rows in blocks
    layout: key_kinds.KeyLayout | None = None  # the kinds of its keys, where it declares any


class StopForward(Exception):  # noqa: N818 - it ends a pass and is no error
    """Raised when all wanted layers of a pass were read."""


def probe_layers(
    model: Any,
    inputs: Mapping[str, Any],
    sides: Sides,
    specs: Mapping[str, CaptureSpec],
    *,
    batch: int = 1,
    calls: int | None = None,
) -> dict[str, dict[str, CallWeights]]:
    """Each stream's layers that call a kernel, by name."""
    import torch

    def spec_for(path: str, call: AttentionCall) -> CaptureSpec | None:
        stream = kernel.match_stream(kernel.stream_of(path), sides)
        layout = None if stream is None else key_kinds.layout_of(call, stream, sides)
        if layout is None or stream is None:
            stream = stream_at(path, call, sides, model, batch)
            return None if stream is None else specs[stream]
        kind, spec = model.config.model_type, specs[stream]
        if batch > 1:
            key_kinds.check_tokens_only(path, layout, kind)
        key_kinds.check_layout(path, call, layout, kind, (batch, sides[stream][0]))
        key_kinds.check_whole(path, layout, spec.grid, in_blocks=spec.study is not None)
        return layout_spec(spec, layout, call)

    devices = [model.device] if model.device.type == "cuda" else []
    # A model that samples (ViLT its patches) must sample the same if it runs again eagerly.
    with running_errors(model), torch.random.fork_rng(devices):
        peaks = any(spec.keep_scores for spec in specs.values())
        weights = read_calls(model, inputs, spec_for, calls, peaks=peaks)
    return group_by_layer(weights, sides, model)


def layout_spec(
    spec: CaptureSpec, layout: key_kinds.KeyLayout, call: AttentionCall
) -> CaptureSpec | None:
    """What to read of a call with keys of several kinds; None: nothing."""
    if layout.by_position and spec.study is not None:
        return None  # rows in blocks measure how tokens attend
    if not layout.by_position:
        return replace(spec, grid=layout.grid(spec.grid), layout=layout)
    grid = region.PooledGrid(*map(region.each_token, (call.query.shape[2], layout.keys)))
    own = layout.grid(spec.grid).queries
    return CaptureSpec(grid, layout=layout, positions=(own.start, own.stop))


def stream_at(
    path: str, call: AttentionCall, sides: Sides, model: Any, batch: int = 1
) -> str | None:
    """The stream of a call over tokens; None: not wanted.

    Windows, blocks and keys of other kinds are refused; attention over layers is no stream of it.
    """
    stream = kernel.match_stream(kernel.stream_of(path), sides)
    layout = None if stream is None else key_kinds.layout_of(call, stream, sides)
    if layout is not None:
        if layout.by_position:
            return None
        key_kinds.check_tokens_only(path, layout, model.config.model_type)
    texts, heads, queries, _ = call.query.shape
    keys = call.key.shape[2]
    if stream is not None and (texts, queries, keys) != (batch, *sides[stream]):
        kind, shape = model.config.model_type, (texts, heads, queries, keys)
        raise _wrong_shape(path, kind, shape, sides[stream], batch)
    return stream


def group_by_layer(
    calls: Sequence[CallWeights], sides: Sides, model: Any
) -> dict[str, dict[str, CallWeights]]:
    """Calls by stream and layer."""
    layers = dict[str, dict[str, CallWeights]]()
    streams = [
        item.layout.stream
        if item.layout
        else kernel.match_stream(kernel.stream_of(item.path), sides)
        for item in calls
    ]
    for stream in _in_order(calls, sides):
        own = [item for item, name in zip(calls, streams, strict=True) if name == stream]
        if own and own[0].layout and own[0].layout.by_position:
            layers[stream] = join_sites(own)
            continue
        names = kernel.layer_names([item.path for item in own], attending_layers(model.config))
        for name, item in zip(names, own, strict=True):
            if item.faulty_head is not None:
                raise not_finite(stream, name, str(item.faulty_head), computed_dtype(model))
        if own:
            layers[stream] = dict(zip(names, own, strict=True))
    return layers


def _in_order(calls: Sequence[CallWeights], sides: Sides) -> list[str]:
    """Streams in the order of sides, each followed by those in its place, and then all others."""
    layouts = [item.layout for item in calls if item.layout]
    order = list[str]()
    for side in sides:
        order.append(side)
        order += [one.stream for one in layouts if side in one.covers[:1]]
    return list(dict.fromkeys((*order, *(one.stream for one in layouts))))


def join_sites(calls: Sequence[CallWeights]) -> dict[str, CallWeights]:
    """Attention over depth: a layer for each query of a site, with the same blocks as columns.

    What is behind the block that a site adds to does not exist yet: its weight is 0.
    """
    most = max(item.weights.shape[-1] for item in calls)
    layout = depth_layout([(item.path, item.weights.shape[-1]) for item in calls], most)
    sites = dict[str, CallWeights]()
    for item in calls:
        numbers = re.findall(r"(?<=\.)\d+(?=\.)", f".{item.path}.")
        queries = item.weights.shape[1]
        parts = QUERIES if queries == len(QUERIES) else tuple(map(str, range(queries)))
        for place in range(queries):
            site = " ".join([*numbers[:1], item.path.rpartition(".")[2]])
            own = np.zeros((1, 1, item.weights.shape[2], most), np.float32)
            own[0, 0, :, : item.weights.shape[-1]] = item.weights[0, place]
            name = f"{site} {parts[place]}" if queries > 1 else site
            sites[name] = replace(item, weights=own, layout=layout)
    return sites


def depth_layout(sites: Sequence[tuple[str, int]], blocks: int) -> key_kinds.KeyLayout:
    """The blocks of layers, by what sites see: a layer is of the last block that is seen in it."""
    last = dict[int, int]()
    for path, count in sites:
        for number in re.findall(r"(?<=\.)\d+(?=\.)", f".{path}.")[:1]:
            last[int(number)] = max(last.get(int(number), 0), count - 1)
    spans = []
    for block in range(blocks):
        own = [layer for layer, number in last.items() if number == block]
        spans.append((min(own), max(own)) if own else (0, -1))
    run = key_kinds.KeyRun("layer", blocks, tuple(spans))
    return key_kinds.KeyLayout("depth", (run,), by_position=True)


def read_calls(
    model: Any,
    inputs: Mapping[str, Any],
    spec_for: Callable[[str, AttentionCall], CaptureSpec | None],
    calls: int | None = None,
    *,
    peaks: bool = False,
) -> list[CallWeights]:
    """The attention of each kernel call of one pass, in order; `peaks`: see `watch_peaks`."""
    import torch

    paths = {id(module): name for name, module in model.named_modules()}
    weights = list[CallWeights]()

    def look(call: AttentionCall) -> None:
        path = paths.get(id(call.module))
        spec = None if path is None else spec_for(path, call)
        if path is not None and spec is not None:
            one = replace(read_call(path, call, spec), layout=spec.layout)
            if spec.layout is not None and spec.layout.by_position:
                rows = one.weights.swapaxes(1, 2)[:, :, slice(*spec.positions)]
                one = replace(one, weights=rows, group_size=0)
            if one.scores:
                peaks = np.full(call.query.shape[1], peak_at(path))
                one = replace(one, scores=one.scores | {"massive": peaks})
            weights.append(one)
            if len(weights) == calls:
                raise StopForward

    watching = watch_peaks(model) if peaks else nullcontext(lambda _: np.nan)
    with suppress(StopForward), torch.no_grad(), kernel.watch_kernels(look), watching as peak_at:
        model(**inputs, return_dict=True)
    return weights


def read_call(path: str, call: AttentionCall, spec: CaptureSpec) -> CallWeights:
    """One call's attention."""
    faulty = probe.broken_head(call)
    if faulty is not None:
        return CallWeights(path, np.empty(0, dtype=np.float32), faulty_head=faulty)
    size = kernel.group_size(call)
    if spec.study is not None:
        folds, measures = blocks.read_blocks(path, call, spec.study, scores=spec.keep_scores)
        whole = np.ones((1, call.query.shape[1], 1, 1), dtype=np.float32)
        facts: dict[str, Any] = {
            "group_size": size,
            "learned_sink": probe.sink_logits(call) is not None,
        }
        how = "in blocks of rows"
        return CallWeights(path, whole, how=how, scores=measures, folds=folds, **facts)
    # Granite's kernels return weights before the sink takes its share.
    if spec.from_kernel and call.weights is not None and probe.sink_logits(call) is None:
        check_mixture(path, call, call.weights, spec.first)
        return CallWeights(
            path, call.weights.float().cpu().numpy(), how="given by its kernel", group_size=size
        )
    learned_sink = probe.sink_logits(call) is not None
    tiles = read_tiles(call, spec.grid, spec.links, spec.exclusions, scores=spec.keep_scores)
    scores: CallScores = {}
    if tiles:
        weights, links, scores = tiles
    else:
        bounds = exact_links.Bounds(call, spec.grid, spec.exclusions) if spec.links else None
        weights = probe.read_grid(call, spec.grid, bounds.add if bounds else None)
        whole = weights.shape[2:] == (call.query.shape[2], call.key.shape[2])
        if whole and not spec.grid.is_pooled:
            check_mixture(path, call, weights, spec.first)
        links = exact_links.find_strongest(bounds, spec.links) if bounds else []
        if spec.keep_scores:
            scores = read_scores(call, spec.grid, weights)
    projections = project_call(call, spec.grid) if spec.keep_qk else None
    return CallWeights(
        *(path, weights.numpy(), tuple(links), projections),
        scores=scores,
        group_size=size,
        learned_sink=learned_sink,
    )


def check_mixture(path: str, call: AttentionCall, weights: Any, queries: int | None = None) -> None:
    """Refuse weights that times the values are not the kernel's output; one text is enough."""
    value = call.value[0].float().cpu()
    value = value.repeat_interleave(weights.shape[1] // len(value), dim=0)
    mixture = (weights[0, :, :queries].float().cpu() @ value).transpose(0, 1)
    output = call.output[0, :queries].float().cpu().reshape(mixture.shape)
    off = float((mixture - output).abs().max())
    if not off <= probe.DRIFT.get(probe.dtype_of(call.value), 1e-3) * max(
        float(value.abs().max()), 1.0
    ):
        raise AttentionError(
            f"attention of '{path}' cannot be read: its kernel does more than mix values by "
            f"weights (off by {off:.2g})"
        )


class EagerCalls:
    """What the calls of an eager pass show: which heads share keys and values, and learned sinks.

    Attributes:
        sizes: by path, how many heads share each head of keys and values.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.sizes, self.learned_sink = model, dict[str, int](), False
        self._paths = {id(module): name for name, module in model.named_modules()}

    def look(self, call: AttentionCall) -> None:
        if (path := self._paths.get(id(call.module))) is not None:
            self.sizes[path] = kernel.group_size(call)
            self.learned_sink |= probe.sink_logits(call) is not None

    def by_layer(self, stream: str, sides: Sides) -> dict[str, int]:
        """The sizes of a stream's layers; of a family without a kernel, what its modules say."""
        sizes = self.sizes or {
            path: module.num_heads // module.num_kv_heads
            for path, module in self.model.named_modules()
            if isinstance(getattr(module, "num_kv_heads", None), int)
            and isinstance(getattr(module, "num_heads", None), int)
        }
        own = [
            path for path in sizes if kernel.match_stream(kernel.stream_of(path), sides) == stream
        ]
        names = kernel.layer_names(own, attending_layers(self.model.config))
        return {name: sizes[path] for name, path in zip(names, own, strict=True)}


def eager_layers(
    model: Any, inputs: Mapping[str, Any], sides: Sides, *, batch: int = 1
) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Each stream's layers by name, shape (batch, heads, queries, keys), from an eager pass."""
    import torch

    _check_memory(model, sides, batch)
    with running_errors(model), torch.no_grad():
        _, layers = kernel.output_attentions(kernel.eager_copy(model), inputs, list(sides))
    return {
        stream: read_batch(layers[stream], model.config, side, batch)
        for stream, side in sides.items()
    }


def _check_memory(model: Any, sides: Sides, batch: int) -> None:
    """Refuse a text whose matrices would not fit: the model's own and float32 copies."""
    heads = {stream: region.heads_of(model.config, stream) for stream in sides}
    cells = sum(heads[stream] * queries * keys for stream, (queries, keys) in sides.items())
    check_fit(
        batch * cells * (BYTES.get(probe.dtype_of(model), 4) + 4),
        model.device,
        f"'{model.config.model_type}' calls no attention kernel and gives out all its matrices at "
        f"once: {sum(heads.values())} heads × {max(map(max, sides.values())):,} tokens²",
        "give a shorter text",
    )


def read_batch(
    layers: Sequence[Any] | None, config: Any, side: tuple[int, int], batch: int = 1
) -> dict[str, NDArray[np.float32]]:
    """The weights that a model returned, (batch, heads, queries, keys), by layer number."""
    kind = config.model_type
    tensors = [layer for layer in layers or () if layer is not None]
    if not tensors:
        raise AttentionError(
            f"architecture '{kind}' gives out no attention weights: it has no attention, or keeps "
            "it to itself"
        )
    arrays = {}
    for number, layer in zip(layer_numbers(config, list(layers or ())), tensors, strict=True):
        if getattr(layer, "ndim", 0) != 4 or layer.shape[0] != batch or layer.shape[2:] != side:
            raise _wrong_shape(number, kind, tuple(getattr(layer, "shape", ())), side, batch)
        arrays[number] = np.asarray(layer.float().cpu().numpy(), dtype=np.float32)
    return arrays


def _wrong_shape(
    name: str, kind: str, shape: Sequence[int], side: tuple[int, int], batch: int
) -> AttentionError:
    why = "windows or blocks of it, not the weights between all tokens"
    if len(shape) == 4 and (shape[0], shape[2]) == (batch, side[0]) and shape[3] > side[1]:
        why = (
            f"of its {shape[3]:,} keys {side[1]:,} are tokens, and the other "
            f"{shape[3] - side[1]:,} are of a kind that is not declared, or not read here"
        )
    return AttentionError(
        f"layer {name} of architecture '{kind}' gives out attention of shape {tuple(shape)}, "
        f"which is not ({batch}, heads, {side[0]} queries, {side[1]} keys): {why}"
    )


def check_rows(array: NDArray[np.float32], number: str, model: Any, stream: str) -> None:
    """Refuse numbers of a layer (heads, queries, keys) that are no weights, such as scores."""
    lowest, largest = float(array.min()), float(array.sum(axis=-1).max())
    if lowest >= 0 and largest <= 1 + 1e-3:
        return
    check_finite(array[None], stream, [number], dtype=computed_dtype(model))
    if not (lowest >= 0 and largest <= 1 + TOLERANCE.get(computed_dtype(model), 1e-3)):
        raise AttentionError(
            f"layer {number} of architecture '{model.config.model_type}' gives out values down to "
            f"{lowest:.4g} in rows that sum to as much as {largest:.4g}: these are not attention "
            "weights"
        )


def attending_layers(config: Any) -> list[int]:
    """The numbers of layers with attention, if the configuration names each layer's kind."""
    config = config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return [
        number for number, kind in enumerate(kinds) if "attention" in kind and "linear" not in kind
    ]


def layer_numbers(config: Any, layers: Sequence[Any]) -> list[str]:
    """The number of each layer with attention, counted among all layers.

    In its output a hybrid either has None for its other layers or leaves them out; in the second
    case the configuration says which they are.
    """
    numbers = attending_layers(config)
    if all(layer is not None for layer in layers) and len(numbers) == len(layers):
        return [str(number) for number in numbers]
    return [str(number) for number, layer in enumerate(layers) if layer is not None]
