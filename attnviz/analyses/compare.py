"""Comparisons: of two attentions, link by link and head by head, and of the samples of a run.

An edit script (Ratcliff and Obershelp's, as in difflib) pairs the tokens, by their pieces if both
sides have one vocabulary, else (in saved maps too) by their spelling. Rows are the common queries.
Columns are the keys of both, so attention to a key that only one text has counts as a change.
Heads are compared by the Jensen–Shannon divergence of their rows (Lin 1991).
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.effects.links import rank_correlation
from attnviz.analyses.entropy import ENTROPY, jensen_shannon
from attnviz.analyses.heads import measure_heads, rows_of
from attnviz.analyses.links import strongest_links
from attnviz.analyses.masks import MeasuredMap, known_scores
from attnviz.analyses.measures.health import judge
from attnviz.analyses.measures.scores import typical_entropy
from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, AttentionMap, Token, check_single_tokens
from attnviz.core.effects import Effect, EffectComparison, SavedEffects
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import DRIFT, HISTORY, Comparison, HeadChange, History

Pair = tuple[int | None, int | None]  # positions in both texts; None: no partner
Weights = NDArray[np.float32]


def compare_maps(first: AttentionMap, second: AttentionMap, top: int = 20) -> Comparison:
    """The second map minus the first, with the `top` links that changed most.

    Raises:
        UsageError: signed values, or different numbers of layers or heads.
        InputError: no common query.
    """
    _check(first, second)
    queries, keys = (
        pair_tokens(*_spellings(a, b))
        for a, b in (
            (first.query_tokens, second.query_tokens),
            (first.key_tokens, second.key_tokens),
        )
    )
    rows = [pair for pair in queries if None not in pair]
    if not rows:
        raise InputError("the two texts have no token in common that could be compared")
    before = _over(first.weights, [a for a, _ in rows], [a for a, _ in keys])
    after = _over(second.weights, [b for _, b in rows], [b for _, b in keys])
    difference = AttentionMap(
        first.stream,
        tuple(_token(pair, first.query_tokens, second.query_tokens) for pair in rows),
        tuple(_token(pair, first.key_tokens, second.key_tokens) for pair in keys),
        after - before,
        layers=_names(first.layers, second.layers),
        heads=_names(first.heads, second.heads),
        values="signed",
        unit="B − A, in shares of a row's attention",
        query_side=first.query_side,
        key_side=first.key_side,
    )
    apart, notes = divergences(before, after)
    return Comparison(
        difference,
        tuple(
            ((a, b), (c, d))
            for a, c in zip(first.layers, second.layers, strict=True)
            for b, d in zip(first.heads, second.heads, strict=True)
        ),
        apart,
        _changes(difference, before, after, top),
        (*_pairing_notes(queries, keys), *notes),
    )


def _spellings(first: Sequence[Token], second: Sequence[Token]) -> tuple[list[str], list[str]]:
    """The strings to pair tokens by: their pieces if both have one vocabulary, else their texts."""
    one, other = (
        {token.piece[1]: token.piece[0] for token in side if token.piece and not token.special}
        for side in (first, second)
    )
    common = one.keys() & other.keys()
    alike = bool(common) and all(one[piece] == other[piece] for piece in common)

    def spelling(token: Token) -> str:
        # A vocabulary may ignore case, which texts show. Marks of spaces before words do not count.
        return (token.piece[1].lstrip("Ġ▁") if alike and token.piece else "") or token.text

    return [spelling(token) for token in first], [spelling(token) for token in second]


def compare_effects(first: SavedEffects, second: SavedEffects) -> EffectComparison:
    """Pair the effects of two ablations by part, in the order of the first, then of the second.

    Raises:
        InputError: no common part.
    """
    by_part: dict[tuple[str, str], list[Effect | None]] = {}
    for side, ablation in enumerate((first, second)):
        for effect in ablation.effects:
            by_part.setdefault((effect.kind, effect.label), [None, None])[side] = effect
    pairs = tuple((one, other) for one, other in by_part.values())
    common = [(a.effect, b.effect) for a, b in pairs if a and b and a.kind != "together"]
    if not common:
        raise InputError("the two ablations have no part in common that could be compared")
    values = np.array(common)
    return EffectComparison((first, second), pairs, rank_correlation(values[:, 0], values[:, 1]))


def _check(first: AttentionMap, second: AttentionMap) -> None:
    for item in (first, second):
        check_single_tokens(item, "a comparison")
        if item.values == "signed":
            raise UsageError(f"stream '{item.stream}' holds signed values, not shares to compare")
    if first.weights.shape[:2] != second.weights.shape[:2]:
        sizes = [f"{len(item.layers)} × {len(item.heads)}" for item in (first, second)]
        raise UsageError(
            f"A has {sizes[0]} layers and heads, B {sizes[1]}: choose as many of each "
            "with --layer-a, --layer-b, --head-a and --head-b"
        )


def _over(weights: Weights, rows: list[int | None], columns: list[int | None]) -> Weights:
    """The weights of some rows over all columns; 0 where this side has no such key."""
    if (rows, columns) == tuple(list(range(length)) for length in weights.shape[2:]):
        return weights
    spread = np.zeros((*weights.shape[:2], len(rows), len(columns)), dtype=np.float32)
    present = [place for place, column in enumerate(columns) if column is not None]
    theirs = [column for column in columns if column is not None]
    places = np.array(rows, dtype=np.intp)
    spread[..., present] = weights[:, :, places[:, None], np.array(theirs, dtype=np.intp)]
    return spread


def divergences(before: Weights, after: Weights) -> tuple[NDArray[np.float64], list[str]]:
    """Each head's mean divergence over its rows, scaled to sum to 1; and notes on rows.

    Both weights have one shape. In nats, shape (layers, heads); NaN if no row attends to anything
    on both sides.
    """
    means = np.full(before.shape[:2], np.nan)
    off_sum = left_out = 0
    for layer, (a, b) in enumerate(zip(before, after, strict=True)):
        p, q = (np.maximum(side.astype(np.float64), 0) for side in (a, b))
        sums = p.sum(-1, keepdims=True), q.sum(-1, keepdims=True)
        both = ((sums[0] > 0) & (sums[1] > 0))[..., 0]
        off = [np.abs(side[..., 0] - 1) > 1e-3 for side in sums]
        off_sum += int((both & (off[0] | off[1])).sum())
        left_out += int((~both).sum())
        p, q = (x / np.where(total > 0, total, 1) for x, total in zip((p, q), sums, strict=True))
        rows = np.where(both, jensen_shannon(p, q), 0).sum(-1)
        np.divide(rows, both.sum(-1), out=means[layer], where=both.any(-1))
    notes = []
    if off_sum:
        notes.append(f"{off_sum} rows do not sum to 1: renormalised for the divergence")
    if left_out:
        notes.append(f"{left_out} rows attend to nothing on one side: left out of the divergence")
    return means, notes


def _changes(
    difference: AttentionMap, before: Weights, after: Weights, top: int
) -> tuple[HeadChange, ...]:
    changes = []
    for link in strongest_links(difference, top, between_words=False):
        layer, head = difference.layers.index(link.layer), difference.heads.index(link.head)
        cell = (layer, head, link.query_position, link.key_position)
        if link.weight:
            changes.append(HeadChange(link, float(before[cell]), float(after[cell])))
    return tuple(changes)


def _token(pair: Pair, first: tuple[Token, ...], second: tuple[Token, ...]) -> Token:
    """One token for a pair: "red", "red→blue", "+new" or "−old"."""
    a, b = pair
    if a is None:
        assert b is not None
        return replace(second[b], text=f"+{second[b].text}")
    if b is None:
        return replace(first[a], text=f"−{first[a].text}")
    if first[a].text == second[b].text:
        return first[a]
    return replace(first[a], text=f"{first[a].text}→{second[b].text}")


def _names(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a if a == b else f"{a}→{b}" for a, b in zip(first, second, strict=True))


def _pairing_notes(queries: list[Pair], keys: list[Pair]) -> list[str]:
    notes = []
    fates = ((queries, "queries", "left out"), (keys, "keys", "compared with nothing"))
    for pairs, what, fate in fates:
        only = [sum(b is None for _, b in pairs), sum(a is None for a, _ in pairs)]
        if any(only):
            notes.append(f"{what} only in A: {only[0]}, only in B: {only[1]}; {fate}")
    return notes


def pair_tokens(first: Sequence[str], second: Sequence[str]) -> list[Pair]:
    """Each token of both texts once, in order, with its partner if it has one.

    Runs of equal tokens are paired. So are runs of the same length between these; other tokens have
    no partner.
    """
    # difflib depends on the order of the texts: sort them, so that exchanging A and B exchanges
    # the sides of every pair.
    if list(second) < list(first):
        return [(left, right) for right, left in pair_tokens(second, first)]
    pairs: list[Pair] = []
    matcher = SequenceMatcher(None, list(first), list(second), autojunk=False)
    for _, low, high, other_low, other_high in matcher.get_opcodes():
        if high - low == other_high - other_low:
            pairs += zip(range(low, high), range(other_low, other_high), strict=True)
            continue
        pairs += ((position, None) for position in range(low, high))
        pairs += ((None, position) for position in range(other_low, other_high))
    return pairs


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
                self._say(f"maps hold blocks of {rows} × {columns} tokens: measures are of blocks")
            alone = replace(item, blocks=(1, 1), starts=(0, 0), links=())
            subject = MeasuredMap(alone, scores=known_scores(attention, item))
            measures = measure_heads(subject)
            streams = {layer: self._stream(step, item.stream, layer) for layer in item.layers}
            drift = self._drift(before, streams, item)
            own = {DRIFT: drift, ENTROPY: typical_entropy(subject)}
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
                drift[place], notes = divergences(other.weights, own.weights)
                for note in notes:
                    self._say(note)
            elif self.last is not None:
                self._say("some maps have no fellow in the sample before: they have no drift")
        return drift

    def _say(self, note: str) -> None:
        self.notes[note] = None

    def report(self) -> History:
        """The history of all samples, at least one."""
        assert self.last is not None
        heads = tuple(dict.fromkeys(head for step in self.values.values() for head in step))
        missing = dict.fromkeys(HISTORY, math.nan)
        first, last = min(self.values), max(self.values)
        several = f"{len(self.values)} samples, steps {first:,} to {last:,}"
        caption = describe_run(self.last, self.last.main)
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
