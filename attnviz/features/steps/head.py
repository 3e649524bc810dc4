"""One head of a transformers model in its own numbers, for any family.

Hooks record the input of the kernel and every linear map before it. The map that made a query is
found by its numbers: positions may turn these, but keep their lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core import effects, errors, locks
from attnviz.core.attention_call import AttentionCall
from attnviz.mechanisms.arrays import softmax, to_numpy
from attnviz.mechanisms.formula import HeadArithmetic, Part
from attnviz.models.hugging_face.capture import passes, probe, region
from attnviz.models.hugging_face.capture.kernel import (
    layer_names,
    match_stream,
    stream_of,
    watch_kernels,
)
from attnviz.models.hugging_face.capture.scores import extra_terms
from attnviz.models.hugging_face.eager import map_of, projection_of
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.devices import running_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


Linears = list[tuple[Any, Any, Any]]  # linear maps with their inputs and outputs
Recording = tuple[AttentionCall, Linears]  # a kernel call and the linear maps before it


def record_head(eager: EncodedQuery, which: effects.HeadAt) -> HeadArithmetic:
    """The numbers of one head, from its layer's input to what it adds to the residual stream."""
    import torch

    with (
        running_errors(eager.part, eager.what),
        torch.no_grad(),
        _record_calls(eager, which.stream) as calls,
    ):
        eager.part(**eager.inputs, use_cache=False, return_dict=True)
    names = layer_names([one.path for one, _ in calls], passes.attending_layers(eager.part.config))
    if which.layer not in names:
        raise errors.AttentionError(
            f"architecture '{eager.kind}' calls no attention kernel in layer {which.layer}, so "
            "its numbers are unknown"
        )
    with torch.no_grad():
        return _Head(*calls[names.index(which.layer)], which.head).arithmetic()


