"""A transformers model with its inputs, run again and again with parts of it switched off.

A head is switched off, and a link cut, in what the attention kernel returns: before the output
projection, where heads can still be told apart. A kernel is linear in its values, so a row without
some keys is the kernel's answer to values that are zero there, divided by the weight that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import not_finite
from attnviz.core.effects import Change, HeadOutputs, Output
from attnviz.core.errors import AttentionError, ModelError
from attnviz.models.hugging_face.capture.capture import group
from attnviz.models.hugging_face.capture.kernel import (
    Call,
    eager_copy,
    layer_names,
    match_stream,
    stream_of,
    watch_kernels,
)
from attnviz.models.hugging_face.capture.passes import (
    CaptureSpec,
    attending_layers,
    check_rows,
    dtype_of,
    read_call,
    wrong_shape,
)
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token
from attnviz.models.hugging_face.eager import EagerInputs, check_eager, run_eager, stack_like
from attnviz.models.hugging_face.gradient import COPIES, layer_gradients
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.errors import running
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.load.tasks import Task
from attnviz.models.hugging_face.model import input_names

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnviz.core.attention_map import Attention
    from attnviz.core.effects import Experiment

TOKENS = 4096
"""Tokens that go through the model at once, of all runs of a batch together."""
SCORES = 1 << 26
"""Scores that exist at once, 256 MB of them."""
ROUNDED = 64
"""Rows whose weights sum to less than 1 by more than this many roundings have a sink, no key."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
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
    outputs: Callable[[Tensor], tuple[Output, ...]]
    spell: Callable[[int], str]
    task: Task | None = None
    write: Callable[[], str] | None = None
    what: str = "text"

    def total(self, logits: Any, outputs: Sequence[Output]) -> Any:
        """The sum of the outputs' log-probabilities."""
        chances = log_probabilities(in_rows(logits), outputs, self.model.config)[0]
        return chances[range(len(outputs)), [output.number for output in outputs]].sum()


