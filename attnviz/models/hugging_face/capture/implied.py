"""Implied attention: the matrix that a layer without attention amounts to, read off its own scan.

State space models, linear attention, delta rules, gated recurrences and short convolutions are
linear in what they mix once their gates are fixed: output = M · input + skip, where M is causal and
signed (Ali, Zimerman and Wolf 2024, "The hidden attention of Mamba models"; Dao and Gu 2024,
"Transformers are SSMs", section 3). A scan is a function that the layer calls. It is called again
with indicators for its input and everything else as it was, which needs no formula for each family;
M · input is then compared with what it put out. There is no softmax, and none is added.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.analyses.select import missing, positions
from attnviz.core.attention_map import check_finite
from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture.kernel import stream_of
from attnviz.models.hugging_face.capture.passes import dtype_of
from attnviz.models.hugging_face.capture.probe import pool_array
from attnviz.models.hugging_face.capture.region import Axis, PooledGrid
from attnviz.models.hugging_face.load.devices import check_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMPLIED = "implied"
"""The stream of what is no attention."""
UNIT = "implied weight (signed, no softmax)"
ROUTE = "implied, by linearity"
DRIFTED = 1e-4
"""How far M · input may lie off the output, relative to the largest of it."""
BLOCK = 2**24
"""Numbers that a scan is given at once, as indicators."""
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


MIXERS = (
    Mixer("mamba_selective_scan", "hidden_states", "bct", off=("D", "z")),
    Mixer("mamba2_chunk_scan", "hidden_states", "bthp", off=("D",)),
    Mixer("torch_chunk_gated_delta_rule", "value", "bthp"),
    Mixer("chunk_kimi_delta_attention", "value", "bthp"),
    Mixer("rwkv_linear_attention", "value", "btc", batched=("key",)),
    Mixer("_rnn_scan", "hidden_states", "btc"),
    Mixer("mlstm_backend", "value", "bhtp"),
    Mixer("decay_factors", "", "bhtp", layer="LightningAttention$"),
    Mixer("causal_conv1d_fn", "hidden_states", "bct", off=("bias",), layer="ShortConv$"),
)
"""By the first that a layer's code names."""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """One call of a mixer: its input and output without skip, shape (matrices, time, places)."""

    values: Any
    output: Any
    push: Callable[[int, int], Any]  # columns of M: first key, stop → (matrices, time, keys)


