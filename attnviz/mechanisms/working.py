"""A mechanism as one function that yields each of its intermediate arrays by name.

Called, it answers (output, weights). Its `parts` are everything on the way with the formula that
made it, for whoever shows the arithmetic: `attnviz steps`, the page, the lessons.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeAlias

import numpy as np

from attnviz.core.errors import UsageError
from attnviz.core.registry import Mechanism
from attnviz.mechanisms.arrays import Array, Dropout, namespace, softmax

Given = ParamSpec("Given")


class Part(NamedTuple):
    """One array of a calculation.

    Attributes:
        value: the array; or what makes it, of one that only a reader of the steps needs.
        formula: how it comes about, of parts by their names: "query @ keyᵀ".
        axes: its last axes: q(ueries), k(eys), f(eatures), t(iles), g(roups of heads), n (numbers
            of another kind); what stands before them are heads.
    """

    name: str
    value: Array
    formula: str
    axes: str = "qk"


class HeadPlace(NamedTuple):
    """One head of a model, as its maps name it."""

    stream: str
    layer: str
    head: str


class Worked(NamedTuple):
    """What one head of a model did, part after part; a part without a formula is the model's own.

    Attributes:
        seen: what the model's pass itself had, by the name of the part that should be the same.
    """

    parts: list[Part]
    seen: Mapping[str, Array]
    notes: tuple[str, ...] = ()


Working: TypeAlias = Generator[Part, Array, None]
"""Yields part after part, and is sent each back."""
Projected: TypeAlias = Generator[Part, Array, tuple[Array, Array, Array]]


class Formula(Generic[Given]):
    """A mechanism: called, it answers (output, weights)."""

    def __init__(self, working: Callable[Given, Working]) -> None:
        self.working = working
        update_wrapper(self, working)

    def parts(self, *arrays: Given.args, **options: Given.kwargs) -> Iterator[Part]:
        """Every part in the order of the calculation, "weights" and "output" among them."""
        for part in self._steps(*arrays, **options):
            yield part._replace(value=part.value()) if callable(part.value) else part

    def _steps(self, *arrays: Given.args, **options: Given.kwargs) -> Iterator[Part]:
        working = self.working(*arrays, **options)
        part = next(working, None)
        while part is not None:
            yield part
            try:
                part = working.send(part.value)
            except StopIteration:
                return

    def __call__(self, *arrays: Given.args, **options: Given.kwargs) -> tuple[Array, Array]:
        """The output and the weights; the weights are None where they were not to be formed."""
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

    `inputs` are the features of the queries' and the keys' inputs; None: as many as there are of
    the projected.
    """
    known = {"size": size, "heads": heads, "head": size // heads, "half_head": size // heads // 2}
    known |= {"latent": max(size // 2, 1), "turned": 2, "turned_heads": 2 * heads}
    queries, keys = inputs or (size, size)
    known |= {"queries": queries, "keys": keys, "input": queries}
    known |= {"first": queries, "second": keys, "hidden": size}
    return {
        f"w_{name}" if axes.startswith(SIDES) else name: tuple(
            known[axis] if axis in known else int(axis) for axis in axes.split()
        )
        for name, axes in row.learned.items()
    }


SIDES = ("queries", "keys")
"""The first axis of what is of each position."""


def example_parts(row: Mechanism, positions: int, size: int, heads: int) -> Iterator[Part]:
    """Every part of a mechanism over ones: for who wants their names and formulas."""
    options: dict[str, Any] = {"heads": heads} if row.many_heads else {}
    shapes = shapes_of(row, size, heads).values()
    for (name, axes), shape in zip(row.learned.items(), shapes, strict=True):
        options[name] = np.ones((positions, *shape[1:]) if axes.startswith(SIDES) else shape)
    sides = 2 if "co" in row.commands else 3
    yield from row.load().parts(*[np.ones((positions, size))] * sides, **options)


def groups_of(row: Mechanism, heads: int) -> int:
    """How many heads have keys and values of their own; half of an odd number is one."""
    return {"all": heads, "one": 1, "half": 1 if heads % 2 else heads // 2}[row.groups]


def size_of_head(size: int, heads: int) -> int:
    """How many of the features belong to each head."""
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
    """Queries, keys and values with an axis for heads, or of keys and values for `groups` of them.

    Each is a part of its own where there are several.
    """
    found = []
    for name, inputs, axes in (("query", query, "qf"), ("key", key, "kf"), ("value", value, "kf")):
        count, what = heads, "head"
        if axes == "kf" and groups is not None:
            count, what, axes = groups, "group", "gkf"
        inputs = split_heads(inputs, count)
        if heads > 1:
            shown = f"{name} in {count} {what}{'s' * (count > 1)} of {inputs.shape[-1]} features"
            inputs = yield Part(f"{name}_heads", inputs, shown, axes)
        found.append(inputs)
    return found[0], found[1], found[2]


def scaled_scores(
    query: Array, key: Array, shown: str = "query @ keyᵀ"
) -> Generator[Part, Array, Array]:
    """Products of queries and keys, divided by the root of the head size.

    Queries are divided, which costs less and overflows later; products are made for who looks.
    """
    key, size = namespace(query).matrix_transpose(key), query.shape[-1]
    yield Part("scores", lambda: query @ key, shown)
    scores = yield Part("scaled_scores", (query / size**0.5) @ key, f"scores / √{size}")
    return scores


def weighed(
    scores: Array, mask: Array | None, shown: str, dropout: Dropout | None = None
) -> Generator[Part, Array, Array]:
    """The softmax of scores where the mask lets a query look; of it dropout leaves out some."""
    weights, shown = (
        softmax(scores, mask),
        f"softmax({shown}{'' if mask is None else ' where mask'})",
    )
    if dropout is not None:
        weights, shown = dropout(weights), f"dropout({shown})"
    return (yield Part("weights", weights, shown))


def mixed(
    output: Array, shown: str = "weights @ value", name: str = "output"
) -> Generator[Part, Array, Array]:
    """What every head puts out, (…, heads, queries, features), set side by side."""
    if output.shape[-3] > 1:
        output = yield Part("head_outputs", output, shown, "qf")
        shown = "head_outputs, head beside head"
    output = yield Part(name, join_heads(output), shown, "qf")
    return output


def attended(
    scores: Array,
    value: Array,
    mask: Array | None,
    shown: str = "scaled_scores",
    dropout: Dropout | None = None,
) -> Working:
    """The softmax of scores of several heads, and the values mixed by it."""
    weights = yield from weighed(scores, mask, shown, dropout)
    yield from mixed(weights @ value)


def placed(like: Array, numbers: Array) -> Array:
    """Numbers of numpy as an array of the same kind, device and (if they are floats) precision."""
    dtype = like.dtype if np.issubdtype(numbers.dtype, np.floating) else None
    if isinstance(like, np.ndarray):
        return numbers if dtype is None else numbers.astype(dtype)
    xp = namespace(like)
    made = xp.asarray(numbers, device=like.device)
    return made if dtype is None else xp.astype(made, dtype)


def distances(queries: int, keys: int) -> Array:
    """Key position − query position, integers of shape (queries, keys) in numpy.

    With more keys than queries the queries are the last positions, as behind a cache.
    """
    return np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)


def both(mask: Array | None, other: Array) -> Array:
    """What two masks leave to see, of which the first may be none."""
    return other if mask is None else mask & other


def seen_keys(values: Array, mask: Array | None, mechanism: str, instead: float = 0.0) -> Array:
    """Numbers of each key (…, keys, features), or `instead` where it is hidden from all queries.

    Raises:
        ValueError: a mask that differs from query to query; what runs over keys cannot be shared.
    """
    if mask is None:
        return values
    if mask.ndim > 1 and mask.shape[-2] != 1:
        raise ValueError(f"{mechanism} takes one mask row for all queries")
    xp = namespace(values)
    kept = xp.matrix_transpose(mask) if mask.ndim > 1 else mask[:, None]
    return xp.where(kept, values, xp.full_like(values, instead))


def sigmoid(inputs: Array) -> Array:
    """1 / (1 + exp(−x)), in a form that cannot overflow."""
    return 0.5 + 0.5 * namespace(inputs).tanh(0.5 * inputs)
