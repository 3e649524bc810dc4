"""Implied attention: the matrix that a layer without attention amounts to, read off its own scan.

State space models, linear attention, delta rules, gated recurrences, short convolutions and
attention by landmarks are linear in what they mix once their gates are fixed: output = M · input +
skip, where M is signed, and causal in all but the last (Ali, Zimerman and Wolf 2024, "The hidden
attention of Mamba models"; Dao and Gu 2024, "Transformers are SSMs", section 3). A scan is a
function that the layer calls. It is called again with indicators for its input and everything else
as it was, which needs no formula for each family; M · input is then compared with what it put out.
There is no softmax, and none is added.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from attnviz.analyses.select import missing, positions
from attnviz.core.attention_map import IMPLIED, MEAN_CHANNEL, check_finite
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.locks import thread_hook
from attnviz.models.hugging_face.capture.kernel import stream_of
from attnviz.models.hugging_face.capture.probe import DRIFT, dtype_of, pool_array
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks
from attnviz.models.hugging_face.load.devices import check_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNIT = "implied weight (signed, no softmax)"
ROUTE = "implied, by linearity"
DRIFTED = 1e-4
"""How far M · input may lie off the output, relative to the largest of it."""
BLOCK = 2**24
"""Numbers that are made at once for columns of a matrix."""
TILE = 2**20
"""Numbers that are made at once of a selective scan: they stay in a processor's cache."""
FEW = 64
"""Tokens over which a fast selective scan is compared with the plain one."""
TIMED = ("hidden_states", "dt", "B", "C", "z")
"""The arguments of a selective scan whose last axis is time."""
STATES = ("state", "initial_state", "initial_states", "recurrent_states")
"""What a scan calls the state that it begins with: none, as in a pass without a cache."""


@dataclass(frozen=True, slots=True)
class Mixer:
    """A function that mixes tokens, by what a layer's code calls it.

    Attributes:
        axes: those of what it mixes: b batch, t time, h head, p place in a head, c channel. Where
            it has heads one matrix is for all places of a head, else there is one for each channel.
        values: the argument that is mixed.
        off: arguments of what is not part of the matrix: skips, gates, biases.
        batched: further arguments with a batch that do not broadcast.
        layer: what the name of the layer's class has to match.
    """

    function: str
    values: str
    axes: str
    off: tuple[str, ...] = ()
    batched: tuple[str, ...] = ()
    layer: str = ""

    @property
    def by_head(self) -> bool:
        """True where one matrix is for all places of a head."""
        return "h" in self.axes


SELECTIVE = "mamba_selective_scan"
MIXERS = (
    Mixer(SELECTIVE, "hidden_states", "bct", off=("D", "z")),
    Mixer("mamba2_chunk_scan", "hidden_states", "bthp", off=("D",)),
    Mixer("torch_chunk_gated_delta_rule", "value", "bthp"),
    Mixer("chunk_kimi_delta_attention", "value", "bthp"),
    Mixer("rwkv_linear_attention", "value", "btc", batched=("key",)),
    Mixer("_rnn_scan", "hidden_states", "btc"),
    Mixer("mlstm_backend", "value", "bhtp"),
    Mixer("decay_factors", "", "bhtp", layer="LightningAttention$"),
    Mixer("iterative_inv", "", "bhtp", layer="SelfAttention$"),
    Mixer("causal_conv1d_fn", "hidden_states", "bct", off=("bias",), layer="ShortConv$"),
)
"""By the first that a layer's code names."""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """One call of a mixer, without skip and gate; shapes are (heads or channels, time, places)."""

    values: Any
    run: Callable[[Any], Any]  # what it makes of other values
    push: Callable[[int, int, list[int] | None], Any]  # columns of M, of some or their mean
    width: int  # how many numbers it takes to make one column
    drift: float = 0.0  # of the function that is asked from that which the layer called


Look: TypeAlias = Callable[[Callable[[], Scan], Mixer], None]
"""What is shown each call: how to make a scan of it, and which mixer it is of."""


