"""One transformer by its shape, numpy or torch: every model that runs without transformers.

A shape says how a layer is built (Vaswani 2017): norms before a part (Xiong 2020), on what it adds
or on the sum, by mean and variance (Ba 2016) or root mean square (Zhang & Sennrich 2019); positions
that turn queries and keys (Su 2021, section 3.4.2), for all layers alike or not; keys and values
that heads share (Ainslie 2023); a gated feed-forward part (Shazeer 2020) or a plain one. It names
the weights too. Each function is written once for both kinds of arrays: numpy answers the command
line without importing torch, torch trains the models inside and runs on a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import pi, sqrt
from typing import Any, Literal

from attnviz.core.attention_call import AttentionCall
from attnviz.core.notices import pause
from attnviz.core.records import dataclass
from attnviz.mechanisms.arrays import Array, namespace, softmax, transpose
from attnviz.mechanisms.dot_product import causal_mask, join_heads, split_heads

Stacks = tuple[Array, ...]
"""The embedded inputs of each stack of layers."""
Weights = Mapping[str, Array]
"""Every learned array by name; a linear map's weight has the shape (outputs, inputs)."""


class UnknownArchitecture(Exception):  # noqa: N818 - transformers answers then: nothing failed
    """Why this network does not run a checkpoint."""


@dataclass(frozen=True, slots=True)
class LayerPart:
    """The names of one part of a layer, an attention or a feed-forward, among its weights."""

    name: str = ""  # stands before its maps
    parts: str = ""  # its maps: query, key, value, output; or gate, inner, outer; or the last two
    before: str = ""  # the norm of its inputs; "": none
    within: str = ""  # of what it adds
    after: str = ""  # of the sum
    scale: str = ""  # of what it adds, a number for each feature

    @property
    def maps(self) -> tuple[str, ...]:
        """The names of its maps."""
        return tuple(self.parts.split())


@dataclass(frozen=True, slots=True)
class Shape:
    """How a stack of layers is built, and what its weights are called."""

    layer: str  # "encoder.layer.{}"
    attention: LayerPart
    feed_forward: LayerPart
    cross: LayerPart | None = None
    last_norm: str = ""
    query_norm: str = ""  # of each head's queries and keys
    key_norm: str = ""
    vocabulary: int = 0
    size: int = 0  # of a position
    inner: int = 0  # of a feed-forward part
    layers: int = 0
    heads: int = 1
    key_heads: int = 0  # 0: each head has its own keys
    head_size: int = 0  # 0: the heads share the size
    norm: Literal["layer", "rms", "rms from 0"] = "layer"  # the last scales by 1 + weight
    epsilon: float = 1e-5
    activation: str = "gelu_tanh"
    causal: bool = False
    parallel: bool = False  # whether attention and feed-forward read the same inputs
    multiplier: float | None = None  # of scores; None: 1 / √(head size)
    cap: float | None = None  # of scores
    scales_embeddings: bool = False  # whether embeddings are multiplied by the root of their size
    turns: tuple[float, ...] = ()  # radians a position, of each pair of a head's features
    stretch: float = 1.0  # of pairs that turn
    windows: tuple[int, ...] = ()  # keys that a query of each layer sees; 0: all; none: all do
    window_turns: tuple[float, ...] = ()  # instead of `turns`, where a layer has a window
    side: int = 0  # pixels of a picture, and of a patch
    patch: int = 0

    @property
    def head_features(self) -> int:
        """The size of a head."""
        return self.head_size or self.size // self.heads

    @property
    def factor(self) -> float:
        """What the product of a query and a key is multiplied by."""
        return self.head_features**-0.5 if self.multiplier is None else self.multiplier

    @property
    def patches(self) -> int:
        """The number of patches in a row and in a column."""
        return self.side // self.patch


Watch = Callable[[AttentionCall], Array]
"""Sees each attention of a pass and returns the output that the model goes on with."""


class Record(list[AttentionCall]):
    """A watch that records each attention of a pass and changes nothing."""

    def __call__(self, attention: AttentionCall) -> Array:
        """The output as it is."""
        self.append(attention)
        return attention.output


class Cache:
    """Keys and values (…, heads, positions, head size) of what was read so far, by layer."""

    def __init__(self) -> None:
        self.length = 0
        self.layers: dict[int, tuple[Array, Array]] = {}
        self.memory: dict[int, tuple[Array, Array]] = {}  # of cross-attention, which stay

    def extend(self, layer: int, key: Array, value: Array) -> tuple[Array, Array]:
        """All keys and values so far, these last."""
        if earlier := self.layers.get(layer):
            xp = namespace(key)
            key, value = (
                xp.concat(both, axis=-2) for both in zip(earlier, (key, value), strict=True)
            )
        self.layers[layer] = key, value
        return key, value


