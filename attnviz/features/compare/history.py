"""What happens to heads over a training run: measures by step, and verdicts on them by rules."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import entropy, masks, view
from attnviz.analyses.heads import measure_heads
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import HealthError, choose
from attnviz.features.compare.differences import compare_rows
from attnviz.features.compare.report import (
    COLLAPSED,
    DRIFT,
    GROWN,
    GROWTHS,
    HISTORY,
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
from attnviz.features.measures.spread import typical_entropy
from attnviz.features.measures.study import rows_of

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
    spread, sink = values[entropy.ENTROPY], values["sink"]
    low = (spread < COLLAPSED) & ~sharp
    if low[-1]:
        yield "collapsed", (_since(low), f"entropy {spread[-1]:.3f} of possible")
    if len(steps) > 1 and spread[-1] > UNIFORM:
        yield "uniform", (_since(spread > UNIFORM), f"entropy {spread[-1]:.3f} of possible")
    if (saturation := _saturation(steps, values["score-max"])) is not None:
        yield "saturating", saturation
    # Only turns of some size count; the steps between two of them are one swing.
    recent = spread[-WINDOW:]
    swings = [one for one in np.diff(recent[~np.isnan(recent)]) if abs(one) >= TURN]
    turns = sum(one * other < 0 for one, other in itertools.pairwise(swings))
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
            near = steps[-1] + math.log(limit / scores[-1]) / recent[-1]
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


def chosen_verdicts(verdicts: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of verdicts, also in one text: "collapsed,saturating".

    Raises:
        UsageError: there is no such verdict.
    """
    names = verdicts.split(",") if isinstance(verdicts, str) else verdicts or ()
    names = [name.strip().replace("-", " ") for name in names]
    return tuple(choose(name, RULES, "verdict") for name in names)


Head = tuple[str, str, str]  # stream, layer and head by name


class HistoryStudy:
    """Measures of samples in the order of their steps."""

    def __init__(self) -> None:
        self.last: Attention | None = None
        self.roles: dict[int, dict[Head, str]] = {}
        self.values: dict[int, dict[Head, dict[str, float]]] = {}
        self.notes: dict[str, None] = {}
        self.uniform: dict[Head, tuple[float, float]] = {}
        self.before: dict[tuple[str, str], AttentionMap] = {}
        self.stream_names: dict[tuple[str, str], str] = {}

    def add(self, step: int, attention: Attention) -> None:
        """Measure one sample, and the drift of its heads since the one before."""
        before, self.before = self.before, {}
        self.roles[step], self.values[step] = {}, {}
        for item in attention.maps:
            if item.is_pooled:
                rows, columns = item.blocks
                note = f"maps hold blocks of {rows} × {columns} tokens: measures are of blocks"
                self.notes[note] = None
            alone = replace(item, blocks=(1, 1), starts=(0, 0), links=())
            subject = masks.MeasuredMap(alone, scores=masks.known_scores(attention, item))
            measures = measure_heads(subject)
            streams = {layer: self._stream(step, item.stream, layer) for layer in item.layers}
            drift = self._drift(before, streams, item)
            own = {DRIFT: drift, entropy.ENTROPY: typical_entropy(subject)}
            own |= {name: one.values for name, one in measures.items()}
            even = {name: one.uniform for name, one in measures.items() if one.uniform is not None}
            for row in rows_of((item.stream, item.layers, item.heads), own, even):
                head = streams[row.layer], row.layer, row.head
                self.uniform[head] = row.uniform["sink"], row.uniform["entropy"]
                self.roles[step][head] = row.roles[0].name if row.roles else ""
                self.values[step][head] = {one: row.values.get(one, math.nan) for one in HISTORY}
        self.last = attention

    def _stream(self, step: int, stream: str, layer: str) -> str:
        """The name of a layer's stream in the first sample, since sharp weights may seem causal.

        Maps of one layer and stream that differ in size are numbered.
        """
        kind = re.sub(r"\bcausal$", "self", stream)
        name = self.stream_names.setdefault((kind, layer), stream)
        others = {(one, other) for one, other, _ in self.values[step]}
        number = next(at for at in itertools.count(1) if (_nth(name, at), layer) not in others)
        return _nth(name, number)

    def _drift(
        self,
        before: Mapping[tuple[str, str], AttentionMap],
        streams: Mapping[str, str],
        item: AttentionMap,
    ) -> np.ndarray:
        """The drift of each layer and head, as far as they were in the sample before."""
        drift = np.full(item.weights.shape[:2], np.nan)
        for place, (layer, stream) in enumerate(streams.items()):
            own = self.before[stream, layer] = item.part([layer])
            other = before.get((stream, layer))
            if other is not None and _place(own) == _place(other):
                drift[place], notes = compare_rows(other.weights, own.weights)
                self.notes |= dict.fromkeys(notes)
            elif self.last is not None:
                note = "some maps have no fellow in the sample before: they have no drift"
                self.notes[note] = None
        return drift

    def report(self) -> History:
        """The history of all samples, at least one."""
        assert self.last is not None
        heads = tuple(dict.fromkeys(head for step in self.values.values() for head in step))
        missing = dict.fromkeys(HISTORY, math.nan)
        first, last = min(self.values), max(self.values)
        several = f"{len(self.values)} samples, steps {first:,} to {last:,}"
        caption = view.describe_run(self.last, self.last.main)
        history = History(
            f"{caption} · {several if first != last else f'one sample, of step {first:,}'}",
            tuple(self.values),
            heads,
            tuple(tuple(of.get(head, "") for head in heads) for of in self.roles.values()),
            {
                name: np.array(
                    [[of.get(head, missing)[name] for head in heads] for of in self.values.values()]
                )
                for name in HISTORY
            },
            self.last.provenance,
            tuple(self.notes),
            tuple(self.uniform[head][0] for head in heads),
            tuple(self.uniform[head][1] for head in heads),
        )
        return replace(history, verdicts=judge(history))


def _nth(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _place(item: AttentionMap) -> object:
    return item.layers, item.heads, item.query_tokens, item.key_tokens, item.blocks
