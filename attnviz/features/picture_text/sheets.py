"""Grids over pictures, made of the parts of pictures that positions of a sequence stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def grids_of(found: Cells, sizes: Sequence[tuple[int, int]]) -> list[Grid] | None:
    """Cells in grids, a picture's own by the size of its cells, smallest first.

    Returns:
        None where some cells of one size do not fill a grid.
    """
    grids = []
    for first, last in dict.fromkeys(zip(found.first.tolist(), found.last.tolist(), strict=True)):
        here = np.flatnonzero((found.first == first) & (found.last == last))
        for own in _by_size(found, here):
            for layer in _layers(found, own):
                grid = _grid(found, layer, sizes[first])
                if grid is None:
                    return None
                cells, box = grid
                grids.append(Grid(first, last, found.places[cells], box))
    return grids


def _by_size(found: Cells, own: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cells of one picture in groups of one size."""
    sizes = np.log(np.maximum(found.width[own] * found.height[own], 1e-6))
    order = np.argsort(sizes, kind="stable")
    steps = np.flatnonzero(np.diff(sizes[order]) > SAME) + 1
    for group in np.split(order, steps):
        yield own[np.sort(group)]


def _layers(found: Cells, own: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cells of one size; where several show the same part, the first of each, then the second."""
    middle = np.stack(
        [_ranks(found.x[own], found.width[own]), _ranks(found.y[own], found.height[own])]
    )
    _, place = np.unique(middle, axis=1, return_inverse=True)
    seen: dict[int, int] = {}
    turns = np.array(
        [seen.update({n: seen.get(n, -1) + 1}) or seen[n] for n in place.ravel().tolist()]
    )
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
    found: Cells, own: NDArray[np.int64], size: tuple[int, int]
) -> tuple[NDArray[np.int64], Box] | None:
    """The cells in rows and columns, and the box that they cover."""
    columns, rows = _ranks(found.x[own], found.width[own]), _ranks(found.y[own], found.height[own])
    shape = int(rows.max()) + 1, int(columns.max()) + 1
    if shape[0] * shape[1] != len(own):
        return None
    cells = np.full(shape, -1, dtype=np.int64)
    cells[rows, columns] = own
    if (cells < 0).any():
        return None
    left, right = _ends(found.x[cells].mean(axis=0), float(np.median(found.width[own])), size[0])
    top, bottom = _ends(found.y[cells].mean(axis=1), float(np.median(found.height[own])), size[1])
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
