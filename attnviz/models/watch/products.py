"""Attention written by hand: a softmax over keys whose result meets the values in a product.

Whichever product it is, the weights come out as (…, queries, keys), the values as (…, keys, size).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.watch.lineage import Lineage, Softmax

FACTORS = {"baddbmm": ("batch1", "batch2"), "addmm": ("mat1", "mat2"), "bmm": ("input", "mat2")}
"""The names of factors that are not "input" and "other"."""

ANY_AXES = "ABCDEFGH"
"""The letters of the axes that an einsum writes as an ellipsis."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Weights (…, queries, keys) that met values (…, keys, size), which made the output."""

    softmax: Softmax
    weights: Any
    value: Any
    output: Any  # what was added to the product is taken off
    given: Any  # the values as they were given

    @property
    def dropout(self) -> bool:
        """Whether some of the weights were dropped; `weights` are those before."""
        return self.softmax.undropped is not None

    def calls(self, heads: int) -> tuple[int, Callable[[int], Call]]:
        """How many items the batch has, and each as a call whose kernel is the product.

        `heads` is how many there are, where batch and heads are one axis.
        """
        lead = self.weights.shape[:-2]
        sides = self.weights, self.value.expand(*lead, *self.value.shape[-2:]), self.output
        dtype = self.output.dtype
        weights, value, output = (_batched(side.detach(), heads).to(dtype) for side in sides)

        def item(number: int) -> Call:
            own = weights[number : number + 1]

            def mixed(*call: Any, **_options: Any) -> Any:
                return ((own @ call[3]).transpose(1, 2),)

            # Nothing is known of queries and keys but how many there are.
            query, key = (own.new_zeros((*own.shape[:2], count, 1)) for count in own.shape[2:])
            made = output[number : number + 1].transpose(1, 2).contiguous()
            options = {"is_causal": False}
            return Call(mixed, None, query, key, value[number : number + 1], None, options, made)

        return len(weights), item


def _batched(tensor: Any, heads: int) -> Any:
    """A tensor (…, rows, columns) as (batch, heads, rows, columns)."""
    tensor = tensor.clone() if tensor.is_inference() else tensor
    if tensor.ndim == 3:
        return tensor.unflatten(0, (-1, heads))
    return tensor.flatten(0, -4) if tensor.ndim > 3 else tensor[None, None]


def mixture_of(
    lineage: Lineage, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Mixture | None:
    """Attention, where a product is contracted over the keys of a softmax among its factors."""
    equation, factors, output = _factors(name, args, kwargs, result)
    for at, tensor in enumerate(factors):
        softmax = lineage.softmax(tensor)
        if softmax is None:
            continue
        own, other, out = equation[at], equation[1 - at], equation[2]
        contracted = [letter for letter in own if letter in other and letter not in out]
        if len(contracted) != 1 or not softmax.is_key_axis(own.index(contracted[0])):
            continue
        if any(letter not in other and letter not in out for letter in own):
            continue
        found = _in_order((own, other, out), contracted[0], tensor, factors[1 - at], output)
        undropped = softmax.undropped
        if undropped is not None:
            found = (_moved(undropped, own, contracted[0], other, out), *found[1:])
        return Mixture(softmax, *found, factors[1 - at])
    return None


def _factors(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> tuple[tuple[str, str, str], list[Any], Any]:
    """The axes of both factors and of the output as letters, the factors and the output."""
    nothing = (("", "", ""), list[Any](), result)
    if name == "einsum":
        return _einsum(args, result) if args and isinstance(args[0], str) else nothing
    added = name in ("baddbmm", "addmm")
    names = FACTORS.get(name, ("input", "mat2" if name == "mm" else "other"))
    if name == "mv":
        names = ("input", "vec")
    positions = {one: at + added for at, one in enumerate(names)}
    factors = [
        kwargs[one] if one in kwargs else args[at]
        for one, at in positions.items()
        if one in kwargs or at < len(args)
    ]
    if len(factors) != 2 or not all(isinstance(tensor, torch.Tensor) for tensor in factors):
        return nothing
    if added:
        before = kwargs["input"] if "input" in kwargs else args[0]
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        # With a beta of 0 what was added may be anything, NaN included.
        result = (result - beta * before if beta else result) / alpha
    first, second = (tensor.ndim for tensor in factors)
    most = max(first, second, 2) - 2
    lead = ANY_AXES[:most]
    a = lead[most - max(first - 2, 0) :] + ("qk" if first > 1 else "k")
    b = lead[most - max(second - 2, 0) :] + ("kd" if second > 1 else "k")
    out = lead + ("q" if first > 1 else "") + ("d" if second > 1 else "")
    return (a, b, out), factors, result


def _einsum(args: tuple[Any, ...], result: Any) -> tuple[tuple[str, str, str], list[Any], Any]:
    factors = list(args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:])
    left, arrow, out = args[0].replace(" ", "").partition("->")
    sides = left.split(",")
    if len(factors) != 2 or len(sides) != 2:
        return ("", "", ""), [], result
    if not arrow:
        letters = sorted(set(left) - {",", "."})
        out = ("..." if "..." in left else "") + "".join(
            letter for letter in letters if left.count(letter) == 1
        )
    hidden = [tensor.ndim - len(side.replace(".", "")) for tensor, side in zip(factors, sides)]  # noqa: B905 - both are two
    most = max(hidden[at] if "..." in side else 0 for at, side in enumerate(sides))
    lead = ANY_AXES[:most] if not set(ANY_AXES) & set(args[0]) else "αβγδεζηθ"[:most]
    own = [
        side.replace("...", lead[most - rank :] if rank else "")
        for side, rank in zip(sides, hidden, strict=True)
    ]
    return (own[0], own[1], out.replace("...", lead)), factors, result


def _in_order(
    equation: tuple[str, str, str], keys: str, weights: Any, value: Any, output: Any
) -> tuple[Any, Any, Any]:
    """Weights (…, queries, keys), values (…, keys, size) and output (…, queries, size)."""
    own, other, out = equation
    lead, queries = _lead_and_queries(own, keys, other, out)
    sizes = [letter for letter in other if letter not in own]
    axes = [*lead, *queries]
    order = [letter for letter in axes if letter in out]
    moved = output.permute([out.index(letter) for letter in [*order, *sizes]])
    rows = moved.reshape(*moved.shape[: len(order)], -1)
    if not queries:
        rows = rows.unsqueeze(-2)
    given = [letter for letter in lead if letter in other]
    values = value.permute([other.index(letter) for letter in [*given, keys, *sizes]])
    values = values.reshape(*values.shape[: len(given) + 1], -1)
    for at, letter in enumerate(lead):
        if letter not in other:
            values = values.unsqueeze(at)
    return _moved(weights, own, keys, other, out), values, rows


def _moved(weights: Any, own: str, keys: str, other: str, out: str) -> Any:
    lead, queries = _lead_and_queries(own, keys, other, out)
    moved = weights.permute([own.index(letter) for letter in [*lead, *queries, keys]])
    return moved if queries else moved.unsqueeze(-2)


def _lead_and_queries(own: str, keys: str, other: str, out: str) -> tuple[list[str], list[str]]:
    """The axes of the weights that are batches and heads, and the one of the queries, if any.

    What only the weights have are queries; of several such axes the last, as heads stand before.
    """
    alone = [letter for letter in own if letter not in other and letter in out]
    lead = [letter for letter in own if letter != keys and letter not in alone[-1:]]
    return lead, alone[-1:]
