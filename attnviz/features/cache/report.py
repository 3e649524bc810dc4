"""Caches that hold fewer keys: what rules see, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attnviz.core.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Provenance


@dataclass(frozen=True, slots=True, eq=False)
class CacheState:
    """A layer's cache after a step, before a rule chooses what stays.

    Heads are those with keys of their own; where several query heads share keys, weights are their
    mean.

    Attributes:
        weights: of the queries so far, shape (heads, queries, keys); 0 where a key was gone.
        received: the sum of weights over queries, shape (heads, keys).
        held: the keys that are still there, shape (heads, keys).
        room: how many may stay.
        grows: whether each step adds a key, the last; else all keys are there from the start.
        drawn: a random number for each head and key, the same at all steps.
        worth: nats that later predictions lose without each key, shape (heads, keys); else 0.
    """

    weights: NDArray[np.float64]
    received: NDArray[np.float64]
    held: NDArray[np.bool_]
    room: int
    grows: bool
    drawn: NDArray[np.float64]
    worth: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeadCost:
    """What a rule takes from one head.

    Attributes:
        mass: the share of its attention, with all keys, that goes to keys that are held.
        cost: nats a token if the rule acts in this head alone; NaN: not measured.
    """

    layer: str
    head: int
    mass: float
    cost: float


@dataclass(frozen=True, slots=True)
class RuleCost:
    """What a rule costs, as means over texts of a kind.

    Attributes:
        rule: with its budget, "h2o:0.2"; name: without.
        kind: the file of the texts; empty: the texts were no file.
        held: keys that a query sees, as a share of those that it sees with all keys.
        cost: loss minus that with all keys, nats a token; interval: 95 %, None for one text.
        changed: the share of tokens whose likeliest choice is another.
        mass: the mean over heads of `HeadCost.mass`.
        heads: every head, the one that suffers most first.
    """

    rule: str
    name: str
    kind: str
    texts: int
    held: float
    cost: float
    interval: tuple[float, float] | None
    changed: float
    mass: float
    heads: tuple[HeadCost, ...]


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What smaller caches cost.

    Attributes:
        stream: whose keys are dropped.
        prompt: from where rules act, in words.
        full: the loss with all keys, nats a token, the mean over texts of each kind.
        counted: tokens whose loss was measured, by kind of text.
    """

    caption: str
    stream: str
    prompt: str
    full: Mapping[str, float]
    counted: Mapping[str, int]
    rules: tuple[RuleCost, ...]
    texts: int
    notes: tuple[str, ...]
    provenance: Provenance
