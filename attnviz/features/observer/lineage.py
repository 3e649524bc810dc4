"""How each tensor was made: as a softmax, as scores, or as a projection, and from which input.

Each result of a torch function gets a mark, computed from the marks of its arguments. Marks stand
beside the tensors and go when these go. The only tensors in them are weights before dropout.
"""

from collections import defaultdict
from collections.abc import Iterator, MutableMapping
from itertools import count
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from attnviz.core.records import dataclass, field, replace


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; 0 where torch does not count it."""
    return 0 if tensor.is_inference() else tensor._version


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names(
    "view reshape view_as reshape_as transpose swapaxes swapdims permute movedim moveaxis T mT H mH"
    " t adjoint unsqueeze squeeze flatten unflatten __getitem__ narrow select expand expand_as"
    " split chunk unbind tensor_split"
)
"""Functions that move or select cells and change none."""

DROPOUTS = _names("dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_")

CELLWISE = DROPOUTS | _names(
    "masked_fill masked_fill_ nan_to_num nan_to_num_ mul mul_ multiply div div_ divide true_divide"
    " to type type_as float half bfloat16 double cpu cuda contiguous clone detach detach_ data"
    " where clamp clamp_ clip clamp_min tril tril_ triu triu_ __setitem__ requires_grad_"
    " index_fill index_fill_"
)
"""Functions that mask, drop, scale or cast each cell where it is."""

SAME = VIEWS | _names(
    "to type type_as float half bfloat16 double cpu cuda contiguous clone detach data dropout"
    " repeat repeat_interleave"
)
"""Functions whose result counts as the same input."""

SCORING = _names("add add_ sub sub_ neg tanh cat pow")
"""Functions that scores may pass, besides views and masks, on their way to a softmax."""

PRODUCTS = _names("matmul __matmul__ bmm mm mv baddbmm addmm einsum")
SOFTMAXES = {"softmax": 1, "special_softmax": 1, "softmin": 1, "gumbel_softmax": 4}
"""Softmaxes, and which of their arguments is the axis."""
PROJECTIONS = _names("linear conv1d conv2d conv3d")

FEATURES_LAST = _names("embedding layer_norm rms_norm gru lstm rnn_tanh rnn_relu")
"""Functions whose result has features on its last axis."""

PICKS = {"topk": 2, "sort": 1, "gather": 1, "take_along_dim": 2}
"""Functions that select cells by rank or number, and which of their arguments is the axis."""

MOST_INPUTS = 64
"""A tensor of more inputs, as a long loop makes them, keeps one hash for all of them."""

_ANY_AXES = "αβγδεζηθ"
"""The letters of the axes that an einsum writes as an ellipsis."""

_numbers = count(1)

Labels = tuple[frozenset[str], ...]
"""What is known of each axis of a tensor.

    feature: it consists of features: the last axis of a projection, and the axes it is split into.
    merged: batch and heads in one axis.
    left, right: in a product of two activations only the first or the second factor has it.
    ranked: its cells were selected by rank or number.
    keys, queries: of a softmax and its results; queries also of the values that it mixed.
"""

SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A torch function, and the arguments that it was called with."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The function's name; a property (x.mT) has its own."""
        name = str(getattr(self.func, "__name__", ""))
        return str(self.func.__self__.__name__) if name == "__get__" else name

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, and in lists of them."""
        return list(tensors_in((*self.args, *self.kwargs.values())))

    def axis(self, place: int, rank: int, usual: int | None = -1) -> Any:
        """The axis, by name or as the argument at a place, counted from 0."""
        axes = (*self.args[place : place + 1], self.kwargs.get("dim"), self.kwargs.get("axis"))
        axis = next((one for one in (*axes, usual) if one is not None), None)
        return None if axis is None else axis % rank

    def drops(self) -> bool:
        """Whether this dropout is active."""
        values = dict(zip(("input", "p", "training"), self.args, strict=False)) | self.kwargs
        return bool(values.get("training", values.get("train", True)) and values.get("p", 0.5) > 0)

    def factors(self) -> tuple[list[torch.Tensor], list[str]] | None:
        """The two factors of a product, and the letters of their axes and of the result's."""
        factors = self.tensors()
        if self.name in ("baddbmm", "addmm"):
            factors = factors[1:]
        equation = self.args[0] if self.name == "einsum" else None
        if len(factors) != 2 or not isinstance(equation, str | None):
            return None
        return factors, _equation(equation, factors[0].ndim, factors[1].ndim)

    def apply_to(self, tensor: torch.Tensor, other: torch.Tensor) -> Any:
        """Call it again with another tensor in place of one."""
        return self.func(
            *(other if item is tensor else item for item in self.args),
            **{key: other if item is tensor else item for key, item in self.kwargs.items()},
        )

    def views(self, tensor: torch.Tensor, other: torch.Tensor, number: int) -> list[Any]:
        """The views it makes of another tensor, on no device; None where it copies instead."""
        try:
            results = list(tensors_in([self.apply_to(tensor, other)]))
        except Exception:  # indices on another device, for one
            return [None] * number
        home = other.untyped_storage()._cdata
        return [one if one.untyped_storage()._cdata == home else None for one in results]


