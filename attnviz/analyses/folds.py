"""What measures need of a map's rows, summed over blocks of rows, so that no whole map is needed.

A fold takes blocks in the order of the rows: `part` reads one, `add` joins what was read to what
came before, `end` says what it is of all rows. A whole map is read by the same folds; of a text too
long for one the weights come block by block and are thrown away.

Within a block of at most `ROWS` rows sums have the precision of the weights, over blocks float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy

Numbers = NDArray[np.float64]
Array = NDArray[np.floating]
ROWS = 32
SMALL = 2**16
"""Weights of a head that are read at once."""


@dataclass(eq=False)
class RowBlock:
    """Neighbouring rows of a map.

    Attributes:
        weights: (…, rows, keys); keys at the end that none of the rows sees may be missing.
        first: the number of its first row.
        logs: the logarithms of the weights, where they are known; finite where a weight is 0.
        known_sums: what the rows sum to, (…, rows), where it is known.
    """

    weights: Array
    first: int = 0
    logs: Array | None = None
    known_sums: Numbers | None = None

    @property
    def rows(self) -> NDArray[np.intp]:
        return np.arange(self.first, self.first + self.weights.shape[-2])

    @cached_property
    def sums(self) -> Numbers:
        if self.known_sums is not None:
            return self.known_sums
        return np.asarray(self.weights.sum(axis=-1, dtype=np.float64))

    @cached_property
    def entropies(self) -> Numbers:
        """As `row_entropy`; by the logarithms of the weights where they are known."""
        if self.logs is None:
            return row_entropy(self.weights)
        terms = np.einsum("...ij,...ij->...i", self.weights, self.logs).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.maximum(np.log(self.sums) - terms / self.sums, 0.0))


def blocks_of(weights: Array) -> Iterator[RowBlock]:
    """A whole map's rows, (…, queries, keys), in blocks: all at once of a short one."""
    queries, keys = weights.shape[-2:]
    step = queries if queries * keys <= SMALL else ROWS
    for first in range(0, queries, step):
        yield RowBlock(weights[..., first : first + step, :], first)


class Fold(Protocol):
    """See the module."""

    def part(self, block: RowBlock) -> Any:
        """What a block says, of itself alone."""

    def add(self, part: Any) -> None:
        """Join what the next block says."""

    def end(self) -> Any:
        """What all rows say."""


