"""The smallest sets of heads, tokens and links that keep an answer, found by search.

Heads and rows outside a set put out their mean over other texts (Wang 2022), tokens and links
outside it are hidden (Conmy 2023 searches links likewise).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from attnviz.core import errors, notices
from attnviz.core.effects import (
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    LinkAt,
    RowAt,
    TokenAt,
    every_head,
)
from attnviz.core.tokens import token_label
from attnviz.features.ablate.parts import each_part
from attnviz.features.explain.report import LinkSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

Item = TypeVar("Item")
ONE_BY_ONE = 24  # with at most this many items, the least needed are removed each time
DRAWN = 20  # random sets; half as many for a model of many heads
SIZES = (1, 2, 4, 8, 16)  # sizes that a set of the most needed items is tried with first


class Trials:
    """A model with a text, run with everything off but some heads and tokens.

    Attributes:
        heads, tokens: all there are; labels: the tokens' names.
        runs: how many changed runs there were.
    """

    def __init__(
        self, experiment: Experiment, instead: HeadOutputs | None, against: int | None
    ) -> None:
        self.experiment, self.instead, self.against = experiment, instead, against
        attention = experiment.attention
        self.heads = every_head(attention)
        parts = each_part(attention, "tokens")
        self.tokens = [change.tokens[0] for _, change in parts]
        self.labels = {change.tokens[0]: part for part, change in parts}
        self.draws = DRAWN if len(self.heads) <= ONE_BY_ONE else DRAWN // 2
        self.runs = 0
        self._totals: dict[Intervention, float] = {}  # the log p of a vocabulary would be too much

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> list[NDArray[np.floating]]:
        """Log p of each choice of each output, (outputs, choices), after each change."""
        self.runs += len(changes)
        results, ran = [], self.experiment.run(changes, instead or self.instead)
        for change, rows in zip(changes, ran, strict=True):
            notices.pause()
            results.append(rows)
            if instead is None:
                self._totals[change] = self.total(rows)
        return results

    def total(self, rows: NDArray[np.floating]) -> float:
        """Log p of the answer, above that of `against`; −∞: not known."""
        total = sum(
            float(row[one.number]) - (0.0 if self.against is None else float(row[self.against]))
            for row, one in zip(rows, self.experiment.outputs, strict=True)
        )
        return total if np.isfinite(total) else -np.inf

    def chance(self, rows: NDArray[np.floating]) -> float:
        """P of the answer."""
        outputs = self.experiment.outputs
        return float(np.exp(sum(row[one.number] for row, one in zip(rows, outputs, strict=True))))

    def score(self, changes: Sequence[Intervention]) -> Numbers:
        """`total` after each change; what has run before does not run again."""
        new = [change for change in dict.fromkeys(changes) if change not in self._totals]
        self.run(new)
        return np.array([self._totals[change] for change in changes], dtype=np.float64)

    @cached_property
    def unchanged_choices(self) -> NDArray[np.floating]:
        """What the whole model predicts."""
        return self.run([Intervention()])[0]

    @property
    def full(self) -> float:
        """`total` of the whole model."""
        return self.total(self.unchanged_choices)

    def lost_heads(self, heads: Sequence[HeadAt]) -> Numbers:
        """What the score falls by without each head; ∞: not known."""
        return self.full - self.score([Intervention(heads=(at,)) for at in heads])

    def lost_tokens(self, tokens: Sequence[TokenAt]) -> Numbers:
        """What the score falls by where each token is hidden; ∞: a row has no key left."""
        return self.full - self.score([Intervention(tokens=(at,)) for at in tokens])

    def keep(self, heads: Sequence[HeadAt], tokens: Sequence[TokenAt]) -> Intervention:
        """All other heads and tokens off."""
        heads_on, tokens_on = {*heads}, {*tokens}
        return Intervention(
            heads=tuple(one for one in self.heads if one not in heads_on),
            tokens=tuple(one for one in self.tokens if one not in tokens_on),
        )

    def weight(self, link: LinkAt) -> float:
        """The weight of a link of one head."""
        item = self.experiment.attention.map_of(link.stream)
        assert link.layer is not None
        return float(item.weights[item.layers.index(link.layer), link.head, link.query, link.key])

    def ends(self, link: LinkAt) -> tuple[str, str]:
        """The names of a link's query and key."""
        item = self.experiment.attention.map_of(link.stream)
        return token_label(item.query_tokens, link.query), token_label(item.key_tokens, link.key)

    def count_as_good(
        self, draw: Callable[[np.random.Generator], Intervention], score: float
    ) -> int:
        """How many random changes leave such a score."""
        generator = np.random.default_rng(0)
        return int((self.score([draw(generator) for _ in range(self.draws)]) >= score).sum())


