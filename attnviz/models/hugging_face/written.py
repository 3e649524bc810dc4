"""What each head and block of a transformers model writes, for any family, by one eager pass.

The pass is made linear around itself: a norm keeps its statistics, and whatever is not linear (an
activation, a product of two numbers that depend on the text, a head's weighted values) gives a
leaf. The gradient of a query, a key or a logit by a leaf, times the leaf, is that leaf's part; the
parts sum to the whole, or the model is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

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
from attnviz.models.hugging_face.interventions import layers_of, map_tensors
from attnviz.models.hugging_face.load.model_errors import running_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONSTANT = {
    *("rsqrt", "sqrt", "var", "std", "norm", "max", "amax", "reciprocal", "var_mean", "vector_norm"),
    *("topk", "sort", "argmax", "logsumexp"),
}
"""Functions whose results are held at their values."""
NONLINEAR = {
    *("gelu", "silu", "relu", "tanh", "sigmoid", "exp", "erf", "softplus", "mish", "elu", "pow"),
    *("square", "leaky_relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "prelu", "selu"),
    *("log", "log1p", "abs", "glu", "clamp", "sin", "cos", "quick_gelu", "logsigmoid", "__pow__"),
    *("celu", "clip", "addcmul", "log_softmax", "gelu_", "relu_", "silu_", "__rpow__"),
}
"""Functions of one input that give a leaf."""
PRODUCTS = {"mul", "__mul__", "__rmul__", "mul_", "__imul__", "div", "__truediv__", "multiply"}
SUMS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
MATRICES = {"matmul", "__matmul__", "bmm", "baddbmm", "einsum"}
JOINS = {"cat", "concat", "concatenate"}
HIDDEN = -1e9
"""An offset below this hides a key."""


@dataclass(slots=True, eq=False)
class Leaf:
    """A tensor that what follows is linear in."""

    value: Any
    kind: WriterKind
    layer: str  # the path of the layer, or empty
    call: int | None = None  # of an attention, by number


@dataclass(slots=True, eq=False)
class Scores:
    """One attention of the pass, as it comes about."""

    path: str
    query: Any  # (heads, queries, head size), live
    key: Any
    product: Any  # of both, a leaf of its own
    value: Any = None
    before: Any = None  # what softmax reads
    capped: tuple[Any, Any] | None = None  # what a cap's tanh reads, and what it gives
    shape: tuple[int, int] = (0, 0)


@dataclass(slots=True, eq=False)
class Recording:
    """All leaves and attentions of a pass, in order."""

    leaves: list[Leaf] = field(default_factory=list)
    calls: list[Scores] = field(default_factory=list)


def _mode(recording: Recording, where: _Places, replay: _Replay | None = None) -> Any:
    """The function mode that makes a pass linear, or that repeats it with a leaf taken away."""
    import torch
    from torch.overrides import TorchFunctionMode

    pending: list[Scores] = []

    def live(one: Any) -> bool:
        return isinstance(one, torch.Tensor) and one.requires_grad and one.is_floating_point()

    def leaf(value: Any, call: int | None = None, kind: WriterKind | None = None) -> Any:
        made = value.detach().clone().requires_grad_()
        layer = where.layer
        usual: WriterKind = "head" if call is not None else "feed-forward"
        kind = kind or (usual if layer else "embedding")
        recording.leaves.append(Leaf(made, kind, layer, call))
        # A copy, since a model may add to it in place.
        return (made if replay is None else replay.take(made)) + 0

    def flat(one: Any) -> Any:  # (heads, positions, size)
        return one.reshape(-1, *one.shape[-2:])

    class Linear(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs, name = kwargs or {}, func.__name__
            if name == "layer_norm" and replay is None:
                return self.hold_layer_norm(*args, **kwargs)
            if name == "rms_norm" and replay is None:
                return self.hold_rms_norm(*args, **kwargs)
            if name == "embedding":
                own = where.path.rpartition(".")[2]
                kind = "position" if "pos" in own or own == "wpe" else "embedding"
                return leaf(func(*args, **kwargs), kind=kind)  # type: ignore[arg-type]
            if name in ("conv1d", "conv2d") and not where.begun:
                return leaf(func(*args, **kwargs))
            lives = sum(map(live, args)) + sum(map(live, kwargs.values()))
            if name in JOINS and not where.layer and any(map(live, args[0])):
                return func([self.free(one) for one in args[0]], *args[1:], **kwargs)
            if not lives:
                return func(*args, **kwargs)
            outside = where.begun and not where.layer
            if name == "softmax":
                return self.soften(func, args, kwargs)
            constant = name in CONSTANT or (name in ("pow", "__pow__") and _falls(args))
            if constant and replay is None:
                return map_tensors(func(*args, **kwargs), lambda one: one.detach())
            if not where.layer and name in SUMS and lives == 1:
                args = [self.free(one) for one in args]
            curved = name in NONLINEAR and not constant
            both = lives > 1 and name in PRODUCTS | MATRICES
            if outside and (curved or both):  # a head's own: its slope counts
                return func(*args, **kwargs)
            if name in MATRICES:
                return self.multiply(func, args, kwargs, lives)
            if curved and name == "tanh" and pending and pending[-1].before is None:
                found = func(*args, **kwargs).detach().requires_grad_()
                pending[-1].capped = args[0], found
                return found
            if curved or both:
                return leaf(func(*args, **kwargs))
            return func(*args, **kwargs)

        def free(self, one: Any) -> Any:
            """A constant that is added before the first layer: positions, mostly."""
            tensor = isinstance(one, torch.Tensor) and one.is_floating_point() and one.ndim > 1
            return leaf(one, kind="position") if tensor and not live(one) else one

        def multiply(self, func: Any, args: Any, kwargs: Any, lives: int) -> Any:
            name = func.__name__
            pair = args[1:] if name == "baddbmm" else args
            if name == "einsum" or len(pair) != 2:
                found = func(*args, **kwargs)
                return leaf(found) if lives > 1 else found
            left, right = pair
            if live(left) and live(right):
                if where.layer and left.ndim > 2:
                    product = left.detach() @ right.detach()
                    made = product.requires_grad_()
                    call = Scores(where.path, flat(left), flat(right).mT, made)
                    call.shape = product.shape[-2:]
                    pending[:] = [call]
                    recording.calls.append(call)
                    if replay is not None:
                        replay.see(call)
                    if name == "baddbmm":
                        scale = kwargs.get("beta", 1), kwargs.get("alpha", 1)
                        return args[0] * scale[0] + made * scale[1]
                    return made + 0
                return leaf(func(*args, **kwargs))
            found = func(*args, **kwargs)
            call = pending[-1] if pending else None
            fits = call is not None and call.before is not None and call.value is None
            if call is not None and fits and tuple(left.shape[-2:]) == tuple(call.shape):
                call.value = flat(right)
                return leaf(found, call=len(recording.calls) - 1)
            return found

        def soften(self, func: Any, args: Any, kwargs: Any) -> Any:
            if pending and pending[-1].before is None:
                pending[-1].before = args[0]
            return func(*args, **kwargs).detach()

        def hold_layer_norm(
            self, given: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
        ) -> Any:
            dims = tuple(range(-len(shape), 0))
            centred = given - given.mean(dims, keepdim=True)
            scale = (centred.detach().square().mean(dims, keepdim=True) + eps).rsqrt()
            found = centred * (scale if weight is None else scale * weight)
            return found if bias is None else found + bias

        def hold_rms_norm(
            self, given: Any, shape: Any, weight: Any = None, eps: float | None = None
        ) -> Any:
            dims = tuple(range(-len(shape), 0))
            square = given.detach().square().mean(dims, keepdim=True)
            scale = (square + (torch.finfo(given.dtype).eps if eps is None else eps)).rsqrt()
            return given * (scale if weight is None else scale * weight)

    return Linear()


def _falls(args: Sequence[Any]) -> bool:
    """Whether a power is that of a norm's statistics."""
    return len(args) > 1 and isinstance(args[1], float | int) and args[1] < 0


