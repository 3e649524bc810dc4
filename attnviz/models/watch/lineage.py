"""What a tensor was made of: whether it is a softmax, scores, or a projection of which input.

Each result of a torch function gets a mark, made of the marks of its arguments. Marks hold no
tensors but one (what a dropout was given), are kept apart from the tensors and go when these go.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
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
SOFTMAXES = _names("softmax special_softmax")
PROJECTIONS = _names("linear conv1d conv2d conv3d")

MOST_INPUTS = 64
"""Sources that are told apart; of more, as a long loop has them, only whether all are the same."""

_numbers = count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Softmax:
    """What became of a softmax so far.

    Attributes:
        places: of the tensor's shape, on no device, with a stride along the axis of keys alone.
        over_last: whether it went over the last axis.
        same_input: whether what scored, a product of two activations, were two projections of the
            same; None where the scores were no such product.
        undropped: the same tensor without dropout, where one was active.
    """

    places: torch.Tensor
    over_last: bool
    same_input: bool | None
    undropped: torch.Tensor | None = None

    def is_key_axis(self, axis: int) -> bool:
        """Whether an axis, counted from the front, is that of the keys."""
        shape = self.places.shape
        moves = [at for at, size in enumerate(shape) if size > 1 and self.places.stride(at)]
        # Nothing tells an axis of one key from others of size 1.
        return moves == [axis] or (not moves and shape[axis] == 1)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """What is known of a tensor.

    Attributes:
        source: a number for its contents: what is computed alike of the same has the same.
        inputs: the sources of what the projections nearest to it were given.
        is_parameter: whether it is a parameter, or a view of one.
        product: of a product of two activations, scaled or masked perhaps, whether they were made
            of the same; None where it is no such product.
        made: what was kept of the attention whose output it is.
    """

    source: int
    inputs: frozenset[int]
    softmax: Softmax | None = None
    is_parameter: bool = False
    product: bool | None = None
    made: list[Any] = field(default_factory=list)


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
        mark = _joined(name, marks)
        chain = next((at for at, old in enumerate(marks) if old.softmax is not None), None)
        parts = [mark] * len(results)
        if name in SOFTMAXES:
            parts = [replace(mark, softmax=_new_softmax(args, kwargs, result, marks[0]))]
        elif chain is not None and name in VIEWS | CELLWISE:
            followed = _follow(func, name, (args, kwargs), given[chain], marks[chain], results)
            parts = [replace(mark, softmax=softmax) for softmax in followed]
        for tensor, part in zip(results, parts, strict=True):
            if not isinstance(tensor, torch.nn.Parameter):  # which an optimizer changes in place
                self.marks[tensor] = part


def _joined(name: str, marks: list[Mark]) -> Mark:
    """The mark of what a function makes of arguments with these marks."""
    first = marks[0]
    if name in SAME:
        return replace(first, softmax=None)
    source = hash((name, *(mark.source for mark in marks)))
    activations = [mark for mark in marks if not mark.is_parameter]
    product = None
    if name in PROJECTIONS:
        return Mark(source, frozenset([first.source]))
    if name in PRODUCTS and len(marks) > 1:
        if len(activations) < len(marks):
            return Mark(source, frozenset(mark.source for mark in activations))
        product = marks[-2].inputs == marks[-1].inputs
    elif name in CELLWISE | SCORING:
        product = next((mark.product for mark in marks if mark.product is not None), None)
    inputs = frozenset[int]().union(*(mark.inputs for mark in activations))
    if len(inputs) > MOST_INPUTS:
        inputs = frozenset([hash(inputs)])
    return Mark(source, inputs or frozenset([source]), product=product)


def _new_softmax(args: Any, kwargs: Any, result: torch.Tensor, scores: Mark) -> Softmax | None:
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if axis is None:
        return None
    axis %= result.ndim
    strides = [int(at == axis) for at in range(result.ndim)]
    places = torch.empty_strided(result.shape, strides, device="meta")
    over_last = all(size == 1 for size in result.shape[axis + 1 :])
    return Softmax(places, over_last, scores.product)


def _follow(
    func: Any,
    name: str,
    given: tuple[tuple[Any, ...], dict[str, Any]],
    tensor: torch.Tensor,
    mark: Mark,
    results: list[torch.Tensor],
) -> list[Softmax | None]:
    """What each result of a function is as a softmax; None where it is none any more."""
    old = mark.softmax
    assert old is not None
    places, undropped = [old.places], [old.undropped]
    if name in VIEWS:
        try:
            places = list(tensors_in([_again(func, given, tensor, old.places)]))
        except (RuntimeError, TypeError):  # indices on another device, for one
            return [None] * len(results)
    if name in DROPOUTS:
        if old.undropped is None and dropout_of(*given):
            undropped = [tensor.detach()]
    elif old.undropped is not None:
        # What works in place must not reach what the model itself may still use.
        copy = old.undropped.clone() if name not in VIEWS else old.undropped
        made = _again(func, given, tensor, copy)
        undropped = [copy] if name == "__setitem__" else list(tensors_in([made]))
    undropped = undropped * len(results) if len(undropped) == 1 else undropped
    return [
        replace(old, places=place, undropped=whole) if result.shape == place.shape else None
        for result, place, whole in zip(results, places, undropped, strict=True)
    ]


def _again(
    func: Any,
    given: tuple[tuple[Any, ...], dict[str, Any]],
    tensor: torch.Tensor,
    other: torch.Tensor,
) -> Any:
    """The function once more, with another tensor in the place of one."""
    args, kwargs = given
    return func(
        *(other if item is tensor else item for item in args),
        **{key: other if item is tensor else item for key, item in kwargs.items()},
    )
