"""Each row of the table of mechanisms, called on the same small numbers."""

from __future__ import annotations

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


def numbers(name: str, hidden: tuple[int, ...] = (), noise: float = 0.0) -> list[np.ndarray]:
    """The numbers a mechanism is fed; noise is added to what stands at hidden key positions."""
    random = np.random.default_rng(7)
    sequences = [random.normal(size=(BATCH, POSITIONS, SIZE)) for _ in range(6)]
    keys = {"co-parallel": (0, 1), "co-alternating": (0, 1), "co-two-stream": (1, 2, 4, 5)}
    for place in keys.get(name, (1, 2)):
        sequences[place][:, list(hidden)] += noise
    if "co" not in MECHANISMS[name].commands:
        return sequences[:3]
    if name == "co-two-stream":
        return sequences
    shapes = {
        "co-parallel": [(SIZE, SIZE)] + 2 * [(SIZE, HIDDEN_SIZE)] + 2 * [(HIDDEN_SIZE,)],
        "co-alternating": 3 * [(SIZE, HIDDEN_SIZE), (SIZE, HIDDEN_SIZE), (HIDDEN_SIZE,)],
    }
    return sequences[:2] + [random.normal(size=shape) for shape in shapes[name]]


def call(name: str, inputs: tuple[Any, ...], seen: Any) -> Attended:
    """Call a mechanism; seen is boolean (batch, positions), the same for every sequence."""
    mechanism = MECHANISMS[name]
    function = mechanism.load()
    heads = {"heads": HEADS} if mechanism.many_heads else {}
    row = seen[:, None, None, :] if mechanism.many_heads else seen[:, None, :]
    if "co" not in mechanism.commands:
        output, weights = function(*inputs[:3], row, **heads)
        return Attended(inputs, (output,), (weights,))
    if name == "co-two-stream":
        return Attended(inputs, *function(inputs[:3], inputs[3:], row, row, **heads))
    first, second, *parameters = inputs
    if name == "co-parallel":
        names = ("affinity", "first", "second", "first_score", "second_score")
        named = dict(zip(names, parameters, strict=True))
        done = function(first, second, named, seen, seen)
        return Attended(inputs, done.summaries, done.weights)
    turns = {
        turn: dict(zip(("inputs", "guide", "score"), parameters[at : at + 3], strict=True))
        for turn, at in (("first", 0), ("second", 3), ("first_again", 6))
    }
    return Attended(inputs, *function(first, second, turns, seen, seen))


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
