"""How far two readings of one model may lie apart: what float32 costs it, measured in float64.

A tolerance that is a number fits the processor it was found on: others round in another order, and
some models make much of that. What holds everywhere is that no reading is much further from the
truth than another; and the truth is what the same model makes of the same input in float64.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from attnviz.core.attention_map import Attention
from attnviz.models.hugging_face.text_model import HuggingFaceModel

TIMES = 4
"""How many times the error of one float32 reading that of another may be."""
FLOOR = 32 * float(np.finfo(np.float32).eps)
"""An error that any reading may have: weights are at most 1, sums of them come in many orders."""
CEILING = 1e-4
"""An error that no tiny model has: beyond it nothing would be shown any more."""


def exact(model: torch.nn.Module) -> Any:
    """The same model in float64."""
    made: Any = deepcopy(model).double()
    if made._can_set_experts_implementation():
        made.set_experts_implementation("eager")  # the grouped kernel has no float64
    return made


@contextmanager
def in_float64() -> Iterator[None]:
    """What a model makes anew in its pass is float64 too."""
    fsmt = "transformers.models.fsmt.modeling_fsmt.fill_with_neg_inf"
    torch.set_default_dtype(torch.float64)
    try:
        with patch(fsmt, lambda mask: mask.fill_(torch.finfo(mask.dtype).min)):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def exact_model(model: HuggingFaceModel) -> HuggingFaceModel:
    """A loaded model in float64; it is to be asked within `in_float64`."""
    return replace(model, model=exact(model.model))


def both(model: torch.nn.Module, read: Callable[[Any], Any]) -> tuple[Any, Any]:
    """What is read of a model, and of the same one in float64."""
    single = read(model)
    with in_float64():
        return single, read(exact(model))


def apart(some: Iterable[Any], others: Iterable[Any]) -> float:
    """The largest difference of arrays in pairs."""
    return max(
        float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).max())
        for one, other in zip(some, others, strict=True)
    )


def allowed(single: Iterable[Any], truth: Iterable[Any]) -> float:
    """How far another float32 reading may be from the truth, where this one is so far from it."""
    error = apart(single, truth)
    assert error < CEILING, f"the model makes {error:.1g} of float32: too much to compare by"
    return TIMES * error + FLOOR


def weights_of(items: Iterable[Attention]) -> list[Any]:
    """Every map's weights, text by text."""
    return [found.weights for item in items for found in item.maps]


def check_as_near(found: Iterable[Any], single: Iterable[Any], truth: Iterable[Any]) -> None:
    """Arrays must be about as near to the truth as those of single readings are."""
    found, single, truth = list(found), list(single), list(truth)
    limit = allowed(single, truth)
    for one, other in zip(found, truth, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=limit)
