"""A small copy of a type with random weights, wide enough that no two heads agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from attnviz.core.errors import first_line
from attnviz.features.models.shrink import SmallCopy
from attnviz.models.hugging_face.capture.capture import without_cache
from tests.families.by_hand import SMALL, VALUES
from tests.families.sizes import small_sizes
from tests.families.types_of import ModelType, part_that_runs

FEW = (300_000, 2_000_000, 8_000_000, 50_000_000)
"""Parameters of the copies that are tried in turn."""
WIDEST = 0.3  # standard deviation of the weights, of wide matrices less


@dataclass(frozen=True)
class Copy:
    """A small copy of a type."""

    kind: ModelType
    model: Any

    @property
    def config(self) -> Any:
        return self.model.config


NEEDS = re.compile(r".*requires the (\w+) library.*", re.DOTALL)


class NotBuiltError(Exception):
    """No small copy of a type can be built, or run on an example; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(NEEDS.sub(r"it needs \1", reason))


def first_config(name: str) -> Any:
    """The type's default configuration, with the values that it lacks."""
    values = VALUES.get(name, {})
    return values() if callable(values) else CONFIG_MAPPING[name](**deepcopy(values))


def build(made_by: Any, config: Any) -> Any:
    """The model of a configuration, in evaluation mode."""
    return made_by._from_config(config).eval()


def make_copy(kind: ModelType, example: Callable[[Any], dict[str, Any]]) -> Copy:
    """A small copy that runs on an example; where no trial leads to one, one made by hand.

    Raises:
        NotBuiltError: there is none.
    """
    if kind.made_by is None:
        raise NotBuiltError(kind.reason or "it has no class of its own")
    reasons = list[str]()

    def run(model: Any) -> None:
        run_on(model, example(model))

    for few in FEW:
        try:
            config = first_config(kind.name)
            small = SmallCopy(lambda one: build(kind.made_by, one), config, run).shrink(few)
            torch.manual_seed(0)
            return Copy(kind, widened(build(kind.made_by, small.config)))
        except Exception as error:  # transformers raises anything for sizes that do not fit
            reasons.append(f"{type(error).__name__}: {first_line(error)}")
            if reasons.count(reasons[-1]) > 1:  # no size helps
                break
    if kind.name in SMALL:
        return copy_by_hand(kind, example, SMALL[kind.name])
    try:  # a number of a layer stands in lists that a trial does not cut with the depth
        return copy_by_hand(kind, example, small_sizes(first_config(kind.name).to_dict()))
    except Exception:
        raise NotBuiltError(reasons[0]) from None


def run_on(model: Any, inputs: dict[str, Any]) -> None:
    """Run a model, or the part of it that these inputs are for."""
    part_that_runs(model, inputs)(**without_cache(model, inputs))


def copy_by_hand(
    kind: ModelType, example: Callable[[Any], dict[str, Any]], values: Mapping[str, Any]
) -> Copy:
    """A copy of a small configuration that was made by hand.

    Raises:
        NotBuiltError: it does not run on the example.
    """
    try:
        torch.manual_seed(0)
        config = CONFIG_MAPPING[kind.name](**deepcopy(dict(values)))
        model = widened(build(kind.made_by, config))
        with torch.no_grad():
            run_on(model, example(model))
    except NotBuiltError:
        raise
    except Exception as error:
        raise NotBuiltError(f"{type(error).__name__}: {first_line(error)}") from error
    return Copy(kind, model)


def widened(model: Any) -> Any:
    """A model whose matrices are random anew, wide enough that no two heads agree."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1 and weights.is_floating_point():
                inner = max(weights[0].numel(), 1)
                weights.normal_(std=min(WIDEST, 1.7 / inner**0.5))
    return model
