"""Each row of the table of mechanisms, called on the same small numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from attnviz.core.registry import MECHANISMS

BATCH, POSITIONS, SIZE, HIDDEN_SIZE, HEADS = 2, 4, 6, 5, 3


class Attended(NamedTuple):
    """What went into a mechanism and what came out, as tuples whatever the mechanism."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    weights: tuple[Any, ...]


class CoContract(NamedTuple):
    """How the contract calls a co-attention; its own test names one `CONTRACT`.

    Attributes:
        call: (function, inputs, seen positions) → (outputs, weights).
        sequences: how many sequences come first among the inputs.
        parameters: the shapes of the inputs behind them.
        keys: which sequences are keys or values.
        summarised: True where outputs are summaries of whole sequences.
    """

    call: Callable[[Any, tuple[Any, ...], Any], tuple[tuple[Any, ...], tuple[Any, ...]]]
    sequences: int = 2
    parameters: tuple[tuple[int, ...], ...] = ()
    keys: tuple[int, ...] = (0, 1)
    summarised: bool = True


@cache
def co_contract(name: str) -> CoContract | None:
    """The contract in a co-attention's test, `test_<function>.py`; None of other mechanisms."""
    if "co" not in MECHANISMS[name].commands:
        return None
    contract: CoContract = import_module(f"tests.mechanisms.test_{name.replace('-', '_')}").CONTRACT
    return contract


def numbers(name: str, hidden: tuple[int, ...] = (), noise: float = 0.0) -> list[np.ndarray]:
    """The numbers a mechanism is fed; noise is added to what stands at hidden key positions."""
    random = np.random.default_rng(7)
    contract = co_contract(name)
    sequences = [random.normal(size=(BATCH, POSITIONS, SIZE)) for _ in range(6)]
    for place in contract.keys if contract else (1, 2):
        sequences[place][:, list(hidden)] += noise
    if contract is None:
        return sequences[:3]
    parameters = [random.normal(size=shape) for shape in contract.parameters]
    return sequences[: contract.sequences] + parameters


def call(name: str, inputs: tuple[Any, ...], seen: Any) -> Attended:
    """Call a mechanism; seen is boolean (batch, positions), the same for every sequence."""
    mechanism = MECHANISMS[name]
    function = mechanism.load()
    contract = co_contract(name)
    if contract is not None:
        return Attended(inputs, *contract.call(function, inputs, seen))
    row = seen[:, None, None, :] if mechanism.many_heads else seen[:, None, :]
    output, weights = function(*inputs, row, **({"heads": HEADS} if mechanism.many_heads else {}))
    return Attended(inputs, (output,), (weights,))


def attend(
    name: str,
    kind: str = "numpy",
    dtype: str = "float64",
    hidden: tuple[int, ...] = (),
    noise: float = 0.0,
) -> Attended:
    """The mechanism on its numbers, with the hidden positions masked as keys."""
    seen = np.ones((BATCH, POSITIONS), dtype=bool)
    seen[:, list(hidden)] = False
    given = [array.astype(dtype) for array in numbers(name, hidden, noise)]
    if kind == "numpy":
        return call(name, tuple(given), seen)
    tensors = tuple(torch.from_numpy(array).requires_grad_() for array in given)
    return call(name, tensors, torch.from_numpy(seen))
