"""A linearised forward pass of a transformers model, and its replay without one writer.

The statistics of norms and the weights of attention are held at their values. The result of what
is still not linear (an activation, a product of two numbers that depend on the text) and each
head's output are leaves: all that follows is a linear function of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from attnviz.core.locks import thread_hook
from attnviz.core.records import dataclass
from attnviz.core.writers import WriterKind
from attnviz.features.experiments.layer_states import layers_of, map_tensors
from attnviz.models.hugging_face.capture.passes import StopForward
from attnviz.models.hugging_face.load.devices import running_errors

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


@dataclass(slots=True, eq=False)
class Leaf:
    """A tensor; everything after it is a linear function of it."""

    value: Tensor
    kind: WriterKind
    layer: str  # the path of the layer, or empty
    call: int | None = None  # of an attention, by number

    @property
    def count(self) -> int:
        """How many writers it has: one, or the heads of its attention."""
        return 1 if self.call is None else len(flatten_heads(self.value))


@dataclass(slots=True, eq=False)
class AttentionScores:
    """One attention of the pass, as it comes about."""

    path: str
    query: Tensor  # (…, queries, head size)
    key: Tensor
    product: Tensor  # of both, which what follows is linear in
    before: Any = None  # what softmax reads
    cap: tuple[Tensor, Tensor] | None = None  # what a cap's tanh reads, and what it gives
    value: Any = None
    stream: int | None = None  # the input of its layer, by number
    layer: str = ""  # the path of its layer


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
    """Sees every function of a pass, and linearises it at the numbers of this text.

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
                hooks.enter_context(module.register_forward_pre_hook(thread_hook(self._enter)))
                hooks.enter_context(module.register_forward_hook(thread_hook(self._leave)))
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
        replacement = self.cut(output) if own and self.places.layer else None
        self.places.stack.pop()
        return replacement

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
        result = func(*args, **kwargs)
        return result if self.places.begun else self.cut(result)

    def join(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A class token before patches, outside of the layers."""
        if self.places.layer or not any(map(is_live, args[0])):
            return func(*args, **kwargs)
        return func([self._free(one) for one in args[0]], *args[1:], **kwargs)

    def map(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A linear map; applied to a feed-forward part's leaf, its result becomes the leaf."""
        inputs = args[1] if func.__name__ == "addmm" else args[0]
        if not self.places.layer or not is_live(inputs):
            result = func(*args, **kwargs)
            if self._in_head:
                self.head = result, lambda row: func(inputs[:, row], *args[1:], **kwargs)
            return result
        result = self._map(func, args, kwargs)
        self.maps.append(result)
        last = self.leaves[-1] if self.leaves else None
        inner = last is not None and last.kind == "feed-forward" and last.layer == self.places.layer
        return self.cut(result) if inner and inputs.data_ptr() == self._last.data_ptr() else result

    def _map(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def add(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Positions that are no table's rows, outside of the layers."""
        if not self.places.layer and sum(map(is_live, args)) == 1:
            args = [self._free(one) for one in args]
        return func(*args, **kwargs)

    def hold_norm(self, func: Any, args: Any, kwargs: Any) -> Any:
        hold = hold_layer_norm if func.__name__ == "layer_norm" else hold_rms_norm
        return (hold if is_live(args[0]) else func)(*args, **kwargs)

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
        result = func(*args, **kwargs)
        call = self.calls[-1] if self.calls else None
        if name == "tanh" and call is not None and call.before is None:
            result = result.detach().requires_grad_()
            call.cap = args[0], result
            return result
        return self.cut(result) if is_live(result) and not self._in_head else result

    def multiply(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A product; of two live tensors it is not linear, so it becomes a leaf."""
        result = func(*args, **kwargs)
        return self.cut(result) if sum(map(is_live, args)) > 1 and not self._in_head else result

    @property
    def _in_head(self) -> bool:
        """Whether the model's output head runs: there only the slope at this point counts."""
        return self.places.begun and not self.places.layer

    def cut(self, value: Tensor, call: int | None = None, kind: WriterKind | None = None) -> Tensor:
        """A new leaf with the value of a result."""
        layer = self.places.layer
        usual: WriterKind = "head" if call is not None else "feed-forward"
        leaf = value.detach().clone().requires_grad_()
        self.leaves.append(Leaf(leaf, kind or (usual if layer else "embedding"), layer, call))
        continuation = self._continue_with(leaf) + 0  # a copy, since a model may add to it in place
        self._last = continuation
        return continuation

    def _continue_with(self, leaf: Tensor) -> Tensor:
        """The tensor with which the pass continues after a leaf."""
        return leaf

    def _free(self, one: Any) -> Any:
        """A constant added to a stream outside of the layers, usually positions: a leaf."""
        tensor = isinstance(one, torch.Tensor) and one.is_floating_point() and one.ndim > 1
        return self.cut(one, kind="position") if tensor and not is_live(one) else one

    def multiply_matrices(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The scores of an attention, a head's output, or a linear map."""
        adds = func.__name__ == "baddbmm"
        first, second = (args[1:] or (kwargs["batch1"], kwargs["batch2"])) if adds else args[:2]
        if is_live(first) and is_live(second) and not self._in_head:
            product = self._multiply(first.detach(), second.detach()).requires_grad_()
            self.begin(AttentionScores(self.places.path, first, second.mT, product))
            if adds:
                return args[0] * kwargs.get("beta", 1) + product * kwargs.get("alpha", 1)
            return product + 0
        result = func(*args, **kwargs)
        call = self.calls[-1] if self.calls else None
        if call is None or call.before is None or call.value is not None or not is_live(second):
            return result
        if first.shape[-2:] != call.product.shape[-2:]:
            return result
        call.value = second
        return self.cut(result, call=len(self.calls) - 1)

    def _multiply(self, first: Tensor, second: Tensor) -> Tensor:
        return first @ second

    def begin(self, call: AttentionScores) -> None:
        """An attention begins."""
        call.stream = len(self.streams) - 1 if self.streams else None
        call.layer = self.places.layer
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
    **dict.fromkeys(("layer_norm", "rms_norm"), LinearPass.hold_norm),
    "softmax": LinearPass.soften,
    "linear": LinearPass.map,
    "addmm": LinearPass.map,
}
"""What becomes of a function's result, by the function's name."""


def hold_layer_norm(
    values: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    deviations = values - values.mean(dims, keepdim=True)
    scale = (deviations.detach().square().mean(dims, keepdim=True) + eps).rsqrt()
    result = deviations * (scale if weight is None else scale * weight)
    return result if bias is None else result + bias


def hold_rms_norm(
    values: Tensor, shape: Any, weight: Any = None, eps: float | None = None
) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    square = values.detach().square().mean(dims, keepdim=True)
    scale = (square + (torch.finfo(values.dtype).eps if eps is None else eps)).rsqrt()
    return values * (scale if weight is None else scale * weight)


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
        target: Tensor,
    ):
        """`at`: the number of the attention, and the writer's head if it is one."""
        super().__init__(model)
        self.first, self.off, self.at = first, off, at
        with torch.enable_grad():
            live = [one for one in first.maps if is_live(one)]  # an indexer's have no gradient
            slopes = iter(slopes_by(target.sum(), live) if live else ())
            self.idle = [is_live(one) and next(slopes) is None for one in first.maps]

    def _map(self, func: Any, args: Any, kwargs: Any) -> Any:
        number = len(self.maps)
        if self.idle[number]:  # its values still choose experts, and so the leaves that follow
            return self.first.maps[number].detach().requires_grad_() + 0
        return func(*args, **kwargs)

    def _continue_with(self, leaf: Tensor) -> Tensor:
        original = self.first.leaves[len(self.leaves) - 1]
        if not any(original is one for one in self.off):
            return original.value
        value = original.value.detach().clone()
        if original.call is None:
            value.zero_()
        else:
            flatten_heads(value)[self.at[1]] = 0
        return value.requires_grad_()

    def _multiply(self, first: Tensor, second: Tensor) -> Tensor:
        original = self.first.calls[len(self.calls)]
        if original.before is not None:
            return first @ second
        is_off = any(original.product is one.value for one in self.off)
        return torch.zeros_like(original.product) if is_off else original.product.detach() + 0

    def begin(self, call: AttentionScores) -> None:
        """The attention that is wanted ends the pass."""
        super().begin(call)
        if len(self.calls) > self.at[0]:
            raise StopForward


def slopes_by(output: Any, inputs: Any, ask: Any = None, **how: Any) -> tuple[Any, ...]:
    """An output's gradients by tensors of its graph, which stays; None: none leads to it."""
    how |= {"retain_graph": True, "allow_unused": True}
    return tuple(torch.autograd.grad(output, inputs, ask, **how))


def flatten_heads(one: Any) -> Any:
    """A tensor of one text as (heads, positions, size)."""
    return one.reshape(-1, *one.shape[-2:])
