"""Reads every attention in a block of code as it runs, and changes nothing.

A mode sees torch functions; it belongs to the thread that entered it. Hooks on all modules tell
which module calls. What is read again is read without gradients, outside the mode and without
random numbers.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import wraps
from inspect import getattr_static
from math import nan
from threading import get_ident
from typing import Any
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from attnviz.analyses.entropy import peak
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import check_values
from attnviz.core.errors import AttentionError, UsageError, reason_of
from attnviz.core.records import dataclass, field, replace
from attnviz.features.observer import kernels, lineage, products
from attnviz.features.observer.lineage import TorchCall, Whole
from attnviz.features.observer.products import Mixture
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions, Strongest
from attnviz.models.hugging_face.capture.passes import CaptureSpec, read_call
from attnviz.models.hugging_face.capture.probe import exact_rows
from attnviz.models.hugging_face.capture.region import PooledGrid, Region, grids_of
from attnviz.models.hugging_face.capture.scores import CallScores

HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads")
"""What modules call the number of their heads."""

FUSED = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
"""The modules of torch that have a fused path, which hides the attention in it."""

MIXING = lineage.PRODUCTS | lineage.PROJECTIONS | {"add", "sub", "add_", "sub_"}
"""Functions that may mix the weights of several heads before they meet the values."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to keep.

    Attributes:
        only: patterns of module paths; none: every module.
        first, every: of each module's calls every N-th, and at most so many.
        calls: of these how many, spread from the first to the last, or which; None: all.
        batch: which item; None: every one.
        region: which part of each call's attention, and in how many blocks.
        most_bytes: of all maps together; further ones are only counted.
        scores: whether to measure scores before the softmax.
    """

    only: tuple[str, ...] = ()
    first: int | None = None
    every: int = 1
    calls: int | tuple[int, ...] | None = None
    batch: int | None = 0
    region: Region = field(default_factory=lambda: Region(max_size=1024))
    most_bytes: int = 2**31
    scores: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CapturedCall:
    """The attention of one call, of one item of its batch.

    Attributes:
        path: the module that called; `call` is the number of its call, from 1.
        sides: how many queries and keys there are.
        weights: shape (heads, query blocks, key blocks).
        skip: what does not count among the links.
        off: the largest difference between weights times values and the output; None: not compared.
        same_input: whether queries and keys were made of the same.
        had_dropout: whether dropout was active; the weights are those before it.
        part: which quarter of a joint sequence it is ("image-to-text"); "" where it is whole.
        scores: of each head, measures of its scores before the softmax, where they are known.
    """

    path: str
    sides: tuple[int, int]
    grid: PooledGrid
    weights: NDArray[np.float32]
    links: tuple[Strongest, ...]
    skip: IgnoredPositions
    off: float | None
    route: str
    same_input: bool
    had_dropout: bool
    dtype: str
    device: str
    call: int = 1
    item: int = 0
    part: str = ""
    scores: CallScores = field(default_factory=dict)


@dataclass(eq=False)
class WatchLog:
    """What was seen so far.

    Attributes:
        captures: the captured calls in order; `bytes` is what their weights take.
        calls: how many calls each module made, kept or not.
        failures: why a call could not be read, by the module that called.
        overflow: how many calls did not fit into the memory allowed.
        softmaxes: how many softmaxes there were, of any kind.
        refusals: softmaxes that are no attention between tokens, counted by the reason.
        unsure: how many calls had batch and heads in one axis, and no known number of heads.
        ran_compiled: whether compiled code ran, which cannot be seen.
    """

    captures: list[CapturedCall] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    overflow: int = 0
    softmaxes: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    unsure: int = 0
    ran_compiled: bool = False


def _aside(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that must not disturb what runs: it notes its errors instead of raising them."""

    @wraps(method)
    def observe_aside(self: AttentionObserver, *args: Any) -> Any:
        if torch.compiler.is_compiling() or get_ident() != self.thread:
            return None
        try:
            # Nothing can be derived from tensors of inference mode.
            with torch._C.DisableTorchFunction(), torch.inference_mode(mode=False), torch.no_grad():
                return method(self, *args)
        except Exception as error:
            self.note_failure(error)
            return None

    return observe_aside


