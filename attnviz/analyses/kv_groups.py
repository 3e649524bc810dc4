"""Query heads that share keys and values (Shazeer 2019; Ainslie 2023): a map for each group.

The heads that share a head of keys and values follow one another: of n that share each, the heads
0 to n − 1 share the first. What a key–value head does is the mean of theirs; a key that this mean
gives much is one that its group would miss.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import Array, Numbers, RowBlock
from attnviz.core.attention_map import IMPLIED, Attention, AttentionMap, known_mean, stream_of_call
from attnviz.core.errors import UsageError
from attnviz.core.measures import HeadMeasure

LIKENESS = "kv-likeness"  # the measure of how alike the heads of a group look
AT_ONCE, TINY = 2**15, np.finfo(np.float32).tiny
STEP = "key–value heads"  # how the step of a provenance begins


def sizes_of(attention: Attention, item: AttentionMap) -> dict[str, int]:
    """By layer of a map, how many query heads share each head of keys and values; empty: unknown.

    A stream of one call of a module has the sizes of the stream of all.
    """
    sizes = attention.group_sizes.get(stream_of_call(item.stream)[1], {})
    return {layer: sizes[layer] for layer in item.layers if layer in sizes}


def groups_of(item: AttentionMap, sizes: Mapping[str, int]) -> list[dict[int, list[int]]]:
    """For each layer of a map, the places of the heads that share each head of keys and values.

    A head that shares with no other here, and one of no number, has no group.
    """
    groups = list[dict[int, list[int]]]()
    for layer, name in enumerate(item.layers):
        own = dict[int, list[int]]()
        for place in range(len(item.heads)):
            at, head = item.place(layer, place)
            size = sizes.get(at if at in sizes else name, 1)
            if size > 1 and head.isdecimal():
                own.setdefault(int(head) // size, []).append(place)
        groups.append({group: places for group, places in own.items() if len(places) > 1})
    return groups


@dataclass
class GroupFold:
    """How far the rows of heads that share keys and values diverge, in nats.

    Sinks are left out and each row, if `least` of it is left, made to sum to 1. Whether the first
    token is a sink is known at the end, so that all is summed with it and, if it may be one,
    without it.
    """

    rows: NDArray[np.bool_]  # those of text
    keys: NDArray[np.bool_]
    least: float
    may_drop: bool = False  # whether the first token may be a sink
    size: int = 1  # how many heads share each head of keys and values
    totals: Any = 0  # (2, groups, versions, size, size): divergences, and rows that have one

    def part(self, block: RowBlock) -> list[Numbers]:
        """The sums of the groups of which this block has the last head."""
        group, sums = block.once(self, list[Any]), []
        if self.size > 1:
            sides = (side.reshape(-1, *side.shape[-1:]) for side in (block.sums, block.entropies))
            heads = block.weights.reshape(-1, *block.weights.shape[-2:])
            for head in zip(heads, *sides, strict=True):
                group.append(self._head(block.rows, *head))
                if len(group) == self.size:
                    sums.append(self._pairs(group))
                    group.clear()
        return sums

    def _head(
        self, rows: NDArray[np.intp], weights: Array, sums: Numbers, entropies: Numbers
    ) -> tuple[Array, list[tuple[Numbers, Numbers]]]:
        """A head's weights without special tokens; each version's factors of rows, and entropies.

        A factor of 0 leaves a row out.
        """
        special = np.flatnonzero(~self.keys[: weights.shape[1]])
        own = weights.copy()
        own[:, special] = 0
        masses = (own @ np.ones(own.shape[1], own.dtype)).astype(np.float64)
        columns, versions = weights[:, special].astype(np.float64), []
        with np.errstate(divide="ignore", invalid="ignore"):
            # Σ a ln a of a row, by what is known of all its keys.
            terms = np.where(sums > 0, sums * (np.log(sums) - entropies), 0)
            terms -= (columns * np.log(np.where(columns > 0, columns, 1))).sum(axis=-1)
            for drop in (False, True)[: 1 + self.may_drop]:
                if drop:
                    first = own[:, 0].astype(np.float64)
                    masses = masses - first
                    terms = terms - first * np.log(np.where(first > 0, first, 1))
                some = self.rows[rows] & (masses >= self.least) & ~(drop & (rows == 0))
                entropy = np.where(some, np.log(masses) - terms / masses, np.nan)
                versions.append((np.where(some, 1 / masses, 0), entropy))
        return own, versions

    def _pairs(self, group: Sequence[tuple[Array, list[tuple[Numbers, Numbers]]]]) -> Numbers:
        """The sums of divergences of every two heads, and how many rows have one."""
        sums = np.zeros((2, 1 + self.may_drop, self.size, self.size))
        count, keys = group[0][0].shape
        step = max(AT_ONCE // keys, 1)
        space = np.empty((2, min(step, count), keys), np.float32)
        for (one, first), (other, second) in combinations(enumerate(group), 2):
            for version, sides in enumerate(zip(first[1], second[1], strict=True)):
                factors = [side[0].astype(np.float32)[:, None] for side in sides]
                terms = np.empty(count)
                for rows in (slice(at, at + step) for at in range(0, count, step)):
                    between, logs = space[:, : len(terms[rows])]  # they stay in the cache
                    np.multiply(first[0][rows], factors[0][rows], out=between)
                    between += np.multiply(second[0][rows], factors[1][rows], out=logs)
                    between[:, 0] *= not version
                    np.log(np.maximum(between, TINY, out=logs), out=logs)
                    terms[rows] = np.einsum("ij,ij->i", between, logs)
                apart = np.log(2) - terms / 2 - (sides[0][1] + sides[1][1]) / 2
                apart = np.maximum(apart[~np.isnan(apart)], 0)
                both = apart.sum(), len(apart)
                sums[:, version, one, other] = sums[:, version, other, one] = both
        return sums

    def join(self, heads: Sequence[list[Numbers]]) -> Any:
        groups = [group for own in heads for group in own]
        return np.stack(groups, axis=1) if groups else 0

    def add(self, part: Any) -> None:
        self.totals = self.totals + part

    def end(self, heads: int, *, drop: bool) -> Numbers:
        """How alike each head looks to the others of its group, in bits; NaN: it has none."""
        if self.size == 1:
            return np.full(heads, np.nan)
        sums, counts = self.totals[:, :, int(drop)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1 - known_mean(sums / counts).reshape(-1) / np.log(2))


def mean_of_groups(attention: Attention) -> Attention:
    """The attention with a head for each head of keys and values: the mean of those that share it.

    Neighbouring layers with as many of them make a map. What was measured of single query heads
    (effects, scores, exact links) goes.

    Raises:
        UsageError: no heads of these maps share keys and values, or not all of a group are here.
    """
    # What stands beside attention has no keys and values.
    maps = [item for item in attention.maps if item.stream != IMPLIED]
    sizes = {id(item): sizes_of(attention, item) for item in maps}
    if all(size == 1 for own in sizes.values() for size in own.values()):
        raise UsageError(_refusal(attention, is_known=any(sizes.values())))
    means = tuple(mean for item in maps for mean in _means(item, sizes[id(item)]))
    largest = sorted({size for own in sizes.values() for size in own.values()} - {1})
    many = " or ".join(map(str, largest))
    note = (
        f"heads are counted as key–value heads, each the mean of the {many} query heads that share "
        f"it: head 0 is the mean of 0 to {largest[0] - 1}"
    )
    step = f"{STEP} (each the mean of {many} query heads)"
    result = attention.with_maps(means, step, notes=(note,))
    return replace(
        result,
        group_sizes={},
        focus={},
        effects={},
        scores={},
        projections={},
        measured=(),
        idle=(),
        decisive=(),
    )


def _refusal(attention: Attention, *, is_known: bool) -> str:
    model = attention.provenance.title
    if any(step.startswith(STEP) for step in attention.provenance.steps):
        return "--kv has been applied to these maps already: their heads are key–value heads"
    if is_known:
        return f"--kv has nothing to join: each head of '{model}' has keys and values of its own"
    return f"--kv has nothing to join: nothing says that heads of '{model}' share keys and values"


def _means(item: AttentionMap, sizes: Mapping[str, int]) -> Iterator[AttentionMap]:
    layers = [(layer, sizes.get(layer, 1)) for layer in item.layers]
    for size, run in groupby(layers, key=lambda one: one[1]):
        names = tuple(layer for layer, _ in run)
        part = item.part(names)
        whole = [str(head) for head in range(len(item.heads))]
        if list(item.heads) != whole or len(whole) % size:
            raise UsageError(
                f"--kv joins all query heads of a layer, and stream '{item.stream}' has the heads "
                f"{', '.join(item.heads[:8])}: {size} share each head of keys and values"
            )
        weights = group_means(part.weights, size)
        heads = tuple(map(str, range(weights.shape[1])))
        yield part.with_weights(weights, layers=names, heads=heads)


def group_means(weights: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """The mean over each `size` neighbouring heads of (layers, heads, queries, keys)."""
    layers, heads, *cells = weights.shape
    apart = weights.reshape(layers, heads // size, size, *cells)
    return np.asarray(apart.mean(axis=2, dtype=np.float64), dtype=np.float32)


STANDS_OUT = 0.1  # how much more alike the rest of a group is than with the head that stands out


def likeness_of(item: AttentionMap, measure: HeadMeasure | None) -> dict[tuple[str, str], float]:
    """The measure by layer and head; empty where heads share nothing."""
    values = np.zeros((0, 0)) if measure is None else measure.values
    return {item.place(*at): float(values[at]) for at in np.ndindex(values.shape)}


def groups_in_words(values: Mapping[tuple[str, str], float], sizes: Mapping[str, int]) -> str:
    """One line: how many heads share keys and values, how alike they look, and which stands out.

    By each head's likeness to the others of its group. A head stands out where these are more alike
    by `STANDS_OUT` without it.
    """
    members = dict[tuple[str, int], dict[str, float]]()
    for (layer, head), value in values.items():
        if sizes.get(layer, 1) > 1 and head.isdecimal() and not math.isnan(value):
            members.setdefault((layer, int(head) // sizes[layer]), {})[head] = value
    groups = list[tuple[float, str, float, str]]()  # likeness, name, how far a head stands out
    for (layer, _), own in members.items():
        count, likeness, heads = len(own), sum(own.values()) / len(own), sorted(own, key=int)
        gap, odd, name = 0.0, "", f"{layer}.{heads[0]}–{heads[-1]}"
        if count > 2:
            # The mean over the pairs without a head, from each head's mean over its own pairs.
            head = min(own, key=lambda head: own[head])
            others = (count * likeness - 2 * own[head]) / (count - 2)
            if others - likeness >= STANDS_OUT:
                gap, odd = others - own[head], f"; {layer}.{head} stands out of {name} "
                odd += f"({_two(own[head])}, the others {_two(others)})"
        if count > 1:
            groups.append((likeness, name, gap, odd))
    if not groups:
        return ""
    groups.sort(key=lambda one: -one[0])
    many = " or ".join(map(str, sorted({sizes[name.rpartition(".")[0]] for _, name, *_ in groups})))
    mean = sum(likeness for likeness, *_ in groups) / len(groups)
    line = f"every {many} query heads share keys and values, and look {_two(mean)} alike"
    if len(groups) > 1:
        (most, first, *_), (least, last, *_) = groups[0], groups[-1]
        line += f" (most {first} {_two(most)}, least {last} {_two(least)})"
    return line + max(groups, key=lambda one: one[2])[3]


def _two(value: float) -> str:
    text = f"{value:.2f}"
    return text if text == "1.00" else text.removeprefix("0")
