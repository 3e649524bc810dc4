"""What a tensor was made of: whether it is a softmax, scores, or a projection of which input.

Each result of a torch function gets a mark, made of the marks of its arguments. Marks hold no
tensors but one (what a dropout was given), are kept apart from the tensors and go when these go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names(
    "view reshape view_as reshape_as transpose swapaxes swapdims permute movedim moveaxis T mT H mH"
    " t adjoint unsqueeze squeeze flatten unflatten __getitem__ narrow select expand expand_as"
    " split chunk unbind tensor_split"
)
"""What moves or takes out cells and changes none."""

DROPOUTS = _names("dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_")

CELLWISE = DROPOUTS | _names(
    "masked_fill masked_fill_ nan_to_num nan_to_num_ mul mul_ multiply div div_ divide true_divide"
    " to type type_as float half bfloat16 double cpu cuda contiguous clone detach detach_ data"
    " where clamp clamp_ clip clamp_min tril tril_ triu triu_ __setitem__ requires_grad_"
    " index_fill index_fill_"
)
"""What masks, drops, scales or casts cells where they are."""

SAME = VIEWS | _names(
    "to type type_as float half bfloat16 double cpu cuda contiguous clone detach data dropout"
    " repeat repeat_interleave"
)
"""What leaves an input the same input."""

SCORING = _names("add add_ sub sub_ neg tanh cat pow")
"""What scores may go through, besides views and masks, on their way to a softmax."""

PRODUCTS = _names("matmul __matmul__ bmm mm mv baddbmm addmm einsum")
SOFTMAXES = {"softmax": 1, "special_softmax": 1, "softmin": 1, "gumbel_softmax": 4}
"""Softmaxes, and which of their arguments is the axis."""
PROJECTIONS = _names("linear conv1d conv2d conv3d")

FEATURES_LAST = _names("embedding layer_norm rms_norm gru lstm rnn_tanh rnn_relu")
"""What has features on its last axis."""

PICKS = {"topk": 2, "sort": 1, "gather": 1, "take_along_dim": 2}
"""What takes cells out by rank or number, and which of its arguments is the axis."""

MOST_INPUTS = 64
"""Sources that are told apart; of more, as a long loop has them, only whether all are the same."""

_ANY_AXES = "αβγδεζηθ"
"""The letters of the axes that an einsum writes as an ellipsis."""

_numbers = count(1)

Axes = Mapping[str, frozenset[int]]
"""Which axes of a tensor have a label; a label that is not there is not known of any axis.

    feature: made of features: a projection's last axis, and the axes it is split into (heads).
    merged: batch and heads in one.
    left, right: of a product of two activations, what the first or the second factor alone has.
    ranked: cells that were taken out by rank or number.
    keys, queries: of a softmax and what became of it; queries also of what it made of values.
