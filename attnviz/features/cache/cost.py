"""What rules for a cache cost in one text, and as means over texts of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.core.effects import Experiment, Intervention, TokenAt
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import POLICIES
from attnviz.features.cache.eviction import Budget, CacheRun, Worth, size_of
from attnviz.features.cache.report import HeadCost, RuleCost
from attnviz.features.lenses.effect import effects
from attnviz.features.measures.intervals import means_over

Numbers = NDArray[np.float64]
SCORES = 1 << 25
"""Scores of choices of runs that are measured together."""


@dataclass(frozen=True, slots=True, eq=False)
class TextCost:
    """What one rule costs in one text.

    Attributes:
        run: the rule, with the keys that it dropped.
        cost: nats a token; changed: share of tokens; held: share of keys.
        mass: of each head, shape (layers, heads); alone: nats a token in this head alone, or NaN.
    """

    run: CacheRun
    cost: float
    changed: float
    held: float
    mass: Numbers
    alone: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class CachedText:
    """One text before a model: what it loses with each rule.

    Attributes:
        item: the maps of the stream with all keys.
        prompt: the number of queries that see every key.
        full: the loss with all keys, nats a token; counted: of how many tokens.
    """

    item: AttentionMap
    prompt: int
    full: float
    counted: int
    costs: tuple[TextCost, ...]


def measure_rules(
    experiment: Experiment,
    rules: Sequence[tuple[Budget, ...]],
    *,
    stream: str | None = None,
    prompt: str | None = None,
    per_head: bool = False,
    seed: int = 0,
    optional: NDArray[np.bool_] | None = None,
) -> CachedText:
    """What each rule costs in a text, in one run of the model each.

    `prompt` is a number of tokens, or a share of them, that are read with every key; `optional`
    marks the keys that may go.

    Raises:
        UsageError: a stream that has no cache.
        InputError: no token is predicted after the prompt.
    """
    item = _cached_stream(experiment, stream)
    queries, keys = item.weights.shape[2:]
    grows = item.query_side == item.key_side
    start = 0 if prompt == "0" else size_of(prompt or ("0.5" if grows else "1"), queries)
    if prompt is None:  # of a text of three tokens half would leave nothing to predict
        start = min(start, max(output.row for output in experiment.outputs))
    scorer = _Scorer(experiment, item, start)
    worths: list[Worth] = []
    if any(one.row.measured for rule in rules for one in rule):
        worths = scorer.measure_keys()
    costs = [*scorer.own_selection()]
    for rule in rules:
        runs = [CacheRun(rule, item.stream, keys, start, grows, seed, None, optional)]
        if any(one.row.measured for one in rule):
            runs = [replace(runs[0], worth=worth) for worth in worths]
            runs += [replace(runs[0], rules=one, label=str(runs[0])) for one in _others(rule)]
        cost = min((scorer.cost(run) for run in runs), key=lambda one: one.cost)
        costs.append(scorer.in_each_head(cost) if per_head else cost)
    return CachedText(item, start, scorer.loss, len(scorer.places), tuple(costs))


def _others(rule: tuple[Budget, ...]) -> Iterator[tuple[Budget, ...]]:
    """The rule with every other one in the place of `best`."""
    for name, row in POLICIES.items():
        if not row.once and not row.measured and not row.beside:
            yield tuple(replace(one, name=name) if one.row.measured else one for one in rule)


class _Scorer:
    """A text before a model whose cache follows rules.

    Raises:
        InputError: no token is predicted after the prompt.
    """

    def __init__(self, experiment: Experiment, item: AttentionMap, start: int) -> None:
        self.experiment, self.item = experiment, item
        select: Callable[[], Mapping[tuple[str, str], Any]] = getattr(
            experiment, "selections", dict
        )
        self.selections = select()  # before other runs, which forget the unchanged model's
        self.rows = np.array([output.row for output in experiment.outputs])
        self.places = np.flatnonzero(self.rows >= start)
        if not len(self.places):
            raise InputError(f"no token is predicted after the prompt of {start} tokens")
        (plain,) = experiment.run([Intervention()])
        self.full, self.choices = self._log_p(plain), plain.argmax(axis=-1)
        self.together = max(1, SCORES // plain.size)

    @property
    def loss(self) -> float:
        """The loss with all keys, nats a token."""
        return -float(self.full[self.places].mean())

    def _log_p(self, scores: NDArray[np.floating]) -> Numbers:
        numbers = [output.number for output in self.experiment.outputs]
        return scores[range(len(numbers)), numbers].astype(np.float64)

    def own_selection(self) -> Iterator[TextCost]:
        """The keys that the model itself selects, where it does, and the dense weights on them."""
        item = self.item
        selection = {at: own for (s, at), own in self.selections.items() if s == item.stream}
        if selection:
            run = CacheRun((), item.stream, item.weights.shape[3], 0, label="own selection")
            for at in item.layers:
                cells, _ = selection.get(at, (np.ones(item.weights.shape[1:], bool), None))
                run.hidden_cells[at] = ~cells & np.tri(*cells.shape[1:], dtype=np.bool_)
            dense = [
                selection[at][1] if at in selection else w
                for at, w in zip(item.layers, item.weights, strict=True)
            ]
            key_share, mass = self._seen_shares(item.with_weights(np.stack(dense)), run)
            yield TextCost(run, np.nan, np.nan, key_share, mass, np.full(mass.shape, np.nan))

    def cost(self, run: CacheRun) -> TextCost:
        """What a rule costs, measured in one run."""
        (scores,) = self.experiment.run([Intervention(evictions=(run,))])
        cost = float((self.full - self._log_p(scores))[self.places].mean())
        differs = (scores.argmax(axis=-1) != self.choices)[self.places]
        key_share, mass = self._seen_shares(self.item, run)
        return TextCost(
            run, cost, float(differs.mean()), key_share, mass, np.full(mass.shape, np.nan)
        )

    def _seen_shares(self, item: AttentionMap, run: CacheRun) -> tuple[float, Numbers]:
        """The share of keys that predicting rows see, and of attention that heads give to them."""
        rows = np.unique(self.rows[self.places])
        off = np.array([run.hidden_cells[layer][:, rows] for layer in item.layers])
        weights = item.weights[:, :, rows].astype(np.float64)
        keys = np.array([row + 1 if run.grows else run.keys for row in rows])
        key_share = (1 - off.sum(axis=-1) / keys).mean()
        whole = weights.sum(axis=-1)
        visible = np.where(off, 0, weights).sum(axis=-1)
        mass = np.divide(visible, whole, out=np.ones(visible.shape), where=whole > 0)
        return float(key_share), mass.mean(axis=-1)

    def in_each_head(self, whole: TextCost) -> TextCost:
        """The same with the cost of the rule in each head alone, a run each."""
        alone = whole.alone.copy()
        for layer, head in np.ndindex(*alone.shape):
            run = whole.run.only(self.item.layers[layer], head)
            (scores,) = self.experiment.run([Intervention(evictions=(run,))])
            alone[layer, head] = (self.full - self._log_p(scores))[self.places].mean()
        return replace(whole, alone=alone)

    def measure_keys(self) -> list[Worth]:
        """What later predictions lose without each key: measured, and to first order in each head.

        A source without gradients has the first alone.
        """
        worths: list[Worth] = [dict.fromkeys(self.item.layers, self._measured_worth()[None])]
        with suppress(AttnvizError):
            worths.append(self._first_order_worth())
        return worths

    def _measured_worth(self) -> Numbers:
        queries, keys = self.item.weights.shape[2:]
        worth = np.zeros((queries, keys))
        rows = self.rows[self.places, None]
        for first in range(0, keys, self.together):
            some = range(first, min(first + self.together, keys))
            changes = [Intervention(tokens=(TokenAt(self.item.key_side, key),)) for key in some]
            for key, scores in zip(some, self.experiment.run(changes), strict=True):
                loss = np.nan_to_num(self.full - self._log_p(scores), nan=np.inf)[self.places]
                worth[:, key] = np.where(rows > np.arange(queries), loss[:, None], 0).sum(axis=0)
        return worth

    def _first_order_worth(self) -> Worth:
        every = self.experiment.outputs
        self.experiment.outputs = tuple(every[number] for number in self.places)
        try:
            slopes = self.experiment.gradients()
        finally:
            self.experiment.outputs = every
        worth, item = dict[str, Numbers](), self.item
        place = [one.stream for one in self.experiment.attention.maps].index(item.stream)
        for layer, weights, own in zip(item.layers, item.weights, slopes[place], strict=True):
            sinks = self.experiment.sinks.get((item.stream, layer))
            sizes = abs(np.nan_to_num(effects(weights, own, sinks)))
            worth[layer] = sizes[:, ::-1].cumsum(axis=1)[:, ::-1] - sizes  # of later queries
        return worth


def _cached_stream(experiment: Experiment, stream: str | None) -> AttentionMap:
    """The maps of the stream whose keys are dropped; each output has to follow from its row."""
    maps = {item.stream: item for item in experiment.attention.maps}
    if any(output.position is None for output in experiment.outputs):
        raise UsageError("a cache is of a model that writes: give one that continues a text")
    caches = [
        name
        for name, item in maps.items()
        if item.query_side != item.key_side or not np.triu(item.weights.max(axis=(0, 1)), 1).any()
    ]
    if stream is not None and stream not in caches:
        raise UsageError(f"stream '{stream}' has no cache: there is {', '.join(caches) or 'none'}")
    if not caches:
        raise UsageError("a cache is of a model that writes: give one that continues a text")
    return maps[stream or experiment.attention.main.stream]


def mean_cost(kind: str, item: AttentionMap, costs: Sequence[TextCost]) -> RuleCost:
    """The means over texts of what one rule costs."""
    cost, low, high = map(float, means_over(np.array([one.cost for one in costs]))[1:])
    mass = np.mean([one.mass for one in costs], axis=0)
    alone = np.mean([one.alone for one in costs], axis=0)
    heads = [
        HeadCost(name, head, float(mass[layer, head]), float(alone[layer, head]))
        for layer, name in enumerate(item.layers)
        for head in range(mass.shape[1])
    ]
    has_alone = bool(np.isfinite(alone).any())
    run = costs[0].run
    return RuleCost(
        rule=str(run),
        name=run.name,
        kind=kind,
        texts=len(costs),
        held=float(np.mean([one.held for one in costs])),
        cost=cost,
        interval=(low, high) if len(costs) > 1 else None,
        changed=float(np.mean([one.changed for one in costs])),
        mass=float(mass.mean()),
        heads=tuple(sorted(heads, key=lambda one: -one.cost if has_alone else one.mass)),
    )