@dataclass(slots=True)
class ImpliedMatrices:
    """What was read of one pass.

    Attributes:
        matrices: by the path of the layer, float32 of shape (heads or channels, queries, keys).
        names: of the heads or channels.
        channels: how many there are, where a layer mixes channel by channel; else 0.
        off: how far M · input lay off at most, relative to the largest output of the layer.
    """

    matrices: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    channels: int = 0
    off: float = 0.0

    @property
    def note(self) -> str:
        """What a reader must know of these matrices."""
        told = (
            f"stream '{IMPLIED}' is no attention but the matrix M of output = M · input + skip, "
            "from what enters a layer's scan to what leaves it, before gate and projection: "
            f"signed, no softmax; M · input is within {self.off:.1g} of the output"
        )
        if not self.channels:
            return told
        shown = next(iter(self.names.values()))
        if shown == (MEAN_CHANNEL,):
            return f"{told}; the mean over {self.channels:,} channels: --channels shows single ones"
        return f"{told}; {len(shown):,} of {self.channels:,} channels"


def mixers_of(model: Any) -> dict[str, tuple[Any, Mixer]]:
    """The layers of a model that mix tokens without attention, by path."""
    found = dict[str, tuple[Any, Mixer]]()
    for path, part in model.named_modules():
        code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
        named = () if code is None else (*code.co_names, *vars(type(part)))
        for mixer in MIXERS:
            if mixer.function in named and re.search(mixer.layer, type(part).__name__):
                found[path] = part, mixer
                break
    return {path: one for path, one in found.items() if stream_of(path) not in {"vision", "audio"}}


def has_attention(model: Any) -> bool:
    """Whether a model has attention beside such layers."""
    mixing = {id(part) for part, _ in mixers_of(model).values()}
    return any(
        "Attention" in type(part).__name__ and not mixing & {*map(id, part.modules())}
        for part in model.modules()
    )


_ONE = RLock()
"""Mixers are watched where all models of a kind find them: for one model at a time."""


@contextmanager
def watch_mixers(
    model: Any, length: int, grid: PooledGrid, channels: str
) -> Iterator[ImpliedMatrices]:
    """Read the matrices of the first pass in a block of code, on a grid of a text of that length.

    Raises:
        AttentionError: in the pass, where M · input is not what the layer makes of its input.
        UsageError: likewise, where there is no such channel.
    """
    found, layers = ImpliedMatrices(), mixers_of(model)
    running: list[str] = []

    def look(make: Callable[[], Scan], mixer: Mixer) -> None:
        path = running[-1] if running else ""
        if path and path not in found.matrices and (scan := make()).values.shape[1] == length:
            _read_matrix(found, path, scan, mixer, grid, model, channels, len(layers))

    with ExitStack() as stack:
        stack.enter_context(_ONE)
        for path, (part, mixer) in layers.items():
            note = thread_hook(_noting(running, path))
            stack.callback(part.register_forward_pre_hook(note).remove)
            _watch_mixer(part, mixer, look, stack)
        yield found


def _noting(running: list[str], path: str) -> Callable[..., None]:
    def note(module: Any, given: Any) -> None:
        running[:] = [path]

    return note


