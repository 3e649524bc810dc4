"""The exact strongest links of each head of a pooled map, without computing its whole matrix.

A single weight cannot exceed the mass of its block of keys, which the pooled map gives. So rows are
computed in order of their largest mass, until no row left can hold a link as strong as those found.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import in_words
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.capture.probe import key_columns, row_weights
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token

ROWS = 128  # most rows of a head that are computed at once
ROW_BYTES = 2**27  # of the rows of all heads that are computed at once
ROUNDING = 8  # relative error of a kernel's mass, in units of the spacing of numbers at 1


@dataclass(frozen=True, slots=True)
class IgnoredPositions:
    """Positions left out of the strongest links, because they would fill the list."""

    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    itself: bool = False  # whether links of tokens to themselves are left out too


@dataclass(frozen=True, slots=True)
class Cell:
    """One exact weight."""

    query: int
    key: int
    weight: float


Strongest = tuple[Cell, ...]  # of a head, strongest first, then earlier queries and keys first


class Bounds:
    """For each head and query its largest sum over a block of keys: no weight exceeds it."""

    def __init__(self, call: AttentionCall, grid: PooledGrid, exclusions: IgnoredPositions) -> None:
        self.call, self.grid, self.exclusions = call, grid, exclusions
        keys = grid.keys
        self.apart = [key for key in exclusions.keys if keys.start <= key < keys.stop]
        self.masses = key_columns(call, self.apart)
        length = grid.queries.stop - grid.queries.start
        self.highest = call.query.new_zeros((length, call.query.shape[1])).float()

    def add(self, first: int, masses: Any) -> None:
        """Add blocks from number `first` on, shape (1, queries, heads, blocks)."""
        import torch

        queries, keys = self.grid.queries, self.grid.keys
        rounding = ROUNDING * torch.finfo(masses.dtype).eps
        limits = masses[0, queries.start : queries.stop].float() * (1 + rounding)
        for column, key in enumerate(self.apart):
            block = (key - keys.start) // keys.length - first
            if 0 <= block < limits.shape[-1]:
                limits[..., block] -= self.masses[queries.start : queries.stop, :, column]
        self.highest = torch.maximum(self.highest, limits.amax(-1))


def find_strongest(bounds: Bounds, count: int) -> list[Strongest]:
    """Each head's `count` strongest links."""
    call, queries = bounds.call, bounds.grid.queries
    limits, order = bounds.highest.T.sort(dim=1, descending=True, stable=True)
    strongest = StrongestCells(len(order), count, call.key.shape[2], order.device)
    rows = max(min(ROWS, ROW_BYTES // (16 * len(order) * call.key.shape[2])), 1)
    for first in range(0, limits.shape[1], rows):
        open_still = (limits[:, first] > 0) & (limits[:, first] >= strongest.weights[:, -1])
        heads = open_still.nonzero()[:, 0]
        if not len(heads):
            break
        places = order[heads, first : first + rows].sort(1).values + queries.start
        weights = row_weights(call, heads, places)
        drop_ignored(weights, places, bounds.grid, bounds.exclusions)
        strongest.add(heads, places, weights)
    return strongest.cells()


def drop_ignored(
    weights: Any, queries: Any, grid: PooledGrid, exclusions: IgnoredPositions
) -> None:
    """Set the weights of ignored positions to 0, shape (heads, rows, keys)."""
    import torch

    keys = grid.keys
    rows_off = torch.isin(queries, queries.new_tensor(exclusions.queries))
    weights[rows_off.nonzero(as_tuple=True)] = 0
    weights[..., : keys.start] = weights[..., keys.stop :] = 0
    weights[..., [key for key in exclusions.keys if key < weights.shape[2]]] = 0
    if exclusions.itself:
        weights.scatter_(2, queries[..., None], 0)


class StrongestCells:
    """The strongest cells found so far in some heads of a call."""

    def __init__(self, heads: int, count: int, keys: int, device: Any = None) -> None:
        import torch

        self.keys = keys
        self.weights = torch.zeros((heads, count), device=device, dtype=torch.float32)
        self.places = self.weights.long()

    def add(self, heads: Any, queries: Any, weights: Any) -> None:
        """Add rows of some heads, shape (heads, rows, keys), with their queries."""
        import torch

        count, width = self.weights.shape[1], weights.shape[2]
        peaks = weights.amax(2)
        strong = (peaks > 0) & (peaks >= self.weights[heads, -1:])
        gain = strong.any(1).nonzero()[:, 0]
        if not len(gain):
            return
        # A head's strongest cells lie in the rows with the highest peaks.
        most = min(int(strong.sum(1).max()), count)
        rows = top_columns(peaks[gain], most).sort(1).values
        cells = weights[gain[:, None], rows].flatten(1)
        inside = top_columns(cells, count)
        own = queries[gain[:, None], rows].gather(1, inside // width)
        heads = heads[gain]
        places = torch.cat([self.places[heads], own * self.keys + inside % width], 1)
        both = torch.cat([self.weights[heads], cells.gather(1, inside)], 1)
        first = places.argsort(dim=1, stable=True)
        best = both.gather(1, first).argsort(dim=1, descending=True, stable=True)[:, :count]
        best = first.gather(1, best)
        self.weights[heads], self.places[heads] = both.gather(1, best), places.gather(1, best)

    def cells(self) -> list[Strongest]:
        """Each head's strongest cells, strongest first."""
        pairs = zip(self.places.tolist(), self.weights.tolist(), strict=True)
        return [
            tuple(
                Cell(place // self.keys, place % self.keys, weight)
                for place, weight in zip(places, weights, strict=True)
                if weight > 0
            )
            for places, weights in pairs
        ]


def top_columns(values: Any, count: int) -> Any:
    """The columns of each row's largest values, shape (rows, count); of equal ones the first."""
    import torch

    # Bits of non-negative floats sort like the floats; subtracting the column breaks ties.
    bits = values.contiguous().view(torch.int32).long() << 32
    places = torch.arange(values.shape[1], device=values.device)
    return (bits - places).topk(min(count, values.shape[1]), 1).indices


def links_note(count: int, exclusions: IgnoredPositions) -> str:
    """The note on the strongest links, before and after the search."""
    left_out = []
    if exclusions.queries:
        left_out.append("links from and to special tokens")
    if exclusions.itself:
        left_out.append("links of a token to itself")
    # Special tokens are ignored as queries and keys, a first token as a key only.
    if set(exclusions.keys) - set(exclusions.queries):
        left_out.append("links to the first token, on which heads of causal models rest")
    note = (
        f"the {count} strongest links of each head have exact weights of single tokens; the search "
        "for them may take longer than the maps, and --top 0 skips it"
    )
    return f"{note}; not counted among them: {in_words(left_out, 'and')}" if left_out else note


def strongest_in_matrices(
    weights: NDArray[np.float32], exclusions: IgnoredPositions, count: int
) -> list[Strongest]:
    """Each head's strongest links, from whole matrices of shape (heads, queries, keys)."""
    import torch

    heads, queries, keys = weights.shape
    cells = torch.tensor(weights)
    rows = torch.arange(queries).expand(heads, -1)
    drop_ignored(cells, rows, PooledGrid(each_token(queries), each_token(keys)), exclusions)
    strongest = StrongestCells(heads, min(count, queries * keys), keys)
    strongest.add(torch.arange(heads), rows, cells)
    return strongest.cells()
