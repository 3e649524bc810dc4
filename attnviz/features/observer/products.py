"""Attention written by hand: a softmax over keys whose result meets the values in a product.

Whichever product it is, the weights come out as (…, queries, keys), the values as (…, keys, size).
"""

from collections.abc import Callable, Sequence
from math import nan, prod
from typing import Any

from attnviz.core.attention_call import AttentionCall
from attnviz.core.records import dataclass, replace
from attnviz.features.observer.lineage import Lineage, Mark, Softmax, TorchCall

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
    """Weights (…, queries, keys) that met values (…, keys, size), and the output they made.

    Attributes:
        softmax: where the weights come from.
        tensor: the values as the product had them.
        why: why this is no attention between tokens; "" where it is, and only then what follows.
        output: the product, without what was added to it.
        part: the weights as they were given, where they are only a part of the softmax.
        heads: how many there are, where batch and heads are one axis; None: not known.
        queries: which axis of the product, as it was made, is the queries'.
        off: the largest difference between weights times values and the output, where it is known.
        scores: what the softmax was taken of, in the axes of the weights, where that was kept.
    """

    softmax: Softmax | None
    tensor: Any
    why: str = ""
    weights: Any = None
    value: Any = None
    output: Any = None
    part: Any = None
    heads: int | None = None
    queries: int | None = None
    off: float | None = None
    scores: Any = None

    @property
    def dropout(self) -> bool:
        """Whether some of the weights were dropped; `weights` are those before."""
        return self.softmax is not None and self.softmax.intact is not None

    def calls(self, heads: int) -> tuple[int, Callable[[int], AttentionCall]]:
        """The number of items in the batch, and a function that makes a call of each.

        `heads` is how many there are, where batch and heads are one axis.
        """
        lead, dtype = self.output.shape[:-2], self.output.dtype

        def spread(side: Any) -> Any:
            tensor = side.expand(*lead, *side.shape[-2:])
            tensor = tensor.clone() if tensor.is_inference() else tensor
            if tensor.ndim == 3:
                return tensor.unflatten(0, (-1, heads))
            return tensor.flatten(0, -4) if tensor.ndim > 3 else tensor[None, None]

        sides = self.weights, self.value, self.output
        weights, value, output = (spread(side).to(dtype) for side in sides)
        scores = None if self.scores is None else spread(self.scores)

        def item(number: int) -> AttentionCall:
            own = weights[number : number + 1]

            def mix(*call: Any, **_options: Any) -> Any:
                return ((own @ call[3]).transpose(1, 2),)

            # Of queries and keys only their number is known.
            query, key = (own.new_zeros((*own.shape[:2], count, 1)) for count in own.shape[2:])
            product = output[number : number + 1].transpose(1, 2).contiguous()
            options = {"is_causal": False}
            sides = query, key, value[number : number + 1]
            call = AttentionCall(*sides, None, product, kernel=mix, options=options)
            call.scores = None if scores is None else scores[number : number + 1].float()
            return call

        return len(weights), item

    def difference(self) -> float:
        """The largest difference between weights times values and the output."""
        product = self.weights.float() @ self.value.float()
        return float((product - self.output.float()).abs().max())


_UNKNOWN = Mark(0, frozenset())


@dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """A factor of a product or its result, its axes as letters, and what is known of it."""

    tensor: Any
    axes: str
    mark: Mark = _UNKNOWN

    def has(self, letter: str, *labels: str) -> bool:
        at = self.axes.find(letter)
        return 0 <= at < len(self.mark.labels) and not self.mark.labels[at].isdisjoint(labels)

    def size(self, letter: str) -> int:
        return int(self.tensor.shape[self.axes.index(letter)])

    def align_axes(self, letters: Sequence[str]) -> Any:
        """The tensor with its axes in this order; those that it has not have the size 1."""
        own = [self.axes.index(letter) for letter in letters if letter in self.axes]
        tensor = self.tensor.detach().permute(own)
        for at, letter in enumerate(letters):
            if letter not in self.axes:
                tensor = tensor.unsqueeze(at)
        return tensor


