"""What each part of a transformers model writes, for any family, from one eager pass.

The pass is made linear around itself: a norm keeps its statistics, and whatever is not linear (an
activation, a product of two numbers that depend on the text, a head's weighted values) gives a
leaf. The gradient of a query, a key or a logit by a leaf, times the leaf, is that leaf's part; the
parts sum to the whole, or the model is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttentionError
from attnviz.core.locks import thread_hook
from attnviz.core.writers import SIDES, HeadSides, Side, Writer, WriterKind
from attnviz.models.hugging_face.capture.kernel import (
    copy_modules,
    layer_names,
    match_stream,
    stream_of,
)
from attnviz.models.hugging_face.capture.passes import StopForward, attending_layers
from attnviz.models.hugging_face.eager import EagerInputs, run_eager
from attnviz.models.hugging_face.layer_states import layers_of, map_tensors, skip_module
from attnviz.models.hugging_face.load.model_errors import running_errors

STATISTICS = {
    *("rsqrt", "sqrt", "var", "std", "norm", "max", "amax", "reciprocal", "var_mean"),
    *("vector_norm", "topk", "sort", "argmax", "logsumexp"),
}
"""Functions whose results are held at their values."""
CURVED = {
    *("gelu", "silu", "relu", "tanh", "sigmoid", "exp", "erf", "softplus", "mish", "elu", "pow"),
    *("square", "leaky_relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "prelu", "selu"),
    *("log", "log1p", "abs", "glu", "clamp", "sin", "cos", "logsigmoid", "celu", "clip"),
    *("addcmul", "log_softmax", "gelu_", "relu_", "silu_", "__pow__", "__rpow__"),
}
"""Functions of one input that are not linear: each gives a leaf."""
PRODUCTS = {"mul", "__mul__", "__rmul__", "mul_", "__imul__", "div", "__truediv__", "multiply"}
MATRICES = {"matmul", "__matmul__", "bmm", "baddbmm"}
SUMS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
JOINS = {"cat", "concat", "concatenate"}
HIDDEN = -1e9  # a score below this hides a key


@dataclass(slots=True, eq=False)
class Leaf:
    """A tensor; everything after it is a linear function of it."""

    value: Tensor
    kind: WriterKind
    layer: str  # the path of the layer, or empty
    call: int | None = None  # of an attention, by number


@dataclass(slots=True, eq=False)
class AttentionScores:
    """One attention of the pass, as it comes about."""

    path: str
    query: Tensor  # (…, queries, head size)
    key: Tensor
    product: Tensor  # of both, which what follows is linear in
    before: Any = None  # what softmax reads
    capped: tuple[Tensor, Tensor] | None = None  # what a cap's tanh reads, and what it gives
    value: Any = None
    stream: int | None = None  # the input of its layer, by number


class Places:
    """The position in a pass: the running module and its layer."""

    def __init__(self, model: Any) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self.norms = {name for name, one in model.named_modules() if "Norm" in type(one).__name__}
        self.layers = {self.names[id(one)] for one in layers_of(model)}
        self.stack: list[str] = []
        self.begun = False

    @property
    def path(self) -> str:
        return self.stack[-1] if self.stack else ""

    @property
    def layer(self) -> str:
        return next((one for one in self.stack if one in self.layers), "")

    def enter(self, module: Any) -> bool:
        """A module begins; whether it is a layer."""
        name = self.names.get(id(module), self.path)
        self.stack.append(name)
        self.begun |= name in self.layers
        return name in self.layers


def is_live(one: Any) -> bool:
    """Whether a tensor depends on the model's input."""
    return isinstance(one, torch.Tensor) and one.requires_grad and one.is_floating_point()


