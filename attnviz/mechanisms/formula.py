"""A mechanism as one function that yields each of its intermediate arrays by name.

A call returns (output, weights). `parts` yields every array with the formula that made it;
`attnviz steps`, the page and the lessons show these.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias

import numpy as np

from attnviz.core.errors import UsageError
from attnviz.core.registry import Mechanism
from attnviz.mechanisms.arrays import Array, Dropout, Mask, namespace, softmax

Arguments = ParamSpec("Arguments")


class Part(NamedTuple):
    """One array of a calculation."""

    name: str
    value: Array  # the array, or a function that makes it where only `parts` needs it
    formula: str  # how it is computed, from other parts by name: "query @ keyᵀ"
    # its last axes: q(ueries), k(eys), f(eatures), t(iles), g(roups of heads), n (other numbers).
    # Axes before them are heads
    axes: str = "qk"


class HeadArithmetic(NamedTuple):
    """What one head of a model computed, in order; a part without a formula is the model's own."""

    parts: list[Part]
    references: Mapping[
        str, Array
    ]  # arrays of the model's pass, by the part that should equal them
    notes: tuple[str, ...] = ()


Calculation: TypeAlias = Generator[Part, Array, None]  # `send` returns each part, or another
Projected: TypeAlias = Generator[Part, Array, tuple[Array, Array, Array]]


class Formula(Generic[Arguments]):
    """A mechanism: a call returns (output, weights)."""

    def __init__(self, working: Callable[Arguments, Calculation]) -> None:
        self.calculation = working
        update_wrapper(self, working)

    def parts(self, *arrays: Arguments.args, **options: Arguments.kwargs) -> Iterator[Part]:
        """Every part in the order of the calculation, "weights" and "output" among them."""
        for part in self._steps(*arrays, **options):
            yield part._replace(value=part.value()) if callable(part.value) else part

    def _steps(self, *arrays: Arguments.args, **options: Arguments.kwargs) -> Iterator[Part]:
        calculation = self.calculation(*arrays, **options)
        part = next(calculation, None)
        while part is not None:
            yield part
            try:
                part = calculation.send(part.value)
            except StopIteration:
                return

    def __call__(self, *arrays: Arguments.args, **options: Arguments.kwargs) -> tuple[Array, Array]:
        """The output, and the weights or None where the options ask for none."""
        output = weights = None
        for part in self._steps(*arrays, **options):
            if part.name == "output":
                output = part.value
            elif part.name == "weights":
                weights = part.value
        return output, weights


