"""Each row of the table of mechanisms, called on the same small numbers."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from attnviz.core.registry import MECHANISMS, Mechanism
from attnviz.mechanisms.formula import SIDES, groups_of, shapes_of

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
    if not MECHANISMS[name].mutual:
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
        return [*narrowed(MECHANISMS[name], sequences[:3]), *learned(name, hidden, noise)]
    parameters = [random.normal(size=shape) for shape in contract.parameters]
    return sequences[: contract.sequences] + parameters


def narrowed(row: Mechanism, sequences: list[np.ndarray]) -> list[np.ndarray]:
    """Query, key and value, of which keys and values have as many heads as the mechanism says."""
    columns = SIZE // HEADS * groups_of(row, HEADS) if row.many_heads else SIZE
    return [sequences[0], *(one[..., :columns] for one in sequences[1:])]


def learned(name: str, hidden: tuple[int, ...] = (), noise: float = 0.0) -> list[np.ndarray]:
    """The further parameters of a mechanism; of what is of each key, noise moves the hidden."""
    random = np.random.default_rng(8)
    found = []
    shapes = shapes_of(MECHANISMS[name], SIZE, HEADS)
    for axes, (parameter, shape) in zip(
        MECHANISMS[name].learned.values(), shapes.items(), strict=True
    ):
        if axes.split()[0] in SIDES:
            numbers = random.uniform(0.1, 0.9, size=(BATCH, POSITIONS, shape[1]))
            if axes.startswith("keys"):
                numbers[:, list(hidden)] /= 1 + noise
        else:
            assert parameter in MECHANISMS[name].learned
            numbers = random.normal(size=shape) / 2
        found.append(numbers)
    return found


def call(name: str, inputs: tuple[Any, ...], seen: Any) -> Attended:
    """Call a mechanism; seen is boolean (batch, positions), the same for every sequence."""
    mechanism = MECHANISMS[name]
    function = mechanism.load()
    contract = co_contract(name)
    if contract is not None:
        return Attended(inputs, *contract.call(function, inputs, seen))
    row = seen[:, None, None, :] if mechanism.many_heads else seen[:, None, :]
    options = dict(zip(mechanism.learned, inputs[3:], strict=True))
    if mechanism.many_heads:
        options["heads"] = HEADS
    output, weights = function(*inputs[:3], row, **options)
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
