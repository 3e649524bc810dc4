"""Each attention of a pass laid out over the patches of the picture.

Windows, pooled queries and reduced keys all end as the same: a row of weights for each patch that
asks, over the patches where its keys lie. Links between windows do not exist: they are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import not_finite
from attnviz.core.errors import AttentionError
from attnviz.core.records import dataclass, field
from attnviz.features.windows.places import PixelPlaces, PlacedCall, PlaceTracing, trace_places

CLOSE = 1e-3  # of the picture's side: nearer places are one
MOST_CELLS = 1 << 26  # of whole maps that are kept for --patch all


class NotOverPatches(AttentionError):  # noqa: N818 - it is one of `AttentionError`
    """Attention of another kind: over channels, over levels, from learned queries."""


@dataclass(frozen=True, slots=True, eq=False)
class PatchGrid:
    """Patches in rows and columns, by the places of their middles in pixels."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def size(self) -> int:
        return len(self.rows) * len(self.columns)

    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the patches cover, in pixels."""
        top, bottom = _ends(self.rows)
        left, right = _ends(self.columns)
        return left, top, right, bottom


def _ends(middles: NDArray[np.float64]) -> tuple[float, float]:
    if len(middles) == 1:
        return 0.0, 2 * float(middles[0])
    step = float(np.median(np.diff(middles)))
    first = float(np.median(middles - np.arange(len(middles)) * step))
    return first - step / 2, first + (len(middles) - 0.5) * step


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Where the queries or keys of each call lie: shape (calls, tokens)."""

    grid: PatchGrid
    patches: NDArray[np.int64]  # the number of each one's patch; -1: none
    specials: NDArray[np.int64]  # 1 + the number of each one's token without a place; 0: none

    @property
    def names(self) -> list[int]:
        """The tokens without a place, in order."""
        return [int(one) for one in np.unique(self.specials) if one]

    def numbers(self, names: Sequence[int]) -> NDArray[np.int64]:
        """The place of each in a row of special tokens and patches; -1: padding."""
        order = np.full(max(names, default=0) + 1, -1)
        order[list(names)] = np.arange(len(names))
        special = np.where(self.specials > 0, order[self.specials], -1)
        return np.where(self.patches >= 0, self.patches + len(names), special)


def _numpy(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.double().cpu().numpy())


def _side(places: PixelPlaces) -> Side:
    inside = _numpy(places.weight) > 0.5
    row, column, special = map(_numpy, (places.row, places.column, places.special))
    grid = PatchGrid(_middles(row[inside]), _middles(column[inside]))
    patches = np.full(inside.shape, -1)
    if inside.any():
        down = _nearest(grid.rows, row[inside])
        across = _nearest(grid.columns, column[inside])
        patches[inside] = down * len(grid.columns) + across
    return Side(grid, patches, np.where(inside, 0, np.rint(special)).astype(np.int64))


