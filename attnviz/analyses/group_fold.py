"""How far heads that share keys and values diverge, of a text whose weights come in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import Array, Numbers, RowBlock
from attnviz.core.attention_map import known_mean

AT_ONCE, TINY = 2**15, np.finfo(np.float32).tiny


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
        """The sums of each group whose last head is in this block."""
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