def linear_map(weights: Weights, name: str, inputs: Array, row: int | None = None) -> Array:
    """Inputs (…, inputs) through a linear map; the bias goes to one `row` of parts, if given."""
    xp, weight = namespace(inputs), transpose(weights[f"{name}.weight"])
    # As one product of two matrices: numpy would multiply the texts of a batch one by one.
    outputs = xp.reshape(inputs, (-1, inputs.shape[-1])) @ weight
    outputs = xp.reshape(outputs, (*inputs.shape[:-1], -1))
    return shift(outputs, weights[f"{name}.bias"], row) if f"{name}.bias" in weights else outputs


def shift(outputs: Array, bias: Array, row: int | None) -> Array:
    """The outputs plus a bias, or with it in one row of the first axis only."""
    if row is None:
        return outputs + bias
    outputs[row] += bias
    return outputs


def normalise(
    weights: Weights,
    shape: Shape,
    name: str,
    inputs: Array,
    like: Array | None = None,
    row: int | None = None,
) -> Array:
    """Inputs with variance 1, or a mean square of 1, over their features; scaled and shifted.

    With `like` they are scaled as these are: the norm is linear then, so inputs that sum to `like`
    give outputs that sum to its norm if only one `row` of the first axis takes the shift.
    """
    xp, weight = namespace(inputs), weights[f"{name}.weight"]
    whole = inputs if like is None else like
    if shape.norm == "layer":
        inputs, whole = (one - xp.mean(one, axis=-1, keepdims=True) for one in (inputs, whole))
    square = xp.mean(whole * whole, axis=-1, keepdims=True)
    outputs = inputs / xp.sqrt(square + shape.epsilon)
    outputs = outputs * (1 + weight if shape.norm == "rms from 0" else weight)
    return shift(outputs, weights[f"{name}.bias"], row) if shape.norm == "layer" else outputs


ERF = (
    [
        *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06),
        *(-5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03),
        -1.60960333262415e-02,
    ],
    [
        *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
        *(-7.37332916720468e-03, -1.42647390514189e-02),
    ],
)
"""Coefficients of x · p(x²) / q(x²), which is the error function up to 4, where it is 1 in float32
(of Eigen, MPL 2.0): numpy has none."""


def erf(inputs: Array) -> Array:
    """The error function, to one rounding of float32."""
    inputs = namespace(inputs).clip(inputs, -4.0, 4.0)
    square = inputs * inputs
    sums = []
    for coefficients in ERF:
        total = coefficients[0] * square + coefficients[1]
        for one in coefficients[2:]:
            total = total * square + one
        sums.append(total)
    return inputs * sums[0] / sums[1]


def gelu_tanh(inputs: Array) -> Array:
    """X · Φ(x) in its tanh form (Hendrycks & Gimpel 2016, section 2)."""
    inner = sqrt(2 / pi) * (inputs + 0.044715 * inputs * inputs * inputs)
    return 0.5 * inputs * (1 + namespace(inputs).tanh(inner))


def silu(inputs: Array) -> Array:
    """X · sigmoid(x), never overflowing."""
    return 0.5 * inputs * (1 + namespace(inputs).tanh(0.5 * inputs))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda inputs: 0.5 * inputs * (1 + erf(inputs * sqrt(0.5))),
    "gelu_tanh": gelu_tanh,
    "relu": lambda inputs: namespace(inputs).clip(inputs, 0.0, None),
    "silu": silu,
    "tanh": lambda inputs: namespace(inputs).tanh(inputs),
}


def rotate_pairs(inputs: Array, by: Array, stretch: float = 1.0) -> Array:
    """Queries or keys (…, positions, head size) with pairs of their first features turned.

    A pair is a feature of the first half of those that turn and the one at its place in the second.
    """
    xp, half = namespace(inputs), by.shape[-1]
    first, second, rest = inputs[..., :half], inputs[..., half : 2 * half], inputs[..., 2 * half :]
    sine, cosine = (xp.astype(wave(by) * stretch, inputs.dtype) for wave in (xp.sin, xp.cos))
    parts = (first * cosine - second * sine, second * cosine + first * sine, rest)
    return xp.concat(parts, axis=-1)