def mixture_of(lineage: Lineage, call: TorchCall, result: Any) -> Mixture | None:
    """Attention, where a product is contracted over the keys of a softmax among its factors."""
    equation = call.factors()
    if equation is None:
        return None
    factors, (*sides, out) = equation
    if call.name in ("baddbmm", "addmm"):
        before = call.args[0] if call.args else call.kwargs["input"]
        beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
        # With a beta of 0 what was added may be anything, NaN included.
        result = (result - beta * before if beta else result) / alpha
    pair = [
        _Factor(tensor, side, lineage.of(tensor))
        for tensor, side in zip(factors, sides, strict=True)
    ]
    for weights, values in (pair, pair[::-1]):
        keys = _keys(weights, values, out)
        if keys is not None and not _is_constant_mixing(weights, values, keys):
            return _mixture(weights, values, _Factor(result, out), keys)
        for letter in set(weights.axes) & set(values.axes) - set(out):
            if values.mark.mixer is not None and values.has(letter, "queries"):
                return Mixture(None, values.tensor, LINEAR)
            if weights.mark.softmax is not None and weights.has(letter, "queries"):
                return Mixture(weights.mark.softmax, values.tensor, ACROSS)
    return None


def _keys(weights: _Factor, values: _Factor, out: str) -> str | None:
    """The axis over which a product adds up, where it is the axis of a softmax's keys."""
    letters = [letter for letter in weights.axes if letter not in out]
    if weights.mark.softmax is None or len(letters) != 1 or letters[0] not in values.axes:
        return None
    (letter,) = letters
    # Nothing distinguishes an axis of one key from others of size 1.
    single = not weights.mark.has("keys") and weights.size(letter) == 1
    return letter if single or weights.has(letter, "keys") else None


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
    softmax, axes, tensor = weights.mark.softmax, weights.axes, values.tensor
    assert softmax is not None
    summary = softmax.same_input is None and values.mark.product is not None
    if summary and (values.has(keys, "left", "right") or not values.mark.has("left")):
        return Mixture(softmax, tensor, LINEAR)
    # Only the weights have the queries; of several such axes they are the last, behind heads.
    query_axes = [letter for letter in axes if weights.has(letter, "queries")]
    alone = [letter for letter in axes if letter not in values.axes and letter != keys]
    queries = (query_axes or alone or ["?"])[-1]
    lead = [letter for letter in axes if letter not in (keys, queries)]
    heads = [at for at in lead if weights.has(at, "feature") or values.has(at, "feature")]
    items = [at for at in lead if at not in heads and weights.size(at) > 1]
    if (
        queries in values.axes
        or weights.has(keys, "ranked")
        or (values.mark.picks and (queries == "?" or weights.size(queries) == 1))
        or (queries == "?" and softmax.has_queries and len(items) > 1)
    ):
        return Mixture(softmax, tensor, OWN)
    lead.sort(key=lambda letter: letter in heads)
    sizes = [letter for letter in values.axes if letter not in axes] or ["!"]
    factor = weights if softmax.intact is None else replace(weights, tensor=softmax.intact)
    old_scores = softmax.whole.scores_at(softmax.cells)
    score_factor = None if old_scores is None else replace(weights, tensor=old_scores)
    arrays: list[Any] = [
        side and side.align_axes([*lead, *order]).flatten(len(lead) + 1)
        for side, order in (
            (factor, [queries, keys]),
            (values, [keys, *sizes]),
            (product, [queries, *sizes]),
            (score_factor, [queries, keys]),
        )
    ]
    mixture, value, output, scores = arrays
    merges = [
        (at, side.mark.heads)
        for side in (values, weights)
        for at, letter in enumerate(lead)
        if side.has(letter, "merged")
    ][:1]
    count = None
    if merges and weights.size(lead[merges[0][0]]) % merges[0][1][0] == 0:
        mixture, value, output, scores = (
            None if side is None else _split_merged(side, len(lead), *merges[0])
            for side in (mixture, value, output, scores)
        )
    elif len(lead) == 1 and any(
        side.mark.has("feature") for side in (weights, values) if lead[0] in side.axes
    ):
        count = len(output) if heads else 1
    return Mixture(
        softmax,
        tensor,
        "",
        mixture,
        value,
        output,
        factor.tensor.detach() if factor.tensor.numel() < prod(softmax.whole.shape) else None,
        count,
        product.axes.index(queries) if queries in product.axes else None,
        scores=scores,
    )


