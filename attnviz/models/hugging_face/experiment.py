"""A transformers model with its inputs, run again and again with parts of it switched off.

A head is switched off, and a link cut, in what the attention kernel returns: before the output
projection, where heads can still be told apart. A kernel is linear in its values, so a row without
some keys is the kernel's answer to values that are zero there, divided by the weight that is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from attnviz.core.effects import (
    HeadOutputs,
    Intervention,
    PredictedToken,
    SinkShares,
    label_of,
    put_out,
)
from attnviz.core.errors import AttentionError, ModelError
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.core.locks import thread_hook
from attnviz.models.hugging_face.capture.capture import check_calls
from attnviz.models.hugging_face.capture.kernel import Call, eager_copy, watch_kernels
from attnviz.models.hugging_face.capture.passes import (
    CallWeights,
    CaptureSpec,
    group_by_layer,
    read_call,
    stream_at,
)
from attnviz.models.hugging_face.capture.probe import sink_logits, sink_shares
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token
from attnviz.models.hugging_face.eager import (
    EagerInputs,
    check_eager,
    layer_gradients,
    run_eager,
    stack_like,
)
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.load.model_errors import running_errors
from attnviz.models.hugging_face.load.tasks import Task
from attnviz.models.hugging_face.loaded_model import input_names

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.core.attention_map import Attention

Score = Callable[[Any], Any]
"""What makes one number of a model's logits, to take gradients of."""
COPIES = 6
"""How often a matrix exists while gradients are taken: weights, scores, both gradients, maps."""
TOKENS = 4096
"""Tokens that go through the model at once, of all runs of a batch together."""
SCORES = 1 << 26
"""Scores that exist at once, 256 MB of them."""


@dataclass(frozen=True, slots=True, eq=False)
class ExperimentRequest:
    """What is asked of a model.

    Attributes:
        model: the model, with its head.
        inputs: tensors, a batch of one.
        encoded: what they were made of; its part is the one whose attention is seen.
        outputs: of the logits of the model as it is, the outputs to explain.
        spell: what a choice is called.
        task: what its head decides.
        write: what the model writes; None: it writes nothing.
        what: "text" or "picture".
    """

    model: Any
    inputs: Mapping[str, Any]
    encoded: EncodedQuery
    outputs: Callable[[Any], tuple[PredictedToken, ...]]
    spell: Callable[[int], str]
    task: Task | None = None
    write: Callable[[], str] | None = None
    what: str = "text"


def experiment_of(asked: ExperimentRequest) -> ModelExperiment:
    """The model with its inputs, to be run with parts of it switched off.

    Where a head cannot be told apart at the kernel it can only be asked for gradients.
    """
    check_eager(EagerInputs(asked.model, asked.inputs, asked.encoded, asked.what), COPIES)
    try:
        return KernelExperiment(asked)
    except AttentionError as error:
        return EagerExperiment(asked, str(error))


class _Explained:
    """What a model as it is says of its inputs, and how that changes with each weight."""

    attention: Attention
    slopes: Callable[[Score], tuple[NDArray[np.floating], ...]]

    def __init__(self, asked: ExperimentRequest, logits: Any) -> None:
        self.asked = asked
        self.outputs = asked.outputs(logits)
        self.kind = getattr(asked.model.config, "problem_type", None)
        self.rows = self.rows_of(logits.detach())
        self.is_choice = self.rows.shape[2] > 1 and self.kind != "regression"

    def rows_of(self, logits: Tensor) -> Tensor:
        """The logits of each output, (batch, outputs, choices); of one decision there is a row."""
        rows = logits[:, None] if logits.ndim == 2 else logits
        return upcast_half(rows[:, [output.row for output in self.outputs]])

    def chances(self, rows: Tensor) -> Tensor:
        """Log p of each output's choices, of their logits."""
        from torch.nn import functional

        if not self.is_choice:
            raise ModelError("the model predicts a number, which has no probability to explain")
        tags = self.kind == "multi_label_classification"
        return functional.logsigmoid(rows) if tags else rows.log_softmax(-1)

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map."""
        places = range(len(self.outputs)), [output.number for output in self.outputs]
        return self.slopes(lambda logits: self.chances(self.rows_of(logits))[0][places].sum())

    def explained(self) -> AttentionGradients:
        """How the logit of the first output changes with each weight."""
        output = self.outputs[0]
        gradients = self.slopes(lambda logits: self.rows_of(logits)[0, 0, output.number])
        rows = _read_from(gradients[-1][-1]) if output.position is None else (output.row,)
        chance = None
        if self.is_choice:
            chance = self.chances(self.rows)[0, 0, output.number].exp().item()
        label = label_of(output, self.attention.main.query_tokens)
        return AttentionGradients(self.attention, gradients, rows, label, chance)

    def spell(self, number: int) -> str:
        """What a choice is called."""
        return self.asked.spell(number)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A layer of the model around its attentions, and what it returns as the model is."""

    module: Any
    calls: range  # the numbers of the kernel calls that are made in it
    returned: Any