def smallest_set(
    items: Sequence[Item],
    costs: Numbers | None,
    score: Callable[[Sequence[Sequence[Item]]], Numbers],
    enough: float,
) -> list[Item]:
    """A small set of items that scores enough, and from which no single item can be removed.

    From many items it first takes the fewest of the costliest that score enough. Then it removes
    items, the least needed first, and as many together as possible.
    """
    members = list(items)
    if len(items) > ONE_BY_ONE and costs is not None:
        order = [items[n] for n in np.argsort(-costs, kind="stable")]
        sizes = [size for size in SIZES if size < len(order)]
        good = score([order[:size] for size in sizes]) >= enough
        low, high = SIZES[-1], len(order)
        if good.any():
            low, high = [0, *sizes][good.argmax()], sizes[good.argmax()]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if score([order[:middle]])[0] >= enough else (middle, high)
        members = order[:high]
    while 0 < len(members) <= ONE_BY_ONE:
        scores = score([[*members[:n], *members[n + 1 :]] for n in range(len(members))])
        spare = [int(n) for n in np.argsort(-scores, kind="stable") if scores[n] >= enough]
        if not spare:
            break
        tops = [count for count in SIZES if 1 < count <= len(spare)]
        fewer = [[one for n, one in enumerate(members) if n not in spare[:count]] for count in tops]
        counts = [1, *(n for n, own in zip(tops, score(fewer), strict=True) if own >= enough)]
        members = [one for n, one in enumerate(members) if n not in spare[: counts[-1]]]
    return members


def estimate_costs(trials: Trials) -> tuple[Numbers, Numbers] | None:
    """First-order costs of heads and of tokens, which order long lists; None: measure them.

    The slope of log p by each weight times the weight, summed over a head, or over a key's columns.
    """
    # Where numpy runs the model, measuring is done before torch is imported.
    few = max(len(trials.heads), len(trials.tokens)) <= ONE_BY_ONE
    if few or "torch" not in sys.modules:
        return None
    try:
        slopes = trials.experiment.gradients()
    except errors.AttnvizError:
        return None
    heads, tokens = dict.fromkeys(trials.heads, 0.0), dict.fromkeys(trials.tokens, 0.0)
    for item, slope in zip(trials.experiment.attention.maps, slopes, strict=True):
        parts = item.weights * slope
        for place, layer in enumerate(item.layers):
            for head in range(len(item.heads)):
                at = HeadAt(item.stream, layer, head)
                if at in heads:
                    heads[at] = float(parts[place, head].sum())
        for column, total in enumerate(parts.sum(axis=(0, 1, 2)).tolist()):
            token = TokenAt(item.key_side, column)
            if token in tokens:
                tokens[token] += total
    return np.array([*heads.values()]), np.array([*tokens.values()])


