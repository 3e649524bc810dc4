"""Heads measured over texts: their rows, averaged, named by role, sorted and picked."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.heads import (
    NOWHERE,
    effect_of,
    measure_heads,
    rank_of,
    resting_places,
    roles_of,
)
from attnviz.analyses.kv_groups import LIKENESS, groups_in_words
from attnviz.analyses.masks import MeasuredMap, Numbers, check_measurable, without_implied
from attnviz.analyses.sinks import sink_shares, sinks_in_words, sinks_of
from attnviz.core.attention_map import Attention, AttentionMap, Provenance
from attnviz.core.effects import HeadAt
from attnviz.core.errors import UsageError, choose
from attnviz.core.measures import (
    COPYING,
    EFFECT,
    LARGEST,
    PROBES,
    RETRIEVAL,
    TASK,
    BlockMeasures,
    HeadMeasure,
    HeadRow,
    Meaning,
    SinkShares,
)
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import MEASURES
from attnviz.features.measures.intervals import means_of
from attnviz.features.measures.sums import HeadSums, measured_figures
from attnviz.features.measures.texts import TextStudy

ROLES = tuple(name for name, entry in MEASURES.items() if entry.role)
ORDERS = ("role", "layer", *MEASURES, EFFECT, COPYING, *PROBES)
"""What heads can be sorted by: their clearest role, their place in the model, or a measure."""
SHORT = {
    EFFECT: "eff",
    COPYING: "copy",
    RETRIEVAL: "retr",
    TASK: "task",
    **{name: entry.short for name, entry in MEASURES.items()},
}
"""The headings of measures in narrow tables."""
NAMES = tuple(SHORT)


@dataclass(frozen=True, slots=True)
class HeadReport:
    """Every head of a run, as sorted."""

    caption: str
    measures: tuple[Meaning, ...]
    rows: tuple[HeadRow, ...]
    provenance: Provenance
    texts: int = 1
    sinks: str = ""  # keys on which attention rests, in words; empty: none
    groups: str = ""  # how alike heads look that share keys and values; empty: none share any


def measures_of(
    attention: Attention, item: AttentionMap, *, repeated: bool | None = None
) -> BlockMeasures:
    """What is measured of a map's heads: as it was read in blocks, or now.

    `repeated` as of `measure_heads`.
    """
    in_blocks = [one for one in attention.in_blocks if {*item.layers} <= {*one.layers}]
    own = next((one for one in in_blocks if one.stream == item.stream), None)
    effects = attention.effects
    if own is None:
        subject = MeasuredMap.of(attention, item)
        measures = measure_heads(subject, repeated=repeated, effects=effects)
        names = item.stream, item.layers, item.heads
        return BlockMeasures(
            *names, measures, sinks_of(subject), item.key_tokens, resting_places(item)
        )
    part: BlockMeasures = own.of(item.layers, item.heads)
    measures = {
        name: one
        for name, one in part.measures.items()
        if repeated is None or MEASURES[name].repeated == repeated
    }
    if effects:
        measures[EFFECT] = effect_of(item, effects)
    return replace(part, measures=measures)


class HeadStudy(TextStudy):
    """Heads measured text after text."""

    def __init__(self) -> None:
        super().__init__()
        self._streams: list[_Stream] = []
        self._meanings: dict[str, HeadMeasure] = {}
        self._tops: dict[str, list[float]] = defaultdict(list)
        self._sinks: dict[str, list[float]] = defaultdict(list)
        self._shares: list[SinkShares] = []

    def add(self, attention: Attention, *, repeats: bool = True) -> None:
        """Measure one more text, with the same streams, layers and heads as the others.

        Repetitions are looked for too, unless a sequence made for it follows.
        """
        for item in attention.maps:
            if not attention.in_blocks:
                check_measurable(item)
        self.count(attention)
        for place, item in enumerate(attention.maps):
            kinds = None if repeats else False
            own = measures_of(attention, item, repeated=kinds)
            self._add(place, item, own)
            if place == 0:
                fractions = own.sinks.mean(axis=(0, 1))
                key = int(fractions.argmax())
                self._sinks[own.key_tokens[key].text].append(float(fractions[key]))
                if shares := sink_shares(attention):
                    self._shares.append(shares)

    def add_repeated(self, attention: Attention) -> None:
        """Measure induction and duplicates on a repeated sequence."""
        maps = without_implied(attention).maps
        for place, item in enumerate(maps[: len(self._streams)]):
            self._add(place, item, measures_of(attention, item, repeated=True))

    def add_values(self, name: str, scores: Mapping[HeadAt, float], even: float = math.nan) -> None:
        """Add a value that was measured on other texts; `even`: its value by chance."""
        for place, stream in enumerate(self._streams):
            values = np.full((len(stream.layers), len(stream.heads)), np.nan)
            for at in np.ndindex(values.shape):
                head = HeadAt(stream.stream, stream.layers[at[0]], int(stream.heads[at[1]]))
                values[at] = scores.get(head, math.nan)
            if np.isfinite(values).any():
                unit, *ends = MEANINGS[name]
                uniform = np.full(values.shape, even)
                measure = HeadMeasure(name, unit, ends[0], ends[1], values, uniform)
                self._keep(place, {name: measure})

    def _add(self, place: int, item: AttentionMap, own: BlockMeasures) -> None:
        if place == len(self._streams):
            self._streams.append(_Stream(item, own.resting))
        self._keep(place, own.measures)

    def _keep(self, place: int, measures: Mapping[str, HeadMeasure]) -> None:
        self._streams[place].add(measures)
        for name, measure in measures.items():
            self._meanings[name] = measure
            self._tops[name].append(measure.top)

    def measures(self, name: str) -> bool:
        """Whether this was measured in some text."""
        return name in self._meanings

    def report(self, order: str = "role", role: str | None = None) -> HeadReport:
        """Every head, or those that have one role, sorted.

        In order "role" (what heads do, clearest first, then where they rest, then the others in the
        model's order), "layer", or by a measure (largest first).

        Raises:
            UsageError: an unknown order or role, or one that was not measured here.
        """
        check_order(order, role)
        for name in (order, role):
            if name in SHORT and name not in self._meanings:
                raise UsageError(not_measured(name, self._meanings))
        rows = [self._with_group(row) for stream in self._streams for row in stream.rows()]
        main = self.example.main.stream
        values = {
            (row.layer, row.head): row.values.get(LIKENESS, math.nan)
            for row in rows
            if row.stream == main
        }
        groups = groups_in_words(values, self.example.group_sizes.get(main, {}))
        others = ", ".join(item.stream for item in self.example.maps[1:])
        if role is not None:
            rows = [row for row in rows if role in [item.name for item in row.roles]]
        return HeadReport(
            caption=self.caption(f" · also {others}" if others else ""),
            measures=tuple(self._meaning(name) for name in SHORT if name in self._meanings),
            rows=tuple(in_order(rows, order)),
            provenance=self.provenance,
            texts=self.texts,
            sinks=self._sink_line(),
            groups=groups,
        )

    def _with_group(self, row: HeadRow) -> HeadRow:
        size = self.example.group_sizes.get(row.stream, {}).get(row.layer, 1)
        return replace(row, kv=int(row.head) // size) if size > 1 and row.head.isdecimal() else row

    def _meaning(self, name: str) -> Meaning:
        measure, tops = self._meanings[name], self._tops[name]
        top = sum(tops) / len(tops)
        if name in BY_LARGEST or name in LARGEST:
            rows = (row for own in self._streams for row in own.rows())
            top = largest([row.values.get(name, math.nan) for row in rows])
        return Meaning(name, SHORT[name], measure.unit, measure.low, measure.high, top)

    def _sink_line(self) -> str:
        """The key that is a sink of most heads (threshold: Gu et al. 2024), and what sinks hold."""
        line = sinks_in_words(mean_shares(self._shares))
        key = max(self._sinks, key=lambda text: len(self._sinks[text]))
        fraction = sum(self._sinks[key]) / len(self._sinks[key])
        if not fraction:
            return line
        key = f"'{key}' is a sink of {fraction:.0%} of the heads (above 0.3 of what can reach it)"
        return "; ".join(filter(None, (key, line)))


MEANINGS = {
    COPYING: ("share", "it lowers the token that it looks at", "it raises it"),
    RETRIEVAL: ("share", "never the needle's next token", "always the needle's next token"),
    TASK: ("nats", "the answer is likelier without the head", "the answer needs the head"),
}
"""The unit of what `add_values` adds, and what its ends mean."""
BY_LARGEST = (EFFECT, TASK, "informative")
"""Measures whose scale ends at the largest value found, since no head comes near what could be."""


class _Stream:
    """The measures of one stream, summed over texts."""

    def __init__(self, item: AttentionMap, rests_on: Mapping[str, str]) -> None:
        self.stream, self.layers, self.heads = item.stream, item.layers, item.heads
        self.rests_on = rests_on
        self.texts = Counter[str]()  # that each measure was known of
        self.sums = HeadSums((3 * len(NAMES), len(item.layers), len(item.heads)), len(NAMES))
        self.peaks = np.full(self.sums.shape, np.nan)  # the largest of each figure

    def add(self, measures: Mapping[str, HeadMeasure]) -> None:
        self.texts.update(measures.keys())
        figures = measured_figures(measures, NAMES, self.sums.shape)
        self.sums.add(figures)
        self.peaks = np.fmax(self.peaks, figures)

    def rows(self) -> Iterator[HeadRow]:
        means = self.sums.means()
        own, even = (
            {
                name: (self.peaks if name in LARGEST else means)[first + NAMES.index(name)]
                for name in self.texts
            }
            for first in (0, len(NAMES))
        )
        ends: Sequence[NDArray[np.float64]] = ()
        if self.texts[EFFECT] > 1:
            place = NAMES.index(EFFECT)
            ends = means_of({name: sums[place] for name, sums in self.sums.sums.items()})[2:]
        return rows_of((self.stream, self.layers, self.heads), own, even, ends, self.rests_on)


def rows_of(
    stream: tuple[str, Sequence[str], Sequence[str]],
    values: Mapping[str, Numbers],
    uniform: Mapping[str, Numbers],
    effects: Sequence[Numbers] = (),
    rests_on: Mapping[str, str] = NOWHERE,
) -> Iterator[HeadRow]:
    """One row for each head of a stream, given its layers and heads, with values (layers, heads).

    `effects` are the ends of the intervals of mean effects, where they are known; `rests_on` as in
    `roles_of`.
    """
    name, layers, heads = stream
    for layer, head in np.ndindex(len(layers), len(heads)):
        own, even = (
            {name: float(numbers[layer, head]) for name, numbers in side.items()}
            for side in (values, uniform)
        )
        ends = [float(end[layer, head]) for end in effects]
        between = {EFFECT: (ends[0], ends[1])} if ends else {}
        roles = roles_of(own, even, rests_on)
        yield HeadRow(name, layers[layer], heads[head], own, even, roles, between)


def largest(values: Iterable[float]) -> float:
    """The largest size of the known values; 1 if none is known or all are 0."""
    return max((abs(value) for value in values if not math.isnan(value)), default=0.0) or 1.0


def not_measured(name: str, others: Iterable[str]) -> str:
    """Why heads cannot be sorted by a measure."""
    return f"'{name}' says nothing of these texts: measured were {', '.join(others)}"


def check_order(order: str, role: str | None) -> None:
    """Refuse unknown names with a UsageError."""
    choose(order, ORDERS, "order")
    if role is not None:
        choose(role, ROLES, "role")


def in_order(rows: Sequence[HeadRow], order: str) -> list[HeadRow]:
    if order == "layer":
        return list(rows)
    if order == "role":
        return sorted(rows, key=lambda row: rank_of(row.roles[0]) if row.roles else (True, 0.0))

    def largest_first(row: HeadRow) -> float:
        value = row.values.get(order, math.nan)
        return math.inf if math.isnan(value) else -value

    return sorted(rows, key=largest_first)


def mean_shares(texts: Sequence[SinkShares]) -> SinkShares | None:
    """The means over texts, each share over those that have it."""
    if not texts:
        return None

    def mean(name: str) -> float | None:
        values = [x for one in texts if (x := getattr(one, name)) is not None]
        return sum(values) / len(values) if values else None

    names = {one.first_token for one in texts}
    return SinkShares(
        **{name: mean(name) for name in ("special", "first", "learned", "before", "itself")},
        first_is_sink=2 * sum(one.first_is_sink for one in texts) > len(texts),
        first_token=texts[0].first_token if len(names) == 1 else "",
    )
