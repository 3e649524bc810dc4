"""What analyses say about a map: a number a head, a link, and the view that a reader sees first.

Divergences are of Jensen and Shannon, in nats, from 0 to ln 2. A `caption` says what was run,
`texts` over how many texts each number is a mean, `provenance` where the maps came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnviz.core.attention_map import HeadLine as HeadLine
from attnviz.core.attention_map import Link as Link
from attnviz.core.attention_map import View as View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import AttentionMap, Provenance
    from attnviz.core.registry import RoleKind


@dataclass(frozen=True, slots=True, eq=False)
class HeadMeasure:
    """A number for each head.

    Attributes:
        unit: "nats", "share", ….
        low: what its smallest value means, in words; high: its largest.
        values: float of shape (layers, heads); NaN where it says nothing.
        uniform: what uniform attention to all visible keys gives, likewise; None: unknown.
        top: the largest value there can be; of a signed measure also the size of the lowest.
    """

    name: str
    unit: str
    low: str
    high: str
    values: NDArray[np.float64]
    uniform: NDArray[np.float64] | None = None
    top: float = 1.0


@dataclass(frozen=True, slots=True)
class Role:
    """What a head is called for, and how clearly.

    Attributes:
        name: "previous-token", "induction", ….
        share: how much of its attention goes there; uniform: how much uniform attention would give.
        kind: "acts", what it does where it can, or "rests", where it looks when it cannot.
        token: the key it rests on, such as "[CLS]", where that is a known special token.
    """

    name: str
    share: float
    uniform: float
    kind: RoleKind = "acts"
    token: str = ""

    @property
    def lift(self) -> float:
        """How far from uniform attention (0) to nothing else (1) the share lies."""
        return (self.share - self.uniform) / (1 - self.uniform) if self.uniform < 1 else 0.0


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One head with everything measured on it.

    Attributes:
        values: a number for each measure; NaN where it says nothing.
        uniform: what uniform attention under the same mask gives, likewise.
        roles: what it clearly does, the clearest first, and then where it clearly rests.
        intervals: of means over several texts, those that are known.
    """

    stream: str
    layer: str
    head: str
    values: Mapping[str, float]
    uniform: Mapping[str, float]
    roles: tuple[Role, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def clearest(self, kind: RoleKind) -> Role | None:
        """Its clearest role of a kind, if it has one."""
        return next((role for role in self.roles if role.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Meaning:
    """How to read a measure: the fields of `HeadMeasure`, with a heading of few letters."""

    name: str
    short: str
    unit: str
    low: str
    high: str
    top: float


DISTRIBUTIONS = ("entropy", "relative-entropy", "span", "distance", "offset")
"""Measures of a row as a distribution, whatever it sums to."""


EFFECT = "effect"
"""The measure that only a model that predicts something can tell."""


def about_effects(provenance: Provenance) -> str:
    """What effects are of, and what heads put out that are off; empty where there are none."""
    told = provenance.settings.get(EFFECT)
    return f"effect: {told}" if told else ""


def mass_note(measures: Iterable[Meaning | HeadMeasure]) -> str:
    """What a reader must know where rows do not sum to 1; empty where they do."""
    names = [meaning.name for meaning in measures]
    if "mass" not in names:
        return ""
    told = [name for name in DISTRIBUTIONS if name in names]
    none = "; rows that attend to nothing (empty) are left out of them" if "empty" in names else ""
    return f"rows do not sum to 1 (mass): {', '.join(told)} are of rows made to sum to 1{none}"


@dataclass(frozen=True, slots=True)
class HeadReport:
    """Every head of a run, as sorted.

    Attributes:
        sinks: keys on which attention rests, in words; empty where there is none.
    """

    caption: str
    measures: tuple[Meaning, ...]
    rows: tuple[HeadRow, ...]
    provenance: Provenance
    texts: int = 1
    sinks: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityReport:
    """Which heads look alike.

    Attributes:
        heads: layer and head by name, in the order of the axes.
        divergences: means, shape (heads, heads).
        places: of the heads in a plane, shape (heads, 2).
        shown: the share of all spread that the plane shows.
    """

    caption: str
    stream: str
    heads: tuple[tuple[str, str], ...]
    divergences: NDArray[np.float64]
    places: NDArray[np.float64]
    shown: float
    provenance: Provenance
    texts: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """How often one attention head finds one relation of a treebank ("nsubj"), 0 to 1.

    Attributes:
        toward: "head", where the dependent's strongest link is its syntactic head, or "dependent".
    """

    relation: str
    toward: str
    layer: str
    head: str
    share: float


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation of a treebank in so many cases.

    Attributes:
        offset: the distance from dependent to head that is right most often.
        by_offset: how often it is, 0 to 1.
    """

    name: str
    count: int
    offset: int
    by_offset: float


@dataclass(frozen=True, slots=True)
class TreebankReport:
    """Which head finds which relation, the most frequent first.

    Attributes:
        findings: every head on every relation in both directions, relation by relation, best first.
    """

    caption: str
    sentences: int
    relations: tuple[Relation, ...]
    findings: tuple[Finding, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadChange:
    """One link with its weight before, in A, and after, in B; its own weight is the difference."""

    link: Link
    before: float
    after: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """How attention B differs from attention A.

    Attributes:
        map: B − A, signed, over the queries that both have and the keys of either.
        heads: of each layer and head of the map, the layer and head of A and those of B.
        divergences: means over the rows, shape (layers, heads); NaN where a head has no row to
            compare.
        changes: the links that changed most, the largest first.
        notes: what was aligned, left out or renormalised.
    """

    map: AttentionMap
    heads: tuple[tuple[tuple[str, str], tuple[str, str]], ...]
    divergences: NDArray[np.float64]
    changes: tuple[HeadChange, ...]
    notes: tuple[str, ...]


DRIFT = "drift"
HISTORY = ("entropy", "sink", "previous-token", DRIFT)
"""What is followed over a training run; drift is each head's divergence from the sample before."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What each head did at each sampled step of a training run.

    Attributes:
        heads: stream, layer and head by name.
        roles: of each step, each head's clearest role; empty where it has none.
        values: each of `HISTORY`, shape (steps, heads); NaN: no value.
        provenance: that of the last sample.
    """

    caption: str
    steps: tuple[int, ...]
    heads: tuple[tuple[str, str, str], ...]
    roles: tuple[tuple[str, ...], ...]
    values: Mapping[str, NDArray[np.float64]]
    provenance: Provenance
    notes: tuple[str, ...]
