"""Every measure of the heads of a text too long for whole maps, from blocks of its rows.

The measures are run twice: once before the pass, to learn which folds they ask for, and once after
it, when each layer's folds have seen all of its rows. Uniform attention is then read by the same
folds, under what the layer's rows were seen to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import (
    ROWS,
    ColumnFold,
    Fold,
    Numbers,
    RowBlock,
    RowFold,
    SightFold,
    Targets,
    TotalFold,
)
from attnviz.analyses.heads import measure_heads, resting_places
from attnviz.analyses.masks import (
    CAUSAL_STREAMS,
    NO_SCORES,
    MeasuredMap,
    may_be_sink,
    output_start,
    within_one_text,
)
from attnviz.analyses.sinks import sink_shares_by_rows, sinks_of
from attnviz.analyses.word_fold import GroupFold, WordFold
from attnviz.core.attention_map import Attention, Token
from attnviz.core.errors import InputError
from attnviz.core.measures import BlockMeasures
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import stands_out

LATE = SIGHT, WORDS, GROUPS = "sight", "words", "groups"  # folds apart from the others
TOTALS = "totals"


@dataclass(frozen=True, slots=True)
class RowsOnly:
    """What stands for a map whose weights are read in blocks of rows and thrown away."""

    stream: str
    query_tokens: tuple[Token, ...]
    key_tokens: tuple[Token, ...]
    query_side: str
    key_side: str
    layers: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    values: str = "share"
    is_pooled: bool = False
    starts: tuple[int, int] = (0, 0)

    @property
    def weights(self) -> Any:
        raise InputError(
            f"it needs whole maps, and a text of {len(self.key_tokens):,} tokens is read in blocks "
            "of rows"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """Which keys the rows of a layer see, as `masks.visible_keys` tells of whole maps."""

    rows: NDArray[np.bool_]  # those that see any
    keys: NDArray[np.bool_]  # those that are no padding
    causal: bool
    reach: int | None  # how far a window reaches

    def cells(self, first: int, stop: int) -> NDArray[np.bool_]:
        """The rows (rows, keys) up to `stop`; of a causal text without the keys behind them."""
        queries = np.arange(first, stop)[:, None]
        keys = np.arange(stop if self.causal else len(self.keys))
        visible = self.rows[queries] & self.keys[keys]
        if self.causal:
            visible &= keys <= queries
        if self.reach is not None:
            visible &= np.abs(keys - queries) <= self.reach
        return np.asarray(visible)

    def blocks(self) -> Iterator[RowBlock]:
        """Uniform attention, of one head."""
        for first in range(0, len(self.rows), ROWS):
            visible = self.cells(first, min(first + ROWS, len(self.rows)))
            counts = visible.sum(axis=-1)
            even = (visible / np.maximum(counts, 1)[:, None]).astype(np.float32)
            sums = np.where(counts, 1.0, 0.0)[None]
            entropies = np.where(counts, np.log(np.maximum(counts, 1)), np.nan)[None]
            yield RowBlock(even[None], first, sums, entropies)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.rows.tobytes(), self.keys.tobytes(), self.causal, self.reach


def sights_of(item: RowsOnly, evidence: Sequence[tuple[NDArray[np.intp], Any]]) -> list[Sight]:
    """What the rows of each layer see, by each layer's `SightFold`."""
    queries, keys = len(item.query_tokens), len(item.key_tokens)
    counts = np.stack([rows[2] for rows, _ in evidence])
    own = np.arange(queries)
    if not within_one_text(item):
        return [Sight(of > 0, np.ones(keys, dtype=bool), causal=False, reach=None) for of in counts]
    present = (counts > 0).any(axis=0) | np.any([columns for _, columns in evidence], axis=0)
    ahead = any((rows[1] > own)[rows[2] > 0].any() for rows, _ in evidence)
    by_name = item.stream in CAUSAL_STREAMS
    sights = []
    for (first, last, count), _ in evidence:
        rows = count > 0
        full = bool((count == np.cumsum(rows))[rows].all())
        causal = not ahead and (by_name or full)
        far = np.maximum(own - first, last - own)[rows].max(initial=0)
        low, high = np.maximum(own - far, 0), own if causal else np.minimum(own + far, keys - 1)
        window = bool((count == high - low + 1).all()) and min(far + 1, keys) >= 3
        reach = int(far) if window and far < queries - 1 else None
        sights.append(Sight(rows & present, present, causal, reach))
    return sights