def _split_merged(tensor: Any, rank: int, place: int, heads: tuple[int, bool]) -> Any:
    """A tensor whose axis of batch and heads is two axes, the heads at `rank`."""
    count, first = heads
    if tensor.shape[place] == 1:
        tensor = tensor.unsqueeze(place)
    else:
        tensor = tensor.unflatten(place, (count, -1) if first else (-1, count))
    return tensor.movedim(place if first else place + 1, rank)


def join_pieces(mixture: Mixture, softmax: Softmax) -> Mixture | None:
    """All parts of a softmax that have met values, as one; None: this part was among them."""
    whole, cells = softmax.whole, softmax.cells
    if mixture.part is None or cells is None:
        return mixture
    place = cells.shape, cells.stride(), cells.storage_offset()
    if any(place == other for other, *_ in whole.pieces):
        return None
    whole.pieces.append((place, mixture.part, None if mixture.dropout else mixture.difference()))
    (keys,) = (at for at, labels in enumerate(whole.labels) if "keys" in labels)
    others = [at for at in range(len(whole.shape)) if at != keys]
    rows = mixture.part.numel() // mixture.weights.shape[-1]
    # One piece of every row has fewer keys, as where a sink is left out.
    alone = len(whole.pieces) == 1 and rows * whole.shape[keys] == prod(whole.shape)
    if alone or not others:
        return mixture
    canvas = mixture.part.new_full((prod(whole.shape),), nan)
    for where, weights, _ in whole.pieces:
        canvas.as_strided(*where).copy_(weights)
    canvas = canvas.view(whole.shape)
    queries = [at for at, labels in enumerate(whole.labels) if "queries" in labels] or others
    for axis in (queries[-1], keys):
        present = ~canvas.isnan().movedim(axis, 0).flatten(1).all(1)
        canvas = canvas.index_select(axis, present.nonzero().flatten())
    canvas = canvas.nan_to_num(0)
    if softmax.intact is not None:
        softmax = replace(softmax, intact=canvas)
    letters = "abcdefghijklm"[: canvas.ndim]
    mark = Mark(0, frozenset(), whole.labels, softmax, heads=whole.heads)
    # Only the order of the axes is wanted, for which the values may be nothing.
    nothing = canvas.new_zeros(()).expand(*canvas.shape, 1)
    values, product = (
        _Factor(nothing.select(at, 0), f"{letters}!".replace(letters[at], ""))
        for at in (queries[-1], keys)
    )
    whole_mixture = _mixture(_Factor(canvas, letters, mark), values, product, letters[keys])
    offs = [off for *_, off in whole.pieces if off is not None]
    return replace(whole_mixture, off=max(offs, default=None), part=None)


def mark_mixture(mark: Mark, mixture: Mixture) -> Mark:
    """The mark of a product in which a softmax mixed values."""
    if mixture.softmax is None or mixture.softmax.same_input is not None:
        return replace(mark, product=None)
    # The softmax may be of features: then queries of linear attention meet this product.
    labels = list(mark.labels)
    if mixture.queries is not None:
        labels[mixture.queries] |= {"queries"}
    return replace(mark, mixer=mixture.softmax.whole, labels=tuple(labels))