def _middles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values that differ, in order; those within a thousandth of their range are one."""
    values_in_order = np.unique(values)
    if len(values_in_order) < 2:
        return values_in_order
    gap = CLOSE * (values_in_order[-1] - values_in_order[0]) / 2
    starts = np.flatnonzero(np.diff(values_in_order, prepend=-np.inf) > gap)
    return np.add.reduceat(values_in_order, starts) / np.diff(
        np.append(starts, len(values_in_order))
    )


def _nearest(middles: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    edges = (middles[1:] + middles[:-1]) / 2
    return np.searchsorted(edges, values).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedLayer:
    """One layer's attention, as it is put back into the picture.

    Rows are (heads, special tokens and patches of the keys).
    """

    queries: Side
    keys: Side
    heads: int
    mean: NDArray[np.float32]  # the mean row of all patches
    asked: NDArray[np.float32] | None  # the row of what is asked for
    whole: NDArray[np.float32] | None  # (heads, queries, keys), where it is small enough
    windows: int  # calls of one head
    padded: float  # the share of the mean row that falls on padding
    copies: int = 0  # how often each special token is repeated; 0: it is there once


@dataclass(slots=True, eq=False)
class LayerReader:
    """Reads every attention of a pass over a picture's patches.

    Attributes:
        at: row and column of the patch that asks, of the first layer; None: none.
        layers: what was read, in the order of calls.
        skipped: why other attention was left out, with the number of its calls.
    """

    at: tuple[int, int] | None = None
    layers: list[PlacedLayer] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    cells: int = 0

    def look(self, call: PlacedCall) -> None:
        try:
            self.layers.append(self._lay_out(call))
        except NotOverPatches as error:
            self.skipped[str(error)] = self.skipped.get(str(error), 0) + 1

    def _lay_out(self, call: PlacedCall) -> PlacedLayer:
        if call.queries is None or not bool((call.queries.weight > 0.5).any()):
            raise NotOverPatches("queries that are no patches")
        if call.keys is None or not bool((call.keys.weight > 0.5).any()):
            raise NotOverPatches("keys that are no patches")
        queries, keys = _side(call.queries), _side(call.keys)
        tokens = call.weights.shape[1]
        if queries.grid.size == 1 and tokens > 1 and not (queries.specials > 0).any():
            raise NotOverPatches("weights between channels")
        heads = _heads(call)
        weights = np.asarray(call.weights.float().cpu().numpy())
        faulty = ~np.isfinite(weights).all((1, 2))
        if faulty.any():
            head = str(heads[faulty].min())
            raise not_finite("self", str(len(self.layers)), head, str(call.weights.dtype)[6:])
        names = keys.names
        places, asking = keys.numbers(names), queries.numbers(queries.names)
        count = int(heads.max()) + 1
        length = len(names) + keys.grid.size
        copies = _count_copies(heads, asking, len(queries.names), queries.grid.size)

        def spread(rows: NDArray[np.float64]) -> NDArray[np.float32]:
            """Rows (calls, keys), put where their keys lie."""
            result = np.zeros((count, length + 1))
            np.add.at(result, (heads[:, None], places), rows)
            return np.asarray(result[:, :-1], dtype=np.float32)

        is_patch = queries.patches >= 0
        patches = max(int(is_patch[heads == 0].sum()), 1)
        sums = np.einsum("nqk,nq->nk", weights.astype(np.float64), is_patch) / patches
        padding = np.where(places < 0, sums, 0)
        return PlacedLayer(
            queries,
            keys,
            count,
            spread(sums),
            self._row_asked_for(queries, weights, spread, max(copies, 1)),
            None if copies else self._whole(weights, (heads, asking, places), (count, length)),
            len(heads) // count,
            float(padding.sum() / count),
            copies,
        )

    def _row_asked_for(
        self, queries: Side, weights: NDArray[np.float32], spread: Any, copies: int
    ) -> Any:
        """The row of the patch that asks, or of the first token without a place."""
        if self.at is None:
            if not queries.names:
                return None
            own = queries.specials == queries.names[0]
        else:
            finest = (self.layers[0].queries if self.layers else queries).grid
            if self.at[0] >= finest.shape[0] or self.at[1] >= finest.shape[1]:
                return None
            (row, column), (rows, columns) = self.at, queries.grid.shape
            place = row * rows // finest.shape[0] * columns + column * columns // finest.shape[1]
            own = queries.patches == place
        rows = np.einsum("nqk,nq->nk", weights.astype(np.float64), own)
        return spread(rows / copies if self.at is None else rows)

    def _whole(
        self,
        weights: NDArray[np.float32],
        where: tuple[NDArray[np.int64], ...],
        sizes: tuple[int, int],
    ) -> Any:
        """The whole map, where queries and keys are alike and there is room for it."""
        (heads, asking, places), (count, length) = where, sizes
        asks = int(asking.max()) + 1
        self.cells += count * asks * length
        if self.cells > MOST_CELLS or asks != length:
            return None
        result = np.zeros((count, asks + 1, length + 1), dtype=np.float32)
        np.add.at(result, (heads[:, None, None], asking[:, :, None], places[:, None, :]), weights)
        return result[:, :-1, :-1]


def _heads(call: PlacedCall) -> NDArray[np.int64]:
    """The head of each call, by the channels of its queries."""
    assert call.queries is not None
    channels = _numpy(call.queries.channel).max(-1)  # that of rows of padding is 0
    of_heads, heads = np.unique(np.round(channels, 2), return_inverse=True)
    if len(np.unique(np.bincount(heads))) > 1:
        raise NotOverPatches(f"calls of {len(of_heads)} heads that are not alike")
    return np.asarray(heads.reshape(-1), dtype=np.int64)


def _count_copies(
    heads: NDArray[np.int64], asking: NDArray[np.int64], names: int, patches: int
) -> int:
    """How often each special token is repeated in the rows of a head; 0: it is there once.

    Raises:
        NotOverPatches: several rows of one patch and head: levels, or crops that overlap.
    """
    tokens = names + patches
    pairs = np.broadcast_to(heads[:, None], asking.shape) * tokens + asking
    of_patches = pairs[asking >= names]
    if len(np.unique(of_patches)) < len(of_patches):
        raise NotOverPatches("several queries of one patch")
    of_names = pairs[(asking >= 0) & (asking < names)]
    times = len(of_names) // max(len(np.unique(of_names)), 1)
    return times if times > 1 else 0


def read_layers(
    module: Any, inputs: dict[str, Any], places: dict[str, PixelPlaces], at: tuple[int, int] | None
) -> tuple[LayerReader, PlaceTracing]:
    """Every attention of one pass of a module that reads a picture.

    Args:
        module: the model, or the part of it that reads pictures.
        inputs: its inputs by name.
        places: of the inputs that were made of the picture, their places.
        at: the patch that asks.
    """
    reader = LayerReader(at)
    with_places = {name: (inputs[name], one) for name, one in places.items() if name in inputs}
    with trace_places(module, with_places, reader.look) as tracing:
        module(**inputs)
    return reader, tracing