@dataclass
class RowFold:
    """A number for each row, (…, rows); or `several`, on an axis before all others."""

    of_block: Callable[[RowBlock], Numbers]
    several: int = 0
    parts: list[Numbers] = field(default_factory=list)

    def part(self, block: RowBlock) -> Numbers:
        return self.of_block(block)

    def add(self, part: Numbers) -> None:
        self.parts.append(part)

    def end(self) -> Numbers:
        return np.concatenate(self.parts, axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class OnKeys:
    """Some keys, the same for every row; but not those within `near` tokens of it, if given."""

    keys: NDArray[np.bool_]
    near: int = -1

    def between(self, rows: NDArray[np.intp], count: int) -> slice:
        """The keys, of so many, that are near some of the rows."""
        if self.near < 0:
            return slice(0, 0)
        first, stop = rows[0] - self.near, rows[-1] + self.near + 1
        return slice(min(max(first, 0), count), min(max(stop, 0), count))

    def for_all(self, rows: NDArray[np.intp], count: int) -> NDArray[np.bool_]:
        """Those of the first keys that are meant for each of the rows."""
        keys = self.keys[:count].copy()
        keys[self.between(rows, count)] = False
        return keys


@dataclass(frozen=True, slots=True, eq=False)
class OnOne:
    """One key of each row by its number, −1: none."""

    key: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class OnAlike:
    """The keys that have the number of the row, −1: none; with `others` not the row's own place."""

    rows: NDArray[np.int32]
    keys: NDArray[np.int32]
    others: bool


@dataclass(frozen=True, slots=True, eq=False)
class OnCells:
    """Any cells, (queries, keys)."""

    cells: NDArray[np.bool_]


Targets = OnKeys | OnOne | OnAlike | OnCells


def sums_on(block: RowBlock, targets: Sequence[Targets]) -> Numbers:
    """What each row gives to each of some targets, shape (targets, …, rows)."""
    weights, rows = block.weights, block.rows
    count = weights.shape[-1]
    sums = np.zeros((len(targets), *weights.shape[:-1]))
    columns_of = [n for n, one in enumerate(targets) if isinstance(one, OnKeys)]
    if columns_of:  # one product reads the weights once for all of these
        masks = [one.for_all(rows, count) for one in targets if isinstance(one, OnKeys)]
        product = weights @ np.stack(masks, axis=-1).astype(weights.dtype)
        sums[columns_of] = np.moveaxis(product, -1, 0)
    for number, target in enumerate(targets):
        if isinstance(target, OnOne):
            keys = target.key[rows]
            there = np.flatnonzero((keys >= 0) & (keys < count))
            sums[number][..., there] = weights[..., there, keys[there]]
        elif isinstance(target, OnAlike | OnCells):
            sums[number] = _dot(weights, _cells(target, rows, count))
        elif target.near >= 0:
            span = target.between(rows, count)
            keys = np.arange(span.start, span.stop)
            far = (np.abs(keys - rows[:, None]) > target.near) & target.keys[span]
            sums[number] += _dot(weights[..., span], far)
    return sums


def _cells(target: OnAlike | OnCells, rows: NDArray[np.intp], count: int) -> NDArray[np.bool_]:
    if isinstance(target, OnCells):
        return target.cells[rows, :count]
    cells: NDArray[np.bool_] = target.rows[rows, None] == target.keys[:count]
    cells[target.rows[rows] < 0] = False
    if target.others:
        there = rows < count
        cells[there, rows[there]] = False
    return cells


def _dot(weights: Array, cells: NDArray[np.bool_]) -> Array:
    return np.asarray(np.einsum("...ij,ij->...i", weights, cells.astype(weights.dtype)))


@dataclass
class TotalFold:
    """What all rows give to each of some targets, and how many give anything, (targets, …)."""

    targets: Sequence[Targets]
    totals: Any = None

    def part(self, block: RowBlock) -> Numbers:
        return sums_on(block, self.targets)

    def add(self, part: Numbers) -> None:
        both = np.stack([part, part > 0])
        before = np.zeros((*both.shape[:-1], 1)) if self.totals is None else self.totals[..., None]
        # Row after row, however many come at once.
        self.totals = np.concatenate([before, both], axis=-1).cumsum(axis=-1)[..., -1]

    def end(self) -> tuple[Numbers, Numbers]:
        return self.totals[0], self.totals[1]


def offsets(block: RowBlock) -> Numbers:
    """Σ_j a_ij (j − i) and Σ_j a_ij |i − j| of each row, shape (2, …, rows)."""
    weights, rows = block.weights, block.rows
    # From the block's first row on, numbers stay small and sums exact.
    keys = np.arange(weights.shape[-1]) - block.first
    signed = (weights @ keys.astype(weights.dtype)).astype(np.float64)
    signed -= (rows - block.first) * block.sums
    later = weights[..., block.first :]
    ahead = np.maximum(keys[block.first :] - (rows - block.first)[:, None], 0)
    forward = np.einsum("...ij,ij->...i", later, ahead.astype(weights.dtype)).astype(np.float64)
    return np.stack([signed, np.maximum(2 * forward - signed, 0)])


@dataclass
class ColumnFold:
    """What each key gets from all rows, and each part of the text from far parts.

    Parts are runs of neighbouring rows and keys, in their order.

    Attributes:
        rows_of, keys_of: the number of the part of each row and of each key; -1: none.
        sizes: the number of tokens of each part.
        apart: how many parts away a part is far.
    """

    rows_of: NDArray[np.intp]
    keys_of: NDArray[np.intp]
    sizes: NDArray[np.intp]
    apart: int
    totals: Any = None  # (…, keys)
    received: Any = None  # (…, parts), the mean of each far part's rows, summed over these parts
    seen: Any = None  # (…, parts), the far parts that give it anything
    open_part: tuple[int, Any] = (-1, 0.0)

    def part(self, block: RowBlock) -> tuple[NDArray[np.intp], Array]:
        numbers = self.rows_of[block.rows]
        edges = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        runs = np.repeat(np.arange(len(edges)), np.diff(edges, append=len(numbers)))
        share = (np.arange(len(edges))[:, None] == runs).astype(block.weights.dtype)
        return numbers[edges], share @ block.weights

    def add(self, part: tuple[NDArray[np.intp], Array]) -> None:
        numbers, sums = part
        if self.totals is None:
            self.totals = np.zeros((*sums.shape[:-2], len(self.keys_of)))
            self.received, self.seen = np.zeros((2, *sums.shape[:-2], len(self.sizes)))
        there = np.flatnonzero(self.keys_of[: sums.shape[-1]] >= 0)
        starts = np.flatnonzero(np.diff(self.keys_of[there], prepend=-1))
        for place, number in enumerate(numbers.tolist()):
            own = sums[..., place, :]
            self.totals[..., : own.shape[-1]] += own
            if number != self.open_part[0]:
                self._close()
            if number >= 0 and starts.size:
                whole = np.zeros(self.received.shape)
                cells = np.add.reduceat(own[..., there], starts, axis=-1, dtype=np.float64)
                whole[..., self.keys_of[there][starts]] = cells
                self.open_part = number, whole + self.open_part[1]

    def _close(self) -> None:
        number, cells = self.open_part
        self.open_part = -1, 0.0
        if number >= 0:
            far = np.abs(np.arange(len(self.sizes)) - number) >= self.apart
            self.received += cells * far / self.sizes[number]
            self.seen += (cells > 0) & far

    def end(self) -> tuple[Numbers, Numbers, Numbers]:
        self._close()
        return self.totals, self.received, self.seen


@dataclass
class SightFold:
    """Which keys a layer's rows see: of any head, the first and the last key, and how many."""

    keys: int
    rows: list[NDArray[np.intp]] = field(default_factory=list)
    columns: Any = None

    def part(self, block: RowBlock) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        return extents(block.weights, block.rows)

    def add(self, part: tuple[NDArray[np.intp], NDArray[np.bool_]]) -> None:
        self.rows.append(part[0])
        if self.columns is None:
            self.columns = np.zeros(self.keys, dtype=bool)
        self.columns[: len(part[1])] |= part[1]

    def end(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        return np.concatenate(self.rows, axis=-1), self.columns


def extents(weights: Array, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Of keys that any head sees: the first, the last and how many, (3, rows), and which."""
    heads = weights.reshape(-1, *weights.shape[-2:])
    cells = heads[0] > 0
    lower = np.arange(cells.shape[1]) <= rows[:, None]
    if not cells[lower].all() or (cells & ~lower).any():  # else one head says it all
        cells = heads.max(axis=0) > 0
    last = cells.shape[1] - 1 - cells[:, ::-1].argmax(axis=-1)
    return np.stack([cells.argmax(axis=-1), last, cells.sum(axis=-1)]), cells.any(axis=0)