def experiment_of(asked: Asked) -> Experiment:
    """The model with its inputs, to be run with parts of it switched off.

    Where a head cannot be told apart at the kernel it can only be asked for gradients.
    """
    check_eager(EagerInputs(asked.model, asked.inputs, asked.encoded, asked.what), COPIES)
    try:
        return KernelExperiment(asked)
    except AttentionError as error:
        with quiet():
            return EagerExperiment(asked, str(error))


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A layer of the model around its attentions, and what it returns as the model is."""

    module: Any
    calls: range  # the numbers of the kernel calls that are made in it
    returned: Any


class KernelExperiment:
    """A model whose attentions are kernel calls; fulfils `attnviz.core.effects.Experiment`.

    Raises:
        AttentionError: a head of this architecture cannot be told apart at its kernel.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked, self.model, self.encoded = asked, asked.model, asked.encoded
        self.paths = {id(module): name for name, module in self.encoded.part.named_modules()}
        self.blocks, self.checked = list[Block](), False
        self._keeps_rows = "logits_to_keep" in input_names(self.model)
        calls, output = self._pass()
        self.places = self._places(calls)
        self.attention = self._read(calls, output)
        self.sides = {one.stream: (one.query_side, one.key_side) for one in self.attention.maps}
        self.numbers: dict[str, list[int]] = {}
        for number, call in enumerate(calls):
            self.numbers.setdefault(self.paths[id(call.module)], []).append(number)
        logits: Any = getattr(output, "logits", None)
        self.outputs = asked.outputs(logits)
        self.graph: tuple[Any, list[Call]] | None = (logits, calls)  # until something is run
        logits = in_rows(logits).detach()
        self.tokens = max(call.query.shape[2] for call in calls)
        self.plain = log_probabilities(logits, self.outputs, self.model.config)
        self.choices = self.plain[0].numel() if self._keeps_rows else logits[0].numel()

    def run(
        self, changes: Sequence[Change], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, choices), for each change.

        Changes that begin in one layer share a pass, and the layers below are not run again.
        """
        self.graph = None
        self._check_blocks()
        firsts = [self._first_call(change) for change in changes]
        together = max(1, min(TOKENS // self.tokens, SCORES // self.choices))
        found: dict[int, NDArray[np.floating]] = {}
        for first in sorted(set(firsts)):
            alike = [number for number, begins in enumerate(firsts) if begins == first]
            for start in range(0, len(alike), together):
                some = alike[start : start + together]
                scores = self._changed([changes[number] for number in some], first, instead)
                found |= dict(zip(some, scores.cpu().numpy(), strict=True))
        return (found[number] for number in range(len(changes)))

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map.

        A head's output is its weights times its values, so ∂ log p / ∂wᵢⱼ = ∂ log p / ∂oᵢ · vⱼ: no
        matrix of weights needs to be in the graph.
        """
        import torch

        logits, calls = self._take_graph()
        with self._running(), torch.enable_grad():
            total = self.asked.total(logits, self.outputs)
            slopes = torch.autograd.grad(total, [call.output for call in calls], allow_unused=True)
        found = {}
        for place, call, slope in zip(self.places, calls, slopes, strict=True):
            moved = torch.zeros_like(call.output) if slope is None else slope
            value = call.value.detach()[0].repeat_interleave(
                moved.shape[2] // len(call.value[0]), 0
            )
            slopes_of = wide(moved[0]).transpose(0, 1) @ wide(value).transpose(1, 2)
            found[place] = slopes_of.cpu().numpy()
        return tuple(
            np.stack([found[item.stream, layer] for layer in item.layers])
            for item in self.attention.maps
        )

    def head_outputs(self) -> HeadOutputs:
        """What each head puts out as the model is."""
        _, calls = self._take_graph()
        return {
            place: wide(call.output.detach()[0]).transpose(0, 1).cpu().numpy()
            for place, call in zip(self.places, calls, strict=True)
            if place is not None
        }

    def spell(self, number: int) -> str:
        """What a choice is called."""
        return self.asked.spell(number)

    def write(self, change: Change, instead: HeadOutputs | None = None) -> str | None:
        """What the model writes with something switched off; None: it writes nothing."""
        if self.asked.write is None:
            return None
        with self._running(), watch_kernels(self._edit([change], instead)):
            return self.asked.write()

    @contextmanager
    def _running(self) -> Iterator[None]:
        import torch

        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with quiet(), running(self.model, self.asked.what), torch.random.fork_rng(devices):
            yield

    def _pass(self) -> tuple[list[Call], Any]:
        """The kernel calls and the output of the model as it is, ready for gradients.

        What its layers return is noted.
        """
        import torch

        calls, blocks = list[Call](), list[Block]()
        begun: dict[Any, int] = {}
        seen = Counter[Any]()

        def begin(module: Any, *_: Any) -> None:
            begun[module] = len(calls)
            seen[module] += 1

        def end(module: Any, _: Any, returned: Any) -> None:
            if len(calls) > begun[module]:
                own = range(begun[module], len(calls))
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
                hooks.enter_context(module.register_forward_pre_hook(begin))
                hooks.enter_context(module.register_forward_hook(end))
            output = self.model(**self.asked.inputs)
        self.blocks = [block for block in blocks if seen[block.module] == 1]
        return calls, output

    def _take_graph(self) -> tuple[Any, list[Call]]:
        """The logits and kernel calls of a pass that gradients can go back through, once."""
        graph, self.graph = self.graph, None
        if graph is None:
            checked = self.blocks
            calls, output = self._pass()
            graph, self.blocks = (output.logits, calls), checked
        return graph

    def _places(self, calls: Sequence[Call]) -> list[tuple[str, str] | None]:
        """The stream and the layer that each kernel call belongs to; None: to no map."""
        sides, config = self.encoded.sides, self.encoded.part.config
        paths = [self.paths[id(call.module)] for call in calls]
        streams = [match_stream(stream_of(path), sides) for path in paths]
        names = {}
        for stream in sides:
            own = [path for path, name in zip(paths, streams, strict=True) if name == stream]
            names[stream] = iter(layer_names(own, attending_layers(config)))
            if not own:
                raise AttentionError(
                    f"architecture '{config.model_type}' calls no attention kernel, so its heads "
                    "cannot be switched off one by one"
                )
        for call, name in zip(calls, streams, strict=True):
            if name is None:
                continue
            batch, heads, queries, _ = call.query.shape
            seen = batch, heads, queries, call.key.shape[2]
            if seen != (1, heads, *sides[name]):
                path = self.paths[id(call.module)]
                raise wrong_shape(path, config.model_type, seen, sides[name])
            check_apart(call, config.model_type)
        return [None if stream is None else (stream, next(names[stream])) for stream in streams]

    def _read(self, calls: Sequence[Call], output: Any) -> Attention:
        """The raw maps of every layer; the places get the names of their streams."""
        import torch

        sides = self.encoded.sides
        layers: dict[str, dict[str, NDArray[np.float32]]] = {stream: {} for stream in sides}
        with self._running(), torch.no_grad():
            for place, call in zip(self.places, calls, strict=True):
                if place is None:
                    continue
                stream, layer = place
                spec = CaptureSpec(PooledGrid(*map(each_token, sides[stream])), given=True)
                item = read_call(self.paths[id(call.module)], call.detached(), spec)
                if item.broken is not None:
                    raise not_finite(stream, layer, str(item.broken), dtype_of(self.model))
                check_rows(item.weights[0], layer, self.model, stream)
                layers[stream][layer] = item.weights[0]
        route = f"{self.model.config._attn_implementation}, probed"
        captured = [
            item for stream in layers for item in group(stream, layers[stream], route=route)
        ]
        attention = self.encoded.finished(captured, self.asked.task, output)
        shown = {
            (item.stream, layer): (found.stream, layer)
            for item, found in zip(captured, attention.maps, strict=True)
            for layer in item.layers
        }
        self.places = [place and shown[place] for place in self.places]
        return attention

    def _check_blocks(self) -> None:
        """Use what layers return only where the model then says the same as it does whole."""
        import torch

        if self.checked:
            return
        self.checked, blocks = True, self.blocks
        for count in {len(blocks) // 2, len(blocks)} - {0}:
            try:
                first = blocks[count - 1].calls.stop
                found = self._changed([Change(), Change()], first, None)
                same = torch.allclose(found, self.plain.expand_as(found), atol=1e-5, equal_nan=True)
            except ModelError:
                same = False
            if not same:
                self.blocks = []
                return

    def _first_call(self, change: Change) -> int:
        """The number of the first kernel call that a change changes."""
        heads = {(at.stream, at.layer) for at in change.heads}
        for number, place in enumerate(self.places):
            if place is None:
                continue
            stream, layer = place
            cut = any(at.stream == stream and at.layer in (None, layer) for at in change.links)
            hidden = any(at.side == self.sides[stream][1] for at in change.tokens)
            if place in heads or cut or hidden:
                return number
        return len(self.places)

    def _changed(
        self, changes: Sequence[Change], first: int, instead: HeadOutputs | None
    ) -> Tensor:
        """Log-probabilities (changes, outputs, choices), from one pass."""
        import torch

        count = len(changes)
        inputs = expanded(dict(self.asked.inputs), count)
        done = [block for block in self.blocks if block.calls.stop <= first]
        edit = self._edit(changes, instead, [number for block in done for number in block.calls])
        with self._running(), torch.no_grad(), watch_kernels(edit), ExitStack() as stack:
            for block in done:
                stack.enter_context(returning(block.module, expanded(block.returned, count)))
            if not self._keeps_rows:
                logits = in_rows(self.model(**inputs).logits)
                return log_probabilities(logits, self.outputs, self.model.config)
            kept = torch.tensor([output.row for output in self.outputs], device=self.model.device)
            logits = self.model(**inputs, logits_to_keep=kept).logits
            outputs = [replace(output, row=row) for row, output in enumerate(self.outputs)]
            return log_probabilities(logits, outputs, self.model.config)

    def _edit(
        self, changes: Sequence[Change], instead: HeadOutputs | None, done: Iterable[int] = ()
    ) -> Callable[[Call], Any]:
        """What answers a kernel call with the output that each change of a batch makes of it.

        The calls whose numbers are `done` are not made.
        """
        left_out = set(done)
        counts = Counter(
            path for path, own in self.numbers.items() for number in own if number in left_out
        )

        def edit(call: Call) -> Any:
            path = self.paths.get(id(call.module))
            if path not in self.numbers:
                return None
            numbers = self.numbers[path]
            place = self.places[numbers[counts[path] % len(numbers)]]
            counts[path] += 1
            if place is None:
                return None
            return changed_output(call, changes, place, self.sides[place[0]], instead)

        return edit


class EagerExperiment:
    """A model that can be asked for gradients only; fulfils `attnviz.core.effects.Experiment`."""

    def __init__(self, asked: Asked, reason: str) -> None:
        import torch

        self.asked, self.reason = asked, reason
        eager = EagerInputs(eager_copy(asked.model), asked.inputs, asked.encoded, asked.what)
        with running(asked.model, asked.what), torch.enable_grad():
            output, self.attention, layers = run_eager(eager)
            logits: Any = getattr(output, "logits", None)
            self.outputs = asked.outputs(logits)
            total = asked.total(logits, self.outputs)
            self.slopes = layer_gradients(total, [layer for _, layer in layers], eager.kind)

    def run(
        self, changes: Sequence[Change], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Refused: nothing can be switched off."""
        raise AttentionError(self.reason)

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map."""
        return stack_like(self.attention, self.slopes)

    def head_outputs(self) -> HeadOutputs:
        """Refused: what a single head puts out is not known."""
        raise AttentionError(self.reason)

    def spell(self, number: int) -> str:
        """What a choice is called."""
        return self.asked.spell(number)

    def write(self, change: Change, instead: HeadOutputs | None = None) -> str | None:
        """Refused: nothing can be switched off."""
        raise AttentionError(self.reason)


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
    changes: Sequence[Change],
    place: tuple[str, str],
    sides: tuple[str, str],
    instead: HeadOutputs | None,
) -> Any:
    """A call's output (batch, queries, heads, value size) with each item's change made in it.

    None: nothing changes here.
    """
    import torch

    batch, queries, heads, _ = call.output.shape
    shape = (heads, queries, call.key.shape[2])
    found: Any = None
    hidden = {}
    for number, change in enumerate(changes):
        off = change.heads_of(*place)
        if off and found is None:
            found = call.output.clone()
        for head in off:
            rows = np.zeros((1, 1)) if instead is None else instead[place][head]
            if len(rows) != 1:  # as many as the text has; of one that is being written, over again
                rows = np.resize(rows, (queries, rows.shape[1]))
            found[number, :, head] = torch.as_tensor(rows).to(found)
        if change.links or change.tokens:
            cells = change.hidden(*place, sides, shape)
            if cells is not None:
                hidden[number] = cells
    for rows, kept in without_keys(call, hidden, batch):
        found = call.output.clone() if found is None else found
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

    patterns: dict[int, list[Any]] = {}
    for number, cells in hidden.items():
        sets = np.unique(cells[cells.any(-1)], axis=0)
        patterns[number] = [(keys, (cells == keys).all(-1).T) for keys in sets]
    value = call.value
    whole = sink = None
    for turn in range(max(map(len, patterns.values()), default=0)):
        shown = np.ones((batch, value.shape[2]), dtype=np.bool_)
        rows = np.zeros(call.output.shape[:3], dtype=np.bool_)
        for number, own in patterns.items():
            if turn < len(own):
                keys, where = own[turn]
                shown[number], rows[number] = ~keys, where
        seen = torch.as_tensor(shown, device=value.device)[:, None, :, None]
        left = call.mix(seen.to(value.dtype).expand(value.shape))[..., :1]
        if whole is None:
            whole = call.mix(torch.ones_like(value))[..., :1]
            lost = 1 - whole
            rounded = (
                ROUNDED * torch.finfo(lost.dtype).eps if call.options.get("s_aux") is None else 0
            )
            sink = torch.where(lost > rounded, lost, torch.zeros_like(lost))
        share = (left + sink) / (whole + sink)
        yield torch.as_tensor(rows, device=value.device), call.mix(value * seen) / share


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


def wide(numbers: Tensor) -> Tensor:
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


def in_rows(logits: Tensor) -> Tensor:
    """Logits of shape (batch, rows, choices); of one decision a text there is a single row."""
    return logits[:, None] if logits.ndim == 2 else logits


def log_probabilities(logits: Tensor, outputs: Sequence[Output], config: Any) -> Tensor:
    """Log p of each output's choices, (batch, outputs, choices)."""
    from torch.nn import functional

    rows = wide(logits[:, [output.row for output in outputs]])
    if getattr(config, "problem_type", None) == "multi_label_classification":
        return functional.logsigmoid(rows)
    return rows.log_softmax(-1)
