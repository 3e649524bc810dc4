"""A transformers model with its inputs, run again and again with parts of it switched off.

A head is switched off, and a link cut, in what the attention kernel returns: before the output
projection, where heads can still be told apart. A kernel is linear in its values, so a row without
some keys is the kernel's answer to values that are zero there, divided by the weight that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.core.effects import Change, HeadOutputs, Output
from attnviz.core.errors import AttentionError, ModelError
from attnviz.models.hugging_face.capture.kernel import Call, match_stream, stream_of, watch_kernels
from attnviz.models.hugging_face.load.errors import quiet, running

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

TOKENS = 4096
"""Tokens that go through the model at once, of all runs of a batch together."""
SCORES = 1 << 26
"""Scores that exist at once, 256 MB of them."""
SINK = 1e-4
"""Rows whose weights sum to less than 1 by more than this have a sink that is no key."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is asked of a model.

    Attributes:
        model: the model, with its head.
        inputs: tensors, a batch of one.
        attention: the raw maps of every layer.
        outputs: of the logits of the model as it is, the outputs to explain.
        spell: what a choice is called.
        write: what the model writes; None: it writes nothing.
        what: "text" or "picture".
    """

    model: Any
    inputs: Mapping[str, Any]
    attention: Attention
    outputs: Callable[[Tensor], tuple[Output, ...]]
    spell: Callable[[int], str]
    write: Callable[[], str] | None = None
    what: str = "text"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A layer of the model around its attentions, and what it returns as the model is."""

    module: Any
    last: int  # the number of the last kernel call that is made in it
    returned: Any


