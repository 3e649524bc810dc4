"""Implied attention: the matrix M by which a layer without attention mixes its input.

With fixed gates, state space models, linear attention, delta rules, gated recurrences, short
convolutions and landmark attention are linear: output = M · input + skip. M is signed, without a
softmax, and causal in all but the last (Ali, Zimerman and Wolf 2024, "The hidden attention of Mamba
models"; Dao and Gu 2024, "Transformers are SSMs", section 3). The function that a layer calls for
this, its scan, is called again with indicators as input, so no family needs a formula. M · input is
then compared with the layer's output.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import RLock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.select import missing, positions
from attnviz.core.attention_map import IMPLIED, MEAN_CHANNEL, check_finite
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.locks import thread_hook
from attnviz.core.records import dataclass, field
from attnviz.models.hugging_face.capture.kernel import stream_of
from attnviz.models.hugging_face.capture.probe import DRIFT, dtype_of, pool_array
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks
from attnviz.models.hugging_face.load.devices import check_fit

UNIT = "implied weight (signed, no softmax)"
ROUTE = "implied, by linearity"
DRIFTED = 1e-4  # the largest error of M · input, relative to the largest output
BLOCK = 2**24  # numbers that are computed at once for columns of a matrix
TILE = 2**20  # numbers that are computed at once of a selective scan: they fit into a CPU's cache
FEW = 64  # tokens over which a fast selective scan is compared with the plain one
TIMED = ("hidden_states", "dt", "B", "C", "z")  # arguments of a selective scan, time last
# Names of a scan's first state; a pass without a cache has none.
STATES = ("state", "initial_state", "initial_states", "recurrent_states")


@dataclass(frozen=True, slots=True)
class Mixer:
    """A function that mixes tokens without attention, by its name in a layer's code."""

    function: str
    values: str  # the argument that is mixed
    axes: str  # of the values: b batch, t time, h head, p place in a head, c channel
    off: tuple[str, ...] = ()  # arguments outside of the matrix: skips, gates, biases
    batch_arguments: tuple[str, ...] = ()  # further arguments with a batch, which do not broadcast
    layer: str = ""  # a pattern of the layer's class

    @property
    def by_head(self) -> bool:
        """Whether it has a matrix for each head, not for each channel."""
        return "h" in self.axes


SELECTIVE = "mamba_selective_scan"
MIXERS = (
    Mixer(SELECTIVE, "hidden_states", "bct", off=("D", "z")),
    Mixer("mamba2_chunk_scan", "hidden_states", "bthp", off=("D",)),
    Mixer("torch_chunk_gated_delta_rule", "value", "bthp"),
    Mixer("chunk_kimi_delta_attention", "value", "bthp"),
    Mixer("rwkv_linear_attention", "value", "btc", batch_arguments=("key",)),
    Mixer("_rnn_scan", "hidden_states", "btc"),
    Mixer("mlstm_backend", "value", "bhtp"),
    Mixer("decay_factors", "", "bhtp", layer="LightningAttention$"),
    Mixer("iterative_inv", "", "bhtp", layer="SelfAttention$"),
    Mixer("causal_conv1d_fn", "hidden_states", "bct", off=("bias",), layer="ShortConv$"),
)
"""A layer's mixer is the first that its code names."""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """One call of a mixer, without skip and gate; axes are (heads or channels, time, …)."""

    values: Any
    run: Callable[[Any], Any]  # its output for other values
    push: Callable[[int, int, list[int] | None], Any]  # columns of M, of some channels or the mean
    width: int  # numbers that one column needs
    drift: float = 0.0  # relative error of `run` for the values of the layer


Look: TypeAlias = Callable[[Callable[[], Scan], Mixer], None]  # gets a maker of a call's scan


@dataclass(slots=True)
class ImpliedMatrices:
    """The matrices of one pass, by the path of the layer."""

    matrices: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # (heads, queries, keys)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of heads or channels
    channels: int = 0  # of each layer that mixes by channel; 0: layers mix by head
    off: float = 0.0  # the largest error of M · input, relative to the layer's largest output

    @property
    def note(self) -> str:
        note = (
            f"stream '{IMPLIED}' is no attention: it shows how much of each token a layer's "
            "scan puts into each other token, the matrix M of output = M · input + skip, before "
            f"gate and projection; weights can be negative, and M · input is within {self.off:.1g} "
            "of the output"
        )
        if not self.channels:
            return note
        names = next(iter(self.names.values()))
        if names == (MEAN_CHANNEL,):
            return f"{note}; the mean over {self.channels:,} channels: --channels shows single ones"
        return f"{note}; {len(names):,} of {self.channels:,} channels"


