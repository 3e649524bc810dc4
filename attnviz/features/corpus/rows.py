"""Every head over a corpus, as rows, as JSON and as arrays."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from attnviz.core.measures import mass_note
from attnviz.features.corpus import results
from attnviz.renderers.data import fields_of, npz_bytes, tsv
from attnviz.renderers.printable import six_digits
from attnviz.storage.documents import report_json

_Rows = Iterator[tuple[Any, ...]]


def corpus_tsv(report: results.CorpusReport, show: str) -> str:
    """One table with a header and a line for each head and item of a kind in `SHOWS`."""
    header, rows_of = SHOWS[show]
    lines: list[Iterable[str]] = [("stream", "layer", "head", *header)]
    for stream in report.streams:
        for row in rows_of(stream):
            fields = (six_digits(x) if isinstance(x, float) else str(x) for x in row)
            lines.append((stream.stream, *fields))
    return tsv(lines)


def _measures(stream: results.StreamReport) -> _Rows:
    arrays = (stream.mean, stream.deviation, stream.low, stream.high, stream.uniform)
    for layer, head, place in results.head_places(stream):
        for number, meaning in enumerate(stream.measures):
            at = (number, *place)
            numbers = (float(array[at]) for array in arrays)
            yield layer, head, meaning.name, *numbers, int(stream.texts[at])


def _positions(stream: results.StreamReport) -> _Rows:
    first, last = stream.offsets[0], stream.offsets[-1]
    for layer, head, place in results.head_places(stream):
        shares = [float(share) for share in stream.offset_shares[(slice(None), *place)]]
        if first:  # no distance is below 0
            yield layer, head, f"<{first}", math.nan, shares[0]
        for number, offset in enumerate(stream.offsets):
            mean = float(stream.by_offset[(number, *place)])
            yield layer, head, offset, mean, shares[number + 1]
        yield layer, head, f">{last}", math.nan, shares[-1]


def _classes(stream: results.StreamReport) -> _Rows:
    for layer, head, place in results.head_places(stream):
        for number, name in enumerate(stream.classes):
            at = (number, *place)
            yield layer, head, name, float(stream.class_shares[at]), float(stream.class_even[at])


def _pairs(stream: results.StreamReport) -> _Rows:
    pairs = results.group_by_head(stream.pairs)
    for layer, head, _ in results.head_places(stream):
        for pair in pairs.get((layer, head), ()):
            yield layer, head, pair.query, pair.key, pair.mean, pair.count


def _links(stream: results.StreamReport) -> _Rows:
    firings = results.group_by_head(stream.firings)
    for layer, head, _ in results.head_places(stream):
        for item in firings.get((layer, head), ()):
            text = " ||| ".join(item.texts)
            yield layer, head, item.rank, item.weight, item.query, item.key, item.id, text


def corpus_json(report: results.CorpusReport) -> str:
    """Everything, stream by stream and head by head, with the tables of `SHOWS` for each head."""
    streams = [_stream_document(stream) for stream in report.streams]
    return report_json("corpus", **_head(report), **_curve(report.curve), streams=streams)


def _curve(curve: results.PruneCurve | None) -> dict[str, Any]:
    if curve is None:
        return {}
    orders = []
    for name, order, losses in zip(curve.names, curve.orders, curve.losses.tolist(), strict=True):
        orders.append({"by": name, "heads": order, "losses": losses})
    about = {"unit": "nats per output", "texts": curve.texts, "off": list(curve.off)}
    return {"prune_curve": {**about, "orders": orders}}


def _head(report: results.CorpusReport) -> dict[str, Any]:
    names = "caption texts failed interval fewest provenance notes"
    return fields_of(report, names)


def _stream_document(stream: results.StreamReport) -> dict[str, Any]:
    heads: dict[tuple[str, str], dict[str, Any]] = {
        (row.layer, row.head): {
            **fields_of(row, "layer head roles"),
            **{show: [] for show in SHOWS},
        }
        for row in stream.rows
    }
    for show, (names, rows_of) in SHOWS.items():
        for layer, head, *values in rows_of(stream):
            heads[layer, head][show].append(dict(zip(names, values, strict=True)))
    fields = fields_of(stream, "stream tokens paired measures")
    return fields | {"note": mass_note(stream.measures), "heads": list(heads.values())}


def corpus_npz(report: results.CorpusReport) -> bytes:
    """Arrays whose last axes are (layers, heads), readable without pickle.

    The arrays of stream s are "s/mean", "s/deviation", … (`ARRAYS`). Member "attnviz" is a JSON
    text with the names of their axes, the pairs and the links.
    """
    members: dict[str, Any] = {}
    streams = []
    for number, stream in enumerate(report.streams):
        members |= {f"{number}/{name}": getattr(stream, name) for name in ARRAYS}
        axes = "stream layers heads tokens offsets classes paired"
        streams.append(fields_of(stream, f"{axes} measures pairs firings"))
    about = report_json("corpus", **_head(report), streams=streams).rstrip()
    return npz_bytes(**members, attnviz=np.array(about))


SHOWS: dict[str, tuple[tuple[str, ...], Callable[[results.StreamReport], _Rows]]] = {
    "measures": (("measure", "mean", "sd", "low", "high", "uniform", "texts"), _measures),
    "positions": (("offset", "mean", "share"), _positions),
    "classes": (("class", "share", "uniform"), _classes),
    "pairs": (("query", "key", "mean", "count"), _pairs),
    "links": (("rank", "weight", "query", "key", "id", "text"), _links),
}
"""The kinds of tables: their columns behind stream, layer and head, and the function of rows."""


_OF_MEASURES = ("mean", "deviation", "low", "high", "uniform", "texts")
ARRAYS = (*_OF_MEASURES, "by_offset", "offset_shares", "class_shares", "class_even")