class KernelExperiment:
    """A model whose attentions are kernel calls; fulfils `attnviz.core.effects.Experiment`.

    Raises:
        AttentionError: a head of this architecture cannot be told apart at its kernel.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked, self.model, self.attention = asked, asked.model, asked.attention
        self.sides = {item.stream: (item.query_side, item.key_side) for item in self.attention.maps}
        self.paths = {id(module): name for name, module in self.model.named_modules()}
        self.calls: list[Call] = []
        self.blocks: list[Block] = []
        logits = self._plain()
        self.places = self._places()
        self.numbers: dict[str, list[int]] = {}
        for number, call in enumerate(self.calls):
            self.numbers.setdefault(self.paths[id(call.module)], []).append(number)
        self.outputs = asked.outputs(logits)
        logits = in_rows(logits)
        self.tokens = max(call.query.shape[2] for call in self.calls)
        self.choices = logits[0].numel()
        self.plain = log_probabilities(logits, self.outputs, self.model.config)
        self._check_blocks()

    def run(
        self, changes: Sequence[Change], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, choices), for each change.

        Changes that begin in one layer share a pass, and the layers below are not run again.
        """
        firsts = [self._first_call(change) for change in changes]
        together = max(1, min(TOKENS // self.tokens, SCORES // self.choices))
        found: dict[int, NDArray[np.floating]] = {}
        for first in sorted(set(firsts)):
            alike = [number for number, begins in enumerate(firsts) if begins == first]
            for start in range(0, len(alike), together):
                some = alike[start : start + together]
                scores = self._changed([changes[number] for number in some], first, instead)
                found |= dict(zip(some, scores.float().cpu().numpy(), strict=True))
        return (found[number] for number in range(len(changes)))

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map.

        A head's output is its weights times its values, so ∂ log p / ∂wᵢⱼ = ∂ log p / ∂oᵢ · vⱼ: no
        matrix of weights needs to be in the graph.
        """
        import torch

        outputs = list[Any]()

        def look(call: Call) -> Any:
            given = call.output
            if not given.requires_grad:  # frozen weights, or the first of them
                given = given.detach().requires_grad_()
            outputs.append((call.value.detach(), given))
            return given

        with self._running(), torch.enable_grad(), watch_kernels(look):
            logits = in_rows(self.model(**self.asked.inputs).logits)
            chances = log_probabilities(logits, self.outputs, self.model.config)[0]
            numbers = [[output.number] for output in self.outputs]
            total = chances.gather(1, torch.tensor(numbers, device=chances.device)).sum()
            slopes = torch.autograd.grad(total, [given for _, given in outputs], allow_unused=True)
        found = {}
        for place, (value, given), slope in zip(self.places, outputs, slopes, strict=True):
            own = value[0].repeat_interleave(given.shape[2] // value.shape[1], 0).float()
            moved = torch.zeros_like(given) if slope is None else slope
            found[place] = (moved[0].float().transpose(0, 1) @ own.transpose(1, 2)).cpu().numpy()
        return tuple(
            np.stack([found[item.stream, layer] for layer in item.layers])
            for item in self.attention.maps
        )

    def head_outputs(self) -> HeadOutputs:
        """What each head puts out as the model is."""
        return {
            place: call.output[0].transpose(0, 1).float().cpu().numpy()
            for place, call in zip(self.places, self.calls, strict=True)
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

    def _plain(self) -> Any:
        """The logits of the model as it is; notes its kernel calls and what its layers return."""
        import torch

        begun: dict[Any, int] = {}
        seen = Counter[Any]()

        def begin(module: Any, *_: Any) -> None:
            begun[module] = len(self.calls)
            seen[module] += 1

        def end(module: Any, _: Any, returned: Any) -> None:
            if len(self.calls) > begun[module]:
                self.blocks.append(Block(module, len(self.calls) - 1, returned))

        def look(call: Call) -> None:
            if id(call.module) in self.paths:
                self.calls.append(call)

        with self._running(), torch.no_grad(), watch_kernels(look), ExitStack() as hooks:
            for module in layers_of(self.model):
                hooks.enter_context(module.register_forward_pre_hook(begin))
                hooks.enter_context(module.register_forward_hook(end))
            logits = getattr(self.model(**self.asked.inputs), "logits", None)
        self.blocks = [block for block in self.blocks if seen[block.module] == 1]
        return logits

    def _places(self) -> list[tuple[str, str] | None]:
        """The stream and the layer that each kernel call belongs to; None: to no map."""
        layers = {stream: list[str]() for stream in self.sides}
        for item in self.attention.maps:
            layers[item.stream] += item.layers
        streams = [
            match_stream(stream_of(self.paths[id(call.module)]), layers) for call in self.calls
        ]
        counts, kind = Counter(streams), self.model.config.model_type
        heads = [call for call, stream in zip(self.calls, streams, strict=True) if stream]
        if {name: counts[name] for name in layers} != {
            name: len(own) for name, own in layers.items()
        }:
            raise AttentionError(
                f"architecture '{kind}' calls no attention kernel for every layer, so its heads "
                "cannot be switched off one by one"
            )
        for call in heads:
            batch, all_heads, queries, _ = call.query.shape
            if call.output.shape != (batch, queries, all_heads, call.value.shape[-1]):
                raise AttentionError(
                    f"the attention kernel of architecture '{kind}' returns its heads together, so "
                    "that one cannot be switched off"
                )
        rest = {stream: iter(own) for stream, own in layers.items()}
        return [None if stream is None else (stream, next(rest[stream])) for stream in streams]

    def _check_blocks(self) -> None:
        """Use what layers return only where the model then says the same as it does whole."""
        import torch

        whole, blocks = self.plain, self.blocks
        for count in (len(blocks) // 2, len(blocks) - 1, len(blocks)):
            self.blocks = blocks
            try:
                first = blocks[count - 1].last + 1 if count > 0 else 0
                same = torch.allclose(self._changed([Change()], first, None), whole, atol=1e-5)
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
        edit = self._edit(changes, instead)
        with self._running(), torch.no_grad(), watch_kernels(edit), ExitStack() as stack:
            for block in self.blocks:
                if block.last < first:
                    stack.enter_context(returning(block.module, expanded(block.returned, count)))
            logits = in_rows(self.model(**inputs).logits)
            return log_probabilities(logits, self.outputs, self.model.config)

    def _edit(
        self, changes: Sequence[Change], instead: HeadOutputs | None
    ) -> Callable[[Call], Any]:
        """What answers a kernel call with the output that each change of a batch makes of it."""
        counts = Counter[str]()

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
    found, hidden = None, {}
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
    whole = None
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
        sink = 1 - whole
        left = left + torch.where(sink > SINK, sink, torch.zeros_like(sink))
        yield torch.as_tensor(rows, device=value.device), call.mix(value * seen) / left


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
    import torch

    if isinstance(value, torch.Tensor):
        if value.ndim and value.shape[0] == 1 and count > 1:
            return value.expand(count, *value.shape[1:]).contiguous()
        return value
    if isinstance(value, dict):
        return type(value)({name: expanded(item, count) for name, item in value.items()})
    if isinstance(value, tuple | list):
        items = [expanded(item, count) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


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
    rows = logits[:, [output.row for output in outputs]].float()
    if getattr(config, "problem_type", None) == "multi_label_classification":
        return rows.sigmoid().log()
    return rows.log_softmax(-1)