def angles(like: Array, turns: tuple[float, ...], first: int, last: int) -> Array:
    """The angles of each pair from position first to before last, radians (positions, pairs)."""
    xp = namespace(like)
    place = {"device": like.device, "dtype": xp.float32}
    return xp.arange(first, last, **place)[:, None] * xp.asarray(turns, **place)


class Pass:
    """One run through a stack of layers: the weights, the shape, and who watches."""

    def __init__(
        self, weights: Weights, shape: Shape, watch: Watch | None, cache: Cache | None
    ) -> None:
        self.weights, self.shape, self.watch, self.cache = weights, shape, watch, cache

    def attend(
        self, number: int, block: LayerPart, inputs: Array, memory: Array | None, mask: Array | None
    ) -> tuple[Array, Array]:
        """What an attention adds, and its weights; keys are a memory's or, if None, the inputs'."""
        pause()
        weights, shape, own = self.weights, self.shape, memory is None
        name = f"{shape.layer.format(number)}.{block.name}"
        normal = self.norm(number, block.before, inputs)
        source = normal if memory is None else memory
        before = self.cache.length if self.cache else 0
        length = before + inputs.shape[-2]
        query = self.project(number, block, 0, normal, before=before)
        sides = self.cache.memory.get(number) if self.cache and not own else None
        key, value = sides or (
            self.project(number, block, which, source, before=before) for which in (1, 2)
        )
        window = shape.windows[number] if own and shape.windows else 0
        groups = shape.key_heads or shape.heads
        if self.cache is not None and own:
            key, value = self.cache.extend(number, key, value)
        elif self.cache is not None:
            self.cache.memory[number] = key, value
        if groups < shape.heads:
            xp = namespace(key)
            key, value = (xp.repeat(one, shape.heads // groups, axis=-3) for one in (key, value))
        if shape.causal and own:
            mask = causal_mask(inputs, inputs.shape[-2], length)
            if 0 < window < length:
                mask = mask & ~namespace(mask).tril(mask, k=length - inputs.shape[-2] - window)
        scores = query @ transpose(key) * shape.factor
        if shape.cap:
            scores = shape.cap * namespace(scores).tanh(scores / shape.cap)
        shares = softmax(scores, mask)
        output = join_heads(shares @ value)
        if self.watch is not None:
            call = AttentionCall(query, key, value, mask, output, shares, path=name)
            call.inputs, call.memory, call.residual = normal, source, inputs
            output = self.watch(call)
        return linear_map(weights, f"{name}.{block.maps[3]}", output), shares

    def project(
        self,
        number: int,
        block: LayerPart,
        which: int,
        source: Array,
        *,
        before: int = 0,
        like: Array | None = None,
        row: int | None = None,
    ) -> Array:
        """Queries (0), keys (1) or values (2) of inputs (…, heads, positions, head size).

        The inputs follow `before` others; `like` and `row` are of parts, see `normalise`.
        """
        weights, shape = self.weights, self.shape
        name = f"{shape.layer.format(number)}.{block.name}"
        heads = (shape.key_heads if which else 0) or shape.heads
        side = split_heads(linear_map(weights, f"{name}.{block.maps[which]}", source, row), heads)
        if norm := (shape.query_norm, shape.key_norm, "")[which]:
            side = normalise(weights, shape, f"{name}.{norm}", side, like, row)
        has_window = shape.windows and shape.windows[number] and shape.window_turns
        turns = shape.window_turns if has_window else shape.turns
        if turns and which < 2 and block is shape.attention:
            by = angles(source, turns, before, before + source.shape[-2])
            side = rotate_pairs(side, by, shape.stretch)
        return side

    def feed_forward(self, number: int, inputs: Array) -> Array:
        """What the feed-forward part adds to its inputs, of their shape."""
        shape, block = self.shape, self.shape.feed_forward
        layer = shape.layer.format(number)
        name = f"{layer}.{block.name}" if block.name else layer
        normal = self.norm(number, block.before, inputs)
        *gates, inner, outer = (f"{name}.{part}" for part in block.maps)
        activate = ACTIVATIONS[shape.activation]
        if gates:
            gate = activate(linear_map(self.weights, gates[0], normal))
            inner_states = gate * linear_map(self.weights, inner, normal)
        else:
            inner_states = activate(linear_map(self.weights, inner, normal))
        return linear_map(self.weights, outer, inner_states)

    def add(self, number: int, block: LayerPart, inputs: Array, update: Array) -> Array:
        """The inputs and what a part adds to them."""
        return self.norm(number, block.after, inputs + self.refine(number, block, update))

    def refine(
        self,
        number: int,
        block: LayerPart,
        update: Array,
        like: Array | None = None,
        row: int | None = None,
    ) -> Array:
        """What a part adds, after its own norm and scale; see `normalise`."""
        part = self.norm(number, block.within, update, like, row)
        scale = f"{self.shape.layer.format(number)}.{block.scale}"
        return part * self.weights[scale] if block.scale else part

    def norm(
        self,
        number: int,
        name: str,
        inputs: Array,
        like: Array | None = None,
        row: int | None = None,
    ) -> Array:
        """A norm of a layer, if there is one of this name; see `normalise`."""
        if not name:
            return inputs
        path = f"{self.shape.layer.format(number)}.{name}"
        return normalise(self.weights, self.shape, path, inputs, like, row)

    def run(
        self, inputs: Array, memory: Array | None = None, mask: Array | None = None, first: int = 0
    ) -> tuple[Array, list[Array], list[Array]]:
        """The last states, each layer's own weights, and its weights over the memory."""
        shape, own, cross = self.shape, list[Array](), list[Array]()
        for number in range(first, shape.layers):
            before, own_mask = inputs, mask if memory is None else None
            update, shares = self.attend(number, shape.attention, inputs, None, own_mask)
            own.append(shares)
            inputs = self.add(number, shape.attention, inputs, update)
            if shape.cross is not None:
                update, shares = self.attend(number, shape.cross, inputs, memory, mask)
                cross.append(shares)
                inputs = self.add(number, shape.cross, inputs, update)
            update = self.feed_forward(number, before if shape.parallel else inputs)
            inputs = self.add(number, shape.feed_forward, inputs, update)
        if self.cache is not None:
            self.cache.length += inputs.shape[-2]
        if shape.last_norm:
            inputs = normalise(self.weights, shape, shape.last_norm, inputs)
        return inputs, own, cross


def run_layers(
    weights: Weights,
    shape: Shape,
    inputs: Array,
    memory: Array | None = None,
    *,
    mask: Array | None = None,
    watch: Watch | None = None,
    cache: Cache | None = None,
    first: int = 0,
) -> tuple[Array, list[Array], list[Array]]:
    """The last states of embedded inputs (…, queries, size), each layer's own weights and cross.

    Args:
        weights: learned arrays by name.
        shape: of the stack.
        inputs: of the first layer; they follow on what the cache holds, which then holds them too.
        memory: what cross-attention looks at, shape (…, keys, size).
        mask: True where the memory, or without one the input, is no padding.
        watch: sees each attention.
        cache: of a causal stack.
        first: the first layer to run. An unchanged pass shows its inputs to the watch, as the
            residual stream of its own attention.
    """
    return Pass(weights, shape, watch, cache).run(inputs, memory, mask, first)


class Network(ABC):
    """A model whose layers this module runs.

    Attributes:
        weights: its learned arrays.
        streams: the name of each stream's attention among them, by layer.
        sizes: its shape, where it has one stack.
    """

    __slots__ = ()
    weights: Any
    streams: Mapping[str, str]
    sizes: Any

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of its stack, or of its encoder and its decoder."""
        return (self.sizes,)

    def shape_of(self, stream: str) -> Shape:
        """The stack that has a stream."""
        return self.shapes[0 if stream == "encoder" else -1]

    def part_of(self, stream: str) -> LayerPart:
        """The attention of each layer that a stream shows."""
        shape = self.shape_of(stream)
        return shape.cross if stream == "cross" and shape.cross else shape.attention

    @abstractmethod
    def inputs(self, feed: Any) -> Stacks:
        """The embedded inputs of each stack, (positions, size)."""

    def forward(
        self, weights: Weights, inputs: Stacks, watch: Watch | None = None, first: int = 0
    ) -> tuple[Array, dict[str, list[Array]]]:
        """Last states (…, positions, size), and each stream's weights by layer.

        The last stack begins at a layer, `first`, whose inputs are given. An encoder runs alone
        where the decoder has no inputs.
        """
        *below, shape = self.shapes[: len(inputs)]
        memory, above = None, dict[str, list[Array]]()
        if below:
            memory, above["encoder"], _ = run_layers(weights, below[0], inputs[0], watch=watch)
        how: Any = {"watch": watch, "first": first}
        states, own, above["cross"] = run_layers(weights, shape, inputs[-1], memory, **how)
        return states, dict.fromkeys(self.streams, own) | above

    @abstractmethod
    def scores(self, weights: Weights, states: Array) -> Array:
        """The logit of each choice, for states (…, size)."""
