"""What late interaction says of a query and a document, as data, a table and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import set_cell_size
from rich.text import Text

from attnviz.core.attention_map import SIMILARITY, Attention, AttentionMap, Provenance
from attnviz.core.records import asdict, dataclass
from attnviz.core.tokens import token_label
from attnviz.features.match.encoder import EncodedSide
from attnviz.renderers import NO_VIEWS, Display
from attnviz.renderers.data import NpzRenderer, forms_of_maps, tsv
from attnviz.renderers.printable import all_digits, printable, shorten, two_digits
from attnviz.renderers.reports import Data, draw_by
from attnviz.renderers.text.console import color_cell, introduction, render_parts, wrap_text
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json

READING = (
    "cosine similarity of each query token (row) to each document token, from −1 to 1; this is "
    "similarity, not attention"
)
UNIT = "cosine similarity (not attention)"
CARRIERS, NAMED = 8, 24  # document tokens that are named, and the cells of a name


@dataclass(frozen=True, slots=True, eq=False)
class MatchReport:
    """A query and a document, token by token.

    Attributes:
        attention: the map of similarities, stream "similarity", rows the query's tokens.
        score: the sum over rows of the largest similarity of each (MaxSim).
        best: for each row the column of that similarity; the first of equal ones.
    """

    attention: Attention
    score: float
    best: tuple[int, ...]

    @property
    def similarities(self) -> NDArray[np.float32]:
        """Shape (query tokens, document tokens), from −1 to 1."""
        matrix: NDArray[np.float32] = self.attention.main.weights[0, 0]
        return matrix

    @property
    def carriers(self) -> list[tuple[int, float, int]]:
        """Columns that are the best of some row: sum of these similarities, count of rows.

        The largest sum comes first.
        """
        sums = dict[int, float]()
        for row, column in enumerate(self.best):
            sums[column] = sums.get(column, 0.0) + float(self.similarities[row, column])
        order = sorted(sums, key=lambda column: -sums[column])
        return [(column, sums[column], self.best.count(column)) for column in order]


def match_of(
    query: EncodedSide, document: EncodedSide, provenance: Provenance, id_: str = "0"
) -> MatchReport:
    """The report on a query and a document."""
    similarities = np.clip(query.vectors @ document.vectors.T, -1, 1)
    largest = similarities.max(axis=1)
    score = float(largest.sum(dtype=np.float64))
    item = AttentionMap(
        SIMILARITY,
        query.tokens,
        document.tokens,
        similarities[None, None],
        layers=("last",),
        heads=("cosine",),
        values="signed",
        unit=UNIT,
        query_side="target",
        key_side="source",
    )
    attention = Attention(
        (item,), provenance, source=document.text, target=query.text, id=id_
    ).with_maps((item,), notes=(*query.notes, *document.notes), settings={"score": score})
    return MatchReport(attention, score, tuple(map(int, similarities.argmax(axis=1))))


def match_data(report: MatchReport, page: Any = None) -> Data:
    """The report in every form; as data it is a map like any other."""
    attention = report.attention

    def arrays() -> bytes:
        writer = NpzRenderer(Display())
        return writer.add(attention, NO_VIEWS) + writer.finish()

    return Data(
        text=partial(match_table, report),
        arrays=arrays,
        figures={"heatmap": partial(draw_by, "attnviz.features.match.picture:heatmap", report)},
        page=page,
        about=json.dumps(asdict(attention.provenance)),
        value=report,
        notes=attention.provenance.notes,
        **forms_of_maps(attention, NO_VIEWS, None),
    )


def match_table(report: MatchReport, show: Display) -> str:
    """The score, what carries it, and a line for each query token with its best document token."""
    item, similarities = report.attention.main, report.similarities
    names = [printable(token_label(item.key_tokens, n)) for n in range(len(item.key_tokens))]
    caption = f"{report.attention.provenance.title} · late interaction"
    parts: list[Any] = introduction(printable(caption), READING, show.width)
    rows = len(report.best)
    score = f"score {report.score:.4f}: the sum of the largest similarity in each of {rows} rows"
    carriers = [
        f"{names[column]} {value:.2f}" + (f" ({count} rows)" if count > 1 else "")
        for column, value, count in report.carriers
    ]
    carrier_line = " · ".join(carriers[:CARRIERS])
    if len(carriers) > CARRIERS:
        carrier_line += f" · {len(carriers) - CARRIERS} more"
    parts += wrap_text(score, show.width, "bold")
    parts += [*wrap_text(f"from: {carrier_line}", show.width), Text()]
    queries = [printable(token.text) for token in item.query_tokens]
    wide = min(max(map(len, [*queries, "query"])), NAMED)
    second = min(max(map(len, [*names, "document"])), NAMED)
    head = f"{set_cell_size('query', wide)}   max  {set_cell_size('document', second)}"
    parts.append(Text(f"{head}  next", "dim"))
    for row, name in enumerate(queries):
        best, largest = report.best[row], similarities[row]
        line = Text(set_cell_size(shorten(name, wide), wide) + " ")
        cell = f"{two_digits(largest[best]):>5}"
        line.append_text(color_cell(cell, largest[best], (-1, 1)) if show.colors else Text(cell))
        line.append(f"  {set_cell_size(shorten(names[best], second), second)}")
        if len(names) > 1:
            after = int(np.argsort(-largest, kind="stable")[1])
            line.append(f"  {shorten(names[after], NAMED)} {two_digits(largest[after])}", "dim")
        parts.append(line)
    return render_parts(parts, show)


def ranking_data(query: str, reports: Sequence[MatchReport], provenance: Provenance) -> Data:
    """Documents by score, the largest first."""
    order = sorted(reports, key=lambda one: -one.score)
    rows = [
        (place, one.score, one.attention.id, one.attention.source or "")
        for place, one in enumerate(order, 1)
    ]

    def table(show: Display) -> str:
        caption = f"{provenance.title} · {len(rows)} documents by late interaction with the query"
        reading = "score: the sum over query tokens of the largest cosine similarity"
        parts: list[Any] = introduction(printable(caption), reading, show.width)
        wide = max([2, *(len(printable(row[2])) for row in rows)])
        parts.append(Text(f"rank    score  {set_cell_size('id', wide)}  document", "dim"))
        for rank, score, id_, text in rows:
            name = set_cell_size(printable(id_), wide)
            line = f"{rank:>4}  {score:>7.4f}  {name}  {printable(text)}"
            parts.append(Text(shorten(line, show.width)))
        return render_parts(parts, show)

    columns = columns_of("ranking")
    lines = [columns, *((str(r), all_digits(s), i, t) for r, s, i, t in rows)]
    documents = [dict(zip(columns, row, strict=True)) for row in rows]
    about = {"query": query, "provenance": asdict(provenance)}
    return Data(
        text=table,
        rows=lambda: tsv(lines),
        document=lambda: report_json("ranking", **about, documents=documents),
        value=tuple(order),
        notes=provenance.notes,
    )
