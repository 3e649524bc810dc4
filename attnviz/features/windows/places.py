"""Which part of a picture each number of a pass was made of, and every attention of the pass.

A model cuts a picture into patches, rolls, pads, merges or pools them, cuts them into windows, and
puts them back, each family in its own way. All of this is done by few operations of torch. So each
tensor of a pass carries places beside its numbers: where in the picture an element comes from, its
channel, and whether it is a token without a place. An operation that moves elements moves their
places too; a sum or a convolution gives the middle of what it sums. What attention mixes stays at
the place of its query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz.core.records import dataclass, fields, replace

SUMS = 1e-2  # how far a row of weights may sum beside 1


@dataclass(frozen=True, slots=True, eq=False)
class PixelPlaces:
    """Of each element of a tensor, in tensors of its shape, where it comes from."""

    weight: Any  # 1: from the picture; 0: from elsewhere
    row: Any  # in the picture's pixels; 0 without a place
    column: Any
    channel: Any  # of the last linear map; heads are told apart by it
    special: Any  # 1 + the number of a token without a place; 0: none
    attends: bool = False  # whether the tensor is a softmax

    def map(self, change: Callable[[Any], Any]) -> PixelPlaces:
        """Change each tensor."""
        return replace(self, **{name: change(getattr(self, name)) for name in NAMES})


NAMES = tuple(field.name for field in fields(PixelPlaces))[:5]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedCall:
    """One attention: its weights, and the places of its queries and keys.

    Weights have the shape (calls, queries, keys): heads and windows lie in the first axis.
    Places of queries have the shape (calls, queries), of keys (calls, keys); None: unknown.
    """

    weights: Any
    queries: PixelPlaces | None
    keys: PixelPlaces | None


@contextmanager
def trace_places(
    module: Any, inputs: Mapping[str, tuple[Any, PixelPlaces]], look: Callable[[PlacedCall], None]
) -> Iterator[PlaceTracing]:
    """Trace the places of some inputs in a block, and `look` at each attention.

    Inputs are tensors with their places, by name. Every attention of the block is computed as a
    softmax and a product, which fast kernels equal up to rounding.
    """
    parameters = {id(one): name for name, one in module.named_parameters()}
    tracing = PlaceTracing(parameters, look)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    for tensor, places in inputs.values():
        tensor._places = places
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), tracing:
            yield tracing
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for tensor, _ in inputs.values():
            del tensor._places


class PlaceTracing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Carries places along with every operation of torch.

    Attributes:
        specials: of each token without a place the parameter that it comes from, its number in
            there, and how many there are.
    """

    def __init__(self, parameters: Mapping[int, str], look: Callable[[PlacedCall], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameters, self._look = parameters, look
        self.specials = list[tuple[str, int, int]]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        tensors = [*_tensors((*args, *kwargs.values()))]
        name = func.overloadpacket.__name__
        if not any(_places(one) for one in tensors):
            self._name_origin(name, tensors, output)
            return output
        rule = RULES.get(name)
        with _without_modes():
            if rule is not None:
                result = rule(self, func, args, kwargs, output)
            else:
                result = _combine(tensors, output)
        for one, places in zip(_tensors((output,)), result, strict=False):
            if places is not None:
                one._places = places
        return output

    def _name_origin(self, name: str, tensors: Sequence[Any], output: Any) -> None:
        """Remember the parameter that a tensor without places is a copy of."""
        if name in MIXING:
            return
        origins = (self.origin(one) for one in tensors)
        origin = next((one for one in origins if one), "")
        for one in _tensors((output,)) if origin else ():
            one._origin = origin

    def origin(self, tensor: Any) -> str:
        return getattr(tensor, "_origin", "") or self._parameters.get(id(tensor), "")

    def new_special(self, tensor: Any, dim: int) -> PixelPlaces:
        """PixelPlaces of tokens without one: each along an axis is a token of its own."""
        count = tensor.shape[dim]
        shape = [1] * tensor.ndim
        shape[dim] = count
        numbers = torch.arange(1, count + 1, device=tensor.device, dtype=torch.float32)
        special = (numbers + len(self.specials)).view(shape).expand(tensor.shape)
        self.specials += [(self.origin(tensor), number, count) for number in range(count)]
        zero = torch.zeros((1,) * tensor.ndim, device=tensor.device).expand(tensor.shape)
        return PixelPlaces(zero, zero, zero, zero, special)

    def attention(self, weights: Any, values: PixelPlaces | None) -> PixelPlaces | None:
        """Look at weights (calls, queries, keys) times values; the places of their product."""
        own = _places(weights)
        assert own is not None
        queries = _of_rows(own)
        keys = None if values is None else _mean(values, -1).map(lambda one: one[..., 0])
        total = weights.float().sum(-1)
        if bool(((total - 1).abs() >= SUMS).logical_and(total != 0).any()):
            return None  # a softmax over another axis
        self._look(PlacedCall(weights, queries, keys))
        if queries is None:
            return None
        size = 1 if values is None else values.weight.shape[-1]
        shape = (*weights.shape[:2], size)
        result = queries.map(lambda one: one[..., None].expand(shape))
        if values is not None:
            channel = _thin(values.channel).mean(1, keepdim=True).expand(shape)
            result = replace(result, channel=channel)
        return result


def _of_rows(own: PixelPlaces) -> PixelPlaces | None:
    """The places of the rows of scores (calls, queries, keys); None: they differ in a row."""
    thin = [_thin(getattr(own, name)) for name in ("row", "column", "weight", "special")]
    if any(one.shape[-1] > 1 and bool((one.amax(-1) - one.amin(-1) > 1e-3).any()) for one in thin):
        return None
    return _mean(own, -1).map(lambda one: one[..., 0])


def _without_modes() -> Any:
    return torch.utils._python_dispatch._disable_current_modes()


def _places(tensor: Any) -> PixelPlaces | None:
    return getattr(tensor, "_places", None)


def _tensors(values: Any) -> Iterator[Any]:
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _thin(one: Any) -> Any:
    """A tensor without the axes along which it repeats itself: they keep a length of 1."""
    for dim, (size, stride) in enumerate(zip(one.shape, one.stride(), strict=True)):
        if size > 1 and stride == 0:
            one = one.narrow(dim, 0, 1)
    return one


def _whole(places: PixelPlaces) -> PixelPlaces:
    """PixelPlaces whose weight is 0 or 1, of places that were summed by weight."""
    inside = places.weight > 1e-6
    share = torch.where(inside, places.weight, 1)
    return replace(
        places,
        weight=inside.float(),
        row=torch.where(inside, places.row / share, 0),
        column=torch.where(inside, places.column / share, 0),
    )


def _expand(places: PixelPlaces, shape: Any) -> PixelPlaces:
    return places.map(lambda one: one.expand(shape))


def _alike(places: PixelPlaces) -> PixelPlaces:
    """Weights, rows and columns of one shape."""
    broadcast: Any = torch.broadcast_tensors
    weight, row, column = broadcast(places.weight, places.row, places.column)
    return replace(places, weight=weight, row=row, column=column)


def _combine(tensors: Sequence[Any], output: Any) -> list[PixelPlaces | None]:
    """The places of an operation on each element by itself: the middle of its inputs'."""
    own = [places for one in tensors if (places := _places(one)) is not None]
    result = list[PixelPlaces | None]()
    for one in _tensors((output,)):
        fits = [places for places in own if _fits(places.weight.shape, one.shape)]
        result.append(_middle(fits, one.shape) if fits else None)
    return result


def _fits(shape: Any, shape_of_result: Any) -> bool:
    try:
        return bool(torch.broadcast_shapes(shape, shape_of_result) == shape_of_result)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False


def _middle(several: Sequence[PixelPlaces], shape: Any) -> PixelPlaces:
    first = several[0]
    if len(several) == 1 or all(one is first for one in several):
        return first if first.weight.shape == shape else _expand(first, shape)
    count = len(several)
    thin = [one.map(_thin) for one in several]

    def mean(name: str) -> Any:
        total = getattr(thin[0], name)
        for one in thin[1:]:
            total = total + getattr(one, name)
        return total / count

    special = thin[0].special
    for one in thin[1:]:
        special = torch.maximum(special, one.special)
    weight, row, column, channel = map(mean, NAMES[:4])
    attends = any(one.attends for one in several)
    whole = PixelPlaces(weight, row, column, channel, special, attends)
    return _expand(_whole(_alike(whole)), shape)


def _mean(places: PixelPlaces, dims: Any, *, keep: bool = True) -> PixelPlaces:
    """PixelPlaces summed over axes."""
    special = _thin(places.special)
    dims = [dims] if isinstance(dims, int) else [*dims] or [*range(special.ndim)]
    thin = places.map(_thin)
    result = thin.map(lambda one: one.mean(dims, keepdim=keep))
    result = replace(result, special=special.amax(dims, keepdim=keep))
    if keep:
        result = _whole(_alike(result))
        shape = list(places.weight.shape)
        for dim in dims:
            shape[dim] = 1
        return _expand(result, shape)
    full = [size for dim, size in enumerate(places.weight.shape)
            if dim not in {d % places.weight.ndim for d in dims}]  # fmt: skip
    return _whole(_expand(result, full))


Rule = Callable[[PlaceTracing, Any, tuple[Any, ...], dict[str, Any], Any], list[PixelPlaces | None]]


def _move(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """An operation that moves elements, and leaves some out or repeats them."""
    own = _places(args[0])
    if own is None:
        return []
    name = func.overloadpacket.__name__
    if name in ("view", "_unsafe_view", "reshape", "as_strided"):
        if name == "as_strided":
            return [own.map(lambda one: one.contiguous().as_strided(*args[1:], **kwargs))]
        return [own.map(lambda one: one.reshape(args[1]))]
    rest = args[1:2] if name == "constant_pad_nd" else args[1:]

    def move(one: Any) -> list[Any]:
        return [*_tensors((func(one, *rest, **kwargs),))]

    parts = zip(*(move(getattr(own, name)) for name in NAMES), strict=True)
    result = [replace(own, **dict(zip(NAMES, part, strict=True))) for part in parts]
    if name.startswith(("upsample", "avg_pool", "_adaptive_avg", "adaptive")):
        result = [_whole(one) for one in result]
    return [*result]


def _pool_largest(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """Largest numbers of parts lie in their middle."""
    own = _places(args[0])
    if own is None:
        return []
    kernel = args[1]
    stride, padding = (args[2] or kernel) if len(args) > 2 else kernel, [*args[3:4], 0][0]
    ceil = args[5] if len(args) > 5 else False
    pool = torch.nn.functional.avg_pool2d
    return [_whole(own.map(lambda one: pool(one.contiguous(), kernel, stride, padding, ceil)))]


def _reduce(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """A sum, mean or largest number over axes lies in their middle."""
    own, first = _places(args[0]), next(_tensors((output,)))
    if own is None:
        return []
    dims = args[1] if len(args) > 1 else kwargs.get("dim", [])
    name = func.overloadpacket.__name__
    if name in ("linalg_vector_norm", "norm"):
        dims = args[2] if len(args) > 2 else kwargs.get("dim", [])
    result = _mean(own, dims if dims is not None else [], keep=first.ndim == args[0].ndim)
    return [result if result.weight.shape == first.shape else None] * len([*_tensors((output,))])


def _join(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """Tensors behind each other; those without places are padding or tokens without a place."""
    tensors = [one for one in args[0] if one.numel()]
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if func.overloadpacket.__name__ == "stack":
        tensors = [_stack_places(one, dim) for one in tensors]
    own = [places for one in tensors if (places := _places(one)) is not None]
    if not own:
        return []
    tokens = any(_varies(one, dim) for one in own)
    parts = list[PixelPlaces]()
    for one in tensors:
        places = _places(one)
        if places is None:
            padding = not tracing.origin(one) and not bool(one.any())  # zeros of no parameter
            is_token = tokens and not padding
            places = tracing.new_special(one, dim % one.ndim) if is_token else _nowhere(one)
        parts.append(places)
    fields_of_all: list[Any] = [torch.cat([getattr(one, n) for one in parts], dim) for n in NAMES]
    weight, row, column, channel, special = fields_of_all
    return [PixelPlaces(weight, row, column, channel, special)]


def _stack_places(one: Any, dim: int) -> Any:
    places, more = _places(one), one.unsqueeze(dim)
    if places is not None:
        more._places = places.map(lambda field: field.unsqueeze(dim))
    return more


def _nowhere(one: Any) -> PixelPlaces:
    zero = torch.zeros((1,) * one.ndim, device=one.device).expand(one.shape)
    return PixelPlaces(zero, zero, zero, zero, zero)


def _varies(places: PixelPlaces, dim: int) -> bool:
    """Whether an axis is one of places, and none of channels."""
    sides = [_thin(getattr(places, name)) for name in ("row", "column", "special")]
    return any(
        one.shape[dim] > 1 and bool((one.amax(dim) - one.amin(dim) > 0).any()) for one in sides
    )


def _channels(places: PixelPlaces, size: int, dim: int = -1) -> PixelPlaces:
    """PixelPlaces repeated along an axis of new channels."""
    shape = list(places.weight.shape)
    shape[dim] = size
    along = [1] * len(shape)
    along[dim] = size
    numbers = torch.arange(size, device=places.weight.device, dtype=torch.float32)
    channel = numbers.view(along).expand(shape)
    return replace(_expand(places, shape), channel=channel)


def _multiply(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """A product of matrices: a linear map, scores, or weights times values."""
    first, second = args[1:3] if "add" in func.overloadpacket.__name__ else args[:2]
    own, other = _places(first), _places(second)
    if own is not None and own.attends:
        return [_attention(tracing, first, other)]
    if other is not None and other.attends:
        other_way = second.transpose(-1, -2)
        other_way._places = other.map(lambda one: one.transpose(-1, -2))
        values = None if own is None else own.map(lambda one: one.transpose(-1, -2))
        result = _attention(tracing, other_way, values)
        return [None if result is None else result.map(lambda one: one.transpose(-1, -2))]
    if own is not None:
        rows = _mean(own, -1)
        if other is not None:  # scores: the channel tells the head
            return [_expand(rows, output.shape)]
        return [_channels(rows, output.shape[-1])]
    assert other is not None
    return [_channels(_mean(other, -2), output.shape[-2], -2)]


def _attention(
    tracing: PlaceTracing, weights: Any, values: PixelPlaces | None
) -> PixelPlaces | None:
    if weights.ndim == 3:
        return tracing.attention(weights, values)
    single = weights[None]
    own = _places(weights)
    assert own is not None
    single._places = own.map(lambda one: one[None])
    result = tracing.attention(single, values and values.map(lambda one: one[None]))
    return result and result.map(lambda one: one[0])


def _convolve(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """A convolution lies in the middle of what it reads."""
    own, kernel = _places(args[0]), args[1]
    if own is None:
        return []
    mean = _mean(own, 1)
    ones = torch.ones((1, 1, *kernel.shape[2:]), device=kernel.device)

    def read(one: Any) -> Any:
        return torch.ops.aten.convolution(one.float(), ones, None, *args[3:8], 1)

    nothing = torch.zeros_like(read(mean.weight))
    result = PixelPlaces(read(mean.weight), read(mean.row), read(mean.column), nothing, nothing)
    return [_channels(_whole(result), output.shape[1], 1)]


def _normalize(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    return [_places(args[0])]


def _softmax(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    own = _places(args[0])
    return [None if own is None else replace(own, attends=True)]


def _drop(
    tracing: PlaceTracing, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> list[PixelPlaces | None]:
    """An operation that reads elements at places that its numbers say."""
    return []


_RULES = {
    _move: "view _unsafe_view reshape permute transpose t expand unsqueeze squeeze slice select "
    "split split_with_sizes unbind roll flip constant_pad_nd repeat index gather index_select "
    "as_strided unfold im2col col2im pixel_shuffle pixel_unshuffle diagonal reflection_pad2d "
    "replication_pad2d upsample_bilinear2d upsample_nearest2d upsample_bicubic2d avg_pool2d "
    "_adaptive_avg_pool2d avg_pool3d _adaptive_avg_pool3d upsample_linear1d channel_shuffle",
    _reduce: "mean sum amax amin max min linalg_vector_norm norm var std logsumexp",
    _multiply: "mm addmm bmm baddbmm",
    _convolve: "convolution",
    _normalize: "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _fused_rms_norm",
    _drop: "grid_sampler_2d grid_sampler_3d _fft_r2c _fft_c2r _fft_c2c _cdist_forward sort topk "
    "argmax argsort",
    _join: "cat stack",
    _pool_largest: "max_pool2d_with_indices",
    _softmax: "_softmax _safe_softmax",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _RULES.items() for name in names.split()}
"""What each operation does to places; any other works on each element by itself."""
MIXING = {name for name, rule in RULES.items() if rule in (_multiply, _convolve, _normalize)}