class LinearPass(TorchFunctionMode):
    """Sees every function of a pass and makes it linear around its numbers.

    Attributes:
        leaves: all leaves, in order.
        calls: all attentions, in order.
        streams: the input of each layer, in order, with the number of leaves before it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.places = Places(model)
        self.leaves: list[Leaf] = []
        self.calls: list[AttentionScores] = []
        self.streams: list[tuple[int, Tensor]] = []
        self.maps: list[Tensor] = []  # what each linear map of a layer gives, in order
        self.head: Any = None  # what the last linear map gives, and a function for one row
        self._last: Any = None  # what the pass goes on with from the last leaf

    @contextmanager
    def watch(self, model: Any, what: str) -> Iterator[None]:
        """See a block of code, in which the model runs."""
        with running_errors(model, what), ExitStack() as hooks:
            for module in model.modules():
                for hook in (
                    module.register_forward_pre_hook(thread_hook(self._enter)),
                    module.register_forward_hook(thread_hook(self._leave)),
                ):
                    hooks.callback(hook.remove)
            hooks.enter_context(torch.enable_grad())
            hooks.enter_context(self)
            yield

    def _enter(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if self.places.enter(module) and inputs and is_live(inputs[0]):
            self.streams.append((len(self.leaves), inputs[0]))

    def _leave(self, _: Any, __: Any, output: Any) -> Any:
        """The tensor that replaces a module's output, or None."""
        # A function with a derivative of its own, such as BLOOM's activation, is not seen inside.
        own = isinstance(output, torch.Tensor) and isinstance(output.grad_fn, BackwardCFunction)
        found = self.cut(output) if own and self.places.layer else None
        self.places.stack.pop()
        return found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A function's result, or what stands for it."""
        rule = RULES.get(func.__name__)
        kwargs = kwargs or {}
        return func(*args, **kwargs) if rule is None else rule(self, func, args, kwargs)

    def embed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Rows of a table: tokens, or positions."""
        own = self.places.path.rpartition(".")[2]
        kind: WriterKind = "position" if "pos" in own or own == "wpe" else "embedding"
        return self.cut(func(*args, **kwargs), kind=kind)

    def convolve(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Patches of a picture, or frames of a recording, before the first layer."""
        found = func(*args, **kwargs)
        return found if self.places.begun else self.cut(found)

    def join(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A class token before patches, outside of the layers."""
        if self.places.layer or not any(map(is_live, args[0])):
            return func(*args, **kwargs)
        return func([self._free(one) for one in args[0]], *args[1:], **kwargs)

    def map(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A linear map; applied to a feed-forward part's leaf, its result becomes the leaf."""
        given = args[1] if func.__name__ == "addmm" else args[0]
        if not self.places.layer or not is_live(given):
            found = func(*args, **kwargs)
            if self._in_head:
                self.head = found, lambda row: func(given[:, row], *args[1:], **kwargs)
            return found
        found = self._map(func, args, kwargs)
        self.maps.append(found)
        last = self.leaves[-1] if self.leaves else None
        inner = last is not None and last.kind == "feed-forward" and last.layer == self.places.layer
        return self.cut(found) if inner and given.data_ptr() == self._last.data_ptr() else found

    def _map(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def add(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Positions that are no table's rows, outside of the layers."""
        if not self.places.layer and sum(map(is_live, args)) == 1:
            args = [self._free(one) for one in args]
        return func(*args, **kwargs)

    def hold_layer_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        return hold_layer_norm(*args, **kwargs) if is_live(args[0]) else func(*args, **kwargs)

    def hold_rms_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        return hold_rms_norm(*args, **kwargs) if is_live(args[0]) else func(*args, **kwargs)

    def hold(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A statistic, held at its value."""
        return map_tensors(func(*args, **kwargs), lambda one: one.detach())

    def bend(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A nonlinear function of one input: its result becomes a leaf."""
        name, places = func.__name__, self.places
        power = args[1] if name in ("pow", "__pow__") and len(args) > 1 else None
        falls = isinstance(power, float | int) and power < 0
        if falls or places.path in places.norms:
            return self.hold(func, args, kwargs)
        found = func(*args, **kwargs)
        call = self.calls[-1] if self.calls else None
        if name == "tanh" and call is not None and call.before is None:
            found = found.detach().requires_grad_()
            call.capped = args[0], found
            return found
        return self.cut(found) if is_live(found) and not self._in_head else found

    def multiply(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A product; of two live tensors it is not linear, so it becomes a leaf."""
        found = func(*args, **kwargs)
        return self.cut(found) if sum(map(is_live, args)) > 1 and not self._in_head else found

    @property
    def _in_head(self) -> bool:
        """Whether the model's output head runs: there only the slope at this point counts."""
        return self.places.begun and not self.places.layer

    def cut(self, value: Tensor, call: int | None = None, kind: WriterKind | None = None) -> Tensor:
        """A new leaf with the value of a result."""
        layer = self.places.layer
        usual: WriterKind = "head" if call is not None else "feed-forward"
        made = value.detach().clone().requires_grad_()
        self.leaves.append(Leaf(made, kind or (usual if layer else "embedding"), layer, call))
        shown = self._continue_with(made) + 0  # a copy, since a model may add to it in place
        self._last = shown
        return shown

    def _continue_with(self, made: Tensor) -> Tensor:
        """The tensor with which the pass continues after a leaf."""
        return made

    def _free(self, one: Any) -> Any:
        """A constant added to a stream outside of the layers, usually positions: a leaf."""
        tensor = isinstance(one, torch.Tensor) and one.is_floating_point() and one.ndim > 1
        return self.cut(one, kind="position") if tensor and not is_live(one) else one

    def multiply_matrices(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The scores of an attention, a head's output, or a linear map."""
        adds = func.__name__ == "baddbmm"
        left, right = (args[1:] or (kwargs["batch1"], kwargs["batch2"])) if adds else args[:2]
        if is_live(left) and is_live(right) and not self._in_head:
            product = (left.detach() @ right.detach()).requires_grad_()
            self.begin(AttentionScores(self.places.path, left, right.mT, product))
            if adds:
                return args[0] * kwargs.get("beta", 1) + product * kwargs.get("alpha", 1)
            return product + 0
        found = func(*args, **kwargs)
        call = self.calls[-1] if self.calls else None
        if call is None or call.before is None or call.value is not None or not is_live(right):
            return found
        if left.shape[-2:] != call.product.shape[-2:]:
            return found
        call.value = right
        return self.cut(found, call=len(self.calls) - 1)

    def begin(self, call: AttentionScores) -> None:
        """An attention begins."""
        call.stream = len(self.streams) - 1 if self.streams else None
        self.calls.append(call)

    def soften(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Weights, held at their values."""
        if not is_live(args[0]):
            return func(*args, **kwargs)
        if self.calls and self.calls[-1].before is None:
            self.calls[-1].before = args[0]
        return func(*args, **kwargs).detach()


RULES: dict[str, Callable[[LinearPass, Any, Any, Any], Any]] = {
    **dict.fromkeys(STATISTICS, LinearPass.hold),
    **dict.fromkeys(CURVED, LinearPass.bend),
    **dict.fromkeys(PRODUCTS, LinearPass.multiply),
    **dict.fromkeys(MATRICES, LinearPass.multiply_matrices),
    **dict.fromkeys(SUMS, LinearPass.add),
    **dict.fromkeys(JOINS, LinearPass.join),
    "embedding": LinearPass.embed,
    "conv1d": LinearPass.convolve,
    "conv2d": LinearPass.convolve,
    "layer_norm": LinearPass.hold_layer_norm,
    "rms_norm": LinearPass.hold_rms_norm,
    "softmax": LinearPass.soften,
    "linear": LinearPass.map,
    "addmm": LinearPass.map,
}
"""What becomes of a function's result, by the function's name."""


def hold_layer_norm(
    given: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    centred = given - given.mean(dims, keepdim=True)
    scale = (centred.detach().square().mean(dims, keepdim=True) + eps).rsqrt()
    found = centred * (scale if weight is None else scale * weight)
    return found if bias is None else found + bias


def hold_rms_norm(
    given: Tensor, shape: Any, weight: Any = None, eps: float | None = None
) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    square = given.detach().square().mean(dims, keepdim=True)
    scale = (square + (torch.finfo(given.dtype).eps if eps is None else eps)).rsqrt()
    return given * (scale if weight is None else scale * weight)


class Replay(LinearPass):
    """A second pass with the leaves of the first, those of a writer taken away, up to an attention.

    Norms are computed anew. Linear maps that reach the attention through leaves alone are skipped.
    """

    def __init__(
        self,
        model: Any,
        first: LinearPass,
        off: Sequence[Leaf],
        at: tuple[int, int],
        needed: Tensor,
    ):
        """`at` has the number of the attention, and the head of a writer that is one."""
        super().__init__(model)
        self.first, self.off, self.at = first, off, at
        with torch.enable_grad():
            slopes = torch.autograd.grad(
                needed.sum(), first.maps, retain_graph=True, allow_unused=True
            )
        self.idle = [slope is None for slope in slopes]

    def _map(self, func: Any, args: Any, kwargs: Any) -> Any:
        number = len(self.maps)
        if self.idle[number]:
            return torch.empty_like(self.first.maps[number]).requires_grad_()
        return func(*args, **kwargs)

    def _continue_with(self, made: Tensor) -> Tensor:
        known = self.first.leaves[len(self.leaves) - 1]
        if not any(known is one for one in self.off):
            return known.value
        value = known.value.detach().clone()
        if known.call is None:
            value.zero_()
        else:
            flatten_heads(value)[self.at[1]] = 0
        return value.requires_grad_()

    def begin(self, call: AttentionScores) -> None:
        """The attention that is wanted ends the pass."""
        super().begin(call)
        if len(self.calls) > self.at[0]:
            raise StopForward


class RecordedText:
    """A text that a transformers model has read; fulfils `attnviz.core.writers.WrittenText`.

    `spell` names what the logits choose from; None: they are of no trained head.
    """

    def __init__(self, asked: EagerInputs, spell: Callable[[int], str] | None = str) -> None:
        self.asked = replace(asked, part=copy_modules(asked.part))
        self.part, self.spell = self.asked.part, spell or str
        self.biases = []
        for name, one in self.part.named_parameters():
            one.requires_grad_(name.endswith("bias"))
            self.biases += [one] if one.requires_grad else []
        self.recording = LinearPass(self.part)
        with self.recording.watch(self.part, asked.what):
            output, self.attention, _ = run_eager(self.asked)
        logits = getattr(output, "logits", None) if spell else None
        self._output: Any = None if logits is None else logits.reshape(-1, logits.shape[-1])
        self._arrived: tuple[int, dict[int, Tensor]] = -1, {}  # heads' parts of a layer's input
        self._sides: tuple[int, tuple[int, ...], dict[Side, list[Tensor]]] | None = None
        self._calls = self._name_calls()
        self.writers, self.of_leaf = self._name_writers()

    def _name_calls(self) -> dict[tuple[str, str], int]:
        """The number of the attention of each stream and layer."""
        encoded = self.asked.encoded
        found: dict[tuple[str, str], int] = {}
        done = [n for n, one in enumerate(self.recording.calls) if one.value is not None]
        for stream in encoded.axes:
            own = [
                n
                for n in done
                if match_stream(stream_of(self.recording.calls[n].path), encoded.axes) == stream
            ]
            paths = [self.recording.calls[n].path for n in own]
            names = layer_names(paths, attending_layers(self.part.config))
            # The weights decide whether a stream is "self" or "causal".
            shown = self.attention.main.stream if len(encoded.axes) == 1 else stream
            found |= {(shown, name): n for name, n in zip(names, own, strict=True)}
        known = {(item.stream, layer) for item in self.attention.maps for layer in item.layers}
        if known != set(found):
            raise AttentionError(
                f"architecture '{self.asked.kind}' attends in a way that cannot be taken apart"
            )
        return found

    def _name_writers(self) -> tuple[tuple[Writer, ...], list[int]]:
        """Every writer, and the first of each leaf's."""
        of_call = {n: place for place, n in self._calls.items()}
        main = self.attention.main.stream
        writers, first = [Writer("bias", main)], list[int]()
        numbers, layer, calls = dict[Writer, int](), "", self.recording.calls
        shared = len({one.path for one in calls}) < len(calls)  # ALBERT has one module for all
        for leaf in self.recording.leaves:
            if leaf.call is not None and leaf.call in of_call:
                stream, layer = of_call[leaf.call]
                first.append(len(writers))
                heads = flatten_heads(leaf.value).shape[0]
                writers += [Writer("head", stream, layer, head) for head in range(heads)]
                continue
            sides = [one for one in self.asked.encoded.axes if one != "cross"]
            side = match_stream(stream_of(leaf.layer), sides) if len(sides) > 1 else main
            digits = (part for part in reversed(leaf.layer.split(".")) if part.isdigit())
            number = layer if shared and leaf.layer else next(digits, "")
            writer = Writer(leaf.kind, side or main, number)
            if writer not in numbers:
                numbers[writer] = len(writers)
                writers.append(writer)
            first.append(numbers[writer])
        return tuple(writers), first

    def _call(self, at: HeadAt) -> AttentionScores:
        return self.recording.calls[self._calls[at.stream, at.layer]]

    def sides(self, at: HeadAt) -> HeadSides:
        call = self._call(at)
        cap = None
        if call.capped is None:
            factor = slope_of(call.before, call.product)
        else:
            reads, gives = call.capped
            cap = slope_of(call.before, gives)
            factor = slope_of(reads, call.product) * cap
        query, key, value = (
            as_array(of_head(one, at.head, call)) for one in (call.query, call.key, call.value)
        )
        keys = key.shape[0]
        shown = as_array(flatten_heads(call.before)[at.head])
        plain = factor * query @ key.T
        capped = plain if cap is None else cap * np.tanh(plain / cap)
        offset = shown[:, :keys] - capped
        visible = offset > HIDDEN
        level = np.where(visible, offset, -np.inf).max(axis=-1, keepdims=True)
        position = np.where(visible, offset - level, 0)
        sink = shown[:, keys:] - level if shown.shape[1] > keys else None
        close = 1e-5 * max(1.0, float(np.abs(plain).max()))
        moved = None if np.abs(position).max() <= close else position
        return HeadSides(query, key, value, factor, visible, position=moved, cap=cap, sink=sink)

    def _read(self, scalar: Any) -> NDArray[np.float64]:
        """Each writer's part of a number that is linear in all of them."""
        leaves = [leaf.value for leaf in self.recording.leaves]
        slopes = torch.autograd.grad(
            scalar, [*leaves, *self.biases], retain_graph=True, allow_unused=True
        )
        found = np.zeros(len(self.writers))
        for leaf, first, slope in zip(self.recording.leaves, self.of_leaf, slopes, strict=False):
            if slope is None:
                continue
            product = slope.detach() * leaf.value.detach()
            if leaf.call is None:
                found[first] += float(product.double().sum())
            else:
                sums = as_array(flatten_heads(product).double().sum((1, 2)))
                found[first : first + len(sums)] += sums
        for bias, slope in zip(self.biases, slopes[len(leaves) :], strict=True):
            if slope is not None:
                found[0] += float((slope * bias.detach()).double().sum())
        return found

    def _side(self, at: HeadAt, side: Side) -> Any:
        call = self._call(at)
        return of_head(getattr(call, side), at.head, call)

    def read(self, at: HeadAt, side: Side, direction: NDArray[Any]) -> NDArray[np.float64]:
        with torch.enable_grad():
            given = self._side(at, side)
            return self._read((given * torch.as_tensor(direction).to(given)).sum())

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[NDArray[Any]]:
        call = self.recording.calls[self._calls[stream, layer]]
        with torch.enable_grad():
            whole = flatten_heads(getattr(call, side))
        repeats = len(flatten_heads(call.product)) // len(whole)
        if call.stream is None or len(writers) < len(flatten_heads(call.product)):
            found: Any = self._follow(whole, writers)
        else:
            found = self._sides_of(self._calls[stream, layer], writers)[side]
        yield from (as_array(one).repeat(repeats, 0) for one in found)

    def _sides_of(self, number: int, writers: Sequence[int]) -> dict[Side, list[Tensor]]:
        """Each writer's part of the three sides of an attention.

        All go through the layer's maps together, from their parts of the layer's input. Only those
        that also reach a side elsewhere (a decoder's keys) are followed from where they wrote.
        """
        if self._sides is not None and self._sides[:2] == (number, tuple(writers)):
            return self._sides[2]
        call = self.recording.calls[number]
        stream = call.stream or 0
        if self._arrived[0] > stream:
            self._arrived = -1, {}
        for one in range(self._arrived[0] + 1, stream + 1):
            heads = self._heads_before(one)
            (parts,) = self._pass_on([self.recording.streams[one][1]], one - 1, heads)
            self._arrived = one, dict(zip(heads, parts, strict=True))
        with torch.enable_grad():
            targets = [flatten_heads(getattr(call, side)) for side in SIDES]
        found = dict(zip(SIDES, self._pass_on(targets, stream, writers), strict=True))
        self._sides = number, tuple(writers), found
        return found

    def _heads_before(self, stream: int) -> list[int]:
        """The heads that wrote before a layer's input."""
        count = self.recording.streams[stream][0]
        first = [(self.of_leaf[n], self.recording.leaves[n]) for n in range(count)]
        return [
            start + head
            for start, leaf in first
            if leaf.call is not None and self.writers[start].kind == "head"
            for head in range(len(flatten_heads(leaf.value)))
        ]

    def _pass_on(
        self, targets: Sequence[Tensor], stream: int, writers: Sequence[int]
    ) -> list[list[Tensor]]:
        """Each writer's part of some tensors, through the layer's input where possible."""
        known = self._arrived[1]
        routed = [
            {*known} & self._through(target, stream) if stream >= 0 else set() for target in targets
        ]
        together = all(one == routed[0] for one in routed)
        if len(targets) > 1 and not together:
            return [self._pass_on([target], stream, writers)[0] for target in targets]
        through = [writer for writer in writers if writer in routed[0]]
        pushed = self._push(targets, stream, [known[writer] for writer in through])
        others = [writer for writer in writers if writer not in routed[0]]
        found = []
        for target, own in zip(targets, pushed, strict=True):
            parts = dict(zip(through, own, strict=True))
            parts |= zip(others, self._follow(target, others), strict=True)
            found.append([parts[writer] for writer in writers])
        return found

    def _push(
        self, targets: Sequence[Tensor], stream: int, parts: Sequence[Tensor]
    ) -> list[Sequence[Tensor]]:
        """Parts of a layer's input, mapped to tensors that are linear in it."""
        if not parts:
            return [() for _ in targets]
        with torch.enable_grad():
            asks = [torch.zeros_like(target, requires_grad=True) for target in targets]
            given = self.recording.streams[stream][1]
            keep: Any = {"retain_graph": True, "create_graph": True, "allow_unused": True}
            (slope,) = torch.autograd.grad(targets, given, asks, **keep)
            if slope is None:
                return [list(torch.zeros((len(parts), *target.shape))) for target in targets]
            # The gradient of the gradient maps all parts at once, as the layer maps the stream.
            found = torch.autograd.grad(
                *(slope, asks, torch.stack(list(parts))), retain_graph=True, is_grads_batched=True
            )
        return [list(one.detach()) for one in found]

    def _through(self, target: Tensor, stream: int) -> set[int]:
        """The writers that reach a tensor only through a layer's input, by a random gradient."""
        count, given = self.recording.streams[stream]
        leaves = [leaf.value for leaf in self.recording.leaves[:count]]
        drawn = torch.Generator(target.device).manual_seed(0)
        ask = torch.rand(target.shape, generator=drawn, device=target.device, dtype=target.dtype)
        how: Any = {"retain_graph": True, "allow_unused": True}
        direct = torch.autograd.grad(target, leaves, ask, **how)
        (slope,) = torch.autograd.grad(target, given, ask, **how)
        through = (
            [None] * count if slope is None else torch.autograd.grad(given, leaves, slope, **how)
        )
        found = set[int]()
        for leaf, first, one, other in zip(
            self.recording.leaves, self.of_leaf, direct, through, strict=False
        ):
            if (one is None) == (other is None) and (
                one is None or torch.allclose(one, other, 1e-3, 1e-5 * float(one.abs().max()))
            ):
                found |= set(
                    range(
                        first, first + (1 if leaf.call is None else len(flatten_heads(leaf.value)))
                    )
                )
        return found

    def _follow(self, whole: Any, writers: Sequence[int]) -> Iterator[Any]:
        """Each writer's part of a tensor that is linear in all of them, by double backward."""
        leaves = [*(leaf.value for leaf in self.recording.leaves), *self.biases]
        with torch.enable_grad():
            ask = torch.zeros_like(whole, requires_grad=True)
            slopes = torch.autograd.grad(
                whole, leaves, ask, retain_graph=True, create_graph=True, allow_unused=True
            )
            # Writers of one leaf share a backward path; other leaves' writers would only add work.
            for _, some in groupby(writers, self._leaf_number):
                total = torch.stack([self._total(writer, slopes, whole) for writer in some])
                if not total.requires_grad:
                    yield from torch.zeros((len(total), *whole.shape))
                    continue
                each = torch.eye(len(total), dtype=total.dtype, device=total.device)
                yield from torch.autograd.grad(
                    total, ask, each, retain_graph=True, is_grads_batched=True
                )[0]

    def _leaf_number(self, writer: int) -> tuple[str, str, str]:
        """The kind, stream and layer of a writer, which its leaves share."""
        one = self.writers[writer]
        return one.kind, one.stream, one.layer

    def _total(self, writer: int, slopes: Sequence[Any], whole: Tensor) -> Tensor:
        """The sum of a writer's leaves times their gradients."""
        found = whole.new_zeros(())
        for slope, value in self._parts_of(writer, slopes):
            if slope is not None:
                found = found + (slope * value.detach()).sum()
        return found

    def _parts_of(self, writer: int, slopes: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The gradients by a writer's leaves, with the leaves."""
        leaves = self.recording.leaves
        if writer == 0:
            yield from zip(slopes[len(leaves) :], self.biases, strict=True)
        for leaf, first, slope in zip(leaves, self.of_leaf, slopes, strict=False):
            if leaf.call is None and first == writer:
                yield slope, leaf.value
            elif leaf.call is not None and slope is not None:
                own = slice(writer - first, writer - first + 1) if writer >= first else slice(0)
                yield flatten_heads(slope)[own], flatten_heads(leaf.value)[own]

    def without(self, at: HeadAt, side: Side, writer: int) -> NDArray[Any]:
        off, head = [], 0
        for leaf, first in zip(self.recording.leaves, self.of_leaf, strict=True):
            count = 1 if leaf.call is None else len(flatten_heads(leaf.value))
            if 0 <= writer - first < count:
                off.append(leaf)
                head = writer - first
        number = self._calls[at.stream, at.layer]
        needed = getattr(self.recording.calls[number], side)
        replay = Replay(self.part, self.recording, off, (number, head), needed)
        with suppress(StopForward), replay.watch(self.part, self.asked.what):
            self.part(**{**self.asked.inputs, "use_cache": False})
        call = replay.calls[number]
        return as_array(of_head(getattr(call, side), at.head, call))

    def predicts(self, stream: str, row: int) -> bool:
        if self._output is None:
            return False
        # If there is a decoder, it makes the prediction.
        return len(self.asked.encoded.axes) == 1 or stream != "encoder"

    def _logits(self, row: int) -> Any:
        row = row if len(self._output) > 1 else 0
        whole, of_row = self.recording.head or (None, self._output.__getitem__)
        # With a large vocabulary, gradients of one row are much cheaper than those of all rows.
        if whole is not None and whole.ndim == 3 and whole.data_ptr() == self._output.data_ptr():
            return of_row(row)[0]
        return self._output[row]

    def argue(self, at: HeadAt, outputs: Mapping[int, NDArray[Any]]) -> NDArray[np.float64]:
        leaf = self._leaf_of(at)
        with torch.enable_grad():
            # A head's output at a row reaches the logits of this row alone.
            rows = outputs if len(self._output) > 1 else (0,)  # a class has one row
            whole = sum(self._logits(row) for row in rows)
            ask = torch.zeros_like(whole, requires_grad=True)
            (slope,) = torch.autograd.grad(
                whole, leaf, ask, retain_graph=True, create_graph=True, allow_unused=True
            )
            if slope is None:  # of another stream than the one that predicts
                return np.zeros(whole.shape[-1])
            own = flatten_heads(slope)[at.head]
            total = sum(
                (own[row] * torch.as_tensor(one).to(own)).sum() for row, one in outputs.items()
            )
            found = as_array(torch.autograd.grad(total, ask)[0]).astype(np.float64)
        logits: NDArray[np.float64] = found - found.mean()
        return logits

    def slopes(self, row: int, choice: int) -> dict[tuple[str, str], NDArray[np.float64]]:
        leaves = {place: self._leaf_of(HeadAt(*place, 0)) for place in self._calls}
        with torch.enable_grad():
            whole = self._logits(row)
            above = whole[choice] - whole.mean()
            keep: Any = {"retain_graph": True, "allow_unused": True}
            found = torch.autograd.grad(above, [*leaves.values()], **keep)
        return {
            place: as_array(flatten_heads(slope)[:, row]).astype(np.float64)
            for place, slope in zip(leaves, found, strict=True)
            if slope is not None and row < flatten_heads(slope).shape[1]
        }

    def _leaf_of(self, at: HeadAt) -> Any:
        number = self._calls[at.stream, at.layer]
        return next(leaf.value for leaf in self.recording.leaves if leaf.call == number)

    def logits(self, row: int) -> NDArray[np.float64]:
        return as_array(self._logits(row)).astype(np.float64)

    def layer_logits(self, row: int) -> Sequence[NDArray[np.float64]]:
        sides = [one for one in self.asked.encoded.axes if one != "cross"]
        names = {id(module): name for name, module in self.part.named_modules()}
        own = [
            one
            for one in layers_of(self.part)
            if len(sides) == 1 or match_stream(stream_of(names[id(one)]), sides) == "decoder"
        ]
        streams = list[Any]()
        kept: list[Any] = []

        def begin(_: Any, inputs: tuple[Any, ...], named: Any) -> None:
            streams.append(inputs[0] if inputs else named["hidden_states"])

        def end(_: Any, __: Any, output: Any) -> None:
            kept.append(output)

        inputs = {**self.asked.inputs, "use_cache": False}
        with running_errors(self.part, self.asked.what), torch.no_grad(), ExitStack() as hooks:
            for module in own:
                before = module.register_forward_pre_hook(thread_hook(begin), with_kwargs=True)
                hooks.callback(before.remove)
            hooks.callback(own[-1].register_forward_hook(thread_hook(end)).remove)
            self.part(**inputs)
        last = kept[0][0] if isinstance(kept[0], tuple) else kept[0]
        found: list[NDArray[np.float64]] = []
        for stream in (*streams, last):
            shown = (stream, *kept[0][1:]) if isinstance(kept[0], tuple) else stream
            with running_errors(self.part, self.asked.what), torch.no_grad(), ExitStack() as skips:
                for module in own:
                    skips.enter_context(skip_module(module, shown))
                logits = self.part(**inputs).logits
            found.append(
                as_array(logits.reshape(-1, logits.shape[-1])[row if logits.ndim > 2 else 0])
            )
        return [one.astype(np.float64) for one in found]

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        with torch.enable_grad():
            whole = self._logits(row)
            return self._read(whole[choice] - whole.mean())


def flatten_heads(one: Any) -> Any:
    """A tensor of one text as (heads, positions, size)."""
    return one.reshape(-1, *one.shape[-2:])


def of_head(one: Any, head: int, call: AttentionScores) -> Any:
    """A head's part of a side (heads or groups of them, positions, size)."""
    found = flatten_heads(one)
    return found[head * len(found) // len(flatten_heads(call.product))]


def slope_of(after: Any, before: Any) -> float:
    """The factor between a tensor and another that is a linear function of it.

    Raises:
        AttentionError: one does not lead to the other.
    """
    slope = None
    if after is not None and after.requires_grad:
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(
                after[(0,) * after.ndim], before, retain_graph=True, allow_unused=True
            )
    if slope is None:
        raise AttentionError("scores become weights in a way that cannot be taken apart")
    return float(slope[(0,) * slope.ndim])


def as_array(one: Any) -> NDArray[Any]:
    """A tensor's numbers, of half precision as float32."""
    found: NDArray[Any] = (one.detach().float() if one.itemsize < 4 else one.detach()).cpu().numpy()
    return found