"""


SIDES = ("left", "right")


@dataclass(slots=True, eq=False)
class Whole:
    """A softmax when it was made; all that is taken of it shares this.

    Attributes:
        axes, heads: those of its result, of this `shape`, as a `Mark` has them.
        why: why it was refused when it met a product; "" where it was not.
        turn: the module that let it meet values, and which of its calls that is.
        kept: what was kept of it.
        pieces: what met values where that was a part of it: which cells, the weights, how far off.
        done: whether all of it has met values.
    """

    shape: tuple[int, ...]
    axes: Axes
    heads: tuple[int, bool]
    why: str = ""
    turn: tuple[str, int] | None = None
    kept: list[Any] = field(default_factory=list)
    pieces: list[tuple[Any, torch.Tensor, float | None]] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Softmax:
    """What became of a softmax so far.

    Attributes:
        whole: what it was.
        same_input: whether what scored, a product of two activations, were two projections of the
            same; None where the scores were no such product.
        constant: whether it was made of parameters alone.
        ranked: whether its keys were taken out by rank or number.
        cells: which cells of the whole these are, as the strides of a tensor on no device.
        undropped: the same tensor without dropout, where one was active.
    """

    whole: Whole
    same_input: bool | None
    constant: bool
    ranked: bool
    cells: torch.Tensor | None
    undropped: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """What is known of a tensor.

    Attributes:
        source: a number for its contents: what is computed alike of the same has the same.
        inputs: the sources of what the projections nearest to it were given.
        is_parameter: whether it is a parameter, or a view of one.
        constant: whether it was made of parameters alone.
        product: of a product of two activations, scaled or masked perhaps, whether they were made
            of the same; None where it is no such product.
        picked: whether each query may have its own cells of it, taken out by rank or number.
        axes: what is known of its axes.
        heads: of a merged axis, how many heads it has, and whether they stand before the batch.
        made: the softmax, not of a product, that made it of values.
    """

    source: int
    inputs: frozenset[int]
    softmax: Softmax | None = None
    is_parameter: bool = False
    constant: bool = False
    product: bool | None = None
    picked: bool = False
    axes: Axes = field(default_factory=dict)
    heads: tuple[int, bool] = (1, False)
    made: Whole | None = None

    def has(self, axis: int, *labels: str) -> bool:
        """Whether an axis has one of these labels."""
        return any(axis in self.axes.get(label, ()) for label in labels)


def name_of(func: Any) -> str:
    """A torch function by name; a property (x.mT) by its own."""
    name = str(getattr(func, "__name__", ""))
    return str(func.__self__.__name__) if name == "__get__" else name


def tensors_in(args: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments, and in lists of them."""
    for item in args:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from (part for part in item if isinstance(part, torch.Tensor))