class _Places:
    """Where a pass is: the path of the module that runs, and of the layer around it."""

    def __init__(self, model: Any) -> None:
        names = {id(module): name for name, module in model.named_modules()}
        self.names = names
        self.layers = {names[id(one)] for one in layers_of(model)}
        self.stack: list[str] = []
        self.begun = False

    @property
    def path(self) -> str:
        """The path of the innermost module."""
        return self.stack[-1] if self.stack else ""

    @property
    def layer(self) -> str:
        """The path of the layer around it, or an empty text."""
        return next((one for one in self.stack if one in self.layers), "")

    def enter(self, module: Any, *_: Any) -> None:
        """A module begins."""
        name = self.names.get(id(module), self.path)
        self.begun |= name in self.layers
        self.stack.append(name)

    def leave(self, *_: Any) -> None:
        """The innermost module ends."""
        self.stack.pop()


class _Replay:
    """A second pass with the leaves of the first, one taken away, up to an attention."""

    def __init__(self, first: Recording, off: Leaf, head: int | None, call: int) -> None:
        self.first, self.off, self.head, self.call = first, off, head, call
        self.count = self.calls = 0
        self.found: Scores | None = None

    def take(self, _: Any) -> Any:
        """The leaf of this place in the first pass."""
        known = self.first.leaves[self.count]
        self.count += 1
        if known is not self.off:
            return known.value
        if self.head is None:
            return known.value * 0
        value = known.value.detach().clone()
        value.reshape(-1, *value.shape[-2:])[self.head] = 0
        return value.requires_grad_()

    def see(self, call: Scores) -> None:
        """An attention; the one that is wanted ends the pass."""
        if self.calls == self.call:
            self.found = call
            raise StopForward
        self.calls += 1