class KernelExperiment(_Explained):
    """A model whose attentions are kernel calls; fulfils `attnviz.core.effects.Experiment`.

    Raises:
        AttentionError: a head of this architecture cannot be told apart at its kernel.
    """

    def __init__(self, asked: ExperimentRequest) -> None:
        self.asked, self.model, self.encoded = asked, asked.model, asked.encoded
        self.paths = {id(module): name for name, module in self.encoded.part.named_modules()}
        self._keeps_rows = "logits_to_keep" in input_names(self.model)
        self.passed: tuple[Any, list[Call], list[Block]] | None = self._pass()
        output, calls, self._noted = self.passed
        self.attention, self.places, self.sinks = self._read(calls, output)
        self.sides = {one.stream: (one.query_side, one.key_side) for one in self.attention.maps}
        self.numbers = defaultdict[str, list[int]](list)
        for number, call in enumerate(calls):
            self.numbers[self.paths[id(call.module)]].append(number)
        self.tokens = max(call.query.shape[2] for call in calls)
        super().__init__(asked, getattr(output, "logits", None))
        self.choices = (self.rows if self._keeps_rows else output.logits)[0].numel()

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, choices), for each change.

        Changes that begin in one layer share a pass, and the layers below are not run again.
        """
        self.passed = None
        alike = defaultdict[int, list[int]](list)
        for number, change in enumerate(changes):
            alike[self._first_call(change)].append(number)
        together = max(1, min(TOKENS // self.tokens, SCORES // self.choices))
        found: dict[int, NDArray[np.floating]] = {}
        for first, numbers in alike.items():
            for start in range(0, len(numbers), together):
                some = numbers[start : start + together]
                batch = [changes[number] for number in some]
                scores = self._changed(batch, first, self.blocks, instead)
                found |= dict(zip(some, scores.cpu().numpy(), strict=True))
        return (found[number] for number in range(len(changes)))

    def changed(self, change: Intervention) -> Attention:
        """The maps with something switched off; a head that is off still weighs its keys."""
        import torch

        calls, edit = list[Call](), self._edit([change], None)

        def look(call: Call) -> Any:
            if id(call.module) in self.paths:
                calls.append(call)
            return edit(call)

        with self._running(), torch.no_grad(), watch_kernels(look):
            output = self.model(**self.asked.inputs)
        attention, _, sinks = self._read(calls, output)
        return attention.with_maps(tuple(change.seen_in(item, sinks) for item in attention.maps))

    def slopes(self, score: Score) -> tuple[NDArray[np.floating], ...]:
        """How a score of the logits changes with each weight of each map.

        A head's output is its weights times its values, so ∂score / ∂wᵢⱼ = ∂score / ∂oᵢ · vⱼ: no
        matrix of weights needs to be in the graph.
        """
        import torch

        output, calls, _ = self.passed or self._pass()
        self.passed = None
        with self._running(), torch.enable_grad():
            outputs = [call.output for call in calls]
            slopes = torch.autograd.grad(score(output.logits), outputs, allow_unused=True)
        found = {}
        for place, call, slope in zip(self.places, calls, slopes, strict=True):
            moved = torch.zeros_like(call.output) if slope is None else slope
            groups = moved.shape[2] // call.value.shape[1]
            value = upcast_half(call.value.detach()[0]).repeat_interleave(groups, 0)
            found[place] = (upcast_half(moved[0]).transpose(0, 1) @ value.mT).cpu().numpy()
        return tuple(
            np.stack([found[item.stream, layer] for layer in item.layers])
            for item in self.attention.maps
        )

    def head_outputs(self) -> HeadOutputs:
        """What each head puts out as the model is."""
        _, calls, _ = self.passed or self._pass()
        return {
            place: upcast_half(call.output.detach()[0]).transpose(0, 1).cpu().numpy()
            for place, call in zip(self.places, calls, strict=True)
            if place is not None
        }

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """What the model writes with something switched off; None: it writes nothing."""
        if self.asked.write is None:
            return None
        with self._running(), watch_kernels(self._edit([change], instead)):
            return self.asked.write()

    @contextmanager
    def _running(self) -> Iterator[None]:
        import torch

        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with quiet(), running_errors(self.model, self.asked.what), torch.random.fork_rng(devices):
            yield

    def _pass(self) -> tuple[Any, list[Call], list[Block]]:
        """The output of the model as it is, with its kernel calls, ready for gradients.

        And what its layers return.
        """
        import torch

        calls, blocks, begun = list[Call](), list[Block](), defaultdict[Any, list[int]](list)

        def begin(module: Any, *_: Any) -> None:
            begun[module].append(len(calls))

        def end(module: Any, _: Any, returned: Any) -> None:
            own = range(begun[module][-1], len(calls))
            if own:
                blocks.append(Block(module, own, in_tensors(returned, lambda one: one.detach())))

        def look(call: Call) -> Any:
            if id(call.module) not in self.paths:
                return None
            given = call.output
            if not given.requires_grad:  # frozen weights, or the first of them
                given = given.detach().requires_grad_()
            calls.append(replace(call, output=given))
            return given

        with self._running(), torch.enable_grad(), watch_kernels(look), ExitStack() as hooks:
            for module in layers_of(self.model):
                hooks.enter_context(module.register_forward_pre_hook(thread_hook(begin)))
                hooks.enter_context(module.register_forward_hook(thread_hook(end)))
            output = self.model(**self.asked.inputs)
        return output, calls, [block for block in blocks if len(begun[block.module]) == 1]

    def _read(
        self, calls: Sequence[Call], output: Any
    ) -> tuple[Attention, list[tuple[str, str] | None], SinkShares]:
        """The raw maps of every layer, the stream and layer of each call, and what sinks take.

        None stands for a call of no map.
        """
        import torch

        part, sides = self.encoded.part, self.encoded.sides
        specs = {
            stream: CaptureSpec(PooledGrid(*map(each_token, side)), given=True)
            for stream, side in sides.items()
        }
        read: list[CallWeights | None] = []
        with self._running(), torch.no_grad():
            for call in calls:
                path = self.paths[id(call.module)]
                stream = stream_at(path, call, sides, part)
                if stream is None:
                    read.append(None)
                    continue
                check_apart(call, part.config.model_type)
                read.append(read_call(path, call.detached(), specs[stream]))
        layers = group_by_layer([item for item in read if item], sides, part)
        if set(layers) != set(sides):
            raise AttentionError(
                f"architecture '{part.config.model_type}' calls no attention kernel, so its heads "
                "cannot be switched off one by one"
            )
        captured = [
            item
            for stream, own in layers.items()
            for item in check_calls(stream, own, specs[stream], part)
        ]
        logits = getattr(output, "logits", None)
        attention = self.encoded.build_attention(captured, self.asked.task, logits)
        # A stream is named by what its weights turn out to be.
        places = {
            id(layers[item.stream][layer]): (made.stream, layer)
            for item, made in zip(captured, attention.maps, strict=True)
            for layer in item.layers
        }
        named = [places.get(id(item)) for item in read]
        with torch.no_grad():
            sinks = {
                place: sink_shares(call)[0, ..., 0].T.double().cpu().numpy()
                for place, call in zip(named, calls, strict=True)
                if place is not None and sink_logits(call) is not None
            }
        return attention, named, sinks

    @cached_property
    def blocks(self) -> list[Block]:
        """The layers that need not be run again, if the model then says the same as it does whole.

        Else none.
        """
        import torch

        # The last layer alone may need what the others leave behind (Gemma 3n their keys), or some.
        for count in {3 * len(self._noted) // 4, len(self._noted) - 1} - {0, -1}:
            first = self._noted[count - 1].calls.stop
            try:
                found = self._changed([Intervention(), Intervention()], first, self._noted)
            except ModelError:
                return []
            plain = self.chances(self.rows).expand_as(found)
            if not torch.allclose(found, plain, atol=1e-5, equal_nan=True):
                return []
        return self._noted

    def _first_call(self, change: Intervention) -> int:
        """The number of the first kernel call that a change changes."""
        for number, place in enumerate(self.places):
            if place is None:
                continue
            stream, layer = place
            cut = any(at.stream == stream and at.layer in (None, layer) for at in change.links)
            hidden = any(at.side == self.sides[stream][1] for at in change.tokens)
            if cut or hidden or change.heads_of(*place):
                return number
        return len(self.places)

    def _changed(
        self,
        changes: Sequence[Intervention],
        first: int,
        blocks: Sequence[Block],
        instead: HeadOutputs | None = None,
    ) -> Tensor:
        """Log-probabilities (changes, outputs, choices), from one pass.

        The blocks that lie before the first changed call are not run.
        """
        import torch

        count = len(changes)
        inputs = expanded(dict(self.asked.inputs), count)
        done = [block for block in blocks if block.calls.stop <= first]
        edit = self._edit(changes, instead, {number for block in done for number in block.calls})
        if self._keeps_rows:
            rows = [output.row for output in self.outputs]
            inputs["logits_to_keep"] = torch.tensor(rows, device=self.model.device)
        with self._running(), torch.no_grad(), watch_kernels(edit), ExitStack() as stack:
            for block in done:
                stack.enter_context(returning(block.module, expanded(block.returned, count)))
            logits = self.model(**inputs).logits
            return self.chances(upcast_half(logits) if self._keeps_rows else self.rows_of(logits))

    def _edit(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None, done: Iterable[int] = ()
    ) -> Callable[[Call], Any]:
        """What answers a kernel call with the output that each change of a batch makes of it.

        The calls whose numbers are `done` are not made.
        """
        # A model that writes makes the calls of a module again and again.
        turns = {
            path: cycle([self.places[number] for number in own if number not in done])
            for path, own in self.numbers.items()
        }

        def edit(call: Call) -> Any:
            turn = turns.get(self.paths.get(id(call.module), ""))
            place = None if turn is None else next(turn)
            if place is None:
                return None
            return changed_output(call, changes, place, self.sides[place[0]], instead)

        return edit


class EagerExperiment(_Explained):
    """A model that can be asked for gradients only; fulfils `attnviz.core.effects.Experiment`."""

    def __init__(self, asked: ExperimentRequest, reason: str) -> None:
        import torch

        self.reason = reason
        self.sinks: SinkShares = {}
        self.eager = EagerInputs(eager_copy(asked.model), asked.inputs, asked.encoded, asked.what)
        with quiet(), running_errors(asked.model, asked.what), torch.enable_grad():
            output, self.attention, self.layers = run_eager(self.eager)
        self.logits: Any = getattr(output, "logits", None)
        super().__init__(asked, self.logits)

    def slopes(self, score: Score) -> tuple[NDArray[np.floating], ...]:
        """How a score of the logits changes with each weight of each map."""
        with quiet(), running_errors(self.asked.model, self.asked.what):
            layers = [layer for _, layer in self.layers]
            found = layer_gradients(score(self.logits), layers, self.eager.kind)
        return stack_like(self.attention, found)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """Refused: nothing can be switched off, and what a single head puts out is not known."""
        raise AttentionError(self.reason)

    run = head_outputs = changed = write = _refuse


ModelExperiment: TypeAlias = KernelExperiment | EagerExperiment


def _read_from(last: NDArray[Any]) -> tuple[int, ...]:
    """The positions that a classifier reads: those whose last attention its score hangs on.

    Whether it reads [CLS], the last token or the mean of all is so seen, not looked up.
    """
    rows = np.flatnonzero(np.any(last != 0, axis=(0, 2)))
    return tuple(rows.tolist()) or tuple(range(last.shape[1]))


def check_apart(call: Call, kind: str) -> None:
    """Refuse a kernel that returns its heads together."""
    batch, heads, queries, _ = call.query.shape
    if call.output.shape != (batch, queries, heads, call.value.shape[-1]):
        raise AttentionError(
            f"the attention kernel of architecture '{kind}' returns its heads together, so that "
            "one cannot be switched off"
        )


def changed_output(
    call: Call,
    changes: Sequence[Intervention],
    place: tuple[str, str],
    sides: tuple[str, str],
    instead: HeadOutputs | None,
) -> Any:
    """A call's output (batch, queries, heads, value size) with each item's change made in it."""
    import torch

    batch, queries, heads, _ = call.output.shape
    shape = (heads, queries, call.key.shape[2])
    found, hidden = call.output.clone(), {}
    for number, change in enumerate(changes):
        for head in change.heads_of(*place):
            rows = put_out(instead, place, head, queries)
            found[number, :, head] = torch.as_tensor(rows).to(found)
        cells = change.hidden(*place, sides, shape)
        if cells is not None:
            hidden[number] = cells
    for rows, kept in without_keys(call, hidden, batch) if hidden else ():
        found[rows] = kept[rows]
    return found


def without_keys(
    call: Call, hidden: Mapping[int, NDArray[np.bool_]], batch: int
) -> Iterator[tuple[Any, Any]]:
    """What a kernel puts out where some keys are hidden, and the rows that this is right for.

    Of items of the batch the cells that are hidden, (heads, queries, keys). Each answer is right
    for a mask of rows (batch, queries, heads): those from which the same keys are hidden.
    """
    import torch

    patterns = {
        number: [
            (keys, (cells == keys).all(-1).T) for keys in np.unique(cells[cells.any(-1)], axis=0)
        ]
        for number, cells in hidden.items()
    }
    value = call.value
    whole, sink = call.mix(torch.ones_like(value))[..., :1], sink_shares(call)
    for turn in range(max(map(len, patterns.values()))):
        shown = np.ones((batch, value.shape[2]), dtype=np.bool_)
        rows = np.zeros(call.output.shape[:3], dtype=np.bool_)
        for number, own in patterns.items():
            if turn < len(own):
                keys, rows[number] = own[turn]
                shown[number] = ~keys
        seen = torch.as_tensor(shown, device=value.device)[:, None, :, None]
        left = call.mix(seen.to(value.dtype).expand(value.shape))[..., :1]
        share = (left + sink) / (whole + sink)
        # Below its smallest normal number a type has few digits: as far as it goes nothing is left.
        known = share.where(share >= torch.finfo(value.dtype).tiny, torch.nan)
        kept = (call.mix(value * seen) / known).to(value.dtype)
        yield torch.as_tensor(rows, device=value.device), kept


@contextmanager
def returning(module: Any, value: Any) -> Iterator[None]:
    """Let a module answer with a value, without working it out, in a block of code."""
    own = vars(module).get("forward")
    module.forward = lambda *_, **__: value
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def expanded(value: Any, count: int) -> Any:
    """A value in which each tensor of a batch of one is one of `count` alike."""
    return in_tensors(
        value,
        lambda one: (
            one.expand(count, *one.shape[1:]).contiguous()
            if one.ndim and one.shape[0] == 1 < count
            else one
        ),
    )


def in_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A value, as deep as it may be, with each tensor in it changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)({name: in_tensors(item, change) for name, item in value.items()})
    if isinstance(value, tuple | list):
        items = [in_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def upcast_half(numbers: Tensor) -> Tensor:
    """Half-precision numbers as float32."""
    return numbers.float() if numbers.itemsize < 4 else numbers


def layers_of(model: Any) -> Iterable[Any]:
    """The modules that stand in lists of them, such as a model's layers, outermost lists only."""
    from torch import nn

    inside: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and not any(name.startswith(one) for one in inside):
            inside.append(f"{name}.")
            yield from module