def dropout_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a dropout called with these arguments is active."""
    given = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
    return bool(given.get("training", given.get("train", True)) and given.get("p", 0.5) > 0)


class Lineage:
    """The marks of all tensors that are alive."""

    def __init__(self) -> None:
        self.marks: MutableMapping[torch.Tensor, Mark] = WeakTensorKeyDictionary()

    def of(self, tensor: torch.Tensor) -> Mark:
        """A tensor's mark; one not seen before is an input."""
        mark = self.marks.get(tensor)
        if mark is None:
            number = next(_numbers)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            mark = Mark(number, frozenset([number]), is_parameter=is_parameter)
            self.marks[tensor] = mark
        return mark

    def is_same_input(self, query: torch.Tensor, key: torch.Tensor) -> bool:
        """Whether queries and keys were projected from the same."""
        return self.of(query).inputs == self.of(key).inputs

    def softmax(self, tensor: Any) -> Softmax | None:
        """What is known of a tensor as a softmax, if it is one."""
        mark = self.marks.get(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if mark is None else mark.softmax

    def add(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Mark what a function made; called after it ran, with torch functions not followed."""
        given = [*tensors_in(args), *tensors_in(kwargs.values())]
        results = list(tensors_in([result]))
        if name == "__setitem__":
            results = given[:1]
        if not given or not results or not (results[0].is_floating_point()):
            return
        marks = [self.of(tensor) for tensor in given]
        mark = _joined(name, given, marks)
        chain = next((at for at, old in enumerate(marks) if old.softmax is not None), None)
        if name in VIEWS:
            moved = _moved(func, (args, kwargs), given[0], marks[0], results)
            parts = [replace(mark, axes=axes, heads=heads) for axes, heads in moved]
        elif name in PRODUCTS and (factors := factors_of(name, args, kwargs)):
            parts = [_of_product(mark, *factors, list(map(self.of, factors[0])))]
        else:
            parts = [_of_cells(name, (args, kwargs), mark, given, marks, results[0].ndim)]
            parts *= len(results)
        if name in SOFTMAXES:
            usual = -1 if name == "gumbel_softmax" else None
            axis = _axis_of((args, kwargs), SOFTMAXES[name], result.ndim, usual)
            if axis is not None:
                parts = [_new_softmax(axis, result, parts[0], marks[0])]
        elif chain is not None and name in VIEWS | CELLWISE | set(PICKS):
            followed = _follow(func, name, (args, kwargs), given[chain], marks[chain], results)
            parts = [
                replace(part, softmax=softmax if "keys" in part.axes else None)
                for part, softmax in zip(parts, followed, strict=False)
            ]
        for tensor, part in zip(results, parts, strict=False):
            if not isinstance(tensor, torch.nn.Parameter):  # which an optimizer changes in place
                self.marks[tensor] = part


def _joined(name: str, given: list[torch.Tensor], marks: list[Mark]) -> Mark:
    """The mark of what a function makes of arguments with these marks, but for its axes."""
    first = marks[0]
    picked = name in PICKS or (
        # One index serves every query; an index of several axes may be each query's own.
        name == "__getitem__"
        and any(index.ndim > 1 and index.dtype != torch.bool for index in given[1:])
    )
    if name in SAME:
        mark = replace(first, softmax=None, picked=picked or first.picked)
        if name != "repeat":
            return mark
        return replace(mark, is_parameter=False, constant=first.is_parameter or first.constant)
    source = hash((name, *(mark.source for mark in marks)))
    constant = all(mark.is_parameter or mark.constant for mark in marks)
    activations = [mark for mark in marks if not mark.is_parameter]
    product, made = None, None
    if name in PROJECTIONS:
        return Mark(source, frozenset([first.source]), constant=constant, product=first.product)
    scores = next((mark for mark in marks if mark.product is not None), first)
    if name in PRODUCTS and len(marks) > 1:
        if any(mark.is_parameter or mark.constant for mark in marks) and scores.product is not None:
            product = scores.product  # heads of scores, mixed by what does not depend on the input
        elif len(activations) == len(marks):
            product = marks[-2].inputs == marks[-1].inputs
        else:
            sources = frozenset(mark.source for mark in activations or marks)
            return Mark(source, sources, constant=constant)
    elif name in CELLWISE | SCORING or name in PICKS:
        product, made = scores.product, first.made
        picked = picked or first.picked
    inputs = frozenset[int]().union(*(mark.inputs for mark in activations))
    if len(inputs) > MOST_INPUTS:
        inputs = frozenset([hash(inputs)])
    known: dict[str, Any] = {"constant": constant, "product": product, "made": made}
    return Mark(source, inputs or frozenset([source]), picked=picked, **known)


def _of_product(mark: Mark, factors: Sequence[torch.Tensor], written: Any, marks: Any) -> Mark:
    """The mark of a product of two factors with what is known of its axes."""
    *sides, out = equation(written, factors)
    fixed = [
        one.is_parameter or (one.constant and other.product is not None)
        for one, other in zip(marks, reversed(marks), strict=True)
    ]
    labels = dict[str, set[str]]()
    if not any(fixed):
        labels = {"left": set(sides[0]) - set(sides[1]), "right": set(sides[1]) - set(sides[0])}
    for side, tensor, one, is_fixed in zip(sides, factors, marks, fixed, strict=True):
        if is_fixed:  # each place on an axis of a parameter is a feature of its own
            shape = enumerate(tensor.shape)
            own = {side[at] for at, size in shape if size > 1 and tensor.stride(at)}
            labels["feature"] = labels.get("feature", set()) | own
            continue
        scored = one.product is not None and any(fixed)
        for label in ("feature", "merged", *(SIDES if scored else ())):
            if label in one.axes:
                own = {side[at] for at in one.axes[label]}
                labels[label] = labels.get(label, set()) | own
        if one.axes.get("merged"):
            mark = replace(mark, heads=one.heads)
    axes = {
        label: frozenset(at for at, letter in enumerate(out) if letter in letters)
        for label, letters in labels.items()
    }
    return replace(mark, axes=axes)


def _of_cells(
    name: str, called: Any, mark: Mark, given: list[torch.Tensor], marks: list[Mark], rank: int
) -> Mark:
    """The mark of what is neither a view nor a product with what is known of its axes."""
    like = [one for tensor, one in zip(given, marks, strict=True) if tensor.ndim == rank]
    like = sorted((one for one in like if not one.is_parameter), key=lambda one: not one.axes)
    axes = dict(like[0].axes) if like else {}
    heads = like[0].heads if like else mark.heads
    for label in SIDES:
        if known := [one.axes[label] for one in like if label in one.axes]:
            axes[label] = frozenset.intersection(*known)
    if name in PROJECTIONS:
        axis = rank - 1 - (0 if name == "linear" else int(name[4]))
        if not axes.get("left") or any(axis in axes.get(side, ()) for side in SIDES):
            mark = replace(mark, product=None)  # of scores it mixes heads alone
        axes = {label: which - {axis} for label, which in axes.items()}
        axes["feature"] = axes.get("feature", frozenset()) | {axis}
    elif name in FEATURES_LAST:
        axes["feature"] = axes.get("feature", frozenset()) | {rank - 1}
    elif name in PICKS:
        axes["ranked"] = axes.get("ranked", frozenset()) | {_axis_of(called, PICKS[name], rank)}
    elif name == "cat":
        parts = len({one.source for one in marks}), len({id(tensor) for tensor in given})
        # The parts of the features stand one after the other: each is a head.
        if _axis_of(called, 1, rank, 0) == 0 and parts == (1, heads[0]) and heads[1]:
            axes["merged"] = frozenset([0])
    return replace(mark, axes=axes, heads=heads)


def _axis_of(called: Any, place: int, rank: int, usual: int | None = -1) -> Any:
    """The axis that a function was called with, by name or as its argument at a place."""
    args, kwargs = called
    given = (*args[place : place + 1], kwargs.get("dim"), kwargs.get("axis"), usual)
    axis = next((one for one in given if one is not None), None)
    return None if axis is None else axis % rank


def _viewed(
    func: Any, called: Any, tensor: torch.Tensor, start: torch.Tensor, count: int
) -> list[torch.Tensor | None]:
    """What a view makes of a tensor on no device; None where it copies, as it merges axes."""
    try:
        made = list(tensors_in([_again(func, called, tensor, start)]))
    except Exception:  # indices on another device, for one
        return [None] * count
    home = start.untyped_storage()._cdata
    return [one if one.untyped_storage()._cdata == home else None for one in made]


def _moved(
    func: Any, called: Any, tensor: torch.Tensor, mark: Mark, results: list[torch.Tensor]
) -> list[tuple[Axes, tuple[int, bool]]]:
    """Where a view brings the axes with labels, for each of its results, and the heads merged."""
    found = [dict[str, frozenset[int]]() for _ in results]
    heads = [mark.heads] * len(results)
    for label, which in mark.axes.items():
        if label not in ("feature", "keys") and any(tensor.shape[at] == 1 for at in which):
            continue  # nothing tells it from others of size 1
        strides, size = [0] * tensor.ndim, 1
        for at in sorted(which, reverse=True):
            strides[at], size = size, size * tensor.shape[at]
        start = torch.empty_strided(tensor.shape, strides, device="meta")
        made = _viewed(func, called, tensor, start, len(results))
        for at, (result, one) in enumerate(zip(results, made, strict=True)):
            if one is not None:
                sizes = zip(one.shape, one.stride(), strict=True)
                found[at][label] = frozenset(
                    axis for axis, (size, step) in enumerate(sizes) if size > 1 and step
                )
            elif label == "feature":
                more, heads[at] = _merged(tensor.shape, result.shape, which, mark.heads)
                found[at] |= more
    for at, axes in enumerate(found):
        if len(split := sorted(axes.get("merged", ()))) == 2:  # taken apart again
            axes["feature"] = axes.get("feature", frozenset()) | {split[not heads[at][1]]}
            del axes["merged"]
    if len(results) > 1 and _smaller(results[0], tensor, found[0].get("feature", frozenset())):
        heads = [(len(results), True)] * len(results)  # parts of the features, perhaps heads
    return list(zip(found, heads, strict=True))


def _smaller(part: torch.Tensor, whole: torch.Tensor, axes: frozenset[int]) -> bool:
    return part.ndim == whole.ndim and any(part.shape[at] < whole.shape[at] for at in axes)


def _merged(
    before: Sequence[int], after: Sequence[int], which: frozenset[int], heads: tuple[int, bool]
) -> tuple[Axes, tuple[int, bool]]:
    """Whether a view makes one axis of batch and heads, which is made of features."""
    first = 0 in which
    if len(before) > 1 and (*after,) == (before[0] * before[1], *before[2:]):
        if first != (1 in which):
            rest = frozenset(at - 1 for at in which if at > 1)
            return {"merged": frozenset([0]), "feature": rest}, (before[not first], first)
    elif len(before) == len(after) == 3 and before[0] == after[0] and which == {2}:
        # (tokens, batch, features) as (tokens, batch · heads, size)
        return {"merged": frozenset([1]), "feature": which}, (after[1] // max(before[1], 1), False)
    return {}, heads


def _new_softmax(axis: int, result: torch.Tensor, mark: Mark, scores: Mark) -> Mark:
    """The mark of a softmax over an axis of scores."""
    axes = {label: which for label, which in mark.axes.items() if label in ("feature", "merged")}
    axes["keys"] = frozenset([axis])
    left, right = (mark.axes.get(side) for side in SIDES)
    queries = right if left and axis in left else left if right and axis in right else None
    if queries is not None:  # of several axes the last, behind heads
        behind = queries - axes.get("feature", frozenset()) or queries
        axes["queries"] = frozenset(sorted(behind)[-1:])
    whole = Whole(tuple(result.shape), axes, mark.heads)
    cells = torch.empty(result.shape, device="meta")
    ranked = mark.has(axis, "ranked")
    softmax = Softmax(whole, scores.product, mark.constant, ranked, cells)
    return replace(mark, softmax=softmax, axes=axes)


def _follow(
    func: Any, name: str, called: Any, tensor: torch.Tensor, mark: Mark, results: list[torch.Tensor]
) -> list[Softmax | None]:
    """What each result of a function is as a softmax; None where it is none any more."""
    old = mark.softmax
    assert old is not None
    cells, undropped = [old.cells] * len(results), [old.undropped]
    if name in PICKS:
        ranked = mark.has(_axis_of(called, PICKS[name], tensor.ndim), "keys")
        return [replace(old, ranked=old.ranked or ranked, cells=None)]
    if name in VIEWS:
        if old.cells is not None:
            cells = _viewed(func, called, tensor, old.cells, len(results))
    elif results[0].shape != tensor.shape:
        return [None]
    if name in DROPOUTS:
        if old.undropped is None and dropout_of(*called):
            undropped = [tensor.detach()]
    elif old.undropped is not None:
        # What works in place must not reach what the model itself may still use.
        copy = old.undropped.clone() if name not in VIEWS else old.undropped
        made = _again(func, called, tensor, copy)
        undropped = [copy] if name == "__setitem__" else list(tensors_in([made]))
    undropped = undropped * len(results) if len(undropped) == 1 else undropped
    return [
        replace(old, cells=place, undropped=whole)
        for place, whole in zip(cells, undropped, strict=True)
    ]


def _again(func: Any, called: Any, tensor: torch.Tensor, other: torch.Tensor) -> Any:
    """The function once more, with another tensor in the place of one."""
    args, kwargs = called
    return func(
        *(other if item is tensor else item for item in args),
        **{key: other if item is tensor else item for key, item in kwargs.items()},
    )


def factors_of(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], str | None] | None:
    """The two factors of a product, and its equation where it is an einsum."""
    factors = list(tensors_in((*args, *kwargs.values())))
    if name in ("baddbmm", "addmm"):
        factors = factors[1:]
    written = args[0] if name == "einsum" else None
    return (factors, written) if len(factors) == 2 and isinstance(written, str | None) else None


def equation(written: str | None, factors: Sequence[torch.Tensor]) -> list[str]:
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