class RecordedText:
    """A text that a transformers model has read; fulfils `attnviz.core.writers.WrittenText`.

    `spell` names what the logits choose from; without a head it predicts nothing.
    """

    def __init__(self, asked: EagerInputs, spell: Callable[[int], str] = str) -> None:
        import torch

        self.asked = replace(asked, part=copy_modules(asked.part))
        self.part, self.spell = self.asked.part, spell
        self.biases = []
        for name, one in self.part.named_parameters():
            one.requires_grad_(name.endswith("bias"))
            self.biases += [one] if one.requires_grad else []
        self.recording, self.places = Recording(), _Places(self.part)
        with torch.enable_grad(), self._watched(_mode(self.recording, self.places)):
            output, self.attention, _ = run_eager(self.asked)
        logits = getattr(output, "logits", None)
        self._output = None if logits is None else logits.reshape(-1, logits.shape[-1])
        self._calls = self._name_calls()
        self.writers, self._of_leaf = self._name_writers()

    @contextmanager
    def _watched(self, mode: Any) -> Iterator[None]:
        with running_errors(self.part, self.asked.what), ExitStack() as hooks:
            for module in self.part.modules():
                for hook in (
                    module.register_forward_pre_hook(thread_hook(self.places.enter)),
                    module.register_forward_hook(thread_hook(self.places.leave)),
                ):
                    hooks.callback(hook.remove)
            hooks.enter_context(mode)
            yield

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
        streams = {self.recording.calls[n].path: place[0] for n, place in of_call.items()}
        main = self.attention.main.stream
        writers, first = [Writer("bias", main)], list[int]()
        numbers = dict[tuple[WriterKind, str, str], int]()
        for leaf in self.recording.leaves:
            if leaf.call is not None and leaf.call in of_call:
                stream, layer = of_call[leaf.call]
                first.append(len(writers))
                heads = _flat(leaf.value).shape[0]
                writers += [Writer("head", stream, layer, head) for head in range(heads)]
                continue
            side = stream_of(f"{leaf.layer}.x")
            stream = match_stream(side, [s for s in self.asked.encoded.axes if s != "cross"])
            layer = next((p for p in reversed(leaf.layer.split(".")) if p.isdigit()), "")
            key = leaf.kind, stream or main, layer
            if key not in numbers:
                numbers[key] = len(writers)
                writers.append(Writer(*key))
            first.append(numbers[key])
        del streams
        return tuple(writers), first

    def _call(self, at: HeadAt) -> Scores:
        return self.recording.calls[self._calls[at.stream, at.layer]]

    def sides(self, at: HeadAt) -> HeadSides:
        """The queries, keys and values of a head."""
        import torch

        call = self._call(at)
        cap, product, before = None, call.product, call.before
        factor = 1.0
        if call.capped is not None:
            reads, gives = call.capped
            cap = _slope(before, gives)
            factor, before = _slope(reads, product) * cap, None
        else:
            factor = _slope(before, product)
        query, key, value = (_numpy(_flat(one)[at.head]) for one in (call.query, call.key, call.value))
        queries, keys = call.shape
        shown = _numpy(_flat(call.before)[at.head])
        plain = factor * query @ key.T
        capped = plain if cap is None else cap * np.tanh(plain / cap)
        offset = shown[:, :keys] - capped
        visible = offset > HIDDEN
        level = np.where(visible, offset, -np.inf).max(axis=-1, keepdims=True)
        position = np.where(visible, offset - level, 0)
        sink = shown[:, keys:] - level if shown.shape[1] > keys else None
        del torch, queries
        close = 1e-5 * max(1.0, float(np.abs(plain).max()))
        return HeadSides(
            *(query, key, value, factor, visible),
            position=None if np.abs(position).max() <= close else position,
            cap=cap,
            sink=sink,
        )

    def _read(self, scalar: Any) -> NDArray[np.float64]:
        """Each writer's part of a number that is linear in all of them."""
        import torch

        leaves = [leaf.value for leaf in self.recording.leaves]
        slopes = torch.autograd.grad(
            scalar, [*leaves, *self.biases], retain_graph=True, allow_unused=True
        )
        found = np.zeros(len(self.writers))
        for leaf, first, slope in zip(self.recording.leaves, self._of_leaf, slopes, strict=False):
            if slope is None:
                continue
            product = slope.detach() * leaf.value.detach()
            if leaf.call is None:
                found[first] += float(product.double().sum())
            else:
                sums = _numpy(_flat(product).double().sum((1, 2)))
                found[first : first + len(sums)] += sums
        for bias, slope in zip(self.biases, slopes[len(leaves) :], strict=True):
            if slope is not None:
                found[0] += float((slope * bias.detach()).double().sum())
        return found

    def _side(self, at: HeadAt, side: Side) -> Any:
        return _flat(getattr(self._call(at), side))[at.head]

    def read(self, at: HeadAt, side: Side, direction: NDArray[Any]) -> NDArray[np.float64]:
        """The sum over positions of each writer's part of a side times a direction."""
        import torch

        given = self._side(at, side)
        with torch.enable_grad():
            return self._read((given * torch.as_tensor(direction).to(given)).sum())

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[NDArray[Any]]:
        """Each writer's part of a side of all heads, (heads, positions, head size)."""
        whole = _flat(getattr(self.recording.calls[self._calls[stream, layer]], side))
        yield from (_numpy(one) for one in self._follow(whole, writers))

    def _follow(self, whole: Any, writers: Sequence[int]) -> Iterator[Any]:
        """What each writer is in a tensor that is linear in all: the gradient's own gradient."""
        import torch

        leaves = [*(leaf.value for leaf in self.recording.leaves), *self.biases]
        with torch.enable_grad():
            ask = torch.zeros_like(whole, requires_grad=True)
            slopes = torch.autograd.grad(
                whole, leaves, ask, retain_graph=True, create_graph=True, allow_unused=True
            )
            for writer in writers:
                total = whole.new_zeros(())
                for slope, value, part in self._parts_of(writer, slopes):
                    total = total + (slope * value * part).sum()
                if total.requires_grad:
                    yield torch.autograd.grad(total, ask, retain_graph=True)[0]
                else:
                    yield torch.zeros_like(whole)

    def _parts_of(self, writer: int, slopes: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
        """The gradients by a writer's leaves, with these leaves and the share that is its own."""
        if writer == 0:
            for bias, slope in zip(self.biases, slopes[len(self.recording.leaves) :], strict=True):
                if slope is not None:
                    yield slope, bias.detach(), 1
        for leaf, first, slope in zip(self.recording.leaves, self._of_leaf, slopes, strict=False):
            if slope is None:
                continue
            if leaf.call is None and first == writer:
                yield slope, leaf.value.detach(), 1
            elif leaf.call is not None and 0 <= writer - first < len(_flat(leaf.value)):
                yield _flat(slope)[writer - first], _flat(leaf.value.detach())[writer - first], 1

    def without(self, at: HeadAt, side: Side, writer: int) -> NDArray[Any]:
        """A side if it cannot read a writer, every norm computed anew."""
        import torch

        leaf, head = next(
            (leaf, writer - first if leaf.call is not None else None)
            for leaf, first in zip(self.recording.leaves, self._of_leaf, strict=True)
            if 0 <= writer - first < (1 if leaf.call is None else len(_flat(leaf.value)))
        )
        replay = _Replay(self.recording, leaf, head, self._calls[at.stream, at.layer])
        self.places = _Places(self.part)
        mode = _mode(Recording(), self.places, replay)
        with suppress(StopForward), torch.enable_grad(), self._watched(mode):
            self.part(**self.asked.inputs, use_cache=False)
        assert replay.found is not None
        return _numpy(getattr(replay.found, side)[at.head])

    def predicts(self, stream: str, row: int) -> bool:
        """Whether the model reads logits off a row of a stream."""
        if self._output is None:
            return False
        # The decoder predicts, where there is one.
        return len(self.asked.encoded.axes) == 1 or stream != "encoder"

    def _logits(self, row: int) -> Any:
        return self._output[row if len(self._output) > 1 else 0]

    def argue(self, at: HeadAt, row: int, output: NDArray[Any]) -> NDArray[np.float64]:
        """What a head's output (head size,) at a row adds to the logits there, (choices,)."""
        import torch

        leaf = self._leaf_of(at)
        with torch.enable_grad():
            whole = self._logits(row)
            ask = torch.zeros_like(whole, requires_grad=True)
            (slope,) = torch.autograd.grad(whole, leaf, ask, retain_graph=True, create_graph=True)
            total = _flat(slope)[at.head, row] @ torch.as_tensor(output).to(slope)
            return _numpy(torch.autograd.grad(total, ask)[0]).astype(np.float64)

    def favour(self, at: HeadAt, row: int, choice: int) -> NDArray[np.float64]:
        """The direction of a head's output at a row that raises a choice over the mean of all."""
        import torch

        with torch.enable_grad():
            whole = self._logits(row)
            (slope,) = torch.autograd.grad(
                whole[choice] - whole.mean(), self._leaf_of(at), retain_graph=True
            )
        return _numpy(_flat(slope)[at.head, row]).astype(np.float64)

    def _leaf_of(self, at: HeadAt) -> Any:
        number = self._calls[at.stream, at.layer]
        return next(leaf.value for leaf in self.recording.leaves if leaf.call == number)

    def logits(self, stream: str, row: int) -> NDArray[np.float64]:
        """The logits at a row, (choices,)."""
        return _numpy(self._logits(row)).astype(np.float64)

    def logit_parts(self, stream: str, row: int, choice: int) -> NDArray[np.float64]:
        """What each writer adds to a choice's logit above the mean of all choices, (writers,)."""
        import torch

        with torch.enable_grad():
            whole = self._logits(row)
            return self._read(whole[choice] - whole.mean())


def _flat(one: Any) -> Any:
    """A tensor of one text as (heads, positions, size)."""
    return one.reshape(-1, *one.shape[-2:])


def _slope(after: Any, before: Any) -> float:
    """By what a number is multiplied between two tensors, where one is linear in the other."""
    import torch

    with torch.enable_grad():
        place = (0,) * after.ndim
        (slope,) = torch.autograd.grad(after[place], before, retain_graph=True)
    return float(slope[(0,) * slope.ndim])


def _numpy(one: Any) -> NDArray[Any]:
    found: NDArray[Any] = (one.detach().float() if one.itemsize < 4 else one.detach()).cpu().numpy()
    return found