def tensors_in(args: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments, and in lists of them."""
    for item in args:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from (part for part in item if isinstance(part, torch.Tensor))


@dataclass(slots=True, eq=False)
class Whole:
    """A softmax as it was made; everything taken from it shares this.

    Attributes:
        labels, heads: those of its result, of this `shape`, as a `Mark` has them.
        why: why it was refused when it met a product; "" where it was not.
        turn: the module that let it meet values, and the number of its call.
        captures: the calls captured of it.
        pieces: the parts that met values: which cells, the weights, and the largest difference.
        is_complete: whether all of it has met values.
        scores: what it was taken of, where that is wanted, and how often that was changed before.
    """

    shape: tuple[int, ...]
    labels: Labels
    heads: tuple[int, bool]
    why: str = ""
    turn: tuple[str, int] | None = None
    captures: list[Any] = field(default_factory=list)
    pieces: list[tuple[Any, torch.Tensor, float | None]] = field(default_factory=list)
    is_complete: bool = False
    scores: tuple[torch.Tensor, int] | None = None

    def scores_at(self, cells: torch.Tensor | None) -> torch.Tensor | None:
        """The scores of some cells; None where they are not kept, or were changed since."""
        if self.scores is None or cells is None or _version(self.scores[0]) != self.scores[1]:
            return None
        return (
            self.scores[0]
            .contiguous()
            .as_strided(cells.shape, cells.stride(), cells.storage_offset())
        )


@dataclass(frozen=True, slots=True, eq=False)
class Softmax:
    """A softmax, or a part of one, after the functions that it has passed so far.

    Attributes:
        whole: the softmax as it was made.
        same_input: whether its scores, a product of two activations, are of two projections of the
            same input; None where the scores were no such product.
        constant: whether it was made of parameters alone.
        cells: which cells of the whole these are, as the strides of a tensor on no device.
        intact: the same tensor without dropout, where one was active.
    """

    whole: Whole
    same_input: bool | None
    constant: bool
    cells: torch.Tensor | None
    intact: torch.Tensor | None = None

    @property
    def has_queries(self) -> bool:
        """Whether it was known at the softmax which axis is the queries'."""
        axes = zip(self.whole.labels, self.whole.shape, strict=True)
        return any("queries" in own and size > 1 for own, size in axes)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """What is known of a tensor.

    Attributes:
        source: a number for its contents: the same computation on the same tensors has the same.
        inputs: the sources that the nearest projections before it were given.
        is_parameter: whether it is a parameter, or a view of one.
        constant: whether it was made of parameters alone.
        product: whether the factors of this product of two activations, perhaps scaled or masked
            since, were made of the same inputs; None where it is no such product.
        picks: whether each query may have its own cells of it, selected by rank or number.
        heads: how many heads a merged axis has, and whether they stand before the batch.
        mixer: the softmax, not of a product, that mixed values into it.
    """

    source: int
    inputs: frozenset[int]
    labels: Labels = ()
    softmax: Softmax | None = None
    is_parameter: bool = False
    constant: bool = False
    product: bool | None = None
    picks: bool = False
    heads: tuple[int, bool] = (1, False)
    mixer: Whole | None = None

    def has(self, *labels: str) -> bool:
        """Whether some axis has one of these labels."""
        return any(not own.isdisjoint(labels) for own in self.labels)


class Lineage:
    """The marks of all tensors that are alive."""

    def __init__(self, *, keeps_scores: bool = False) -> None:
        self.keeps_scores = keeps_scores
        self.marks: MutableMapping[torch.Tensor, Mark] = WeakTensorKeyDictionary()

    def of(self, tensor: torch.Tensor) -> Mark:
        """A tensor's mark; a tensor without one is an input."""
        mark = self.marks.get(tensor)
        if mark is None or len(mark.labels) != tensor.ndim:  # some change a shape in place
            number = next(_numbers)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            labels = (frozenset[str](),) * tensor.ndim
            mark = Mark(number, frozenset([number]), labels, is_parameter=is_parameter)
            self.marks[tensor] = mark
        return mark

    def is_same_input(self, query: torch.Tensor, key: torch.Tensor) -> bool:
        """Whether queries and keys were projected from the same, keys perhaps behind others."""
        return self.of(query).inputs <= self.of(key).inputs

    def softmax(self, tensor: Any) -> Softmax | None:
        """What is known of a tensor as a softmax, if it is one."""
        mark = self.marks.get(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if mark is None else mark.softmax

    def add(self, call: TorchCall, result: Any) -> None:
        """Mark the results of a function that ran; torch functions must not be followed here."""
        name, tensors = call.name, call.tensors()
        results = tensors[:1] if name == "__setitem__" else list(tensors_in([result]))
        if not tensors or not results or not results[0].is_floating_point():
            return
        marks = [self.of(tensor) for tensor in tensors]
        mark = _origin(name, tensors, marks)
        if name in VIEWS:
            parts = _view_marks(call, tensors[0], marks[0], mark, results)
        elif name in PRODUCTS and (factors := call.factors()):
            parts = [_product_mark(mark, *factors, [self.of(factor) for factor in factors[0]])]
        else:
            parts = [_cellwise_mark(call, mark, tensors, marks, results[0].ndim)] * len(results)
        chain = next((at for at, old in enumerate(marks) if old.softmax is not None), None)
        if name in SOFTMAXES:
            usual = -1 if name == "gumbel_softmax" else None
            axis = call.axis(SOFTMAXES[name], result.ndim, usual)
            if axis is not None:
                parts = [_softmax_mark(axis, result, parts[0], marks[0])]
                softmax = parts[0].softmax
                if self.keeps_scores and softmax is not None and name != "gumbel_softmax":
                    softmax.whole.scores = tensors[0].detach(), _version(tensors[0])
        elif chain is not None and name in VIEWS | CELLWISE | set(PICKS):
            softmaxes = _follow_softmax(call, tensors[chain], marks[chain], results)
            parts = [
                replace(part, softmax=one) for part, one in zip(parts, softmaxes, strict=False)
            ]
        for tensor, part in zip(results, parts, strict=False):
            if not isinstance(tensor, torch.nn.Parameter):  # which an optimizer changes in place
                self.marks[tensor] = part


def _origin(name: str, tensors: list[torch.Tensor], marks: list[Mark]) -> Mark:
    """The mark of a function's result without its labels."""
    first = marks[0]
    picks = name in PICKS or (
        # One index serves every query; an index of several axes may be each query's own.
        name == "__getitem__"
        and any(index.ndim > 1 and index.dtype != torch.bool for index in tensors[1:])
    )
    if name in SAME:
        mark = replace(first, softmax=None, picks=picks or first.picks)
        if name != "repeat":
            return mark
        return replace(mark, is_parameter=False, constant=first.is_parameter or first.constant)
    constant = all(mark.is_parameter or mark.constant for mark in marks)
    mark = Mark(hash((name, *(mark.source for mark in marks))), frozenset(), constant=constant)
    activations = [mark for mark in marks if not mark.is_parameter]
    scores = next((mark for mark in marks if mark.product is not None), first)
    if name in PROJECTIONS:
        return replace(mark, inputs=frozenset([first.source]), product=first.product)
    if name in PRODUCTS and len(marks) > 1:
        if any(mark.is_parameter or mark.constant for mark in marks) and scores.product is not None:
            mark = replace(mark, product=scores.product)  # a constant matrix mixes heads of scores
        elif len(activations) == len(marks):
            mark = replace(mark, product=marks[-2].inputs <= marks[-1].inputs)
        else:  # a projection, written as a product
            return replace(mark, inputs=frozenset(one.source for one in activations or marks))
    elif name in CELLWISE | SCORING | set(PICKS):
        mark = replace(mark, product=scores.product, mixer=first.mixer, picks=picks or first.picks)
    inputs = frozenset[int]().union(*(one.inputs for one in activations))
    if len(inputs) > MOST_INPUTS:
        inputs = frozenset([hash(inputs)])
    return replace(mark, inputs=inputs or frozenset([mark.source]))


def _product_mark(mark: Mark, factors: Any, letters: list[str], marks: list[Mark]) -> Mark:
    """A product's mark: its axes have the labels of the factors' axes of the same letter."""
    *sides, out = letters
    constants = [
        one.is_parameter or (one.constant and other.product is not None)
        for one, other in zip(marks, reversed(marks), strict=True)
    ]
    labels = defaultdict[str, set[str]](set)
    for at, (tensor, one) in enumerate(zip(factors, marks, strict=True)):
        score_sides = SIDES if any(constants) and one.product is not None else ()
        for axis, letter in enumerate(sides[at]):
            if not constants[at]:
                labels[letter] |= one.labels[axis] & {"feature", "merged", *score_sides}
            elif tensor.shape[axis] > 1 and tensor.stride(axis):  # of a parameter all are features
                labels[letter].add("feature")
            if not any(constants) and letter not in sides[1 - at]:
                labels[letter].add(SIDES[at])
    heads = next((one.heads for one in reversed(marks) if one.has("merged")), mark.heads)
    return replace(mark, labels=tuple(frozenset(labels[letter]) for letter in out), heads=heads)


def _cellwise_mark(
    call: TorchCall, mark: Mark, tensors: list[torch.Tensor], marks: list[Mark], rank: int
) -> Mark:
    """The mark of what is neither a view nor a product: its axes have their arguments' labels."""
    name = call.name
    like = [
        one
        for tensor, one in zip(tensors, marks, strict=True)
        if tensor.ndim == rank and not one.is_parameter
    ]
    # A mask knows nothing of its axes; where several arguments know a label they must agree.
    labels = [set[str]() for _ in range(rank)]
    for label in frozenset[str]().union(*(own for one in like for own in one.labels)):
        experts = [one for one in like if one.has(label)]
        for axis in range(rank):
            if all(label in one.labels[axis] for one in experts):
                labels[axis].add(label)
    heads = next((one.heads for one in like if any(one.labels)), mark.heads)
    if name in PROJECTIONS:
        axis = rank - 1 - (0 if name == "linear" else int(name[4]))
        if not any("left" in own for own in labels) or not labels[axis].isdisjoint(SIDES):
            mark = replace(mark, product=None)  # of scores it mixes heads alone
        labels[axis] = {"feature"}
    elif name in FEATURES_LAST:
        labels[rank - 1].add("feature")
    elif name in PICKS:
        labels[call.axis(PICKS[name], rank)].add("ranked")
    elif name == "cat":
        parts = len({one.source for one in marks}), len({id(tensor) for tensor in tensors})
        # The parts of the features stand one after the other: each is a head.
        if call.axis(1, rank, 0) == 0 and parts == (1, heads[0]) and heads[1]:
            labels[0] = {"merged"}
    return replace(mark, labels=tuple(map(frozenset, labels)), heads=heads)


def _view_marks(
    call: TorchCall, tensor: torch.Tensor, old: Mark, mark: Mark, results: list[torch.Tensor]
) -> list[Mark]:
    """The marks of views: an axis has the labels that all axes have along which it runs."""
    start, views = torch.empty(tensor.shape, device="meta"), [None] * len(results)
    if any(old.labels):  # following takes time, and most tensors have no labels
        views = call.views(tensor, start, len(results))
    marks = []
    for result, view in zip(results, views, strict=True):
        if view is None:
            marks.append(replace(mark, labels=(frozenset[str](),) * result.ndim))
            continue
        labels, heads = [], old.heads
        for size, step in zip(view.shape, view.stride(), strict=True):
            end = step * (size - 1) + 1
            spans = (
                (axis, max(own, step), min(own * length, end))
                for axis, (length, own) in enumerate(zip(start.shape, start.stride(), strict=True))
            )
            along = [(axis, -(-last // first)) for axis, first, last in spans if first < last]
            own = [old.labels[axis] for axis, _ in along]
            labels.append(set(frozenset.intersection(*own) if own else ()))
            features = ["feature" in one for one in own]
            # Behind the first axis it may be heads that are repeated.
            if sorted(features) == [False, True] and (along[0][0] == 0 or tensor.ndim == 3):
                labels[-1].add("merged")
                heads = along[features.index(True)][1], features[0]
        split = [axis for axis, one in enumerate(labels) if "merged" in one]
        if len(split) == 2:  # batch and heads apart again
            for axis in split:
                labels[axis].discard("merged")
            labels[split[not heads[1]]].add("feature")
        marks.append(replace(mark, labels=tuple(map(frozenset, labels)), heads=heads))
    first = results[0]
    if len(results) > 1 and first.ndim == tensor.ndim:
        smaller = (old.labels[at] for at, size in enumerate(first.shape) if size < tensor.shape[at])
        if any("feature" in one for one in smaller):  # the parts of the features may be heads
            marks = [replace(one, heads=(len(results), True)) for one in marks]
    return marks


def _softmax_mark(axis: int, result: torch.Tensor, mark: Mark, scores: Mark) -> Mark:
    """The mark of a softmax over an axis of scores."""
    labels = [set(own & {"feature", "merged", "ranked"}) for own in mark.labels]
    labels[axis].add("keys")
    for side, other in (SIDES, SIDES[::-1]):
        if side in mark.labels[axis]:
            queries = [at for at, own in enumerate(mark.labels) if other in own]
            # Among several axes the queries are the last, behind the heads.
            queries = [at for at in queries if "feature" not in labels[at]] or queries
            for at in queries[-1:]:
                labels[at].add("queries")
    mark = replace(mark, labels=tuple(map(frozenset, labels)))
    whole = Whole(tuple(result.shape), mark.labels, mark.heads)
    cells = torch.empty(result.shape, device="meta")
    return replace(mark, softmax=Softmax(whole, scores.product, mark.constant, cells))


def _follow_softmax(
    call: TorchCall, tensor: torch.Tensor, mark: Mark, results: list[torch.Tensor]
) -> list[Softmax | None]:
    """Each result of a function as a softmax; None where it is none any more."""
    old, name, number = mark.softmax, call.name, len(results)
    assert old is not None
    if name in PICKS:
        return [replace(old, cells=None)]
    cells, intact = [old.cells] * number, [old.intact] * number
    if name in VIEWS:
        if old.cells is not None:
            cells = call.views(tensor, old.cells, number)
    elif results[0].shape != tensor.shape:
        return [None]
    if name in DROPOUTS:
        if old.intact is None and call.drops():
            intact = [tensor.detach()]
    elif old.intact is not None:
        # What works in place must not reach what the model itself may still use.
        copy = old.intact if name in VIEWS else old.intact.clone()
        result = call.apply_to(tensor, copy)
        intact = [copy] if name == "__setitem__" else list(tensors_in([result]))
    return [
        replace(old, cells=place, intact=whole) for place, whole in zip(cells, intact, strict=True)
    ]


def _equation(equation: str | None, *ranks: int) -> list[str]:
    """The axes of two factors and their product as letters; without an equation of a matmul's."""
    if equation is None:
        inputs = "...qk" if ranks[0] > 1 else "k"
        right = "...kd" if ranks[1] > 1 else "k"
        equation = f"{inputs},{right}->...{inputs[-2:-1]}{right[4:]}"
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    if not arrow:
        letters = sorted(set(inputs) - {",", "."})
        out = "..." + "".join(letter for letter in letters if inputs.count(letter) == 1)
    sides = inputs.split(",")
    leads = [rank - len(side.replace(".", "")) for rank, side in zip(ranks, sides, strict=True)]
    lead = _ANY_AXES[: max(leads)]
    own = [
        side.replace("...", lead[len(lead) - rank :])
        for side, rank in zip(sides, leads, strict=True)
    ]
    return [*own, out.replace("...", lead)]