class AttentionObserver(TorchFunctionMode):
    """Sees every torch function, and keeps the attention among them in `seen`."""

    def __init__(self, model: Any, request: WatchRequest) -> None:
        super().__init__()
        self.model, self.request, self.log = model, request, WatchLog()
        self.lineage = lineage.Lineage(keeps_scores=request.scores)
        self.thread = get_ident()
        self.modules = list[Any]()  # those that run, the innermost last
        self.arguments = list[Any]()  # their arguments
        self.plain = 0  # how deep in a pass that is not read
        # By id and a weak reference: a module's own __eq__ and __hash__ may do anything.
        self.names = dict[int, tuple[Any, str]]()
        self.roots = Counter[str]()
        self.strides = defaultdict[str, int](lambda: 1)
        # The latest call of each module that is not kept yet, and what reads it.
        self.latest = dict[str, tuple[Any, ...]]()
        if model is not None:
            self._add_names(model, "")

    @_aside
    def _add_names(self, module: Any, path: str) -> None:
        """Name a module and those in it by their paths, without calling any code of theirs."""
        module = vars(module)["_modules"].get("_orig_mod", module)  # what torch.compile was given
        if not self._name_of(module):
            self.names[id(module)] = ref(module), path or type(module).__name__
            for name, part in vars(module)["_modules"].items():
                if part is not None:
                    self._add_names(part, f"{path}.{name}" if path else name)

    def _name_of(self, module: Any) -> str:
        reference, name = self.names.get(id(module), (None, ""))
        return name if reference is not None and reference() is module else ""

    @_aside
    def enter(self, module: Any, arguments: Any) -> None:
        """A module begins."""
        if self.model is None and not self.modules and not self._name_of(module):
            kind = type(vars(module)["_modules"].get("_orig_mod", module)).__name__
            self._add_names(module, f"{kind}{self.roots[kind] or ''}")
            self.roots[kind] += 1
        self.modules.append(module)
        self.arguments.append(arguments)

    @_aside
    def leave(self, module: Any, _args: Any, _output: Any) -> None:
        """A module ends, whether it raised or not."""
        while self.modules and self.modules.pop() is not module:
            pass
        del self.arguments[len(self.modules) :]

    def _peak(self) -> float:
        """How far a coordinate stands out of the input of the innermost layer that runs."""
        for module, arguments in zip(reversed(self.modules), reversed(self.arguments), strict=True):
            if self._name_of(module).rpartition(".")[2].isdigit():
                inputs = next(lineage.tensors_in(arguments), None)
                return nan if inputs is None else peak(inputs.detach().float().cpu().numpy())
        return nan

    @property
    def path(self) -> str | None:
        """The innermost module with a path, which calls; None: it is not of the model."""
        names = map(self._name_of, reversed(self.modules))
        return next((name for name in names if name), "function" if self.model is None else None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            self.log.ran_compiled = True
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            # Under the mode, so that the attention in it is seen like any other.
            with self:
                return kernels.OPEN_MULTI_HEAD(*args, **kwargs)
        call = TorchCall(func, args, kwargs)
        call = (call.name in lineage.DROPOUTS and self._before_dropout(call)) or call
        result = func(*args, **kwargs)
        if self.plain == 0:
            self._look(call, result)
        return result

    @_aside
    def _look(self, call: TorchCall, result: Any) -> None:
        name = call.name
        mixture = None
        if name in lineage.PRODUCTS:
            mixture = products.mixture_of(self.lineage, call, result)
        if call.func is functional.scaled_dot_product_attention:
            self._keep_kernel(kernels.SDPA, call.func, call.args, call.kwargs, result)
        elif mixture is not None:
            self._keep_product(mixture)
        elif name in MIXING:
            marks = map(self.lineage.softmax, call.tensors())
            softmaxes = [mark for mark in marks if mark is not None and mark.same_input is not None]
            least = 1 if name in lineage.PRODUCTS | lineage.PROJECTIONS else 2
            if len(softmaxes) >= least:
                self._refuse(softmaxes[0].whole, products.MIXED)
        elif name in lineage.SOFTMAXES:
            self.log.softmaxes += 1
        self.lineage.add(call, result)
        if mixture is not None and not mixture.why:
            self.lineage.marks[result] = products.mark_mixture(self.lineage.of(result), mixture)

    def note_failure(self, error: Exception) -> None:
        """Note why something could not be read, once for each module that calls."""
        path = None
        with suppress(Exception):
            path = self.path
        self.log.failures[path or "function"] = reason_of(error)

    @_aside
    def _before_dropout(self, call: TorchCall) -> TorchCall:
        """The call of a dropout, with a copy of the weights that it is about to change in place."""
        args = call.args
        in_place = call.kwargs.get("inplace") is True or (len(args) > 3 and args[3] is True)
        in_place = in_place or call.name.endswith("_")
        if not in_place or not args or self.lineage.softmax(args[0]) is None:
            return call
        copy = args[0].clone()
        self.lineage.marks[copy] = self.lineage.of(args[0])
        return replace(call, args=(copy, *args[1:]))

    def run_kernel(
        self, kernel: kernels.Kernel, run: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Run a fused function that torch does not dispatch, and read it."""
        if torch.compiler.is_compiling() or get_ident() != self.thread:
            return run(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            result = run(*args, **kwargs)
        if not self.plain:
            self._keep_kernel(kernel, run, args, kwargs, result)
        return result

    @_aside
    def _keep_kernel(
        self, kernel: kernels.Kernel, run: Any, args: Any, kwargs: Any, output: Any
    ) -> None:
        arguments = dict(zip(kernel.parameters.split(), args, strict=False)) | kwargs
        product = output[0] if isinstance(output, tuple) else output
        call = kernels.KernelCall(kernel, run, arguments, product)
        query, key, _ = call.inputs
        facts = {
            "route": f"{run.__name__}, probed",
            "same_input": self.lineage.is_same_input(query, key),
            "had_dropout": call.dropout,
        }
        if turn := self._turn():
            self._read(turn, call.calls, facts)

    def _keep_product(self, mixture: Mixture) -> None:
        """Keep the weights that met values; all parts of one softmax make one map."""
        context = self.lineage.of(mixture.tensor).mixer
        if mixture.why == products.LINEAR and context is not None:
            self._forget(context)
            context.is_complete = False
            self._refuse(context, products.LINEAR)
        if mixture.softmax is None:
            return
        softmax, whole = mixture.softmax, mixture.softmax.whole
        if mixture.why:
            self._refuse(whole, mixture.why)
        if mixture.why or whole.is_complete:  # complete: the same weights met other values before
            return
        if whole.why:
            self.log.refusals[whole.why] -= 1
            whole.why = ""
        if mixture.part is not None and softmax.cells is None:  # which part it is, is not known
            whole.turn, whole.captures = None, []
        whole.turn = whole.turn or self._turn()
        whole.is_complete = whole.turn is None or mixture.part is None
        if whole.turn is None or (union := products.join_pieces(mixture, softmax)) is None:
            return
        facts = {
            "route": "softmax, as it met the values",
            "same_input": softmax.same_input,
            "had_dropout": union.dropout,
            "off": union.off,
        }
        heads = self._heads(union)
        self._forget(whole)
        whole.captures = self._read(whole.turn, lambda: union.calls(heads), facts)
        whole.scores = None if whole.is_complete else whole.scores

    def _refuse(self, whole: Whole, why: str) -> None:
        """Note that a softmax, unless its weights were kept, is no attention between tokens."""
        if self.path is not None and not (whole.is_complete or whole.captures or whole.why):
            whole.why = why
            self.log.refusals[why] += 1

    def _forget(self, whole: Whole) -> None:
        """Take back what was kept of a softmax."""
        for call in whole.captures:
            if call in self.log.captures:
                self.log.captures.remove(call)
                self.log.bytes -= call.weights.nbytes
        whole.captures = []

    def _heads(self, mixture: Mixture) -> int:
        """How many heads there are where batch and heads are one axis."""
        if mixture.heads is not None or mixture.output.ndim != 3:
            return mixture.heads or 1
        caller = self.modules[-1] if self.modules else None
        counts = (getattr_static(caller, name, None) for name in HEADS)
        whole = (number for number in counts if isinstance(number, int) and number > 0)
        heads = next((number for number in whole if len(mixture.output) % number == 0), None)
        self.log.unsure += heads is None and len(mixture.output) > 1
        return heads or 1

    def _turn(self) -> tuple[str, int] | None:
        """The module that calls, and the number of its call; None: this call is not wanted."""
        path, request = self.path, self.request
        if path is None:
            return None
        self.log.calls[path] += 1
        number = self.log.calls[path]
        # Patterns are of paths in the model, whatever its name is.
        inside = path if self.model is not None else path.partition(".")[2]
        pairs = [(name, pattern) for name in (path, inside) for pattern in request.only]
        if pairs and not any(fnmatchcase(*pair) for pair in pairs):
            return None
        turn, rest = divmod(number - 1, request.every)
        late = request.first is not None and turn >= request.first
        is_chosen = not isinstance(request.calls, tuple) or number in request.calls
        return None if rest or late or not is_chosen else (path, number)

    def _place(self, number: int) -> int:
        """The place of a call among those of its module that may be kept, from 0."""
        return (number - 1) // self.request.every

    def _thin(self, path: str, most: int, *, at_end: bool = False) -> None:
        """Keep calls of a module that are evenly spread: while it runs up to twice as many."""
        numbers = sorted({call.call for call in self.log.captures if call.path == path})
        if len(numbers) <= (most if at_end else 2 * most):
            return
        if at_end:
            places = np.linspace(0, len(numbers) - 1, most).round().astype(int)
            numbers = [numbers[place] for place in places]
        else:
            self.strides[path] *= 2
            numbers = [one for one in numbers if self._place(one) % self.strides[path] == 0]
        others = [call for call in self.log.captures if call.path != path or call.call in numbers]
        self.log.captures[:] = others
        self.log.bytes = sum(call.weights.nbytes for call in others)

    @_aside
    def finish(self) -> None:
        """Keep the last call of each module, and of all as many as are wanted."""
        waiting, self.latest = self.latest, {}
        for turn, open_call, facts in waiting.values():
            self._read(turn, open_call, facts, last=True)
        if isinstance(self.request.calls, int):
            for path in self.log.calls:
                self._thin(path, self.request.calls, at_end=True)

    def _read(
        self,
        turn: tuple[str, int],
        open_call: Callable[[], Any],
        facts: dict[str, Any],
        *,
        last: bool = False,
    ) -> list[CapturedCall]:
        """Keep what is wanted of a call; one that cannot be read does not stop the model."""
        (path, number), request, log = turn, self.request, self.log
        captures = list[CapturedCall]()
        self.latest.pop(path, None)
        if isinstance(request.calls, int) and not last and self._place(number) % self.strides[path]:
            self.latest[path] = turn, open_call, facts
            return captures
        try:
            batch, call_of = open_call()
            for item in range(batch) if request.batch is None else [request.batch]:
                if item >= batch:
                    raise AttentionError(f"batch={item} does not exist: {batch} items")
                capture = replace(self._capture(path, call_of(item), facts), call=number, item=item)
                if log.bytes + capture.weights.nbytes > request.most_bytes:
                    log.overflow += 1
                    break
                log.bytes += capture.weights.nbytes
                captures.append(capture)
        except Exception as error:
            self.note_failure(error)
        log.captures += captures
        if isinstance(request.calls, int) and not last:
            self._thin(path, request.calls)
        return captures

    def _capture(self, path: str, call: AttentionCall, facts: dict[str, Any]) -> CapturedCall:
        if facts["had_dropout"]:  # with dropout the same output cannot be made again
            call = replace(call, output=call.mix(call.value).contiguous())
        sides = call.query.shape[2], call.key.shape[2]
        region = self.request.region
        grid = grids_of({"": sides}, region, region.max_size)[""]
        if facts["same_input"] is None:  # scores that are no product: a query for each key tells
            facts = {**facts, "same_input": sides[0] == sides[1]}
        skip = IgnoredPositions(itself=facts["same_input"] and sides[0] == sides[1])
        reading = read_call(
            path,
            call,
            CaptureSpec(
                grid, region.links if grid.is_pooled else 0, skip, keep_scores=self.request.scores
            ),
        )
        scores = reading.scores
        if scores:
            scores = scores | {"massive": np.full(call.query.shape[1], self._peak())}
        if reading.faulty_head is not None:
            raise AttentionError(f"head {reading.faulty_head} is NaN or infinite")
        check_values(reading.weights, "share", path)
        off = facts.get("off")
        if off is None and not facts["had_dropout"]:
            off = _difference(call, grid, reading.weights)
        return CapturedCall(
            path,
            sides,
            grid,
            reading.weights[0],
            reading.links,
            skip,
            dtype=str(call.output.dtype).removeprefix("torch."),
            device=call.output.device.type,
            scores=scores,
            **(facts | {"off": off}),
        )

    def run_twice(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A module's forward that runs twice if torch could replace it by one fused kernel.

        The model gets the output of the first run, as without watching; the second is recorded.
        """

        @wraps(original)
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            watches = self in modes and all(isinstance(mode, AttentionObserver) for mode in modes)
            if self.plain or not watches or not self._may_fuse(module):
                return original(module, *args, **kwargs)
            self.plain += 1
            try:
                with torch._C.DisableTorchFunction():
                    output = original(module, *args, **kwargs)
            finally:
                self.plain -= 1
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                with torch.no_grad():
                    original(module, *args, **kwargs)
            except Exception as error:
                self.note_failure(error)
            finally:
                torch.backends.mha.set_fastpath_enabled(True)
            return output

        return forward

    @_aside
    def _may_fuse(self, module: Any) -> bool:
        """Whether a module of torch could take its fused path, which cannot be seen."""
        if module.training or not torch.backends.mha.get_fastpath_enabled():
            return False
        if torch.is_grad_enabled() and any(part.requires_grad for part in module.parameters()):
            return False
        return not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


_ACTIVE = list[AttentionObserver]()


@contextmanager
def observe(model: Any, request: WatchRequest, *, eager: bool = False) -> Iterator[WatchLog]:
    """Watch a block of code; everything is as before when it ends.

    Args:
        model: whose calls are read; None: all calls of this thread.
        request: what is kept of them.
        eager: whether compiled code runs uncompiled, so that it is seen.

    Raises:
        UsageError: another thread is watching; what they replace could not be put back in order.
    """
    mode = AttentionObserver(model, request)
    if {other.thread for other in _ACTIVE} - {mode.thread}:
        raise UsageError("another thread is watching: one thread at a time can")
    with ExitStack() as stack:
        _ACTIVE.append(mode)
        stack.callback(_ACTIVE.remove, mode)
        for kind in FUSED:
            stack.callback(setattr, kind, "forward", kind.forward)
            kind.forward = mode.run_twice(kind.forward)  # type: ignore[method-assign]
        # torch warns that a compiled module runs such hooks twice, which harms none of these.
        warnings.filterwarnings("ignore", ".*global hooks on modules", UserWarning)
        stack.callback(_discard, warnings.filters, warnings.filters[0])
        stack.callback(register_module_forward_pre_hook(mode.enter).remove)
        stack.callback(register_module_forward_hook(mode.leave, always_call=True).remove)
        stack.enter_context(kernels.replace_kernels(mode.run_kernel))
        if eager:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(mode.finish)
        stack.enter_context(mode)
        yield mode.log


def _discard(items: Any, item: Any) -> None:
    """Take an item out of a list, if it is still there: the program may have removed it."""
    with suppress(ValueError):
        items.remove(item)


def _difference(
    call: AttentionCall, grid: PooledGrid, weights: NDArray[np.float32]
) -> float | None:
    """How far weights times values are from what a call returned, in all rows or in four."""
    length, heads = call.query.shape[2], call.query.shape[1]
    if not grid.is_pooled and weights.shape[2:] == (length, call.key.shape[2]):
        places = torch.arange(length)
        rows = torch.from_numpy(weights[0]).to(call.value.device)
    else:
        places = torch.linspace(0, length - 1, 4).long()
        try:
            rows = exact_rows(call, places.to(call.value.device).expand(heads, -1))
        except RuntimeError:  # a kernel without a derivative
            return None
    value = call.value[0].float().repeat_interleave(heads // call.value.shape[1], dim=0)
    output = call.output[0, places.to(call.value.device)].float().transpose(0, 1)
    return float((rows @ value - output).abs().max())
