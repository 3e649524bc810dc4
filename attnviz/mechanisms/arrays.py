"""Array functions for numpy and torch alike, and the one softmax that every mechanism shares."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # a numpy array or a torch tensor
Mask = Array | None  # a boolean array, True where a query may look; None: everywhere
Dropout = Callable[[Array], Array]  # drops weights; mechanisms return what is left


def namespace(array: Array) -> Any:
    """The module of array functions that fits the array, by the array API standard.

    numpy 2 is such a module itself; asking it directly saves the 90 ms that importing the
    compatibility layer for numpy would cost a run that never needs it.
    """
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    from array_api_compat import array_namespace

    return array_namespace(array)


def transpose(array: Array) -> Array:
    """The array with its last two axes swapped: (…, a, b) becomes (…, b, a)."""
    return namespace(array).matrix_transpose(array)


def to_numpy(array: Array) -> NDArray[np.float32]:
    """The numbers of either kind of array as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32, copy=False)
    numbers: NDArray[np.float32] = array.detach().float().cpu().numpy()
    return numbers


def as_numpy(array: Array) -> NDArray[np.floating]:
    """The numbers of either kind of array, in double precision where they are."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array.detach().cpu()) if "float64" in str(array.dtype) else to_numpy(array)


def stack_layers(layers: Sequence[Array]) -> NDArray[np.floating]:
    """Layers of either kind of array as one numpy array."""
    return np.stack([*map(as_numpy, layers)])


def softmax(scores: Array, mask: Mask = None) -> Array:
    """Weights over the keys (the last axis): each row sums to 1, or to 0 where all is masked.

    The axis is always the keys'. Notebooks in circulation normalise over the queries instead, which
    makes columns sum to 1 and rows mean nothing.

    Args:
        scores: shape (…, queries, keys), any finite numbers.
        mask: boolean, broadcastable to the scores, True where a query may look; None: everywhere.

    Returns:
        Shape of the scores, each value from 0 to 1.
    """
    xp = namespace(scores)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    highest = xp.max(scores, axis=-1, keepdims=True)  # subtracted, so that exp cannot overflow
    if mask is not None:  # −∞ − −∞, in a row that is masked whole, would be NaN
        highest = xp.where(highest > -xp.inf, highest, xp.zeros_like(highest))
    exponentials = xp.exp(scores - highest)
    total = xp.sum(exponentials, axis=-1, keepdims=True)
    if mask is not None:
        total = xp.where(total > 0, total, xp.ones_like(total))
    return exponentials / total
