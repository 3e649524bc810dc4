"""A pass with transformers' own eager attention, whose weights stay tensors, for lenses.

It holds all matrices at once, layers × heads × queries × keys, so memory is estimated first.

For the norm lens (Kobayashi 2020) it also gives each key's value vector times the head's slice of
W_O. A kernel receives the values, and the output projection receives its result. Both are recorded
in one pass, so no family's module names have to be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttentionError
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.core.locks import thread_hook
from attnviz.models.hugging_face.capture import capture, kernel, passes, probe
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.devices import (
    BYTES,
    check_fit,
    running_errors,
    smaller_input_hint,
)
from attnviz.models.hugging_face.load.family import check_family
from attnviz.models.hugging_face.loaded_model import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor


def eager_inputs(
    source: LoadedModel, encoding: EncodedQuery, *, is_copied: bool = False
) -> EncodedQuery:
    """A query for an eager pass of a model or an encoder; `is_copied`: the caller copies it."""
    alone = list(encoding.axes) == ["encoder"]
    part = source.encoder if alone else source.model
    inputs = source.tensors(encoding.inputs, part)
    own = is_copied and kernel.can_be_eager(part)
    return replace(encoding, part=part if own else kernel.eager_copy(part), inputs=inputs)


def check_eager(eager: EncodedQuery, copies: int) -> None:
    """Refuse inputs whose matrices would not fit, or that no attention weights relate."""
    sides = eager.sides.values()
    longest = max(map(max, sides))
    check_family(eager.part.config, longest, eager.axes)
    config = eager.part.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None) or 1
    heads = getattr(config, "num_attention_heads", None) or 1
    cells = sum(queries * keys for queries, keys in sides)
    check_fit(
        layers * heads * cells * copies * BYTES.get(probe.dtype_of(eager.part), 4),
        eager.part.device,
        f"this lens over {longest:,} tokens ({layers} layers × {heads} heads × tokens², {copies} "
        "times)",
        f"{smaller_input_hint(eager.what)}, or use --lens raw",
    )


def run_eager(eager: EncodedQuery) -> tuple[Any, Attention, list[tuple[str, Tensor]]]:
    """The model's output, its maps, and each layer's tensor with its stream.

    Layers have shape (1, heads, queries, keys) and are checked to be weights of these tokens.
    """
    output, (attention,), attending = _run_together(eager.part, eager.inputs, [eager])
    return output, attention, attending


def _run_together(
    part: Any, inputs: Mapping[str, Any], encodings: Sequence[EncodedQuery]
) -> tuple[Any, list[Attention], list[tuple[str, Tensor]]]:
    """The same for texts of a batch, padded behind, the shortest first; a layer is of them all."""
    sides, calls = [one.sides for one in encodings], passes.EagerCalls(part)
    longest = capture.longest_sides(sides)
    with kernel.watch_kernels(calls.look):
        output, tensors = kernel.output_attentions(
            part, {**inputs, "use_cache": False}, list(longest)
        )
    attending, arrays = list[tuple[str, Any]](), {}
    for stream, side in longest.items():
        layers = list(tensors[stream] or ())
        plain = [None if layer is None else layer.detach() for layer in layers]
        arrays[stream] = passes.read_batch(plain, part.config, side, len(sides))
        attending += [(stream, layer) for layer in layers if layer is not None]
    sizes = {stream: calls.by_layer(stream, longest) for stream in longest}
    attentions = []
    texts = capture.split_texts(part, arrays, sizes, sides, capture.EAGER_ROUTE)
    for encoding, captures in zip(encodings, texts, strict=True):
        maps = [
            capture.as_map(one, encoding.tokens, *encoding.axes[one.stream]) for one in captures
        ]
        provenance = capture.with_routes(
            encoding.attention.provenance, [capture.EAGER_ROUTE], learned_sink=calls.learned_sink
        )
        attention = replace(
            encoding.attention,
            maps=tuple(maps),
            provenance=provenance,
            group_sizes=capture.group_sizes_of(maps, captures),
            learned_sink=calls.learned_sink,
        )
        attentions.append(attention)
    return output, attentions, attending


def stack_like(attention: Attention, layers: Iterable[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Arrays of single layers, stacked like the layers of the maps."""
    rest = iter(layers)
    return tuple(np.stack([next(rest) for _ in item.layers]) for item in attention.maps)


def layer_gradients(score: Tensor, weights: list[Tensor], kind: str) -> list[NDArray[Any]]:
    """∂score/∂weights of each layer, shape (heads, queries, keys)."""
    import torch

    has_graph = all(layer.requires_grad for layer in weights)
    slopes = torch.autograd.grad(score, weights, allow_unused=True) if has_graph else (None,)
    if any(slope is None for slope in slopes):
        raise AttentionError(
            f"architecture '{kind}' gives out copies of its weights, which no gradient reaches: "
            "use --lens rollout, flow or norm"
        )
    return [slope[0].float().cpu().numpy() for slope in slopes if slope is not None]


COPIES = 3  # of each matrix: the model's, the one that is checked, and the map's
# Names of the factors by which a layer scales each feature that attention adds (Touvron 2021).
LAYER_SCALES = ("layer_scale1.lambda1", "lambda_1", "self_attn_layer_scale.scale")