@dataclass(slots=True)
class Implied:
    """What was read of one pass.

    Attributes:
        matrices: by the path of the layer, float32 of shape (heads or channels, queries, keys).
        names: of the heads; channels that were averaged are "mean".
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
            f"stream '{IMPLIED}': layers without attention as the matrix M of output = M · input "
            "+ skip, signed and without a softmax, from what goes into the layer's scan to what "
            f"comes out before gate and projection; M · input is off by at most {self.off:.1g}"
        )
        if not self.channels:
            return told
        shown = next(iter(self.names.values()))
        if shown == ("mean",):
            return f"{told}; mean over {self.channels:,} channels, of which --channels shows single"
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


@contextmanager
def watch_mixers(model: Any, length: int, grid: PooledGrid, channels: str) -> Iterator[Implied]:
    """Read the matrices of the first pass in a block of code, on a grid of a text of that length.

    Raises:
        AttentionError: in the pass, where M · input is not what the layer makes of its input.
        UsageError: likewise, where there is no such channel.
    """
    found, layers = Implied(), mixers_of(model)
    running: list[str] = []

    def look(scan: Scan, mixer: Mixer) -> None:
        path = running[-1] if running else ""
        if path and path not in found.matrices and scan.values.shape[1] == length:
            _read(found, path, scan, mixer, grid, _Asked(model, channels, len(layers)))

    with ExitStack() as stack:
        for path, (part, mixer) in layers.items():
            note = _noting(running, path)
            stack.callback(part.register_forward_pre_hook(note).remove)
            _watch(part, mixer, look, stack)
        yield found


@dataclass(frozen=True, slots=True)
class _Asked:
    model: Any
    channels: str
    layers: int


def _noting(running: list[str], path: str) -> Callable[..., None]:
    def note(module: Any, given: Any) -> None:
        running[:] = [path]

    return note


def _watch(part: Any, mixer: Mixer, look: Callable[[Scan, Mixer], None], stack: ExitStack) -> None:
    """Have every call of a mixer looked at, until the stack is closed."""
    if not mixer.values:
        _watch_lightning(part, mixer, look, stack)
        return
    name, owner = mixer.function, sys.modules[type(part).__module__]
    if name in vars(type(part)):
        owner = type(part)
    elif hasattr(part, name):
        owner, name = type(getattr(part, name)), "forward"
    function = getattr(owner, name)
    if getattr(function, "watched", False):
        return  # for another layer of the same kind

    def watched(*given: Any, **named: Any) -> Any:
        output = function(*given, **named)
        look(_scan_of(function, mixer, given, named, output), mixer)
        return output

    watched.watched = True  # type: ignore[attr-defined]
    setattr(owner, name, watched)
    stack.callback(setattr, owner, name, function)


def _scan_of(
    function: Callable[..., Any], mixer: Mixer, given: Any, named: Any, output: Any
) -> Scan:
    """A call as its input, its output without skip and gate, and what it makes of indicators."""
    import torch

    plain = inspect.unwrap(function)  # in place of a faster kernel that takes not every size
    bound = inspect.signature(plain).bind(*given, **named)
    for name in {*mixer.off, *STATES} & {*inspect.signature(plain).parameters}:
        bound.arguments[name] = None
    exact = torch.float64 if bound.arguments[mixer.values].dtype == torch.float64 else torch.float32
    for name, one in bound.arguments.items():
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            bound.arguments[name] = one.detach().to(exact)
    values, kept = bound.arguments[mixer.values], dict(bound.arguments)

    def run(mixed: Any) -> Any:
        bound.arguments[mixer.values] = mixed
        for name in mixer.batched:
            bound.arguments[name] = kept[name].expand(len(mixed), *kept[name].shape[1:])
        with torch.no_grad():
            made = plain(*bound.args, **bound.kwargs)
        return made[0] if isinstance(made, tuple) else made

    order = [mixer.axes.index(axis) for axis in ("bhtp" if mixer.by_head else "ctb")]

    def arranged(one: Any) -> Any:
        return one.permute(order)[0] if mixer.by_head else one.permute(order)

    def push(first: int, stop: int) -> Any:
        shape = [values.shape[place] for place in order]
        columns = torch.eye(shape[-2], dtype=exact, device=values.device)[:, first:stop]
        pushed = columns.expand(*shape[:-2], *columns.shape)
        back = sorted(range(len(order)), key=order.__getitem__)
        return arranged(run(pushed.permute(back).contiguous()))

    return Scan(arranged(values), arranged(run(values)), push)


def _watch_lightning(
    part: Any, mixer: Mixer, look: Callable[[Scan, Mixer], None], stack: ExitStack
) -> None:
    """Lightning attention is written out in the layer: queries · keys, decaying with distance."""
    import torch

    projected: list[Any] = []

    def keep(module: Any, given: Any, output: Any) -> None:
        projected[:] = [output.detach().float()]

    def compare(module: Any, given: Any) -> None:
        heads, size = part.num_attention_heads, part.head_dim
        batch, length, _ = projected[0].shape
        if batch == 1:
            split = projected[0].view(length, heads, 3 * size).transpose(0, 1)
            query, key, value = split.split(size, dim=-1)
            output = given[0].detach().float().view(length, heads, size).transpose(0, 1)
            places = torch.arange(length, device=value.device)
            apart = places[:, None] - places

            def push(first: int, stop: int) -> Any:
                distance = apart[:, first:stop]
                decay = torch.exp(-part.slope_rate.float() * distance.clamp(min=0))
                return (query @ key[:, first:stop].transpose(1, 2)) * decay * (distance >= 0)

            look(Scan(value, output, push), mixer)

    # Padding, which is masked between the two, is never in a batch of one.
    stack.callback(part.act_fn.register_forward_hook(keep).remove)
    stack.callback(part.norm.register_forward_pre_hook(compare).remove)


def _read(
    found: Implied, path: str, scan: Scan, mixer: Mixer, grid: PooledGrid, asked: _Asked
) -> None:
    """The matrix of a layer, in blocks of columns, each of which also adds to M · input."""
    import torch

    count, length, _ = scan.values.shape
    chosen = None if mixer.by_head else _channels(asked.channels, count)
    names = tuple(map(str, range(count))) if mixer.by_head else tuple(map(str, chosen or ["mean"]))
    check_fit(
        8 * asked.layers * len(names) * grid.cells,
        torch.device("cpu"),
        f"implied attention of {asked.layers} layers × {len(names):,} heads or channels × "
        f"{length:,} tokens²",
        "give a shorter text or --max-size",
    )
    step = max(1, BLOCK // (count * length * (1 if mixer.by_head else 16)))
    mixed, parts = torch.zeros_like(scan.values), []
    for first, stop, kept in _spans(grid.keys, length, step):
        block = scan.push(first, stop)
        mixed += block @ scan.values[:, first:stop]
        if kept:
            shown = block if mixer.by_head else block.mean(0, True) if not chosen else block[chosen]
            here = PooledGrid(grid.queries, Axis(0, stop - first, grid.keys.length))
            parts.append(pool_array(shown.float().cpu().numpy(), here))
    weights = np.concatenate(parts, axis=2)
    check_finite(weights[None], IMPLIED, [path], names, dtype_of(asked.model))
    off = float((mixed - scan.output).abs().max() / scan.output.abs().max().clamp(min=1e-30))
    _check_near(off, DRIFTED, path, "its scan does more than mix its input by a matrix")
    found.matrices[path], found.names[path] = weights, names
    found.channels = 0 if mixer.by_head else count
    found.off = max(found.off, off)


def _check_near(off: float, limit: float, path: str, why: str) -> None:
    if not off <= limit:
        raise AttentionError(
            f"implied attention of '{path}' cannot be read: {why} (off by {off:.2g})"
        )


def _channels(asked: str, count: int) -> list[int] | None:
    """The numbers of single channels; None: their mean."""
    if asked == "mean":
        return None
    names = [str(number) for number in range(count)]
    absent = missing(asked, {*names})
    if absent:
        raise UsageError(f"channel {absent[0]} does not exist: there are {count:,}, from 0")
    return positions(asked, names)


def _spans(keys: Axis, length: int, step: int) -> Iterator[tuple[int, int, bool]]:
    """All columns in blocks of about a size, of whole blocks where the grid has any."""
    whole = max(1, step // keys.length) * keys.length
    for start, stop, kept in (
        (0, keys.start, False),
        (keys.start, keys.stop, True),
        (keys.stop, length, False),
    ):
        for first in range(start, stop, whole):
            yield first, min(first + whole, stop), kept
