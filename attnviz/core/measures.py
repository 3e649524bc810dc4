"""Results of analyses: numbers for each head, reports and comparisons.

Divergences are Jensen–Shannon divergences in nats, from 0 to ln 2. `caption` describes the run,
`texts` is the number of texts of each mean, `provenance` describes the origin of the maps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnviz.core.attention_map import HeadLine as HeadLine
from attnviz.core.attention_map import Link as Link
from attnviz.core.attention_map import View as View
from attnviz.core.registry import RoleKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import AttentionMap, Provenance


@dataclass(frozen=True, slots=True, eq=False)
class HeadMeasure:
    """A number for each head.

    Attributes:
        unit: "nats", "share", ….
        low: the meaning of its smallest value; `high`: of its largest.
        values: float of shape (layers, heads); NaN if it does not apply.
        uniform: the values for uniform attention to all visible keys; None: unknown.
        top: the largest possible value; for a signed measure the largest size.
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
    """A role of a head.

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
    def label(self) -> str:
        """What tables and pictures call it: its name, or "rests on [CLS]"."""
        return f"rests on {self.token}" if self.token else self.name

    @property
    def lift(self) -> float:
        """How far from uniform attention (0) to nothing else (1) the share lies."""
        return (self.share - self.uniform) / (1 - self.uniform) if self.uniform < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Argument:
    """A token that a link argues for or against: what it adds to its logit above the mean."""

    token: str
    logit: float


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One head with everything measured on it.

    Attributes:
        values: a number for each measure, or NaN.
        uniform: the values for uniform attention under the same mask.
        roles: clear roles that act, clearest first, then those that rest.
        intervals: known intervals of means over several texts.
        writes: the tokens that it argues for most, where this was asked for.
    """

    stream: str
    layer: str
    head: str
    values: Mapping[str, float]
    uniform: Mapping[str, float]
    roles: tuple[Role, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    writes: tuple[Argument, ...] = ()

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
"""Measures of a row as a distribution, scaled to sum to 1."""


EFFECT = "effect"
"""The measure that needs a model with predictions."""
COPYING = "copying"
"""The measure of a head's weights, without a text."""
RETRIEVAL, TASK = PROBES = ("retrieval", "function-vector")
"""Measures of heads in texts made for it, without a text of the user's."""
SIGNED = ("offset", EFFECT, COPYING, TASK)
"""Measures that can be below 0."""


def about_effects(provenance: Provenance) -> str:
    """The definition of effects in a run, or an empty text."""
    definition = provenance.settings.get(EFFECT)
    return f"effect: {definition}" if definition else ""


def mass_note(measures: Iterable[Meaning | HeadMeasure]) -> str:
    """A note if rows do not sum to 1, or an empty text."""
    names = [meaning.name for meaning in measures]
    if "mass" not in names:
        return ""
    scaled = ", ".join(name for name in DISTRIBUTIONS if name in names)
    none = "; rows that attend to nothing (empty) are left out of them" if "empty" in names else ""
    return f"rows do not sum to 1 (mass): {scaled} are of rows made to sum to 1{none}"


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
        offset: the most frequent distance from dependent to head.
        by_offset: its share of all cases.
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
