"""What is happening to heads over a training run: verdicts by rules on the sampled measures."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import log

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import ENTROPY
from attnviz.core.errors import HealthError, choose
from attnviz.core.measures import (
    COLLAPSED,
    DRIFT,
    GROWN,
    GROWTHS,
    LARGE,
    PASSED,
    RULES,
    SETTLED,
    SHARP,
    SINK,
    TURN,
    TURNS,
    UNIFORM,
    WINDOW,
    History,
    Verdict,
)

BAD = ("collapsed", "saturating", "oscillating", "uniform")
Series = NDArray[np.float64]


def judge(history: History) -> tuple[Verdict, ...]:
    """The verdicts on each head at the last sample, in the order of the heads, then of `RULES`."""
    verdicts = list[Verdict]()
    for number, head in enumerate(history.heads):
        values = {name: of[:, number] for name, of in history.values.items()}
        sharp = np.array([of_step[number] in SHARP for of_step in history.roles])
        own = dict(_judge_head(history.steps, values, history.even[number], sharp))
        if not {*own} & {*BAD} and (last := values[DRIFT][-2:]).size == 2 and max(last) <= SETTLED:
            own["settled"] = _since(values[DRIFT] <= SETTLED), f"drift {last[-1]:.4f} nats"
        verdicts += (
            Verdict(name, head, history.steps[own[name][0]], own[name][1])
            for name in RULES
            if name in own
        )
    return tuple(verdicts)


def _judge_head(
    steps: tuple[int, ...], values: dict[str, Series], even: float, sharp: NDArray[np.bool_]
) -> Iterator[tuple[str, tuple[int, str]]]:
    """Each verdict but the last with the number of the sample since which it holds, and why."""
    spread, sink = values[ENTROPY], values["sink"]
    low = (spread < COLLAPSED) & ~sharp
    if low[-1]:
        yield "collapsed", (_since(low), f"entropy {spread[-1]:.3f} of possible")
    if len(steps) > 1 and spread[-1] > UNIFORM:
        yield "uniform", (_since(spread > UNIFORM), f"entropy {spread[-1]:.3f} of possible")
    if (grown := _saturation(steps, values["score-max"])) is not None:
        yield "saturating", grown
    # Only turns of some size count; the steps between two of them are one swing.
    recent = spread[-WINDOW:]
    swings = [one for one in np.diff(recent[~np.isnan(recent)]) if abs(one) >= TURN]
    turns = sum(one * other < 0 for one, other in pairwise(swings))
    if turns >= TURNS:
        first = max(len(steps) - WINDOW, 0)
        yield "oscillating", (first, f"{turns} turns in {len(recent)} samples")
    over = (sink - even) / (1 - even) > SINK if even < 1 else sink > np.inf
    if over[-2:].all() and not over[0]:
        yield "sink formed", (_since(over), f"{sink[-1]:.2f} of the attention that can reach it")


def _since(holds: NDArray[np.bool_]) -> int:
    """The first of the last samples in a row for which it holds."""
    against = np.flatnonzero(~holds)
    return int(against[-1]) + 1 if len(against) else 0


def _saturation(steps: tuple[int, ...], scores: Series) -> tuple[int, str] | None:
    """Since which sample the largest score grows exponentially, and when it passes its limits."""
    last = scores[-GROWTHS - 1 :]
    if len(last) <= GROWTHS or not (last > 0).all() or last[-1] < LARGE:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = np.diff(np.log(scores)) / np.diff(steps)
    recent = rates[-GROWTHS:]
    if recent.min() <= 0 or last[-1] < GROWN * last[0] or recent[-1] < recent.max() / 2:
        return None
    parts = [f"largest score {scores[-1]:,.4g}"]
    for limit in PASSED:
        above = np.flatnonzero(scores >= limit)
        if len(above):
            parts.append(f"passed {limit:,} by step {steps[above[0]]:,}")
        else:
            near = steps[-1] + log(limit / scores[-1]) / recent[-1]
            parts.append(f"passes {limit:,} near step {near:,.0f} at this rate")
            break
    return _since(np.concatenate([[False], rates > 0])) - 1, ", ".join(parts)


def verdict_line(one: Verdict, *, several: bool = False) -> str:
    """A verdict in words; `several`: name its stream too."""
    stream, layer, head = one.head
    place = f"layer {layer} head {head}" + (f" ({stream})" if several else "")
    return f"{place}: {one.name} since step {one.step:,} ({one.detail})"


def check_health(verdicts: Iterable[Verdict], names: Sequence[str]) -> None:
    """Fail where a head has one of these verdicts, with a line for each.

    Raises:
        HealthError: there is one.
    """
    bad = [verdict_line(one) for one in verdicts if one.name in names]
    if bad:
        raise HealthError("\n".join(bad))


def chosen_verdicts(given: str | Sequence[str]) -> tuple[str, ...]:
    """The names of verdicts, also in one text: "collapsed,saturating".

    Raises:
        UsageError: there is no such verdict.
    """
    names = given.split(",") if isinstance(given, str) else given
    names = [name.strip().replace("-", " ") for name in names]
    return tuple(choose(name, RULES, "verdict") for name in names if name)
