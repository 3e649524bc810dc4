"""What lenses need beside weights, of several texts from one pass: gradients, and value vectors.

Texts of a batch do not meet, so the gradient of the sum of their scores is each text's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError, AttnvizError, InputError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Query
from attnviz.features.experiments.interventions import check_heads_apart, keep_output, upcast_half
from attnviz.features.experiments.kernel import experiment_of, values_of
from attnviz.features.experiments.outputs import ExperimentRequest, ExplainedOutputs
from attnviz.features.experiments.sources import request_of
from attnviz.features.targets.outputs import check_head, no_head
from attnviz.models import answer
from attnviz.models.hugging_face.batching import BatchMode, BatchRunner, logits_of, pad_inputs
from attnviz.models.hugging_face.capture.capture import (
    batch_specs,
    by_name,
    longest_sides,
    split_texts,
    without_cache,
)
from attnviz.models.hugging_face.capture.kernel import eager_attention, watch_kernels
from attnviz.models.hugging_face.capture.passes import group_by_layer, read_call, stream_at
from attnviz.models.hugging_face.eager import eager_inputs, values_of_texts
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.hugging_face.load.devices import running_errors
from attnviz.models.hugging_face.loaded_model import LoadedModel, input_names

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.core.attention_map import Attention
    from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
    from attnviz.models.hugging_face.text_model import HuggingFaceModel

ARRAYS = 8  # what a lens needs of a short text, at most, in sizes of its maps
Inputs = TypeVar("Inputs", AttentionGradients, ValueVectors)


class LensRunner(BatchRunner[Inputs]):
    """Reads what a lens needs."""

    def tensors(self, batch: Sequence[EncodedQuery], part: Any) -> dict[str, Any]:
        rows = [item.inputs for item in batch]
        tensors = pad_inputs(rows, input_names(part), self.padding, self.source.model.device)
        return without_cache(part, tensors)

    def distance(self, one: Inputs, other: Inputs) -> float:
        """The largest difference, in weights and in a share of the largest other number."""
        pairs = zip(one.attention.maps, other.attention.maps, strict=True)
        off = [float(np.abs(mine.weights - its.weights).max()) for mine, its in pairs]
        mine, its = _numbers(one), _numbers(other)
        largest = max(float(np.abs(array).max()) for array in mine) or 1.0
        apart = (float(np.abs(a - b).max()) for a, b in zip(mine, its, strict=True))
        return max(*off, *(one / largest for one in apart))


class ValueRunner(LensRunner[ValueVectors]):
    """Reads value vectors."""

    def run(self, batch: Sequence[EncodedQuery], mode: BatchMode) -> list[ValueVectors]:
        eager = eager_inputs(self.source, batch[0])
        return values_of_texts(eager, self.tensors(batch, eager.part), batch)

    def read_alone(self, item: EncodedQuery) -> ValueVectors:
        eager = eager_inputs(self.source, item)
        return values_of_texts(eager, eager.inputs, [item])[0]


class GradientRunner(LensRunner[AttentionGradients]):
    """Reads the gradients of one output of each text."""

    def __init__(
        self,
        source: LoadedModel,
        items: Mapping[int, EncodedQuery],
        most: int | None,
        request_of: Callable[[EncodedQuery], ExperimentRequest],
    ) -> None:
        super().__init__(source, items, most)
        self.request_of = request_of

    def read_alone(self, item: EncodedQuery) -> AttentionGradients:
        return experiment_of(self.request_of(item)).explain_first()

    def run(self, batch: Sequence[EncodedQuery], mode: BatchMode) -> list[AttentionGradients]:
        import torch

        model, calls = self.source.model, list[AttentionCall]()

        devices = [model.device] if model.device.type == "cuda" else []
        eager = eager_attention(model) if mode.eager else nullcontext()
        inputs = self.tensors(batch, model)
        with eager, running_errors(model), torch.random.fork_rng(devices):
            with torch.enable_grad(), watch_kernels(partial(keep_output, calls=calls)):
                logits = getattr(model(**inputs), "logits", None)
                lengths = [len(next(iter(item.tokens.values()))) for item in batch]
                texts = [
                    self._choose(item, logits_of(logits, number, length))
                    for number, (item, length) in enumerate(zip(batch, lengths, strict=True))
                ]
                score = torch.stack([one.score for one in texts]).sum()
                outputs = [call.output for call in calls]
                slopes = torch.autograd.grad(score, outputs, allow_unused=True)
            with torch.no_grad():
                self._read_maps(batch, texts, calls, slopes)
        return [one.explain_first() for one in texts]

    def _choose(self, item: EncodedQuery, logits: Any) -> _TextOfBatch:
        try:
            return _TextOfBatch(self.request_of(item), logits)
        except AttnvizError as error:  # it is raised again when the text's turn comes
            raise UsageError(str(error)) from error

    def _read_maps(
        self,
        batch: Sequence[EncodedQuery],
        texts: Sequence[_TextOfBatch],
        calls: Sequence[AttentionCall],
        slopes: Sequence[Tensor | None],
    ) -> None:
        """Give each text its maps, and its score's gradient by each weight."""
        part, sides = self.part, [item.sides for item in batch]
        paths = {id(module): name for name, module in part.named_modules()}
        longest = longest_sides(sides)
        specs = batch_specs(longest, sides)
        read, places = [], dict[int, int]()
        for number, call in enumerate(calls):
            path = paths.get(id(call.module), "")
            stream = stream_at(path, call, longest, part, len(batch)) if path else None
            if stream is not None:
                check_heads_apart(call, part.config.model_type)
                read.append(read_call(path, call.without_gradients(), specs[stream]))
                places[id(read[-1])] = number
        layers = group_by_layer(read, longest, part)
        if set(layers) != set(longest):
            raise AttentionError(f"architecture '{part.config.model_type}' calls no kernel")
        arrays, sizes, route = by_name(part, layers)
        captures = split_texts(part, arrays, sizes, sides, route)
        for number, (item, one, own) in enumerate(zip(batch, texts, captures, strict=True)):

            def slope_at(stream: str, layer: str, number: int = number) -> NDArray[np.floating]:
                place = places[id(layers[stream][layer])]
                call, slope = calls[place], slopes[place]
                queries, keys = sides[number][stream]
                of_output = call.output.new_zeros(call.output.shape) if slope is None else slope
                rows = upcast_half(of_output[number, :queries]).transpose(0, 1)
                products: NDArray[np.floating] = (
                    (rows @ values_of(call, number)[:, :keys].mT).cpu().numpy()
                )
                return products

            has_sink = any(layer.learned_sink for name in layers for layer in layers[name].values())
            own = [replace(capture, learned_sink=has_sink) for capture in own]
            logits = one.logits.detach()
            one.set_maps(
                item.build_attention(own, self.source.task, logits),
                tuple(
                    np.stack([slope_at(capture.stream, layer) for layer in capture.layers])
                    for capture in own
                ),
            )


