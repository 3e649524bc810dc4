"""Attention written by hand: a softmax over keys whose result meets the values in a product.

Whichever product it is, the weights come out as (…, queries, keys), the values as (…, keys, size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.watch.lineage import Lineage, Softmax

_ANY_AXES = "αβγδεζηθ"
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
        lead, dtype = self.output.shape[:-2], self.output.dtype
        weights, value, output = (
            _batched(side.detach().expand(*lead, *side.shape[-2:]), heads).to(dtype)
            for side in (self.weights, self.value, self.output)
        )

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
    factors = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, torch.Tensor)]
    if args and isinstance(args[-1], list | tuple):
        factors = list(args[-1])
    if name in ("baddbmm", "addmm"):
        before, *factors = factors
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        # With a beta of 0 what was added may be anything, NaN included.
        result = (result - beta * before if beta else result) / alpha
    if len(factors) != 2 or (name == "einsum" and not isinstance(args[0], str)):
        return None
    *sides, out = _equation(args[0] if name == "einsum" else None, factors)
    for at, tensor in enumerate(factors):
        softmax = lineage.softmax(tensor)
        own, other = sides[at], sides[1 - at]
        contracted = [letter for letter in own if letter not in out]
        if softmax is None or len(contracted) != 1 or contracted[0] not in other:
            continue
        keys = contracted[0]
        if not softmax.is_key_axis(own.index(keys)):
            continue
        # What only the weights have are queries; of several such axes the last, behind heads.
        alone = [letter for letter in own if letter not in other and letter != keys]
        queries = alone[-1] if alone else "?"
        lead = [letter for letter in own if letter not in (keys, queries)]
        sizes = [letter for letter in other if letter not in own] or ["!"]
        weights = tensor if softmax.undropped is None else softmax.undropped
        return Mixture(
            softmax,
            _as(weights, own, [*lead, queries, keys]),
            _as(factors[1 - at], other, [*lead, keys, *sizes]).flatten(len(lead) + 1),
            _as(result, out, [*lead, queries, *sizes]).flatten(len(lead) + 1),
            factors[1 - at],
        )
    return None


def _equation(written: str | None, factors: Sequence[Any]) -> list[str]:
    """The axes of two factors and their product as letters; of a matrix product where none is."""
    ranks = [tensor.ndim for tensor in factors]
    if written is None:
        left = "...qk" if ranks[0] > 1 else "k"
        right = "...kd" if ranks[1] > 1 else "k"
        written = f"{left},{right}->...{left[-2:-1]}{right[4:]}"
    left, arrow, out = written.replace(" ", "").partition("->")
    if not arrow:
        letters = sorted(set(left) - {",", "."})
        out = "..." + "".join(letter for letter in letters if left.count(letter) == 1)
    hidden = [
        rank - len(side.replace(".", "")) for rank, side in zip(ranks, left.split(","), strict=True)
    ]
    lead = _ANY_AXES[: max(hidden)]
    sides = zip(left.split(","), hidden, strict=True)
    own = [side.replace("...", lead[len(lead) - rank :]) for side, rank in sides]
    return [*own, out.replace("...", lead)]


def _as(tensor: Any, letters: str, wanted: Sequence[str]) -> Any:
    """A tensor's axes in another order; those that it has not have the size 1."""
    tensor = tensor.permute([letters.index(letter) for letter in wanted if letter in letters])
    for at, letter in enumerate(wanted):
        if letter not in letters:
            tensor = tensor.unsqueeze(at)
    return tensor
