"""Comparisons of two attentions, link by link and head by head.

An edit script (Ratcliff and Obershelp's, as in difflib) pairs the tokens, by their pieces if both
sides have one vocabulary, else (in saved maps too) by their spelling. Rows are the common queries.
Columns are the keys of both, so attention to a key that only one text has counts as a change.
Heads are compared by the Jensen–Shannon divergence of their rows (Lin 1991).
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import entropy, select
from attnviz.core.attention_map import (
    AttentionMap,
    Token,
    check_single_tokens,
)
from attnviz.core.effects import Effect, SavedEffects
from attnviz.core.errors import InputError, UsageError
from attnviz.features.compare.report import Comparison, EffectComparison, HeadChange
from attnviz.features.measures.intervals import rank_correlation

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
    apart, notes = compare_rows(before, after)
    changes = []
    places = {difference.place(*at): at for at in np.ndindex(difference.weights.shape[:2])}
    for link in select.strongest_links(difference, top, between_words=False):
        cell = (*places[link.layer, link.head], link.query_position, link.key_position)
        if link.weight:
            changes.append(HeadChange(link, float(before[cell]), float(after[cell])))
    one_sided = []
    fates = ((queries, "queries", "left out"), (keys, "keys", "compared with nothing"))
    for pairs, what, fate in fates:
        only = [sum(b is None for _, b in pairs), sum(a is None for a, _ in pairs)]
        if any(only):
            one_sided.append(f"{what} only in A: {only[0]}, only in B: {only[1]}; {fate}")
    return Comparison(
        difference,
        tuple(
            ((a, b), (c, d))
            for a, c in zip(first.layers, second.layers, strict=True)
            for b, d in zip(first.heads, second.heads, strict=True)
        ),
        apart,
        tuple(changes),
        (*one_sided, *notes),
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


def compare_rows(before: Weights, after: Weights) -> tuple[NDArray[np.float64], list[str]]:
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
        rows = np.where(both, entropy.jensen_shannon(p, q), 0).sum(-1)
        np.divide(rows, both.sum(-1), out=means[layer], where=both.any(-1))
    notes = []
    if off_sum:
        notes.append(f"{off_sum} rows do not sum to 1: the divergence is of rows scaled to 1")
    if left_out:
        notes.append(f"{left_out} rows attend to nothing on one side: left out of the divergence")
    return means, notes


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


def pair_tokens(first: Sequence[str], second: Sequence[str]) -> list[Pair]:
    """Each token of both texts once, in order, with its partner if it has one.

    Runs of equal tokens are paired. So are runs of the same length between these; other tokens have
    no partner.
    """
    # difflib depends on the order of the texts: sort them, so that exchanging A and B exchanges
    # the sides of every pair.
    if list(second) < list(first):
        return [(one, other) for other, one in pair_tokens(second, first)]
    pairs: list[Pair] = []
    matcher = SequenceMatcher(None, list(first), list(second), autojunk=False)
    for _, low, high, other_low, other_high in matcher.get_opcodes():
        if high - low == other_high - other_low:
            pairs += zip(range(low, high), range(other_low, other_high), strict=True)
            continue
        pairs += ((position, None) for position in range(low, high))
        pairs += ((None, position) for position in range(other_low, other_high))
    return pairs
