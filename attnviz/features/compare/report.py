"""What each head did over a run of training, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Link, Provenance
from attnviz.core.effects import Effect, SavedEffects
from attnviz.core.records import dataclass

DRIFT = "drift"
HISTORY = (
    *("entropy", "sink", "previous-token", DRIFT, "row-entropy", "score-max", "score-mean"),
    *("score-std", "saturated", "log-sum-exp", "query-norm", "key-norm", "value-norm"),
    *("sink-value", "massive"),
)
"""What is followed over a training run; drift is each head's divergence from the sample before."""

COLLAPSED, UNIFORM, SINK, TURN, SETTLED = 0.05, 0.98, 0.5, 0.05, 0.02
GROWN, LARGE, PASSED = 2.0, 20.0, (100, 1000)
WINDOW, TURNS, GROWTHS = 8, 4, 3
SHARP = ("previous-token", "next-token", "same-token", "induction")
RULES = {
    "collapsed": f"entropy under {COLLAPSED:g} of what is possible in most rows, and no role that "
    f"is sharp by itself ({', '.join(SHARP)})",
    "saturating": f"the largest score is over {LARGE:g}, grew in each of the last {GROWTHS} "
    f"samples, to {GROWN:g} times or more, and not ever more slowly: exponentially",
    "oscillating": f"among the last {WINDOW} samples entropy turned {TURNS} times or more, each "
    f"time by {TURN:g} of what is possible",
    "uniform": f"entropy over {UNIFORM:g} of what is possible in most rows, after the first "
    "sample: it has learned nothing",
    "sink formed": f"one key gets more than {SINK:g} of what lies between uniform attention and "
    "all, in the last two samples and not in the first",
    "settled": f"drift of at most {SETTLED:g} nats in each of the last two samples, and none of "
    "the first four",
}
"""What each verdict means, the worst first; a head may have several."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is happening to a head, by one of the rules of `attnviz.features.compare.history`.

    Attributes:
        head: stream, layer and head by name.
        step: the first of the samples since which it holds.
        detail: the numbers that it is based on.
    """

    name: str
    head: tuple[str, str, str]
    step: int
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What each head did at each sampled step of a training run.

    Attributes:
        heads: stream, layer and head by name.
        roles: of each step, each head's clearest role; empty where it has none.
        values: each of `HISTORY`, shape (steps, heads); NaN: no value.
        provenance: that of the last sample.
        even: each head's strongest weight if its attention were uniform; `most`: its entropy then.
        verdicts: on each head at the last sample.
        run: the name of the run, if two are compared.
    """

    caption: str
    steps: tuple[int, ...]
    heads: tuple[tuple[str, str, str], ...]  # stream, layer and head by name
    roles: tuple[tuple[str, ...], ...]  # each head's clearest role by step, or ""
    values: Mapping[str, NDArray[np.float64]]  # each of `HISTORY`, (steps, heads)
    provenance: Provenance  # that of the last sample
    notes: tuple[str, ...]
    even: tuple[float, ...]
    most: tuple[float, ...]
    verdicts: tuple[Verdict, ...] = ()
    run: str = ""


def verdict_lines(history: History, layers: Mapping[str, str]) -> list[str]:
    """A line for each verdict: its heads by their names in `layers`, their steps, and its rule."""
    lines = list[str]()
    for name, rule in RULES.items():
        own = [one for one in history.verdicts if one.name == name]
        if own:
            heads = (
                f"all {len(own)} heads"
                if len(own) == len(history.heads) > 1
                else ", ".join(f"{layers[one.head[1]]}.{one.head[2]}" for one in own)
            )
            steps = sorted({one.step for one in own})
            when = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
            worst = max(own, key=lambda one: one.detail) if name == "saturating" else None
            detail = f" ({worst.detail})" if worst else ""
            lines.append(f"{name}: {heads}, since step {when}{detail} – {rule}")
    return lines


@dataclass(frozen=True, slots=True)
class HeadChange:
    """One link with its weight before, in A, and after, in B; its own weight is the difference."""

    link: Link
    before: float
    after: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """How attention B differs from attention A."""

    map: AttentionMap  # B − A, signed, over the queries that both have and the keys of either
    heads: tuple[tuple[tuple[str, str], tuple[str, str]], ...]  # layer and head of A and of B
    divergences: NDArray[np.float64]  # means over rows, (layers, heads); NaN: no row to compare
    changes: tuple[HeadChange, ...]  # the links that changed most, the largest first
    notes: tuple[str, ...]  # what was aligned, left out or renormalised


@dataclass(frozen=True, slots=True)
class EffectComparison:
    """Two ablations side by side."""

    sides: tuple[SavedEffects, SavedEffects]
    pairs: tuple[tuple[Effect | None, Effect | None], ...]  # effects in A and in B
    correlation: float  # Spearman's correlation over common parts; NaN for fewer than three
