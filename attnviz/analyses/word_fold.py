"""What heads say, and how far those of a group diverge, of a text whose weights come in blocks.

What they say is what `WordLinks` finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import ROWS, Array, RowBlock, Visibility, room_for, side_by_side
from attnviz.analyses.masks import MeasuredMap, Numbers, may_be_sink, within_one_text
from attnviz.analyses.word_links import LEAST_GAIN, LEAST_MASS, STRONG, fit_table, gains_of, size_of
from attnviz.core.attention_map import known_mean
from attnviz.core.records import dataclass, field

AT_ONCE, TINY = 2**15, np.finfo(np.float32).tiny


def word_fold(subject: MeasuredMap) -> WordFold | None:
    """The fold over the words of a text; None where words are no runs of tokens."""
    item = subject.item
    if not within_one_text(item):
        return None
    words = subject.partition
    groups = np.array(words.groups)
    if (np.diff(groups, prepend=-1) > 1).any() or (np.diff(groups) < 0).any():
        return None
    text = np.array([not token.special for token in words.tokens])
    names = np.array([any(map(str.isalnum, token.text)) for token in words.tokens])
    return WordFold(groups, text, text & names, may_be_sink(item))


@dataclass
class WordFold:
    """What a head says, as `WordLinks` does, of a text whose weights come in blocks of rows.

    A row's tokens are joined into words as they come. Only links that can have a gain of
    `LEAST_GAIN` are kept, at most 400 of a row, and compared with the table once it is known.

    Whether the first token is a sink is known at the end, so that all is summed with it and, if it
    may be one, without it. The table without it differs in its first column alone, and in what
    each row is divided by.
    """

    groups: NDArray[np.intp]  # the word of each token, in order
    text: NDArray[np.bool_]  # whether a word is no special token
    names: NDArray[np.bool_]  # whether it has a letter or a digit
    may_drop: bool = False  # whether the first token may be a sink
    open_row: Any = None  # number and row of a last word that the next block may continue
    sums: Any = None  # with and without it: by distance and by key, (heads, …)
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # what was found of whole rows

    def __post_init__(self) -> None:
        self.starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        self.lengths = np.bincount(self.groups)
        self.size = size_of(np.arange(len(self.text)))

    def count(self, *, drop: bool = False) -> int:
        """The words among the rows."""
        return int((self._text(drop=drop) & self.names).sum())

    def _text(self, *, drop: bool) -> NDArray[np.bool_]:
        """The words that are no special tokens; with `drop` not a first one of a single token."""
        text = self.text.copy()
        text[0] &= not drop or self.lengths[0] > 1
        return text

    def part(self, block: RowBlock) -> Any:
        """What is found of a block's rows; of words of several tokens their rows over words."""
        weights, words = block.weights, self.groups[block.rows]
        if len(self.starts) == len(self.groups):
            if block.apart is None:
                return self._read_heads(words, weights, weights[..., 0])
            texts = block.once(self, lambda: self._texts(weights.shape[-1]))
            cells = weights[0], block.apart
            return self._read(words, cells, weights[0, :, 0], block.sight, texts)
        share = block.once(
            self,
            lambda: (words == np.arange(words[0], words[-1] + 1)[:, None]) / self.lengths[words],
        )
        weights = share.astype(weights.dtype) @ weights
        starts = self.starts[self.starts < weights.shape[-1]]
        first = weights[..., :1].copy()
        rows = np.concatenate([np.add.reduceat(weights, starts, axis=-1), first], axis=-1)
        return np.arange(words[0], words[-1] + 1), rows

    def join(self, heads: Sequence[Any]) -> Any:
        """What was found of heads, or their rows."""
        if len(heads[0]) == 2:
            return heads[0][0], side_by_side([rows for _, rows in heads], -3)
        numbers, sums, attending, sight, links = zip(*heads, strict=True)
        of_heads = [(own[0] + head, *own[1:]) for head, own in enumerate(links)]
        both = tuple(side_by_side(own) for own in zip(*sums, strict=True))
        whole = tuple(side_by_side(own, -1) for own in zip(*of_heads, strict=True))
        return numbers[0], both, side_by_side(attending), sight[0].extents()[0], whole

    def add(self, part: Any) -> None:
        if len(part) > 2:
            self._keep(part)
            return
        numbers, rows = part
        if self.open_row is not None:
            before, row = self.open_row
            if before == numbers[0]:
                rows[:, 0, : row.shape[-1] - 1] += row[:, :-1]
                rows[:, 0, -1] += row[:, -1]
            else:
                self._close(np.array([before]), row[:, None])
        self.open_row = int(numbers[-1]), rows[:, -1].copy()
        self._close(numbers[:-1], rows[:, :-1])

    def _close(self, numbers: NDArray[np.intp], rows: Any) -> None:
        """Add whole rows over words, with the first token's column as the last."""
        if len(numbers):
            self._keep(self._read_heads(numbers, rows[..., :-1], rows[..., -1]))

    def _read_heads(self, numbers: NDArray[Any], weights: Any, first: Any) -> Any:
        """What is found of whole rows, (heads, rows, keys), and the first token's column."""
        sight, texts, heads = Visibility(numbers).add(weights), self._texts(weights.shape[-1]), []
        space = np.empty((weights.shape[1] + 1) * sum(weights.shape[1:]), weights.dtype)
        for own, column in zip(weights, first, strict=True):
            cells, apart = room_for(space, *own.shape)
            cells[:] = own
            heads.append(self._read(numbers, (cells, apart), column, sight, texts))
        return self.join(heads)

    def _texts(self, keys: int) -> tuple[Any, NDArray[np.intp]]:
        """Of the first keys, those of each version as columns, and those of special tokens."""
        texts = [self._text(drop=drop)[:keys] for drop in (False, True)[: 1 + self.may_drop]]
        return np.stack(texts).astype(np.float32).T, np.flatnonzero(~texts[0])

    def _read(
        self,
        numbers: NDArray[Any],
        cells: tuple[Any, Any],
        first: Any,
        sight: Visibility,
        texts: tuple[Any, NDArray[np.intp]],
    ) -> tuple[Any, ...]:
        """What is found of a head's whole rows, as `room_for`, and of the first token's column."""
        (weights, apart), (versions, special) = cells, texts
        rows, keys = weights.shape
        mass = (weights @ versions).T
        if len(mass) > 1 and self.lengths[0] > 1:
            mass[1] -= first
        mass *= self.text[numbers]
        attending = mass >= LEAST_MASS
        by = np.divide(1, mass, out=np.zeros_like(mass), where=attending)
        before = weights[:, special]
        weights[:, special] = 0
        sums_apart, sums_of_keys = ((by @ own).astype(np.float64) for own in (apart, weights))
        if len(by) > 1:
            off = first * by[1] * self.text[0]
            sums_of_keys[1, 0] -= off.sum()
            sums_apart[1, rows - 1 - np.arange(rows)] -= off
        if self.names[numbers].any() and self.names[:keys].any():
            ratio = mass * by[-1]  # of rows without the first token to those with it
            most = np.where(attending[0], STRONG * mass[0] / np.maximum(ratio[0], 1), np.inf)
            links = np.flatnonzero(weights > most.astype(weights.dtype)[:, None])
        else:
            links = np.zeros(0, dtype=np.intp)
        at, to = np.divmod(links, keys)
        row = numbers[at]
        link = self.names[row] & self.names[to] & (row != to)
        at, to, row = at[link], to[link], row[link]
        shares = weights[at, to] * by[:, at]
        if len(by) > 1:
            shares[1] -= np.where(to == 0, first[at] * by[1, at], 0)
        weights[:, special] = before
        places = np.zeros(len(at), np.uint16), row.astype(np.int32), to.astype(np.int32)
        sums = sums_apart[:, None], sums_of_keys[:, None]
        return numbers, sums, attending[:, None], sight, (*places, shares)

    def _keep(self, part: tuple[Any, ...]) -> None:
        numbers, (apart, keys), *others = part
        if self.sums is None:
            self.sums = (
                np.zeros((*apart.shape[:2], self.size)),
                np.zeros((*keys.shape[:2], len(self.text))),
            )
        # Distances 0 and up lie at the beginning, those below 0 at the end.
        below = int(numbers[-1])
        ahead = max(apart.shape[-1] - below, 0)
        self.sums[0][..., self.size - below :][..., : apart.shape[-1]] += apart[..., :below]
        self.sums[0][..., :ahead] += apart[..., below:]
        self.sums[1][..., : keys.shape[-1]] += keys
        self.rows.append(tuple(others))

    def end(self, *, drop: bool = False) -> Numbers:
        """The measure of each head, (heads,); with `drop` without the first token."""
        if self.open_row is not None:
            number, row = self.open_row
            self._close(np.array([number]), row[:, None])
            self.open_row = None
        attending = np.concatenate([one[0][int(drop)] for one in self.rows], axis=-1)
        sums, visible = [one[int(drop)] for one in self.sums], self._visible(drop=drop)
        places = np.arange(len(self.text))
        table = fit_table((sums[0], sums[1]), attending.astype(np.float64), visible, places)
        values = np.zeros(len(attending))
        if links := [one[2] for one in self.rows if one[2]]:
            heads, rows, keys, shares = (
                np.concatenate(x, axis=-1) for x in zip(*links, strict=True)
            )
            for head in range(len(values)):
                own = (heads == head) & (shares[int(drop)] > STRONG)
                at, to, share = rows[own], keys[own], shares[int(drop), own]
                gains = gains_of(share, table.at(head, at, to))
                values[head] = gains[gains > LEAST_GAIN].sum(dtype=np.float64)
        return np.asarray(values / max(self.count(drop=drop), 1))

    def _visible(self, *, drop: bool) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The distances that lie between words that rows see, and the words that are visible."""
        text = self._text(drop=drop)
        words = np.zeros(self.size)
        words[: len(text)] = text
        spectrum = np.fft.rfft(words)
        pairs = np.fft.irfft(spectrum.conj() * spectrum, self.size) > 0.5
        before, ahead = self.reach
        pairs[ahead + 1 : self.size - before] = False
        return pairs, text & (self.sums[1][0].sum(axis=0) > 0)

    @property
    def reach(self) -> tuple[int, int]:
        """How many words back and ahead rows see at most, in a window of that size or the text."""
        first, last, count = np.concatenate([one[1] for one in self.rows], axis=-1)
        rows, most = np.arange(len(count)), len(self.text) - 1
        some = count > 0
        causal = not (last > rows)[some].any()
        far = int(np.maximum(rows - first, last - rows)[some].max(initial=0))
        high = rows if causal else np.minimum(rows + far, most)
        fills = (count == high - np.maximum(rows - far, 0) + 1).all() and far >= 2
        far = far if fills else most
        return far, 0 if causal else far

    def even(self, *, causal: bool, drop: bool) -> tuple[Numbers, int]:
        """The measure of uniform attention, (1,), and the most words that a row sees."""
        fold, most = WordFold(self.groups, self.text, self.names, self.may_drop), 0
        before, _ = self.reach
        keys = np.arange(len(self.text), dtype=np.int32)
        for first in range(0, len(keys), ROWS):
            rows = keys[first : first + ROWS, None]
            stop = int(rows[-1, 0]) + 1 if causal else len(keys)
            apart = rows - keys[:stop]
            visible = apart >= 0 if causal else np.ones(apart.shape, dtype=bool)
            if before < len(keys) - 1:
                visible &= np.abs(apart) <= before
            counts = visible.sum(axis=-1, keepdims=True)
            most = max(most, int(counts.max()))
            even = np.divide(visible, counts, dtype=np.float32)[None]
            # Without the first of several tokens its word is seen as before.
            column = even[..., 0] if self.lengths[0] == 1 else np.zeros_like(even[..., 0])
            fold._keep(fold._read_heads(rows[:, 0], even, column))
        return fold.end(drop=drop), most - int(drop and self.lengths[0] == 1)


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