def mixers_of(model: Any) -> dict[str, tuple[Any, Mixer]]:
    """The layers of a model that mix tokens without attention, by path."""
    layers = dict[str, tuple[Any, Mixer]]()
    for path, part in model.named_modules():
        layer: Any = type(part)
        mixer = _mixer_of(layer)
        if mixer is not None and stream_of(path) not in {"vision", "audio"}:
            layers[path] = part, mixer
    return layers


@cache  # asked for each text
def _mixer_of(layer: type[Any]) -> Mixer | None:
    """The row of `MIXERS` that knows a class of layers."""
    code = getattr(inspect.unwrap(layer.forward), "__code__", None)
    names = () if code is None else (*code.co_names, *vars(layer))
    fit = (one for one in MIXERS if one.function in names and re.search(one.layer, layer.__name__))
    return next(fit, None)


def has_attention(model: Any) -> bool:
    """Whether a model has layers with attention, besides those that mix."""
    mixing = {id(part) for part, _ in mixers_of(model).values()}
    return any(
        "Attention" in type(part).__name__ and not mixing & {*map(id, part.modules())}
        for part in model.modules()
    )


_ONE = RLock()  # mixers are replaced in the module that all models of a family share


@contextmanager
def watch_mixers(
    model: Any, length: int, grid: PooledGrid, channels: str
) -> Iterator[ImpliedMatrices]:
    """Read the matrices of the first pass in a block of code over a text of that length.

    In the pass it raises an AttentionError if M · input is not the layer's output, and a UsageError
    if a channel does not exist.
    """
    readings, layers = ImpliedMatrices(), mixers_of(model)
    running: list[str] = []

    def look(make: Callable[[], Scan], mixer: Mixer) -> None:
        path = running[-1] if running else ""
        if path and path not in readings.matrices and (scan := make()).values.shape[1] == length:
            _read_matrix(readings, path, scan, mixer, grid, model, channels, len(layers))

    with ExitStack() as stack:
        stack.enter_context(_ONE)
        for path, (part, mixer) in layers.items():
            enter = thread_hook(lambda *_, path=path: running.__setitem__(slice(None), [path]))
            stack.callback(part.register_forward_pre_hook(enter).remove)
            _watch_mixer(part, mixer, look, stack)
        yield readings