def _watch_mixer(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Have every call of a mixer looked at, until the stack is closed."""
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
    seen = thread_hook(look)
    if getattr(function, "watched", False):
        return  # for another layer of the same kind

    def watched(*given: Any, **named: Any) -> Any:
        output = function(*given, **named)
        seen(lambda: _scan_of(function, mixer, given, named, output), mixer)
        return output

    watched.watched = True  # type: ignore[attr-defined]
    setattr(owner, name, watched)
    stack.callback(setattr, owner, name, function)


def _scan_of(
    function: Callable[..., Any], mixer: Mixer, given: Any, named: Any, output: Any
) -> Scan:
    """A call as its input, the function without skip and gate, and columns of its matrix."""
    import torch

    plain = inspect.unwrap(function)  # in place of a faster kernel that takes not every size
    bound = inspect.signature(plain).bind(*given, **named)
    call = bound.arguments
    exact = torch.float64 if call[mixer.values].dtype == torch.float64 else torch.float32
    call |= {name: _detach(one, exact) for name, one in call.items()}
    order = [mixer.axes.index(axis) for axis in ("bhtp" if mixer.by_head else "ctb")]
    back = sorted(range(len(order)), key=order.__getitem__)
    values, kept = call[mixer.values], dict(call)

    def run_plain(mixed: Any) -> Any:
        call[mixer.values] = mixed
        for name in mixer.batched:
            call[name] = kept[name].expand(len(mixed), *kept[name].shape[1:])
        with torch.no_grad():
            made = plain(*bound.args, **bound.kwargs)
        return (made[0] if isinstance(made, tuple) else made).to(exact)

    def arranged(one: Any) -> Any:
        return one.permute(order)[0] if mixer.by_head else one.permute(order)

    def run(mixed: Any) -> Any:
        mixed = (mixed[None] if mixer.by_head else mixed).permute(back)
        return arranged(run_plain(mixed.contiguous()))

    given_out = output[0] if isinstance(output, tuple) else output
    few = FEW if mixer.function == SELECTIVE else None  # whose plain form takes a step a token
    call |= {name: kept[name][..., :few] for name in TIMED if kept.get(name) is not None}
    drift = _relative_error(run_plain(call[mixer.values]), given_out[..., :few])
    call |= kept
    for name in {*mixer.off, *STATES} & {*inspect.signature(plain).parameters}:
        call[name] = None
    own = arranged(values)
    count, length, _ = own.shape

    def push(first: int, stop: int, numbers: list[int] | None) -> Any:
        if mixer.function == SELECTIVE:
            return _selective_columns(call, first, stop, numbers)
        ones = torch.eye(length, dtype=exact, device=values.device)[:, first:stop]
        return _select_channels(run(ones.expand(count, *ones.shape)), numbers)

    width = length if mixer.function == SELECTIVE else count * length
    return Scan(own, run, push, width, drift)


def _detach(one: Any, dtype: Any) -> Any:
    """An argument of a scan out of any graph; numbers in a precision."""
    floating = hasattr(one, "is_floating_point") and one.is_floating_point()
    return one.detach().to(dtype) if floating else one


def _select_channels(made: Any, numbers: list[int] | None) -> Any:
    return made.mean(dim=0, keepdim=True) if numbers is None else made[numbers]


def _relative_error(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest number expected."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def _selective_columns(
    call: Mapping[str, Any], first: int, stop: int, numbers: list[int] | None
) -> Any:
    """Columns of the matrix of a selective scan (Mamba), which has one for each of many channels.

    M[t, s] = C(t) · exp(A · (Δ(s+1) + … + Δ(t))) Δ(s) B(s), by products of matrices: pushing
    indicators through thousands of channels with a state each would take minutes. Whatever lies
    between the halves of a span of time decays to its middle, and from there on: two factors that
    are at most 1. So spans are halved until they are single tokens.
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
    passed = steps.double().cumsum(dim=0)  # whose differences float32 would lose
    single = (steps * (enters * leaves).sum(dim=-1)).T
    made = steps.new_zeros(1 if numbers is None else len(numbers), len(steps), stop - first)
    places = torch.arange(first, stop, device=steps.device)
    own = single.sum(dim=0, keepdim=True) if numbers is None else single
    made[:, places, places - first] = own[:, places]
    summed = "qcn,kcn->qk" if numbers is None else "qcn,kcn->cqk"

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
            since = (passed[middle:high, part] - passed[middle - 1, part]).to(steps.dtype)
            until = (passed[middle - 1, part] - passed[start:end, part]).to(steps.dtype)
            out = (since[..., None] * decay[part]).exp() * leaves[middle:high]
            into = (until[..., None] * decay[part]).exp() * enters[start:end]
            into *= steps[start:end, part, None]
            here = slice(None) if numbers is None else part
            made[here, middle:high, start - first : end - first] += torch.einsum(summed, out, into)

    fill(0, len(steps))
    return made / channels if numbers is None else made


def _watch_lightning(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Lightning attention is written out in the layer: queries · keys, decaying with distance."""
    import torch

    projected: list[Any] = []

    def keep(module: Any, given: Any, output: Any) -> None:
        projected[:] = [output.detach().float()]

    def compare(module: Any, given: Any) -> None:
        heads, size = part.num_attention_heads, part.head_dim
        split = projected[0][0].unflatten(-1, (heads, 3 * size)).transpose(0, 1)
        query, key, value = split.split(size, dim=-1)
        output = given[0][0].detach().float().unflatten(-1, (heads, size)).transpose(0, 1)
        places = torch.arange(len(value[0]), device=value.device)

        def push(first: int, stop: int, numbers: list[int] | None) -> Any:
            distance = places[:, None] - places[first:stop]
            decay = torch.exp(-part.slope_rate.float() * distance.clamp(min=0))
            made = (query @ key[:, first:stop].transpose(1, 2)) * decay * (distance >= 0)
            return _select_channels(made, numbers)

        look(lambda: Scan(value, lambda _: output, push, heads * len(places)), mixer)

    # Padding, which is masked between the two, is never in a batch of one.
    stack.callback(part.act_fn.register_forward_hook(thread_hook(keep)).remove)
    stack.callback(part.norm.register_forward_pre_hook(thread_hook(compare)).remove)


def _watch_landmarks(part: Any, mixer: Mixer, look: Look, stack: ExitStack) -> None:
    """Nyström attention (Xiong et al. 2021) mixes its values by a product of three matrices.

    A convolution over them is added; the layer is run again with other values.
    """
    import torch

    def split(one: Any) -> Any:
        return one[0].detach().float().unflatten(-1, (part.num_attention_heads, -1)).transpose(0, 1)

    def compare(module: Any, given: Any, named: Any, output: Any) -> None:
        value = split(part.value(given[0]))
        count, length, size = value.shape

        def run(mixed: Any) -> Any:
            joined = mixed.transpose(0, 1).flatten(1)[None].to(given[0].dtype)
            instead = thread_hook(lambda *_: joined)
            with torch.no_grad(), part.value.register_forward_hook(instead):
                return split(part.forward(*given, **named)[0])

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
    found: ImpliedMatrices,
    path: str,
    scan: Scan,
    mixer: Mixer,
    grid: PooledGrid,
    model: Any,
    channels: str,
    layers: int,
) -> None:
    """The matrix of a layer, in blocks of columns, each of which also adds to M · input."""
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
    # A mean over channels is compared where each is given the mean over channels.
    values = scan.values
    values = values if numbers else values.mean(dim=0, keepdim=True).expand_as(values)
    expected, given = (_select_channels(one, numbers) for one in (scan.run(values), values))
    mixed, parts = torch.zeros_like(expected), []
    for first, stop, kept in _column_blocks(grid.keys, length, max(1, BLOCK // scan.width)):
        block = scan.push(first, stop, numbers)
        mixed += block @ given[:, first:stop]
        if kept:
            here = PooledGrid(grid.queries, TokenBlocks(0, stop - first, grid.keys.length))
            parts.append(pool_array(block.float().cpu().numpy(), here))
    weights = np.concatenate(parts, axis=2)
    check_finite(weights[None], IMPLIED, [path], names, dtype_of(model))
    off, rough = _relative_error(mixed, expected), DRIFT.get(dtype_of(model), 1e-3)
    if not (off <= (DRIFTED if mixer.values else rough) and scan.drift <= rough):
        raise AttentionError(
            f"implied attention of '{path}' cannot be read: its scan does more than mix its input "
            f"by a matrix (off by {max(off, scan.drift):.2g})"
        )
    found.matrices[path], found.names[path] = weights, names
    found.channels = 0 if mixer.by_head else count
    found.off = max(found.off, off)


def _channel_numbers(asked: str, count: int) -> list[int] | None:
    """The numbers of single channels; None: their mean."""
    if asked == "mean":
        return None
    names = [str(number) for number in range(count)]
    absent = missing(asked, {*names})
    if absent:
        raise UsageError(f"channel {absent[0]} does not exist: there are {count:,}, from 0")
    return positions(asked, names)


def _column_blocks(keys: TokenBlocks, length: int, step: int) -> Iterator[tuple[int, int, bool]]:
    """All columns in blocks of about a size, of whole blocks where the grid has any."""
    whole = max(1, step // keys.length) * keys.length
    for start, stop, kept in (
        (0, keys.start, False),
        (keys.start, keys.stop, True),
        (keys.stop, length, False),
    ):
        for first in range(start, stop, whole):
            yield first, min(first + whole, stop), kept