@contextmanager
def _record_calls(eager: EncodedQuery, stream: str) -> Iterator[list[Recording]]:
    """Record each kernel call of a stream, with the linear maps before it."""
    from torch import nn
    from torch.nn.modules.module import register_module_forward_hook
    from transformers.pytorch_utils import Conv1D

    paths = {id(module): name for name, module in eager.part.named_modules()}
    states, calls = dict[str, Any](), list[Recording]()
    maps = list[tuple[str, Any, Any, Any]]()

    def before(module: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if (path := paths.get(id(module))) is not None:
            states[path] = inputs[0] if inputs else kwargs.get("hidden_states")
        if calls and inputs and (last := calls[-1][0]).projection is None:
            last.projection = projection_of(module, inputs[0], last.output.flatten(2))

    def after(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, nn.Linear | Conv1D) and inputs:
            maps.append((paths.get(id(module), ""), module, inputs[0], output))

    def record(call: AttentionCall) -> None:
        path = paths.get(id(call.module))
        if path is not None and match_stream(stream_of(path), eager.axes) == stream:
            own = replace(call.without_gradients(), path=path, inputs=states.get(path))
            parts = path.split(".")
            places = [place for place, part in enumerate(parts) if part.isdigit()]
            own.residual = states.get(".".join(parts[: places[-1] + 1]) if places else "")
            calls.append((own, [item[1:] for item in maps if item[0].startswith(path)]))
        maps.clear()

    # Global hooks take no keyword arguments; every module has its own for as long as this lasts.
    with suppress(passes.StopForward), ExitStack() as hooks, watch_kernels(record):
        for module in eager.part.modules():
            hook = module.register_forward_pre_hook(locks.thread_hook(before), with_kwargs=True)
            hooks.enter_context(hook)
        hooks.enter_context(register_module_forward_hook(locks.thread_hook(after)))
        yield calls


class _Head:
    """The numbers of one head of a call."""

    def __init__(self, call: AttentionCall, linears: Linears, head: int) -> None:
        self.call, self.linears, self.head = call, linears, head
        self.parts: list[Part] = []
        self.notes: list[str] = []

    def arithmetic(self) -> HeadArithmetic:
        """Every part of it in order."""
        call, head = self.call, self.head
        layer, attention = call.residual, call.inputs
        same = layer is attention or layer is None or attention is None
        if layer is not None:
            self._add("layer_input", layer[0], "", "qf")
        if not same:
            self._add("attention_input", attention[0], "layer_input as the layer prepares it", "qf")
        self.source = "layer_input" if same else "attention_input"
        sides = [self._side(name, getattr(call, name)) for name in ("query", "key", "value")]
        query, key, value = (to_numpy(side) for side in sides)
        scale = call.options.get("scaling") or query.shape[-1] ** -0.5
        scores = query @ key.T
        self.parts.append(Part("scores", scores, "query @ keyᵀ"))
        self.parts.append(Part("scaled_scores", scores * scale, f"scores · {scale:.4g}"))
        weights = self._weights(scores * scale)
        self.parts.append(Part("head_output", weights @ value, "weights @ value", "qf"))
        references = {"head_output": to_numpy(call.output[0, :, head])}
        if call.projection is None:
            self.notes.append(
                "no linear map takes what the heads put out: what is added is unknown"
            )
        else:
            size = value.shape[-1]
            matrix = to_numpy(call.projection[head * size : (head + 1) * size])
            self._add("w_output", matrix, "", "ff")
            self._add("added", weights @ value @ matrix, "head_output @ w_output", "qf")
        return HeadArithmetic(self.parts, references, tuple(self.notes))

    def _add(self, name: str, value: Any, formula: str, axes: str) -> None:
        self.parts.append(Part(name, to_numpy(value), formula, axes))

    def _side(self, name: str, tensor: Tensor) -> Tensor:
        """A query, key or value, with the linear map that made it where one is found."""
        group = self.head * tensor.shape[1] // self.call.query.shape[1]
        side, axes = tensor[0, group], "qf" if name == "query" else "kf"
        for module, inputs, output in self.linears:
            match = _columns_of(side, output[0] if output.ndim == 3 else output)
            if match is None:
                continue
            columns, change = match
            source = self._source(inputs, name, axes)
            self._add(f"w_{name}", map_of(module, inputs)[:, columns], "", "ff")
            formula = f"{source} @ w_{name}"
            if module.bias is not None:
                self._add(f"b_{name}", module.bias.detach()[None, columns], "", "ff")
                formula += f" + b_{name}"
            if change:
                self._add(f"projected_{name}", output[0][:, columns], formula, axes)
                formula = f"projected_{name}, its features {change}"
            self._add(name, side, formula, axes)
            return side
        self._add(name, side, "", axes)
        self.notes.append(
            f"{name} is as the kernel gets it: what the family makes it of is not seen"
        )
        return side

    def _source(self, inputs: Tensor, name: str, axes: str) -> str:
        """The name of a linear map's input; adds it to the parts if it is new."""
        for part in self.parts:
            if (
                part.axes in ("qf", "kf")
                and part.value.shape == tuple(inputs.shape[-2:])
                and np.array_equal(part.value, to_numpy(inputs[0]))
            ):
                return part.name
        new_name = "memory" if axes == "kf" else f"{name}_input"
        self._add(new_name, inputs[0], "", axes)
        return new_name

    def _weights(self, scores: NDArray[Any]) -> NDArray[Any]:
        """The kernel's weights, and their formula."""
        sides = (region.each_token(scores.shape[0]), region.each_token(scores.shape[1]))
        reading = passes.read_call(
            self.call.path, self.call, passes.CaptureSpec(region.PooledGrid(*sides))
        )
        weights: NDArray[Any] = reading.weights[0, self.head]
        mask = weights > 0
        condition = ""
        if not mask.all():
            self.parts.append(
                Part("mask", mask, "1 where the kernel gives weight to scaled_scores")
            )
            condition = " where mask"
        more = " and ".join(extra_terms(self.call))
        if more:
            condition += f", with {more}"
        off = float(np.abs(softmax(scores, mask) - weights).max())
        if off > _nearness(self.call.query) and not more:
            self.notes.append(
                f"the kernel does more than a softmax: its weights lie up to {off:.2g} off"
            )
        self.parts.append(Part("weights", weights, f"softmax(scaled_scores{condition})"))
        return weights


def _nearness(numbers: Tensor) -> float:
    """The tolerance for equality, relative to the largest number."""
    return probe.DRIFT.get(probe.dtype_of(numbers), 1e-4)


def _columns_of(side: Tensor, output: Tensor) -> tuple[slice, str] | None:
    """The columns of a linear map's output that became a query, and what changed them.

    Positions turn features and keep a row's length; some families scale all rows alike.
    """
    size = side.shape[-1]
    if output.shape[0] != side.shape[0] or output.shape[-1] % size:
        return None
    close, match = _nearness(side), None
    side = side.float()
    lengths = side.norm(dim=-1)
    for first in range(0, output.shape[-1], size):
        part, columns = output[:, first : first + size].float(), slice(first, first + size)
        near = close * float(side.abs().max())
        if float((part - side).abs().max()) <= near:
            return columns, ""
        ratio = float(lengths.sum() / part.norm(dim=-1).sum())
        scale = 1.0 if abs(ratio - 1) < close else ratio
        alike = float((scale * part.norm(dim=-1) - lengths).abs().max()) <= near
        if match is None and alike and (scale == 1 or len(lengths) > 1):
            is_turned = float((scale * part - side).abs().max()) > near
            words = ["turned by position"] if is_turned else []
            words += [f"times {scale:.4g}"] if scale != 1 else []
            match = columns, " and ".join(words)
    return match