class _TextOfBatch(ExplainedOutputs):
    """A text's outputs; its maps and slopes are known once the whole batch has run."""

    def __init__(self, request: ExperimentRequest, logits: Any) -> None:
        self.attention, self.logits = request.encoding.attention, logits
        super().__init__(request, logits)
        self.score = self.rows_of(logits)[0, 0, self.outputs[0].number]

    def set_maps(self, attention: Attention, slopes: tuple[NDArray[np.floating], ...]) -> None:
        self.attention = self.note(attention)
        self.slopes = lambda _: slopes


def _numbers(inputs: AttentionGradients | ValueVectors) -> Sequence[NDArray[np.floating]]:
    return inputs.gradients if isinstance(inputs, AttentionGradients) else inputs.products


def many_gradients(
    source: HuggingFaceModel | LightModel,
    queries: Sequence[Query],
    target: str | None,
    batch_size: int | None,
) -> Iterator[AttentionGradients | InputError]:
    """The gradients of one output of each query, in order, or its error."""
    if isinstance(source, LightModel):
        if source.head is None:
            raise no_head(source.name, source.kind)
        source = source.whole("gradients need torch")

    def read(items: Mapping[int, EncodedQuery]) -> dict[int, AttentionGradients]:
        for kind in {query.kind for query in queries}:
            check_head(source, kind)
        request = partial(request_of, source, target)
        return GradientRunner(source, items, batch_size, request).read()

    one = partial(source.gradients, target=target)
    return source.read_together(queries, read, partial(answer, one), ARRAYS)


def many_values(
    source: HuggingFaceModel, queries: Sequence[Query], batch_size: int | None
) -> Iterator[ValueVectors | InputError]:
    def read(items: Mapping[int, EncodedQuery]) -> dict[int, ValueVectors]:
        return ValueRunner(source, items, batch_size).read()

    return source.read_together(queries, read, partial(answer, source.values), ARRAYS)