def shapes_of(
    row: Mechanism, size: int, heads: int, inputs: tuple[int, int] | None = None
) -> dict[str, tuple[int, ...]]:
    """The shapes of a mechanism's further parameters; w_NAME is a projection that makes NAME.

    `inputs` are the features of the queries' and of the keys' inputs; None: `size` of both.
    """
    lengths = {"size": size, "heads": heads, "head": size // heads, "half_head": size // heads // 2}
    lengths |= {"latent": max(size // 2, 1), "turned": 2, "turned_heads": 2 * heads}
    queries, keys = inputs or (size, size)
    lengths |= {"queries": queries, "keys": keys, "input": queries}
    lengths |= {"first": queries, "second": keys, "hidden": size}
    return {
        f"w_{name}" if axes.startswith(SIDES) else name: tuple(
            lengths[axis] if axis in lengths else int(axis) for axis in axes.split()
        )
        for name, axes in row.learned.items()
    }


SIDES = ("queries", "keys")  # the first axis of parameters that have a row for each position


def example_parts(row: Mechanism, positions: int, size: int, heads: int) -> Iterator[Part]:
    """Every part of a mechanism over arrays of ones, for their names and formulas."""
    options: dict[str, Any] = {"heads": heads} if row.many_heads else {}
    shapes = shapes_of(row, size, heads).values()
    for (name, axes), shape in zip(row.learned.items(), shapes, strict=True):
        options[name] = np.ones((positions, *shape[1:]) if axes.startswith(SIDES) else shape)
    sides = 2 if row.mutual else 3
    yield from row.load().parts(*[np.ones((positions, size))] * sides, **options)


def groups_of(row: Mechanism, heads: int) -> int:
    """How many heads have their own keys and values; half of an odd number is one."""
    return {"all": heads, "one": 1, "half": 1 if heads % 2 else heads // 2}[row.groups]


def size_of_head(size: int, heads: int) -> int:
    if heads < 1 or size % heads:
        raise UsageError(f"a size of {size} cannot be split into {heads} heads of equal size")
    return size // heads


def split_heads(inputs: Array, heads: int) -> Array:
    """(…, positions, size) as (…, heads, positions, size / heads)."""
    *batch, positions, size = inputs.shape
    head_size = size_of_head(size, heads)
    parts = namespace(inputs).reshape(inputs, (*batch, positions, heads, head_size))
    return namespace(inputs).moveaxis(parts, -2, -3)


def join_heads(inputs: Array) -> Array:
    """(…, heads, positions, head size) as (…, positions, heads × head size)."""
    parts = namespace(inputs).moveaxis(inputs, -3, -2)
    *batch, heads, head_size = parts.shape
    return namespace(inputs).reshape(parts, (*batch, heads * head_size))


def in_heads(
    query: Array, key: Array, value: Array, heads: int, groups: int | None = None
) -> Projected:
    """Queries, keys and values with an axis for heads; keys and values may have fewer `groups`."""
    sides = []
    for name, inputs, axes in (("query", query, "qf"), ("key", key, "kf"), ("value", value, "kf")):
        count, what = heads, "head"
        if axes == "kf" and groups is not None:
            count, what, axes = groups, "group", "gkf"
        inputs = split_heads(inputs, count)
        if heads > 1:
            what = what if count == 1 else f"{what}s"
            formula = f"{name} in {count} {what} of {inputs.shape[-1]} features"
            inputs = yield Part(f"{name}_heads", inputs, formula, axes)
        sides.append(inputs)
    return sides[0], sides[1], sides[2]


def scaled_scores(
    query: Array, key: Array, formula: str = "query @ keyᵀ"
) -> Generator[Part, Array, Array]:
    """Products of queries and keys, divided by the root of the head size."""
    key, size = namespace(query).matrix_transpose(key), query.shape[-1]
    # Dividing the queries costs less than dividing the products, and overflows later.
    yield Part("scores", lambda: query @ key, formula)
    scores = yield Part("scaled_scores", (query / size**0.5) @ key, f"scores / √{size}")
    return scores


def weigh_keys(
    scores: Array, mask: Mask, formula: str, dropout: Dropout | None = None
) -> Generator[Part, Array, Array]:
    """The softmax of scores where the mask lets a query look, thinned by dropout."""
    weights, condition = softmax(scores, mask), "" if mask is None else " where mask"
    formula = f"softmax({formula}{condition})"
    if dropout is not None:
        weights, formula = dropout(weights), f"dropout({formula})"
    return (yield Part("weights", weights, formula))


def join_outputs(
    output: Array, formula: str = "weights @ value", name: str = "output"
) -> Generator[Part, Array, Array]:
    """The heads' outputs (…, heads, queries, features), side by side."""
    if output.shape[-3] > 1:
        output = yield Part("head_outputs", output, formula, "qf")
        formula = "head_outputs, head beside head"
    output = yield Part(name, join_heads(output), formula, "qf")
    return output


def weigh_values(
    scores: Array,
    value: Array,
    mask: Mask,
    formula: str = "scaled_scores",
    dropout: Dropout | None = None,
) -> Calculation:
    """The softmax of the heads' scores, and the values that it mixes."""
    weights = yield from weigh_keys(scores, mask, formula, dropout)
    yield from join_outputs(weights @ value)


def array_like(like: Array, numbers: Array) -> Array:
    """Numpy numbers as an array of the same kind and device; floats also get its precision."""
    dtype = like.dtype if np.issubdtype(numbers.dtype, np.floating) else None
    if isinstance(like, np.ndarray):
        return numbers if dtype is None else numbers.astype(dtype)
    xp = namespace(like)
    array = xp.asarray(numbers, device=like.device)
    return array if dtype is None else xp.astype(array, dtype)


def distances(queries: int, keys: int) -> Array:
    """Key position − query position, integers of shape (queries, keys) in numpy.

    With more keys than queries the queries are the last positions, as behind a cache.
    """
    return np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)


def combine_masks(mask: Mask, other: Array) -> Array:
    """What both masks show; the first may be None."""
    return other if mask is None else mask & other


def hide_keys(values: Array, mask: Mask, mechanism: str, instead: float = 0.0) -> Array:
    """Numbers of each key (…, keys, features), or `instead` where the mask hides the key.

    Raises:
        ValueError: the mask differs between queries; a running sum over keys serves all of them.
    """
    if mask is None:
        return values
    if mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(f"{mechanism} takes one mask row for all queries")
    xp = namespace(values)
    visible = xp.matrix_transpose(mask) if mask.ndim > 1 else mask[:, None]
    return xp.where(visible, values, xp.full_like(values, instead))


def logistic(inputs: Array) -> Array:
    """1 / (1 + exp(−x)), in a form that cannot overflow."""
    return 0.5 + 0.5 * namespace(inputs).tanh(0.5 * inputs)
