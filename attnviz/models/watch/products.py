"""Attention written by hand: a softmax over keys whose result meets the values in a product.

Whichever product it is, the weights come out as (…, queries, keys), the values as (…, keys, size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan, prod
from typing import Any

from attnviz.models.hugging_face.capture.kernel import Call
from attnviz.models.watch.lineage import Lineage, Mark, Softmax, equation, factors_of

LINEAR = "products of linear attention: it has no softmax over keys, and so no weights to show"
MIXED = (
    "softmaxes over keys were mixed with others before they met values (talking heads, "
    "differential attention), and are not shown"
)
ACROSS = (
    "softmaxes met values along their queries instead of their keys (slots that compete for "
    "them), and are not shown"
)
OWN = (
    "softmaxes met values that each query has for itself (a top-k choice of keys, neighbours): "
    "their keys are ranks and no tokens, and they are not shown"
)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Weights (…, queries, keys) that met values (…, keys, size), which made the output.

    Attributes:
        softmax: what the weights are of.
        output: the product; what was added to it is taken off.
        given: the values as they were given.
        part: the weights as they were given, where they are a part of the softmax.
        heads: how many there are, where batch and heads are one axis; None: not known.
        queries: which axis of the product as it was made is that of the queries.
        off: the largest difference between weights times values and the output, where it is known.
        why: why it is no attention between tokens; "" where it is.
    """

    softmax: Softmax | None
    weights: Any = None
    value: Any = None
    output: Any = None
    given: Any = None
    part: Any = None
    heads: int | None = None
    queries: int | None = None
    off: float | None = None
    why: str = ""

    @property
    def dropout(self) -> bool:
        """Whether some of the weights were dropped; `weights` are those before."""
        return self.softmax is not None and self.softmax.undropped is not None

    def calls(self, heads: int) -> tuple[int, Callable[[int], Call]]:
        """How many items the batch has, and each as a call whose kernel is the product.

        `heads` is how many there are, where batch and heads are one axis.
        """
        lead, dtype = self.output.shape[:-2], self.output.dtype
        weights, value, output = (
            _batched(side.expand(*lead, *side.shape[-2:]), heads).to(dtype)
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

    def difference(self) -> float:
        """The largest difference between weights times values and the output."""
        mixed = self.weights.float() @ self.value.float()
        return float((mixed - self.output.float()).abs().max())


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
    found = factors_of(name, args, kwargs)
    if found is None:
        return None
    factors, written = found
    if name in ("baddbmm", "addmm"):
        before = args[0] if args else kwargs["input"]
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        # With a beta of 0 what was added may be anything, NaN included.
        result = (result - beta * before if beta else result) / alpha
    *sides, out = equation(written, factors)
    marks = [lineage.of(tensor) for tensor in factors]
    for at in (0, 1):
        weights, values = (_Factor(factors[i], sides[i], marks[i]) for i in (at, 1 - at))
        keys = _keys(weights, values, out)
        if keys is not None and not _is_constant_mixing(weights, values, keys):
            return _mixture(weights, values, _Factor(result, out, Mark(0, frozenset())), keys)
        for letter in set(weights.axes) & set(values.axes) - set(out):
            if values.mark.made is not None and values.has(letter, "queries"):
                return Mixture(None, given=values.tensor, why=LINEAR)
            if weights.mark.softmax is not None and weights.has(letter, "queries"):
                return Mixture(weights.mark.softmax, given=values.tensor, why=ACROSS)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """A tensor of a product, its axes as letters, and what is known of it."""

    tensor: Any
    axes: str
    mark: Mark

    def has(self, letter: str, *labels: str) -> bool:
        return letter in self.axes and self.mark.has(self.axes.index(letter), *labels)


def _keys(weights: _Factor, values: _Factor, out: str) -> str | None:
    """The axis over which a product adds up, where it is that of a softmax's keys."""
    contracted = [letter for letter in weights.axes if letter not in out]
    if weights.mark.softmax is None or len(contracted) != 1 or contracted[0] not in values.axes:
        return None
    place = weights.axes.index(contracted[0])
    own = weights.mark.axes.get("keys", frozenset())
    # Nothing tells an axis of one key from others of size 1.
    is_keys = place in own or (not own and weights.tensor.shape[place] == 1)
    return contracted[0] if is_keys else None


def _is_constant_mixing(weights: _Factor, values: _Factor, keys: str) -> bool:
    """Whether weights mix heads or layers instead of tokens: other weights, scores, or outputs."""
    softmax, other = weights.mark.softmax, values.mark.softmax
    if other is not None and other.same_input is not None:
        return True
    if softmax is None or not softmax.constant:
        return False
    scores = values.mark.product is not None
    return scores or len(weights.axes) == 1 or values.has(keys, "feature", "merged")


def _mixture(weights: _Factor, values: _Factor, product: _Factor, keys: str) -> Mixture:
    """Weights, values and product with their axes in order: batch, heads, queries, keys or size."""
    softmax, own = weights.mark.softmax, weights.axes
    assert softmax is not None
    summary = softmax.same_input is None and values.mark.product is not None
    if summary and (values.has(keys, "left", "right") or "left" not in values.mark.axes):
        return Mixture(softmax, given=values.tensor, why=LINEAR)
    known = weights.mark.axes.get("queries")
    # What only the weights have are queries; of several such axes the last, behind heads.
    alone = [letter for letter in own if letter not in values.axes and letter != keys]
    queries = own[max(known)] if known else alone[-1] if alone else "?"
    lead = [letter for letter in own if letter not in (keys, queries)]
    heads = [at for at in lead if weights.has(at, "feature") or values.has(at, "feature")]
    single = queries == "?" or weights.tensor.shape[own.index(queries)] == 1
    plain = [at for at in lead if at not in heads and weights.tensor.shape[own.index(at)] > 1]
    if (
        queries in values.axes
        or softmax.ranked
        or (single and values.mark.picked)
        or (queries == "?" and known is not None and len(plain) > 1)
    ):
        return Mixture(softmax, given=values.tensor, why=OWN)
    lead.sort(key=lambda letter: letter in heads)
    merged = next(
        (side for side in (values, weights) for at in lead if side.has(at, "merged")), None
    )
    sizes = [letter for letter in values.axes if letter not in own] or ["!"]
    place = None
    if merged is not None:
        place = next(at for at, letter in enumerate(lead) if merged.has(letter, "merged"))
        if weights.tensor.shape[own.index(lead[place])] % merged.mark.heads[0]:
            place = None
    shown = weights.tensor if softmax.undropped is None else softmax.undropped
    sides = [
        _as(tensor.detach(), letters, [*lead, *wanted]).flatten(len(lead) + 1)
        for tensor, letters, wanted in (
            (shown, own, [queries, keys]),
            (values.tensor, values.axes, [keys, *sizes]),
            (product.tensor, product.axes, [queries, *sizes]),
        )
    ]
    count = None
    if place is not None:
        assert merged is not None
        sides = [_taken_apart(side, place, len(lead), merged.mark.heads) for side in sides]
    elif len(lead) == 1:
        unknown = not any(
            "feature" in side.mark.axes for side in (weights, values) if lead[0] in side.axes
        )
        count = None if unknown else len(sides[2]) if heads else 1
    place_out = product.axes.index(queries) if queries in product.axes else None
    part = shown.detach() if shown.numel() < prod(softmax.whole.shape) else None
    shown, value, output = sides
    return Mixture(softmax, shown, value, output, values.tensor, part, count, place_out)


def _taken_apart(tensor: Any, place: int, rank: int, heads: tuple[int, bool]) -> Any:
    """A tensor with batch and heads on an axis as two axes, the heads behind the batch."""
    count, first = heads
    if tensor.shape[place] == 1:
        tensor = tensor.unsqueeze(place)
    else:
        tensor = tensor.unflatten(place, (count, -1) if first else (-1, count))
    return tensor.movedim(place if first else place + 1, rank)


def joined(found: Mixture, softmax: Softmax) -> Mixture | None:
    """The softmax that this is a part of, once it met values; None: this part did before."""
    whole, cells, (keys,) = softmax.whole, softmax.cells, softmax.whole.axes["keys"]
    if found.part is None or cells is None:
        return found
    place = cells.shape, cells.stride(), cells.storage_offset()
    if any(place == other for other, *_ in whole.pieces):
        return None
    whole.pieces.append((place, found.part, None if found.dropout else found.difference()))
    rows = found.part.numel() // found.weights.shape[-1]
    if len(whole.pieces) == 1 and rows * whole.shape[keys] == prod(whole.shape):
        return found  # with fewer keys, as where a sink is left out
    canvas = found.part.new_full((prod(whole.shape),), nan)
    for where, weights, _ in whole.pieces:
        canvas.as_strided(*where).copy_(weights)
    canvas = canvas.view(whole.shape)
    others = [axis for axis in range(canvas.ndim) if axis != keys]
    if not others:
        return found
    queries = max(whole.axes.get("queries") or others)
    for axis in (queries, keys):
        met = ~canvas.isnan().movedim(axis, 0).flatten(1).all(1)
        canvas = canvas.index_select(axis, met.nonzero().flatten())
    letters = "abcdefghijklm"[: canvas.ndim]
    filled = canvas.nan_to_num(0)
    if softmax.undropped is not None:
        softmax = replace(softmax, undropped=filled)
    mark = Mark(0, frozenset(), softmax, axes=whole.axes, heads=whole.heads)
    nothing = canvas.new_zeros(()).expand(*canvas.shape, 1)
    values, product = (
        _Factor(nothing.select(at, 0), f"{letters}!".replace(letters[at], ""), Mark(0, frozenset()))
        for at in (queries, keys)
    )
    made = _mixture(_Factor(filled, letters, mark), values, product, letters[keys])
    offs = [off for *_, off in whole.pieces if off is not None]
    return replace(made, off=max(offs, default=None), part=None)


def _as(tensor: Any, letters: str, wanted: Sequence[str]) -> Any:
    """A tensor's axes in another order; those that it has not have the size 1."""
    tensor = tensor.permute([letters.index(letter) for letter in wanted if letter in letters])
    for at, letter in enumerate(wanted):
        if letter not in letters:
            tensor = tensor.unsqueeze(at)
    return tensor
