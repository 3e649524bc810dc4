"""A part of a text's attention, cut out of the maps of a model that reads short texts whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from attnviz.core.attention_map import Attention, AttentionMap, Projections
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Query
from attnviz.models import Source
from attnviz.models.hugging_face.capture.region import PooledGrid, Region, grids_of, region_note

WHOLE = "gradients, effects and norms need every weight: leave {} out"


class PartOfTexts(Source):
    """A source whose maps have only the rows that --rows names, or rows and columns of --window.

    What its model computes is that of the whole text.
    """

    def __init__(self, source: Source, region: Region) -> None:
        self.source, self.region = source, region

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        for answer in self.source.attend(queries, batch_size=batch_size):
            try:
                part = answer if isinstance(answer, InputError) else cut(answer, self.region)
            except InputError as error:
                part = error
            yield part

    def _refuse(self, *_: Any) -> Any:
        raise UsageError(WHOLE.format("--rows" if self.region.rows else "--window"))

    gradients = experiment = values = _refuse  # type: ignore[assignment]


def cut(attention: Attention, region: Region) -> Attention:
    """The part of each map that a region names, with a note on it.

    Raises:
        UnfitTextError: the text has no such part.
    """
    sides = {item.stream: item.weights.shape[2:] for item in attention.maps}
    grids = grids_of(sides, region, None)
    maps = tuple(_cut_map(item, grids[item.stream]) for item in attention.maps)
    notes = (region_note(grid, sides[stream]) for stream, grid in grids.items())
    projections = {
        stream: _cut_vectors(one, grids[stream]) for stream, one in attention.projections.items()
    }
    part = attention.with_maps(maps, notes=[*filter(None, dict.fromkeys(notes))])
    return replace(part, projections=projections)


def _cut_map(item: AttentionMap, grid: PooledGrid) -> AttentionMap:
    rows, columns = (slice(one.start, one.stop) for one in (grid.queries, grid.keys))
    return item.with_weights(
        item.weights[:, :, rows, columns],
        query_tokens=item.query_tokens[rows],
        key_tokens=item.key_tokens[columns],
        starts=(rows.start, columns.start),
    )


def _cut_vectors(vectors: Projections, grid: PooledGrid) -> Projections:
    rows, columns = (slice(one.start, one.stop) for one in (grid.queries, grid.keys))
    return replace(
        vectors,
        query=vectors.query[:, :, rows],
        key=vectors.key[:, :, columns],
        value=None if vectors.value is None else vectors.value[:, :, columns],
    )
