"""Grids over pictures, made of the parts of pictures that positions of a sequence stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.records import dataclass
from attnviz.features.picture_text.probe import Cells, Floats
from attnviz.features.vision.pictures import Box

SAME = 0.15  # difference of the logarithms of areas of cells of one grid
EDGE = 0.05  # part of a cell within which a grid's edge is the picture's


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Cells in rows and columns over a picture, or over some frames of a video."""

    first: int  # the picture, or the first frame
    last: int  # the last frame
    cells: NDArray[np.int64]  # positions in the sequence, shape (rows, columns)
    box: Box  # what they cover, in pixels of the picture


def grids_of(where: Cells, sizes: Sequence[tuple[int, int]]) -> list[Grid] | None:
    """Cells in grids, a picture's own by the size of its cells, smallest first.

    Returns:
        None where some cells of one size do not fill a grid.
    """
    grids = []
    for first, last in dict.fromkeys(zip(where.first.tolist(), where.last.tolist(), strict=True)):
        here = np.flatnonzero((where.first == first) & (where.last == last))
        alike = _are_alike(where, here, sizes[first])  # cells at an edge may be smaller
        for own in [here] if alike else _by_size(where, here):
            for layer in _layers(where, own):
                grid = _grid(where, layer, sizes[first])
                if grid is None:
                    return None
                cells, box = grid
                grids.append(Grid(first, last, where.places[cells], box))
    return grids


def _are_alike(where: Cells, own: NDArray[np.int64], size: tuple[int, int]) -> bool:
    """Whether cells of any size are grids of one shape, each over the same parts."""
    layers = [*_layers(where, own)]
    return len({len(one) for one in layers}) == 1 and all(_grid(where, one, size) for one in layers)


def _by_size(where: Cells, own: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cells of one picture in groups of one size."""
    sizes = np.log(np.maximum(where.width[own] * where.height[own], 1e-6))
    order = np.argsort(sizes, kind="stable")
    steps = np.flatnonzero(np.diff(sizes[order]) > SAME) + 1
    for group in np.split(order, steps):
        yield own[np.sort(group)]


def _layers(where: Cells, own: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cells of one size; where several show the same part, the first of each, then the second."""
    axes = (where.x, where.width), (where.y, where.height)
    numbers = np.stack([_ranks(middle[own], size[own]) for middle, size in axes])
    _, part = np.unique(numbers, axis=1, return_inverse=True)
    before = Counter[int]()
    turns = np.zeros(len(own), dtype=np.int64)
    for number, one in enumerate(part.ravel().tolist()):
        turns[number] = before[one]
        before[one] += 1
    for turn in range(turns.max() + 1):
        yield own[turns == turn]


def _ranks(middles: Floats, sizes: Floats) -> NDArray[np.int64]:
    """The number of the row or column of each cell, from its middle."""
    order = np.argsort(middles, kind="stable")
    steps = np.diff(middles[order]) > float(np.median(sizes)) / 2
    ranks = np.zeros(len(order), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(steps)
    return ranks


def _grid(
    where: Cells, own: NDArray[np.int64], size: tuple[int, int]
) -> tuple[NDArray[np.int64], Box] | None:
    """The cells in rows and columns, and the box that they cover."""
    columns, rows = _ranks(where.x[own], where.width[own]), _ranks(where.y[own], where.height[own])
    shape = int(rows.max()) + 1, int(columns.max()) + 1
    if shape[0] * shape[1] != len(own):
        return None
    cells = np.full(shape, -1, dtype=np.int64)
    cells[rows, columns] = own
    if (cells < 0).any():
        return None
    left, right = _ends(where.x[cells].mean(axis=0), float(np.median(where.width[own])), size[0])
    top, bottom = _ends(where.y[cells].mean(axis=1), float(np.median(where.height[own])), size[1])
    return cells, (left, top, right, bottom)


def _ends(middles: Floats, wide: float, whole: int) -> tuple[float, float]:
    """Where equal cells with these middles begin and end; at the picture's edge where they meet."""
    if len(middles) > 1:
        wide = float(middles[-1] - middles[0]) / (len(middles) - 1)
    ends = [float(middles[0]) - wide / 2, float(middles[-1]) + wide / 2]
    for number, edge in enumerate((0.0, float(whole))):
        if abs(ends[number] - edge) < EDGE * wide:
            ends[number] = edge
    return ends[0], ends[1]