class BlockedMap(MeasuredMap):
    """A map that is measured without its weights: folds are declared first and answered later."""

    item: Any

    def __init__(
        self, item: RowsOnly, texts: tuple[str, str], output_start: int | None = None
    ) -> None:
        self.item, self.texts, self.output_start, self.scores = item, texts, output_start, NO_SCORES
        self.folds: dict[str, Fold] = {SIGHT: SightFold(len(item.key_tokens))}
        self.targets: dict[str, Targets] = {}
        self.answers: Mapping[str, tuple[Any, Any]] | None = None
        self.causal = False  # until it is known
        # Until the pass every row sees several keys, so that each measure asks for its folds.
        queries, keys = len(item.query_tokens), len(item.key_tokens)
        self.counts: Any = np.full((1, queries), 2)
        self.seen_by: Any = np.full((1, keys), queries)
        self.rows = np.ones((1, queries), dtype=bool)
        self.present: Any = self.rows[0]
        with np.errstate(all="ignore"):
            measure_heads(self)
            sinks_of(self)
            sink_shares_by_rows(self)
        if self.targets:
            targets = [*self.targets.values()]
            self.folds[TOTALS] = TotalFold(targets)

    def fold(self, name: str, make: Callable[[], Fold]) -> tuple[Any, Any]:
        if self.answers is not None:
            return self.answers[name]
        fold = self.folds.setdefault(name, make())
        queries, keys = len(self.item.query_tokens), len(self.item.key_tokens)
        if isinstance(fold, WordFold | GroupFold):
            return np.zeros((1, 1)), (np.zeros((1, 1)), 1)
        if isinstance(fold, ColumnFold):
            parts = np.ones((1, 1, len(fold.sizes)))
            return ((np.zeros((1, 1, keys)), parts, parts),) * 2
        assert isinstance(fold, RowFold)
        shape = (1, 1, queries)
        return (np.zeros((fold.several, *shape) if fold.several else shape),) * 2

    def totals_on(self, name: str, targets: Targets) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        if self.answers is None:
            self.targets[name] = targets
            return np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1, dtype=int)
        place = [*self.targets].index(name)
        heads, uniform = self.answers[TOTALS]
        return heads[0][place], uniform[0][place], uniform[1][place][:, 0]

    @property
    def begins_causal(self) -> bool:
        return self.causal and may_be_sink(self.item)

    @cached_property
    def first_is_sink(self) -> bool:
        """As of whole maps, by what the keys of all heads got."""
        if self.answers is None or not self.begins_causal:
            return False
        totals = self.columns[0][0].sum(axis=(0, 1))
        if len(totals) < 4 or totals.argmax():
            return False
        return stands_out(totals[0] / totals.sum(), (1 / np.arange(1, len(totals) + 1)).mean())

    def answer(self, layers: Sequence[LayerFolds], item: RowsOnly) -> BlockedMap:
        """The map once all rows were read, by the folds of its layers."""
        sights = sights_of(item, [layer.folds[SIGHT].end() for layer in layers])
        heads = [layer.ends() for layer in layers]
        apart = {sight.key: sight for sight in sights}
        even = {key: self._even(sight) for key, sight in apart.items()}
        uniform = [even[sight.key] for sight in (sights if len(apart) > 1 else sights[:1])]
        own = copy(self)
        blank = ("entropies", "row_sums", "offsets", "columns", "sums", "first_is_sink")
        for name in blank:  # until now
            vars(own).pop(name, None)
        own.item, own.causal = item, sights[0].causal
        own.counts = np.stack([one[SIGHT][0] for one in uniform])
        own.seen_by = np.stack([one[SIGHT][1] for one in uniform])
        own.rows = own.counts > 0
        own.present = sights[0].keys if within_one_text(item) else own.present
        names = [name for name in self.folds if name not in LATE]
        answers = {name: tuple(_stack(name, side) for side in (heads, uniform)) for name in names}
        own.answers = answers
        count, drop = len(item.heads), own.first_is_sink
        groups: list[Any] = [layer.folds[GROUPS] for layer in layers]
        answers[GROUPS] = np.stack([fold.end(count, drop=drop) for fold in groups]), None
        if WORDS in self.folds:  # now it is known whether the first token is one of them
            words = [fold for layer in layers if isinstance(fold := layer.folds[WORDS], WordFold)]
            heads_say = np.stack([fold.end(drop=drop) for fold in words])
            folds = {sight.key: fold for sight, fold in zip(sights, words, strict=True)}
            evens = {
                key: folds[key].even(causal=sight.causal, drop=drop) for key, sight in apart.items()
            }
            sides = [evens[sight.key] for sight in (sights if len(apart) > 1 else sights[:1])]
            values, most = (np.array(side) for side in zip(*sides, strict=True))
            answers[WORDS] = heads_say, (values, most.max())
        return own

    def _even(self, sight: Sight) -> dict[str, Any]:
        """What the folds say of uniform attention, which is a layer of one head."""
        folds = LayerFolds({n: f for n, f in deepcopy(self.folds).items() if n not in LATE})
        counts, seen_by = [], np.zeros(len(sight.keys), dtype=np.int64)
        for block in sight.blocks():
            folds.add(folds.parts([block]))
            visible = block.weights[0] > 0
            counts.append(visible.sum(axis=-1))
            seen_by[: visible.shape[1]] += visible.sum(axis=0)
        return folds.ends() | {SIGHT: (np.concatenate(counts), seen_by)}


