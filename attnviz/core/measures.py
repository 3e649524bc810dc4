"""Results of analyses: numbers for each head, reports and comparisons.

Divergences are Jensen–Shannon divergences in nats, from 0 to ln 2. `caption` describes the run,
`texts` is the number of texts of each mean, `provenance` describes the origin of the maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Provenance, Token
from attnviz.core.attention_map import HeadLine as HeadLine
from attnviz.core.attention_map import Link as Link
from attnviz.core.attention_map import View as View
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import RoleKind


def format_weight(weight: float, *, signed: bool = False) -> str:
    """A weight in two decimals, or two digits if it is small; with its sign if `signed`."""
    size = abs(weight)
    text = f"{size:.2f}" if size >= 0.095 else f"{size:.2g}"
    return ("-" if weight < 0 else "+" if signed else "") + text


@dataclass(frozen=True, slots=True, eq=False)
class HeadMeasure:
    """A number for each head."""

    name: str
    unit: str  # "nats", "share", …
    low: str  # the meaning of its smallest value; `high`: of its largest
    high: str
    values: NDArray[np.float64]  # float of shape (layers, heads); NaN if it does not apply
    uniform: NDArray[np.float64] | None = None  # values of uniform attention; None: unknown
    top: float = 1.0  # the largest possible value; for a signed measure the largest size


@dataclass(frozen=True, slots=True, eq=False)
class BlockMeasures:
    """The measures of the heads of a stream whose weights were read in blocks of rows."""

    stream: str
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    measures: Mapping[str, HeadMeasure]
    sinks: NDArray[np.bool_]  # whether each key is a sink of each head, (layers, heads, keys)
    key_tokens: tuple[Token, ...]
    resting: Mapping[str, str]  # the tokens of resting roles, as `heads.resting_places` gives them
    shares: SinkShares | None = None  # what sinks hold, of all layers and heads

    def of(self, layers: Sequence[str], heads: Sequence[str]) -> BlockMeasures:
        """Those of some layers and heads."""
        at = np.ix_([*map(self.layers.index, layers)], [*map(self.heads.index, heads)])
        own = {
            name: replace(
                one,
                values=one.values[at],
                uniform=None if one.uniform is None else one.uniform[at],
            )
            for name, one in self.measures.items()
        }
        return replace(self, layers=(*layers,), heads=(*heads,), measures=own, sinks=self.sinks[at])


@dataclass(frozen=True, slots=True)
class HeadLinks:
    """What a head says of a text: links, what position and popular keys explain least first."""

    layer: str
    head: str
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """What a reader sees first of a text; every number is a cell of one kind of matrix."""

    run: str  # what was run
    shares: str  # what the numbers are
    heads: tuple[HeadLinks, ...]  # those that say most of the text
    others: str  # what the other heads do, by role
    note: str  # why no head is listed, or not every head counts; may be empty
    map: AttentionMap  # of the first head or a mean, shape (1, 1, queries, keys)
    which: str  # which one that is
    orientation: str  # who attends to whom
    resting: tuple[Link, ...]  # words that give special tokens more than half
    order: tuple[int, ...]  # its rows, what says most first
    numbers: tuple[int, ...] = ()  # of a part of a text, each row's first token in that text
    groups: str = ""  # how alike heads look that share keys and values; empty: none share any


@dataclass(frozen=True, slots=True)
class SinkShares:
    """How much of the attention of a text's tokens goes to sinks, and where the rest goes.

    Shares are of the rows of tokens that stand for text; None: there is no such sink.
    """

    special: float | None  # to special tokens
    first: float | None  # to the first token of a causal text, from those behind it
    first_is_sink: bool  # by the rule of `attnviz.core.tokens`
    learned: float | None  # to a sink that is no token
    before: float | None = None  # of the rest: to the token before; None: between two texts
    itself: float | None = None  # of the rest: to the token itself
    first_token: str = ""

    @property
    def rest(self) -> float:
        """What is left of a row without sinks."""
        first = self.first if self.first_is_sink else 0
        return 1 - (self.special or 0) - (first or 0) - (self.learned or 0)


@dataclass(frozen=True, slots=True)
class Role:
    """A role of a head."""

    name: str  # "previous-token", "induction", …
    share: float  # how much of its attention goes there
    uniform: float  # how much uniform attention would give
    kind: RoleKind = "acts"  # "acts": what it does if it can; "rests": where it looks if it cannot
    token: str = ""  # the key it rests on, such as "[CLS]", where that is a known special token

    @property
    def label(self) -> str:
        return f"rests on {self.token}" if self.token else self.name

    @property
    def lift(self) -> float:
        """How far the share lies between uniform attention (0) and all attention (1)."""
        return (self.share - self.uniform) / (1 - self.uniform) if self.uniform < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Argument:
    """A token that a link argues for or against, and what the link adds to its logit."""

    token: str
    logit: float


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One head with everything measured on it."""

    stream: str
    layer: str
    head: str
    values: Mapping[str, float]  # a number for each measure, or NaN
    uniform: Mapping[str, float]  # the values for uniform attention under the same mask
    roles: tuple[Role, ...] = ()  # clear roles that act, clearest first, then those that rest
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # 95 % intervals
    writes: tuple[Argument, ...] = ()  # the tokens that it argues for most, if asked for
    kv: int | None = None  # the head of keys and values that it shares with others

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


EFFECT = "effect"  # the measure that needs a model with predictions
COPYING = "copying"  # the measure of a head's weights, without a text
RETRIEVAL, TASK = PROBES = ("retrieval", "function-vector")
"""Measures of heads in texts made for it, without a text of the user's."""
SCORES = ("score-max", "score-mean", "log-sum-exp")
SIGNED = ("offset", EFFECT, COPYING, TASK, *SCORES)  # measures that can be below 0
LARGEST = ("score-max", "query-norm", "key-norm", "massive")
"""Measures that report the largest value over several texts, not the mean."""


def about_effects(provenance: Provenance) -> str:
    """A note on how effects were measured; empty without effects."""
    definition = provenance.settings.get(EFFECT)
    return f"effect: {definition}" if definition else ""


def mass_note(measures: Iterable[Meaning | HeadMeasure]) -> str:
    names = [meaning.name for meaning in measures]
    if "mass" not in names:
        return ""
    distributions = ", ".join(name for name in DISTRIBUTIONS if name in names)
    none = "; rows that attend to nothing (empty) are left out of them" if "empty" in names else ""
    return f"rows do not sum to 1 (mass): {distributions} are of rows made to sum to 1{none}"
