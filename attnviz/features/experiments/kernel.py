"""A transformers model with its inputs, run again and again with parts of it switched off.

Heads are switched off, and links cut, in the output of the attention kernel: before the output
projection, where heads are still apart. A kernel is linear in its values, so its output without
some keys is its output for values that are zero there, divided by the weight that is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from attnviz.core.attention_call import AttentionCall
from attnviz.core.effects import HeadOutputs, Intervention, SinkShares
from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.locks import thread_hook
from attnviz.features.experiments.interventions import (
    change_output,
    check_heads_apart,
    keep_output,
    upcast_half,
)
from attnviz.features.experiments.layer_states import (
    Block,
    LayerStates,
    cache_of,
    layers_of,
    map_tensors,
    repeat_batch,
    skip_module,
    unchanged_layers,
)
from attnviz.features.experiments.outputs import ExperimentRequest, ExplainedOutputs, Score
from attnviz.models.fingerprints import ModelFingerprint
from attnviz.models.hugging_face import eager, loaded_model
from attnviz.models.hugging_face.capture import capture, passes, probe
from attnviz.models.hugging_face.capture.kernel import eager_copy, watch_kernels
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token
from attnviz.models.hugging_face.load.devices import running_errors
from attnviz.models.hugging_face.load.imports import quiet

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.core.attention_map import Attention

COPIES = 6  # copies of a matrix while gradients are taken: weights, scores, both gradients, maps
TOKENS = 1024, 4096  # tokens in one pass of all runs together: on a processor, on a GPU
SCORES = 1 << 26  # scores that exist at once, 256 MB of them
_CHECKS: WeakKeyDictionary[Any, tuple[ModelFingerprint, dict[str, int]]] = WeakKeyDictionary()
"""By model, and what was checked, the tokens of the longest text for which it held."""
SHARED = 4  # a run waits for one that shares at least this part of the layers left: a quarter


def experiment_of(request: ExperimentRequest) -> ModelExperiment:
    """An experiment; without separate heads at the kernel, one that gives gradients only."""
    eager.check_eager(replace(request.encoding, part=request.model), COPIES)
    try:
        return KernelExperiment(request)
    except AttentionError as error:
        return EagerExperiment(request, str(error))


class KernelExperiment(ExplainedOutputs):
    """A model whose attentions are kernel calls; fulfils `attnviz.core.effects.Experiment`.

    Raises:
        AttentionError: the kernel of this architecture does not separate its heads.
    """

    def __init__(self, request: ExperimentRequest) -> None:
        self.request, self.model, self.encoding = request, request.model, request.encoding
        self.paths = {id(module): name for name, module in self.encoding.part.named_modules()}
        self._keeps_rows = "logits_to_keep" in loaded_model.input_names(self.model)
        self.first_pass: tuple[Any, list[AttentionCall], list[Block]] | None = self._pass()
        output, calls, self._all_blocks = self.first_pass
        self.attention, self.places, self.sinks = self._read(calls, output)
        self.sides = {one.stream: (one.query_side, one.key_side) for one in self.attention.maps}
        self.numbers = defaultdict[str, list[int]](list)
        for number, call in enumerate(calls):
            self.numbers[self.paths[id(call.module)]].append(number)
        self.modules = [id(call.module) for call in calls]
        self.tokens: int = max(call.query.shape[2] for call in calls)
        self.memory = [
            (getattr(call.module, "layer_idx", None), call.key.detach(), call.value.detach())
            for call in calls
        ]
        super().__init__(request, getattr(output, "logits", None))
        self.choices = (self.rows if self._keeps_rows else output.logits)[0].numel()

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, choices), for each change.

        Changes that begin in one layer share a pass, and the layers below are not run again. Nor
        are the tokens of a causal text before the first changed one.
        """
        self.first_pass = None
        with quiet():  # once: each time costs a look at every logger
            by_number: dict[int, NDArray[np.floating]] = {}
            alike = defaultdict[tuple[int, int], list[int]](list)
            whole: list[int] = []
            for number, change in enumerate(changes):
                if change == Intervention():
                    by_number[number] = self.chances(self.rows)[0].cpu().numpy()
                elif row := self._first_row(change):
                    alike[self._first_call(change), row].append(number)
                else:
                    whole.append(number)
            for (first, row), numbers in alike.items():
                for start in range(0, len(numbers), self._together(row)):
                    some = numbers[start : start + self._together(row)]
                    batch = [changes[number] for number in some]
                    skips = unchanged_layers(self.blocks, first, len(some), row)
                    rows = self._run_batch(batch, skips, instead, row)
                    by_number |= dict(zip(some, rows.cpu().numpy(), strict=True))
            for some, scores in self._run_whole(changes, whole, instead):
                by_number |= dict(zip(some, scores, strict=True))
        return (by_number[number] for number in range(len(changes)))

    def _together(self, row: int = 0) -> int:
        """How many runs share a pass of the tokens from a row on."""
        most = TOKENS[self.model.device.type == "cuda"] // (self.tokens - row)
        return max(1, min(most, SCORES // self.choices))

    def _run_whole(
        self, changes: Sequence[Intervention], numbers: list[int], instead: HeadOutputs | None
    ) -> Iterator[tuple[list[int], NDArray[np.floating]]]:
        """Each batch of changes that has run, by number, with its scores.

        A run begins at the first layer whose output is not known yet. If several runs would put out
        the same in a quarter of the layers left, one goes first and the others begin behind it.
        """
        if len(numbers) == 1 and "states" not in vars(self):  # nothing to share it with
            first = self._first_call(changes[numbers[0]])
            skips = unchanged_layers(self.blocks, first, 1) if first else []
            scores = self._run_batch([changes[numbers[0]]], skips, instead)
            yield numbers, scores.cpu().numpy()
            return
        states, waiting = self.states, numbers
        keys = {number: states.keys(changes[number], instead) for number in numbers}
        while waiting:
            depths = {number: states.depth(keys[number]) for number in waiting}
            depth, leads, some = depths[waiting[0]], set[int | None](), list[int]()
            far = depth + max(1, (len(states.blocks) - depth) // SHARED) - 1
            for number in waiting:
                lead = keys[number][far] if far < len(states.blocks) else None
                is_first = lead is None or lead not in leads
                if depths[number] == depth and is_first and len(some) < self._together():
                    some.append(number)
                    leads.add(lead)
            own = [keys[number] for number in some]
            batch = [changes[number] for number in some]
            scores = self._run_batch(batch, states.first_layers(own, depth), instead, keys=own)
            yield some, scores.cpu().numpy()
            waiting = [number for number in waiting if number not in {*some}]

    def changed_maps(self, change: Intervention) -> Attention:
        import torch

        calls, edit = list[AttentionCall](), self._edit([change], None)

        def look(call: AttentionCall) -> Any:
            if id(call.module) in self.paths:
                calls.append(call)
            return edit(call)

        with self._run_guarded(), torch.no_grad(), watch_kernels(look):
            output = self.model(**self.request.inputs)
        attention, _, sinks = self._read(calls, output)
        return attention.with_maps(tuple(change.apply_to(item, sinks) for item in attention.maps))

    def slopes(self, score: Score) -> tuple[NDArray[np.floating], ...]:
        # A head's output is its weights times its values, so ∂score / ∂wᵢⱼ = ∂score / ∂oᵢ · vⱼ: the
        # graph needs no matrix of weights.
        slopes = self._output_slopes(score)
        by_layer = {place: slope @ values_of(call).mT for place, call, slope in slopes}
        return tuple(
            np.stack([by_layer[item.stream, layer].cpu().numpy() for layer in item.layers])
            for item in self.attention.maps
        )

    def output_gradients(self) -> HeadOutputs:
        return {
            place: slope.cpu().numpy()
            for place, _, slope in self._output_slopes(self._log_p)
            if place is not None
        }

    def _output_slopes(
        self, score: Score
    ) -> Iterator[tuple[tuple[str, str] | None, AttentionCall, Tensor]]:
        """Each call with its place and a score's gradient by its output, (heads, rows, size)."""
        import torch

        output, calls, _ = self.first_pass or self._pass()
        self.first_pass = None
        with self._run_guarded(), torch.enable_grad():
            outputs = [call.output for call in calls]
            slopes = torch.autograd.grad(score(output.logits), outputs, allow_unused=True)
        for place, call, slope in zip(self.places, calls, slopes, strict=True):
            gradient = torch.zeros_like(call.output) if slope is None else slope
            yield place, call, upcast_half(gradient[0]).transpose(0, 1)

    def head_outputs(self) -> HeadOutputs:
        return self._by_place(_outputs_of)

    def outputs_of(self, inputs: Mapping[str, Any], count: int) -> list[HeadOutputs]:
        """What each head puts out in each item of a batch of other inputs, as `head_outputs`.

        Raises:
            AttentionError: these inputs run other attentions than this text.
        """
        import torch

        calls = list[AttentionCall]()
        with self._run_guarded(), torch.no_grad(), watch_kernels(calls.append):
            self.model(**inputs)
        own_calls = [call for call in calls if id(call.module) in self.paths]
        if [id(call.module) for call in own_calls] != self.modules:
            raise AttentionError(
                "the model runs other attentions for these texts than for the first"
            )
        return [self._by_place(partial(_outputs_of, item=n), own_calls) for n in range(count)]

    def head_values(self) -> HeadOutputs:
        return self._by_place(lambda call: values_of(call).cpu().numpy())

    def selections(self) -> Mapping[tuple[str, str], tuple[NDArray[np.bool_], NDArray[Any]]]:
        """Where the model itself selects keys: those of each query, and the weights over all keys.

        Both have the shape (heads, queries, keys). Windows, which select by distance, are left out.
        """
        by_layer = self._by_place(lambda call: probe.selected_keys(call.without_gradients()))
        return {place: one for place, one in by_layer.items() if one is not None}

    def _by_place(
        self, read: Callable[[AttentionCall], Any], calls: Sequence[AttentionCall] | None = None
    ) -> dict[tuple[str, str], Any]:
        """What is read of each call that has a map, by its stream and layer."""
        if calls is None:
            _, calls, _ = self.first_pass or self._pass()
        pairs = zip(self.places, calls, strict=True)
        return {place: read(call) for place, call in pairs if place is not None}

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        if self.request.write is None:
            return None
        with self._run_guarded(), watch_kernels(self._edit([change], instead)):
            return self.request.write()

    @contextmanager
    def _run_guarded(self) -> Iterator[None]:
        import torch

        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with (
            quiet(),
            running_errors(self.model, self.encoding.what),
            torch.random.fork_rng(devices),
        ):
            yield

    def _pass(self) -> tuple[Any, list[AttentionCall], list[Block]]:
        """The output, kernel calls (ready for gradients) and layers of the unchanged model."""
        import torch

        calls, blocks = list[AttentionCall](), list[Block]()
        starts = defaultdict[Any, list[int]](list)

        def begin(module: Any, *_: Any) -> None:
            starts[module].append(len(calls))

        def end(module: Any, _: Any, state: Any) -> None:
            own = range(starts[module][-1], len(calls))
            if own:
                blocks.append(Block(module, own, map_tensors(state, lambda one: one.detach())))

        def look(call: AttentionCall) -> Any:
            return keep_output(call, calls) if id(call.module) in self.paths else None

        with self._run_guarded(), torch.enable_grad(), watch_kernels(look), ExitStack() as hooks:
            for module in layers_of(self.model):
                hooks.enter_context(module.register_forward_pre_hook(thread_hook(begin)))
                hooks.enter_context(module.register_forward_hook(thread_hook(end)))
            output = self.model(**self.request.inputs)
        return output, calls, [block for block in blocks if len(starts[block.module]) == 1]

    def _read(
        self, calls: Sequence[AttentionCall], output: Any
    ) -> tuple[Attention, list[tuple[str, str] | None], SinkShares]:
        """The maps, the stream and layer of each call (None: no map), and the shares of sinks."""
        import torch

        part, sides = self.encoding.part, self.encoding.sides
        specs = {
            stream: passes.CaptureSpec(PooledGrid(*map(each_token, side)), from_kernel=True)
            for stream, side in sides.items()
        }
        read: list[passes.CallWeights | None] = []
        with self._run_guarded(), torch.no_grad():
            for call in calls:
                path = self.paths[id(call.module)]
                stream = passes.stream_at(path, call, sides, part)
                if stream is None:
                    read.append(None)
                    continue
                check_heads_apart(call, part.config.model_type)
                read.append(passes.read_call(path, call.without_gradients(), specs[stream]))
        layers = passes.group_by_layer([item for item in read if item], sides, part)
        if set(layers) != set(sides):
            raise AttentionError(
                f"architecture '{part.config.model_type}' calls no attention kernel, so its heads "
                "cannot be switched off one by one"
            )
        captures = [
            item
            for stream, own in layers.items()
            for item in capture.check_calls(stream, own, specs[stream], part)
        ]
        logits = getattr(output, "logits", None)
        attention = self.encoding.build_attention(captures, self.request.task, logits)
        # The weights decide whether a stream is "self" or "causal".
        places = {
            id(layers[item.stream][layer]): (of_map.stream, layer)
            for item, of_map in zip(captures, attention.maps, strict=True)
            for layer in item.layers
        }
        layer_places = [places.get(id(item)) for item in read]
        with torch.no_grad():
            sinks = {
                place: probe.sink_shares(call)[0, ..., 0].T.double().cpu().numpy()
                for place, call in zip(layer_places, calls, strict=True)
                if place is not None and probe.sink_logits(call) is not None
            }
        return attention, layer_places, sinks

    @cached_property
    def blocks(self) -> list[Block]:
        """The layers whose stored output can be reused; none if that changes the answer."""
        # Later layers may read what earlier ones leave behind, as Gemma 3n does with keys.
        counts = {3 * len(self._all_blocks) // 4, len(self._all_blocks) - 1} - {0, -1}
        stops = [self._all_blocks[count - 1].calls.stop for count in counts]
        blocks = self._all_blocks
        reusable = self._holds(
            "layers", lambda: all(self._repeats(blocks, stop, 2) for stop in stops)
        )
        return blocks if reusable else []

    def _holds(self, name: str, check: Callable[[], bool]) -> bool:
        """Whether a check holds, by itself or of a text of this model that was no shorter."""
        state = ModelFingerprint(self.model)
        if self.model not in _CHECKS or _CHECKS[self.model][0] != state:
            _CHECKS[self.model] = state, {}
        lengths = _CHECKS[self.model][1]
        if lengths.get(name, 0) < self.tokens and check():
            lengths[name] = self.tokens
        return lengths.get(name, 0) >= self.tokens

    def _repeats(self, blocks: Sequence[Block], first: int, count: int, row: int = 0) -> bool:
        """Whether unchanged runs give the same scores without the layers before a call."""
        import torch

        try:
            skips = unchanged_layers(blocks, first, count, row)
            scores = self._run_batch([Intervention()] * count, skips, row=row)
        except ModelError:
            return False
        plain = self.chances(self.rows).expand_as(scores)
        return torch.allclose(scores, plain, atol=1e-5, equal_nan=True)

    @cached_property
    def states(self) -> LayerStates:
        """What layers put out in runs so far."""
        return LayerStates(self.blocks, self.places, self.attention)

    def _first_call(self, change: Intervention) -> int:
        """The number of the first kernel call that a change changes."""
        for number, place in enumerate(self.places):
            if place is not None and change.changes(*place, self.sides[place[0]]):
                return number
        return len(self.places)

    @cached_property
    def remembers(self) -> bool:
        """Whether the model gives the same answer from cached keys and values of a text's start."""
        import torch

        inputs = {**self.request.inputs}
        numbers = [number for number, *_ in self.memory]
        row = min(self.tokens - 1, max(output.row for output in self.outputs))
        plain = {one.stream for one in self.attention.maps} == {"causal"} and all(self.places)
        plain = plain and inputs.keys() <= {"input_ids", "attention_mask", "use_cache"}
        if not plain or row < 1 or numbers != [*range(len(numbers))]:
            return False
        if not inputs.get("attention_mask", torch.ones(1)).all():
            return False
        starts = 0, len(numbers) // 2
        return self._holds(
            "rows", lambda: all(self._repeats(self.blocks, first, 1, row) for first in starts)
        )

    def _first_row(self, change: Intervention) -> int:
        """A row before which a change of a causal text changes nothing, or 0."""
        heads = any(change.outputs_off(*place) for place in self.places if place)
        first = [link.query for link in change.links] + [at.position + 1 for at in change.tokens]
        if not first or heads or change.evictions or not self.remembers:
            return 0
        rest = max(self.tokens - min(first), 1)
        if 2 * rest <= TOKENS[self.model.device.type == "cuda"]:
            # Few lengths, so that changes share passes: 1, 2, 4 … tokens before the end.
            rest = 1 << (rest - 1).bit_length()
        return max(self.tokens - rest, 0)

    def _run_batch(
        self,
        changes: Sequence[Intervention],
        skips: Sequence[tuple[Block, Any]] = (),
        instead: HeadOutputs | None = None,
        row: int = 0,
        keys: Sequence[Sequence[int | None]] = (),
    ) -> Tensor:
        """Log-probabilities (changes, outputs, choices), from one pass.

        Layers whose output is given are not run, nor are the tokens before `row`. What the other
        layers put out is kept by the `keys` of the runs.
        """
        import torch

        count = len(changes)
        inputs = repeat_batch(dict(self.request.inputs), count)
        numbers = {number for block, _ in skips for number in block.calls}
        edit = self._edit(changes, instead, numbers, row)
        if row:
            inputs["input_ids"] = inputs["input_ids"][:, row:]
            inputs |= cache_of(self.model, self.memory, row, count)
        if self._keeps_rows:
            rows = [output.row - row for output in self.outputs if output.row >= row]
            inputs["logits_to_keep"] = torch.tensor(rows, device=self.model.device).long()
        with self._run_guarded(), torch.no_grad(), watch_kernels(edit), ExitStack() as stack:
            for block, state in skips:
                stack.enter_context(skip_module(block.module, state))
            for number, block in enumerate(self.states.blocks if keys else ()):
                if number >= len(skips):
                    note = partial(
                        lambda number, _, __, output: self.states.keep(number, keys, output), number
                    )
                    stack.enter_context(block.module.register_forward_hook(thread_hook(note)))
            logits = self.model(**inputs).logits
            output_rows = upcast_half(logits) if self._keeps_rows else self.rows_of(logits, row)
            later = [number for number, output in enumerate(self.outputs) if output.row >= row]
            scores = self.chances(self.rows).repeat(count, 1, 1)
            scores[:, later] = self.chances(output_rows)
            return scores

    def _edit(
        self,
        changes: Sequence[Intervention],
        instead: HeadOutputs | None,
        skips: Iterable[int] = (),
        row: int = 0,
    ) -> Callable[[AttentionCall], Any]:
        """The watch that changes the outputs of kernel calls for a batch, except `skips`."""
        # A model that writes calls each module again and again.
        turns = {
            path: cycle([self.places[number] for number in own if number not in skips])
            for path, own in self.numbers.items()
        }

        def edit(call: AttentionCall) -> Any:
            turn = turns.get(self.paths.get(id(call.module), ""))
            place = None if turn is None else next(turn)
            if place is None:
                return None
            return change_output(call, changes, place, self.sides[place[0]], instead, row)

        return edit


class EagerExperiment(ExplainedOutputs):
    """A model that gives gradients only; fulfils `attnviz.core.effects.Experiment`."""

    def __init__(self, request: ExperimentRequest, reason: str) -> None:
        import torch

        self.reason = reason
        self.sinks: SinkShares = {}
        self.eager = replace(
            request.encoding, part=eager_copy(request.model), inputs=request.inputs
        )
        with quiet(), running_errors(request.model, request.encoding.what), torch.enable_grad():
            output, self.attention, self.layers = eager.run_eager(self.eager)
        self.logits: Any = getattr(output, "logits", None)
        super().__init__(request, self.logits)

    def slopes(self, score: Score) -> tuple[NDArray[np.floating], ...]:
        with quiet(), running_errors(self.request.model, self.request.encoding.what):
            layers = [layer for _, layer in self.layers]
            gradients = eager.layer_gradients(score(self.logits), layers, self.eager.kind)
        return eager.stack_like(self.attention, gradients)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """Refuse: the kernel of this model does not separate its heads."""
        raise AttentionError(self.reason)

    run = head_outputs = head_values = output_gradients = changed_maps = write = _refuse


ModelExperiment: TypeAlias = KernelExperiment | EagerExperiment


def _outputs_of(call: AttentionCall, item: int = 0) -> NDArray[np.floating]:
    """What each head of a call puts out in an item of the batch, (heads, queries, value size)."""
    outputs: NDArray[np.floating] = upcast_half(call.output.detach()[item]).cpu().numpy()
    return outputs.swapaxes(0, 1)


def values_of(call: AttentionCall, item: int = 0) -> Tensor:
    """The values that each head weighs in an item of the batch, (heads, keys, size)."""
    groups = call.output.shape[2] // call.value.shape[1]
    return upcast_half(call.value.detach()[item]).repeat_interleave(groups, 0)  # shared by heads
