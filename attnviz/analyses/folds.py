"""What measures need of a map's rows, summed over blocks of rows, so that no whole map is needed.

A fold takes blocks in the order of the rows: `part` reads one, `join` puts together what was read
of its heads, where each was a block of its own, `add` joins that to what came before, `end` says
what it is of all rows. A whole map is read by the same folds; of a text too long for one the
weights come block by block, head by head, while they are in the processor's cache, and are thrown
away.

Within a block of at most `ROWS` rows sums have the precision of the weights, over blocks float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy
from attnviz.core.records import dataclass, field

Numbers = NDArray[np.float64]
Array = NDArray[np.floating]
Made = TypeVar("Made")
ROWS = 32
FEW = 16
"""Cells are few where no more than one in so many is."""
SMALL = 2**16
"""Weights of a head that are read at once."""


@dataclass(eq=False)
class RowBlock:
    """Neighbouring rows of a map.

    Attributes:
        weights: (…, rows, keys); keys at the end that none of the rows sees may be missing.
        first: the number of its first row.
        known_sums, known_entropies, known_largest: of the rows, (…, rows), where they are known.
        apart: the same with a column for each distance: key − row + rows − 1, where it is known.
        common: what was made for these rows, of this or of another head.
    """

    weights: Array
    first: int = 0
    known_sums: Numbers | None = None
    known_entropies: Numbers | None = None
    known_largest: Numbers | None = None
    apart: Array | None = None
    common: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def rows(self) -> NDArray[np.intp]:
        return np.arange(self.first, self.first + self.weights.shape[-2])

    def once(self, owner: Any, make: Callable[[], Made]) -> Made:
        """What an owner makes for these rows, the same for each head."""
        if id(owner) not in self.common:  # the owner stays, so that no other gets its number
            self.common[id(owner)] = owner, make()
        value: Made = self.common[id(owner)][1]
        return value

    @cached_property
    def sums(self) -> Numbers:
        if self.known_sums is not None:
            return self.known_sums
        return np.asarray(self.weights.sum(axis=-1, dtype=np.float64))

    @cached_property
    def sight(self) -> Visibility:
        """Which keys the rows give anything to, of this and the heads before it."""
        return self.once(Visibility, lambda: Visibility(self.rows)).add(self.weights)

    def largest(self, count: int) -> Numbers:
        """The largest weight of each row on the first keys, so many."""
        if self.known_largest is not None and count >= self.weights.shape[-1]:
            return self.known_largest
        return np.asarray(self.weights[..., :count].max(axis=-1), dtype=np.float64)

    @cached_property
    def entropies(self) -> Numbers:
        """As `row_entropy`."""
        return row_entropy(self.weights) if self.known_entropies is None else self.known_entropies


def side_by_side(heads: Sequence[Any], axis: int = -2) -> Any:
    """Arrays of some heads each, along the axis of heads."""
    return heads[0] if len(heads) == 1 else np.concatenate(heads, axis=axis)


def room_for(space: Any, rows: int, keys: int) -> tuple[Any, Any]:
    """Rows with room for as many zeros around each, and their cells by distance: see `RowBlock`.

    Both are views of (rows + 1)(keys + rows) numbers, which are made 0 around the rows.
    """
    step, own = space.itemsize, space[: (rows + 1) * (keys + rows)]
    whole = own[rows:][: rows * (keys + rows)].reshape(rows, -1)
    own[:rows] = whole[:, keys:] = 0
    by = ((keys + rows + 1) * step, step)
    apart = np.lib.stride_tricks.as_strided(own[1:], (rows, keys + rows - 1), by, writeable=False)
    return whole[:, :keys], apart


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

    def join(self, heads: Sequence[Any]) -> Any:
        """What blocks of the same rows say together, each of some heads."""

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

    def join(self, heads: Sequence[Numbers]) -> Numbers:
        return np.asarray(side_by_side(heads))

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


@dataclass(frozen=True, slots=True, eq=False)
class TargetsOfRows:
    """Some targets of neighbouring rows, for any head."""

    of_columns: list[int]  # the numbers of the targets that are the same for these rows
    columns: Array  # (keys of these, …)
    of_cells: tuple[Any, Any, Any]  # targets that are one key: target, row and key of each
    few: list[tuple[Any, ...]]  # target, rows and keys, in order, where there are few
    others: list[tuple[int, slice, Array]]  # target, keys, and which of them, (rows, keys)

    @classmethod
    def of(
        cls, targets: Sequence[Targets], rows: NDArray[np.intp], weights: Array
    ) -> TargetsOfRows:
        count, dtype = weights.shape[-1], weights.dtype
        of_columns, columns, others, few = list[int](), [np.zeros((0, count), dtype=bool)], [], []
        ones = [np.zeros((3, 0), dtype=np.intp)]
        for number, target in enumerate(targets):
            if isinstance(target, OnOne):
                keys = target.key[rows]
                there = np.flatnonzero((keys >= 0) & (keys < count))
                ones.append(np.stack([np.full(len(there), number), there, keys[there]]))
            elif isinstance(target, OnAlike | OnCells):
                cells = _cells(target, rows, count)
                if FEW * np.count_nonzero(cells) > cells.size:
                    others.append((number, slice(None), cells.astype(dtype)))
                else:
                    few.append((number, *cells.nonzero()))
            else:
                if (own := target.for_all(rows, count)).any():
                    of_columns.append(number)
                    columns.append(own[None])
                if target.near >= 0:
                    span = target.between(rows, count)
                    keys = np.arange(span.start, span.stop)
                    far = (np.abs(keys - rows[:, None]) > target.near) & target.keys[span]
                    others.append((number, span, far.astype(dtype)))
        a, b, c = np.concatenate(ones, axis=-1)
        return cls(of_columns, np.concatenate(columns).astype(dtype).T, (a, b, c), few, others)


def sums_on(block: RowBlock, targets: Sequence[Targets]) -> Numbers:
    """What each row gives to each of some targets, shape (targets, …, rows)."""
    weights = block.weights
    own = block.once(targets, lambda: TargetsOfRows.of(targets, block.rows, weights))
    sums = np.zeros((len(targets), *weights.shape[:-1]))
    if own.of_columns:  # one product reads the weights once for all of these
        sums[own.of_columns] = np.moveaxis(weights @ own.columns, -1, 0)
    which, rows, keys = own.of_cells
    sums[which, ..., rows] = np.moveaxis(weights[..., rows, keys], -1, 0)
    for number, rows, keys in own.few:
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        if starts.size:
            on = weights[..., rows, keys].astype(np.float64)
            sums[number][..., rows[starts]] = np.add.reduceat(on, starts, axis=-1)
    for number, span, cells in own.others:
        sums[number] += np.einsum("...ij,ij->...i", weights[..., span], cells)
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


@dataclass
class TotalFold:
    """What all rows give to each of some targets, and how many give anything, (targets, …)."""

    targets: Sequence[Targets]
    totals: Any = None

    def part(self, block: RowBlock) -> Numbers:
        return sums_on(block, self.targets)

    def join(self, heads: Sequence[Numbers]) -> Numbers:
        return np.asarray(side_by_side(heads))

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
    if block.sight.is_triangle:
        return np.stack([signed, -signed])
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
        numbers, share = block.once(self, lambda: self._runs(block.rows))
        return numbers, share.astype(block.weights.dtype) @ block.weights

    def _runs(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The parts of some rows, and which rows each has."""
        numbers = self.rows_of[rows]
        edges = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        runs = np.repeat(np.arange(len(edges)), np.diff(edges, append=len(numbers)))
        return numbers[edges], np.arange(len(edges))[:, None] == runs

    def join(self, heads: Sequence[tuple[NDArray[np.intp], Array]]) -> tuple[Any, Any]:
        return heads[0][0], side_by_side([sums for _, sums in heads], -3)

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

    def part(self, block: RowBlock) -> Visibility:
        return block.sight

    def join(self, heads: Sequence[Visibility]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        return heads[0].extents()

    def add(self, part: tuple[NDArray[np.intp], NDArray[np.bool_]]) -> None:
        self.rows.append(part[0])
        if self.columns is None:
            self.columns = np.zeros(self.keys, dtype=bool)
        self.columns[: len(part[1])] |= part[1]

    def end(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        return np.concatenate(self.rows, axis=-1), self.columns


@dataclass
class Visibility:
    """Which keys neighbouring rows give anything to in any head."""

    rows: NDArray[np.intp]
    cells: Any = False

    def add(self, weights: Array) -> Visibility:
        """Add some heads, (…, rows, keys)."""
        if not self.is_triangle:  # else one head says it all
            self.cells = self.cells | (weights > 0).reshape(-1, *weights.shape[-2:]).any(axis=0)
            vars(self).pop("is_triangle")
        return self

    @cached_property
    def is_triangle(self) -> bool:
        """Whether each row sees all keys up to its own and none behind it."""
        if self.cells is False:
            return False
        count = self.cells.shape[1]
        near = self.cells[:, self.rows[0] :]
        full = np.minimum(self.rows + 1, count).sum() == np.count_nonzero(self.cells)
        ahead = np.arange(self.rows[0], count) > self.rows[:, None]
        return bool(full and not (near & ahead).any())

    def extents(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The first key, the last and how many, (3, rows), and which are seen by any row."""
        count = self.cells.shape[1]
        if self.is_triangle:
            last = np.minimum(self.rows, count - 1)
            return np.stack([0 * last, last, last + 1]), np.arange(count) <= last.max()
        last = count - 1 - self.cells[:, ::-1].argmax(axis=-1)
        rows = np.stack([self.cells.argmax(axis=-1), last, self.cells.sum(axis=-1)])
        return rows, self.cells.any(axis=0)