def _stack(name: str, layers: Sequence[Mapping[str, Any]]) -> Any:
    """What one fold says of all layers, with layers as the axis before heads."""
    own = [layer[name] for layer in layers]
    if isinstance(own[0], tuple):
        axis = -2 if name == TOTALS else 0
        return tuple(np.stack(side, axis=axis) for side in zip(*own, strict=True))
    return np.stack(own, axis=-3 if own[0].ndim > 1 else 0)


@dataclass(eq=False)
class LayerFolds:
    """The folds of one layer."""

    folds: dict[str, Fold]

    def parts(self, heads: Iterable[RowBlock]) -> list[Any]:
        """What each fold reads of the same rows of all heads."""
        of_heads = [[fold.part(block) for fold in self.folds.values()] for block in heads]
        sides = zip(*of_heads, strict=True)
        return [fold.join(side) for fold, side in zip(self.folds.values(), sides, strict=True)]

    def add(self, parts: Sequence[Any]) -> None:
        """Join what was read of the next rows."""
        for fold, one in zip(self.folds.values(), parts, strict=True):
            fold.add(one)

    def ends(self) -> dict[str, Any]:
        return {name: fold.end() for name, fold in self.folds.items() if name not in LATE}


class BlockStudy:
    """The measures of the heads of one stream of a text, from blocks of rows."""

    def __init__(
        self, item: RowsOnly, texts: tuple[str, str], output_start: int | None = None
    ) -> None:
        self.item = item
        self._declared = BlockedMap(item, texts, output_start)

    @classmethod
    def of(cls, attention: Attention, item: Any) -> BlockStudy:
        """The study of a stream, with its attention's facts about the text."""
        return cls(item, attention.texts_of(item), output_start(attention, item))

    def start(self, size: int = 1) -> LayerFolds:
        """Empty folds for a layer; `size` query heads share each head of keys and values."""
        folds = deepcopy(self._declared.folds)
        folds[GROUPS] = replace(folds[GROUPS], size=size)  # type: ignore[type-var]
        return LayerFolds(folds)

    def end(
        self,
        layers: Sequence[LayerFolds],
        names: tuple[tuple[str, ...], tuple[str, ...]],
        scores: Mapping[str, Numbers],
    ) -> BlockMeasures:
        """The measures, once each layer has seen all rows; the names of layers and heads."""
        item = replace(self.item, layers=names[0], heads=names[1])
        if item.stream in SELF:
            ahead = any(looks_ahead(layer) for layer in layers)
            item = replace(item, stream="self" if ahead else "causal")
        subject = self._declared.answer(layers, item)
        subject.scores = scores
        return BlockMeasures(
            item.stream,
            *names,
            measure_heads(subject),
            sinks_of(subject),
            item.key_tokens,
            resting_places(item),
            sink_shares_by_rows(subject),
        )


SELF = ("self", "causal")
"""Streams that may be causal or not: their weights show which."""


def looks_ahead(layer: LayerFolds) -> bool:
    """Whether any row of a layer sees a later key."""
    (_, last, count), _ = layer.folds[SIGHT].end()
    return bool((last > np.arange(len(last)))[count > 0].any())