class LinkTrials:
    """Runs with the heads and tokens of a set, where only some links are left.

    A row without a link puts out its head's mean; in other rows the links that are left share the
    whole weight.

    Attributes:
        rows: the links of each row, those first that are likelier to matter: rows that the answer
            is read from, then rows of the set's tokens.
    """

    def __init__(self, trials: Trials, heads: Sequence[HeadAt], tokens: Sequence[TokenAt]) -> None:
        self.trials, self.alone = trials, trials.keep(heads, tokens)
        main, rows = trials.experiment.attention.main, dict[RowAt, list[LinkAt]]()
        for at in heads:
            rows |= _links_of(trials, at, {*tokens})
        read = {one.row for one in trials.experiment.outputs}
        places = {(one.side, one.position) for one in tokens}
        sides = {one.stream: one.query_side for one in trials.experiment.attention.maps}

        def likely(at: RowAt) -> tuple[bool, bool, int]:
            side = sides[at.stream]
            is_read = side == main.query_side and at.query in read
            return not is_read, (side, at.query) not in places, -at.query

        self.rows = {at: rows[at] for at in sorted(rows, key=likely)}
        self.links = [link for own in self.rows.values() for link in own]

    def keep(self, links: Sequence[LinkAt]) -> Intervention:
        """All other links of the heads off."""
        on = {*links}
        empty = tuple(at for at, own in self.rows.items() if on.isdisjoint(own))
        off = {*empty}
        cut = tuple(
            one for at, own in self.rows.items() if at not in off for one in own if one not in on
        )
        return self.alone + Intervention(links=cut, rows=empty)

    def score(self, sets: Sequence[Sequence[LinkAt]]) -> Numbers:
        """The score of each set of links alone."""
        return self.trials.score([self.keep(one) for one in sets])


def smallest_links(
    trials: Trials, heads: Sequence[HeadAt], tokens: Sequence[TokenAt], none: float, enough: float
) -> LinkSet | None:
    """The smallest set of links of these heads that keeps the answer; None: no small one does.

    `none` is the score where all heads put out their mean.
    """
    runs = LinkTrials(trials, heads, tokens)
    every = [*runs.rows]
    rows = smallest_set(
        every,
        -np.arange(len(every), dtype=np.float64),
        lambda sets: runs.score([[link for at in own for link in runs.rows[at]] for own in sets]),
        enough,
    )
    if not 0 < len(rows) <= ONE_BY_ONE:
        return None
    every_link = [link for at in rows for link in runs.rows[at]]
    weights = np.array([trials.weight(link) for link in every_link])
    links = smallest_set(every_link, weights, runs.score, enough)
    if not 0 < len(links) <= ONE_BY_ONE:
        return None
    alone, without = trials.score([runs.keep(links), Intervention(links=tuple(links))])
    span = trials.full - none

    def draw(generator: np.random.Generator) -> Intervention:
        some = generator.permutation(len(runs.links))[: len(links)]
        return runs.keep([runs.links[n] for n in some])

    return LinkSet(
        links=tuple(links),
        ends=tuple(map(trials.ends, links)),
        of=len(runs.links),
        kept=float(alone - none) / span,
        removed=float(without - none) / span,
        as_good=trials.count_as_good(draw, float(alone)),
        drawn=trials.draws,
    )


def _links_of(trials: Trials, at: HeadAt, tokens: set[TokenAt]) -> dict[RowAt, list[LinkAt]]:
    """The links of each row of a head to the tokens of a set, and of each token to itself."""
    item = trials.experiment.attention.map_of(at.stream)
    weights = item.weights[item.layers.index(at.layer), at.head]
    same, rows = item.query_side == item.key_side, dict[RowAt, list[LinkAt]]()
    for query, row in enumerate(weights):
        keys = [
            key
            for key in np.flatnonzero(row).tolist()
            if TokenAt(item.key_side, key) in tokens or (same and key == query)
        ]
        if keys:
            place = at.stream, at.layer, at.head
            rows[RowAt(*place, query)] = [
                LinkAt(at.stream, query, key, at.layer, at.head) for key in keys
            ]
    return rows