def value_vectors(eager: EncodedQuery) -> ValueVectors:

    check_eager(eager, COPIES)
    return values_of_texts(eager, eager.inputs, [eager])[0]


def values_of_texts(
    eager: EncodedQuery, inputs: Mapping[str, Any], encodings: Sequence[EncodedQuery]
) -> list[ValueVectors]:
    """The value vectors of texts of a batch, which `eager` reads one of."""
    import torch

    with running_errors(eager.part, eager.what), torch.no_grad(), _record_calls(eager) as calls:
        _, attentions, layers = _run_together(eager.part, inputs, encodings)
    # Calls are in the model's order, layers in the order of streams.
    streams = list(eager.axes)
    calls.sort(key=lambda item: streams.index(item.path))
    if [item.path for item in calls] != [stream for stream, _ in layers]:
        raise AttentionError(
            f"architecture '{eager.kind}' keeps its values to itself, and norms need them: use "
            "--lens rollout or flow"
        )
    for item, (_, layer) in zip(calls, layers, strict=True):
        _check_linear(item, layer, eager.kind)
    with_projection = all(item.projection is not None for item in calls)
    products = []
    for item, (_, layer) in zip(calls, layers, strict=True):
        value = item.value.double().cpu().numpy().swapaxes(0, 1)
        value = value.repeat(layer.shape[1] // len(value), axis=0)  # heads may share values
        heads, count, keys, size = value.shape
        matrix = item.projection if with_projection else None
        numbers = None if matrix is None else matrix.double().cpu().numpy()
        of_keys = inner_products(value.reshape(heads, count * keys, size), numbers)
        products.append((item.path, of_keys.reshape(count, keys, heads, heads)))
    texts = []
    for number, (encoding, attention) in enumerate(zip(encodings, attentions, strict=True)):
        own = [array[number, : encoding.sides[stream][1]] for stream, array in products]
        texts.append(ValueVectors(attention, stack_like(attention, own), with_projection))
    return texts


@contextmanager
def _record_calls(eager: EncodedQuery) -> Iterator[list[AttentionCall]]:
    """Record the values and the output of each attention of one pass by stream, and its W_O."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    paths = {id(module): name for name, module in eager.part.named_modules()}
    calls = list[AttentionCall]()

    def look(call: AttentionCall) -> None:
        path = paths.get(id(call.module))
        stream = None if path is None else kernel.match_stream(kernel.stream_of(path), eager.axes)
        if stream is not None:
            own = AttentionCall(None, None, call.value, output=call.output.flatten(2), path=stream)
            own.module = path
            calls.append(own)

    def project(module: Any, inputs: tuple[Any, ...]) -> None:
        if calls and calls[-1].projection is None and inputs:
            matrix = projection_of(module, inputs[0], calls[-1].output)
            if matrix is not None:
                scale = _layer_scale(eager.part, calls[-1].module)
                calls[-1].projection = matrix if scale is None else matrix * scale

    with register_module_forward_pre_hook(thread_hook(project)), kernel.watch_kernels(look):
        yield calls


def _layer_scale(model: Any, path: str) -> Tensor | None:
    """The layer scale of the layer around an attention module, None if it has none."""
    import torch

    while path:
        path = path.rpartition(".")[0]
        for name in LAYER_SCALES:
            with suppress(AttributeError):
                factors = attrgetter(name)(model.get_submodule(path))
                if isinstance(factors, torch.Tensor):
                    return factors.detach()
    return None


def _check_linear(item: AttentionCall, weights: Tensor, kind: str) -> None:
    values = item.value.repeat_interleave(weights.shape[1] // item.value.shape[1], dim=1)
    output = (weights @ values).transpose(1, 2).flatten(2)
    off = float((output - item.output).abs().max())
    if not off <= 0.05 * float(item.output.abs().max()):
        raise AttentionError(
            f"architecture '{kind}' does more than add up values by its weights: use --lens "
            "rollout or flow"
        )


def projection_of(module: Any, inputs: Any, output: Tensor) -> Tensor | None:
    """The matrix of a linear module whose input is exactly the kernel's output, else None."""
    import torch
    from transformers.pytorch_utils import Conv1D

    has_adapter = hasattr(module, "base_layer")  # peft adds its weights to this layer's
    linear = has_adapter or isinstance(module, torch.nn.Linear | Conv1D)
    if not linear or not isinstance(inputs, torch.Tensor):
        return None
    if inputs.shape != output.shape or not torch.equal(inputs, output):
        return None
    return map_of(module, inputs)


def map_of(module: Any, inputs: Tensor) -> Tensor:
    """The matrix (inputs, outputs) of a linear module, measured if it is adapted or quantised."""
    import torch

    has_adapter = hasattr(module, "base_layer")
    if not has_adapter and type(module.weight) is torch.nn.Parameter:
        weight: Tensor = module.weight.detach()
        return weight if hasattr(module, "nf") else weight.T  # Conv1D has nf
    with torch.no_grad():
        ones = torch.eye(inputs.shape[-1], dtype=inputs.dtype, device=inputs.device)
        images: Tensor = module(ones[None]) - module(torch.zeros_like(ones)[None])
    return images[0]