def _watch_mixer(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Call `look` for every call of a mixer, until the stack is closed."""
    if not mixer.values:
        by_hand = {"decay_factors": _watch_lightning, "iterative_inv": _watch_landmarks}
        by_hand[mixer.function](part, mixer, look, stack)
        return
    name, owner = mixer.function, cast(Any, sys.modules[type(part).__module__])
    if name in vars(type(part)):
        owner = type(part)
    elif hasattr(part, name):
        owner, name = type(getattr(part, name)), "forward"
    function = getattr(owner, name)
    look_in_thread = thread_hook(look)
    if getattr(function, "is_watching", False):
        return  # a layer of the same class came before

    def call_and_look(*args: Any, **kwargs: Any) -> Any:
        output = function(*args, **kwargs)
        look_in_thread(lambda: _scan_of(function, mixer, args, kwargs, output), mixer)
        return output

    call_and_look.is_watching = True  # type: ignore[attr-defined]
    setattr(owner, name, call_and_look)
    stack.callback(setattr, owner, name, function)


def _scan_of(
    function: Callable[..., Any], mixer: Mixer, args: Any, kwargs: Any, output: Any
) -> Scan:
    """A mixer's call as a `Scan`."""
    import torch

    plain = inspect.unwrap(function)  # not a fast kernel, which refuses some sizes
    arguments = inspect.signature(plain).bind(*args, **kwargs)
    call = arguments.arguments
    exact = torch.float64 if call[mixer.values].dtype == torch.float64 else torch.float32
    call |= {name: _detach(one, exact) for name, one in call.items()}
    order = [mixer.axes.index(axis) for axis in ("bhtp" if mixer.by_head else "ctb")]
    back = sorted(range(len(order)), key=order.__getitem__)
    values, whole = call[mixer.values], dict(call)

    def run_plain(inputs: Any) -> Any:
        call[mixer.values] = inputs
        for name in mixer.batch_arguments:
            call[name] = whole[name].expand(len(inputs), *whole[name].shape[1:])
        with torch.no_grad():
            result = plain(*arguments.args, **arguments.kwargs)
        return (result[0] if isinstance(result, tuple) else result).to(exact)

    def arrange(one: Any) -> Any:
        return one.permute(order)[0] if mixer.by_head else one.permute(order)

    def run(inputs: Any) -> Any:
        inputs = (inputs[None] if mixer.by_head else inputs).permute(back)
        return arrange(run_plain(inputs.contiguous()))

    given_out = output[0] if isinstance(output, tuple) else output
    few = FEW if mixer.function == SELECTIVE else None  # its plain form loops over tokens
    call |= {name: whole[name][..., :few] for name in TIMED if whole.get(name) is not None}
    drift = _relative_error(run_plain(call[mixer.values]), given_out[..., :few])
    call |= whole
    for name in {*mixer.off, *STATES} & {*inspect.signature(plain).parameters}:
        call[name] = None
    own = arrange(values)
    count, length, _ = own.shape

    def push(first: int, stop: int, numbers: list[int] | None) -> Any:
        if mixer.function == SELECTIVE:
            return _selective_columns(call, first, stop, numbers)
        ones = torch.eye(length, dtype=exact, device=values.device)[:, first:stop]
        return _select_channels(run(ones.expand(count, *ones.shape)), numbers)

    width = length if mixer.function == SELECTIVE else count * length
    return Scan(own, run, push, width, drift)


def _detach(one: Any, dtype: Any) -> Any:
    """A scan's argument without gradients; numbers of a given precision."""
    floating = hasattr(one, "is_floating_point") and one.is_floating_point()
    return one.detach().to(dtype) if floating else one


def _select_channels(by_channel: Any, numbers: list[int] | None) -> Any:
    return by_channel.mean(dim=0, keepdim=True) if numbers is None else by_channel[numbers]


def _relative_error(numbers: Any, reference: Any) -> float:
    """The largest difference, relative to the largest number expected."""
    return float((numbers - reference).abs().max() / reference.abs().max().clamp(min=1e-30))


def _selective_columns(
    call: Mapping[str, Any], first: int, stop: int, numbers: list[int] | None
) -> Any:
    """Columns of the matrices of a selective scan (Mamba): one for each of many channels.

    M[t, s] = C(t) · exp(A · (Δ(s+1) + … + Δ(t))) Δ(s) B(s). Pushing indicators through thousands of
    channels would take minutes, so M is computed by products of matrices: from one half of a span
    of time to the other the decay splits at the middle into two factors of at most 1. Spans are
    halved down to single tokens.
    """
    import torch

    steps = call["dt"][0]
    if call.get("delta_bias") is not None:
        steps = steps + call["delta_bias"][:, None]
    if call.get("delta_softplus"):
        steps = torch.nn.functional.softplus(steps)
    decay, enters, leaves = call["A"], call["B"][0].T[:, None], call["C"][0].T[:, None]
    channels = len(steps)
    if numbers is not None:
        steps, decay = steps[numbers], decay[numbers]
    steps = steps.T
    times = steps.double().cumsum(dim=0)  # float32 would lose the differences
    single = (steps * (enters * leaves).sum(dim=-1)).T
    cells = steps.new_zeros(1 if numbers is None else len(numbers), len(steps), stop - first)
    places = torch.arange(first, stop, device=steps.device)
    own = single.sum(dim=0, keepdim=True) if numbers is None else single
    cells[:, places, places - first] = own[:, places]
    axes = "qcn,kcn->qk" if numbers is None else "qcn,kcn->cqk"

    def fill(low: int, high: int) -> None:
        middle, end = (low + high) // 2, min((low + high) // 2, stop)
        start = max(low, first)
        if high - low == 1 or low >= stop or high <= first:
            return
        fill(low, middle)
        fill(middle, high)
        if start >= end:
            return
        some = max(1, TILE // ((high - low) * decay.shape[1]))
        for at in range(0, len(decay), some):
            part = slice(at, at + some)
            since = (times[middle:high, part] - times[middle - 1, part]).to(steps.dtype)
            until = (times[middle - 1, part] - times[start:end, part]).to(steps.dtype)
            out = (since[..., None] * decay[part]).exp() * leaves[middle:high]
            into = (until[..., None] * decay[part]).exp() * enters[start:end]
            into *= steps[start:end, part, None]
            here = slice(None) if numbers is None else part
            cells[here, middle:high, start - first : end - first] += torch.einsum(axes, out, into)

    fill(0, len(steps))
    return cells / channels if numbers is None else cells


def _watch_lightning(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Lightning attention is written out in its layer: queries · keys, decaying with distance."""
    import torch

    projections: list[Any] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        projections[:] = [output.detach().float()]

    def compare(module: Any, inputs: Any) -> None:
        heads, size = part.num_attention_heads, part.head_dim
        split = projections[0][0].unflatten(-1, (heads, 3 * size)).transpose(0, 1)
        query, key, value = split.split(size, dim=-1)
        output = inputs[0][0].detach().float().unflatten(-1, (heads, size)).transpose(0, 1)
        places = torch.arange(len(value[0]), device=value.device)

        def push(first: int, stop: int, numbers: list[int] | None) -> Any:
            distance = places[:, None] - places[first:stop]
            decay = torch.exp(-part.slope_rate.float() * distance.clamp(min=0))
            products = (query @ key[:, first:stop].transpose(1, 2)) * decay * (distance >= 0)
            return _select_channels(products, numbers)

        look(lambda: Scan(value, lambda _: output, push, heads * len(places)), mixer)

    # Between the two hooks the layer masks padding; a batch of one has no padding.
    stack.callback(part.act_fn.register_forward_hook(thread_hook(keep)).remove)
    stack.callback(part.norm.register_forward_pre_hook(thread_hook(compare)).remove)


def _watch_landmarks(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Nyström attention (Xiong et al. 2021): the whole layer runs again with other values."""
    import torch

    def split(one: Any) -> Any:
        return one[0].detach().float().unflatten(-1, (part.num_attention_heads, -1)).transpose(0, 1)

    def compare(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        value = split(part.value(args[0]))
        count, length, size = value.shape

        def run(inputs: Any) -> Any:
            values = inputs.transpose(0, 1).flatten(1)[None].to(args[0].dtype)
            instead = thread_hook(lambda *_: values)
            with torch.no_grad(), part.value.register_forward_hook(instead):
                return split(part.forward(*args, **kwargs)[0])

        def push(first: int, stop: int, numbers: list[int] | None) -> Any:
            ones = torch.eye(length, length + size, device=value.device)  # whole heads of columns
            columns = [
                run(ones[:, start : start + size].expand(count, -1, -1))
                for start in range(first, stop, size)
            ]
            return _select_channels(torch.cat(columns, dim=-1)[..., : stop - first], numbers)

        drift = _relative_error(run(value), split(output[0]))
        look(lambda: Scan(value, run, push, count * length, drift), mixer)

    stack.callback(part.register_forward_hook(thread_hook(compare), with_kwargs=True).remove)


def _read_matrix(
    readings: ImpliedMatrices,
    path: str,
    scan: Scan,
    mixer: Mixer,
    grid: PooledGrid,
    model: Any,
    channels: str,
    layers: int,
) -> None:
    """Read a layer's matrix in blocks of columns, and compare M · input with its output."""
    import torch

    count, length, _ = scan.values.shape
    if mixer.by_head and channels != "mean":
        raise UsageError(
            f"--channels is for layers that mix channel by channel: '{path}' mixes by heads"
        )
    numbers = list(range(count)) if mixer.by_head else _channel_numbers(channels, count)
    names = (MEAN_CHANNEL,) if numbers is None else tuple(map(str, numbers))
    check_fit(
        8 * layers * len(names) * grid.cells,
        torch.device("cpu"),
        f"implied attention of {layers} layers × {len(names):,} heads or channels × "
        f"{length:,} tokens²",
        "give a shorter text or --max-size",
    )
    # To compare a mean over channels, each channel gets the mean of the values.
    values = scan.values
    values = values if numbers else values.mean(dim=0, keepdim=True).expand_as(values)
    outputs, inputs = (_select_channels(one, numbers) for one in (scan.run(values), values))
    products, parts = torch.zeros_like(outputs), []
    for first, stop, is_shown in _column_blocks(grid.keys, length, max(1, BLOCK // scan.width)):
        block = scan.push(first, stop, numbers)
        products += block @ inputs[:, first:stop]
        if is_shown:
            here = PooledGrid(grid.queries, TokenBlocks(0, stop - first, grid.keys.length))
            parts.append(pool_array(block.float().cpu().numpy(), here))
    weights = np.concatenate(parts, axis=2)
    check_finite(weights[None], IMPLIED, [path], names, dtype_of(model))
    off, rough = _relative_error(products, outputs), DRIFT.get(dtype_of(model), 1e-3)
    if not (off <= (DRIFTED if mixer.values else rough) and scan.drift <= rough):
        raise AttentionError(
            f"implied attention of '{path}' cannot be read: its scan does more than mix its input "
            f"by a matrix (off by {max(off, scan.drift):.2g})"
        )
    readings.matrices[path], readings.names[path] = weights, names
    readings.channels = 0 if mixer.by_head else count
    readings.off = max(readings.off, off)


def _channel_numbers(channels: str, count: int) -> list[int] | None:
    """The channels that were asked for; None: their mean."""
    if channels == "mean":
        return None
    names = [str(number) for number in range(count)]
    absent = missing(channels, {*names})
    if absent:
        raise UsageError(f"channel {absent[0]} does not exist: there are {count:,}, from 0")
    return positions(channels, names)


def _column_blocks(keys: TokenBlocks, length: int, step: int) -> Iterator[tuple[int, int, bool]]:
    """All columns in ranges of about `step` whole blocks, and whether they fill the grid."""
    whole = max(1, step // keys.length) * keys.length
    for start, stop, is_shown in (
        (0, keys.start, False),
        (keys.start, keys.stop, True),
        (keys.stop, length, False),
    ):
        for first in range(start, stop, whole):
            yield first, min(first + whole, stop), is_shown
