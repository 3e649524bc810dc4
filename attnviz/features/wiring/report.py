"""Which heads read which heads."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.core import attention_map, measures, writers
from attnviz.core.effects import HeadAt
from attnviz.core.records import dataclass


@dataclass(frozen=True, slots=True)
class HeadCircuit:
    """What the weights of a head say by themselves."""

    head: HeadAt
    # the sum of the eigenvalues of its circuit from token to logit over the sum of their sizes, −1
    # to 1: at 1 it raises the tokens that it looks at; None: no tokens meet it
    copying: float | None
    # scores, outputs: the singular values of its W_QᵀW_K and of its W_O W_V, largest first
    scores: tuple[float, ...]
    outputs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """How far a head moves if its query, key or value cannot read an earlier head."""

    head: HeadAt
    side: writers.Side
    writer: HeadAt
    # the share of attention that moves, ½ Σ |a − a′| as a mean over rows, where the side is the
    # query or the key; of a value, the size of the lost part over that of the output
    moved: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WiringReport:
    """Which heads read which heads."""

    caption: str
    wires: tuple[Wire, ...]  # all of them, the strongest first
    heads: tuple[HeadAt, ...]  # every head, in the model's order
    roles: Mapping[HeadAt, measures.Role]  # the clear roles, by head
    texts: int
    notes: tuple[str, ...]
    provenance: attention_map.Provenance
    circuits: tuple[HeadCircuit, ...] = ()  # each head's own, if weights alone are compared
    chance: float = 0.0  # the composition of random matrices of the same shapes
