r"""Maps and corpora as data: tidy tables, JSON, .npz, and maps as Parquet.

A token may hold anything, so tables escape backslash, tab, line breaks, control and direction
characters as `\\`, `\t`, `\n`, `\r` and `\u202e`: a row is always one line, and no field can style
a terminal.
"""

import io
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.core.corpus_report import CorpusReport, Pair, StreamReport, TopExample
from attnviz.core.effects import PruneCurve
from attnviz.core.measures import mass_note
from attnviz.renderers import Display, Views
from attnviz.renderers.printable import six_digits
from attnviz.renderers.reports import JsonReport, csv_text
from attnviz.storage.archive import ArchiveWriter
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import (
    HIDDEN,
    dump_json,
    dump_line,
    report_json,
    round_weights,
    to_document,
)
from attnviz.storage.parquet import ParquetWriter

_ESCAPED = re.compile(rf"[\\\x00-\x1f{HIDDEN}]")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
Example = TypeVar("Example", Pair, TopExample)
_Rows = Iterator[tuple[Any, ...]]


def escape(text: str) -> str:
    r"""The text on one line without control characters: `\t`, `\n`, `\\`, `\u001b`."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), text)


def tsv(lines: Iterable[Iterable[str]]) -> str:
    """Lines of fields, tab-separated."""
    return "".join("\t".join(map(escape, line)) + "\n" for line in lines)


def fields_of(value: Any, names: str) -> dict[str, Any]:
    """Some fields of a report by name, for a document."""
    return {name: getattr(value, name) for name in names.split()}


def weight_rows(attention: Attention, digits: int | None = None) -> Iterator[tuple[str, ...]]:
    """A row for each weight of each map: layer by layer, head by head, query by query."""
    for item in attention.maps:
        queries, keys = (
            [(str(item.position(axis, i)), escape(token.text)) for i, token in enumerate(tokens)]
            for axis, tokens in enumerate((item.query_tokens, item.key_tokens))
        )
        for layer, head in np.ndindex(item.weights.shape[:2]):
            names = (attention.id, item.stream, *item.place(layer, head))
            place, weights = tuple(map(escape, names)), item.weights[layer, head]
            # astype(str) gives the shortest text from which each float32 can be read back.
            texts = round_weights(weights, digits).astype(str)
            texts[np.isnan(weights)] = ""
            for query, row in zip(queries, texts.tolist(), strict=True):
                for key, weight in zip(keys, row, strict=True):
                    yield (*place, *query, *key, weight)


class TsvRenderer:
    """Tab-separated, without quotes."""

    def __init__(self, display: Display) -> None:
        self.digits = display.digits
        self.header = "" if display.begun else self._join([columns_of("maps")])

    def add(self, attention: Attention, views: Views) -> str:
        return self.finish() + self._join(weight_rows(attention, self.digits))

    def finish(self) -> str:
        header, self.header = self.header, ""
        return header

    def _join(self, lines: Iterable[tuple[str, ...]]) -> str:
        return "".join("\t".join(line) + "\n" for line in lines)


class CsvRenderer(TsvRenderer):
    """Comma-separated, quoted where needed."""

    def _join(self, lines: Iterable[tuple[str, ...]]) -> str:
        return csv_text(lines)


class NoRenderer:
    """Writes nothing."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: Views) -> str | bytes:
        return ""

    def finish(self) -> str | bytes:
        return ""


class JsonLinesRenderer(NoRenderer):
    """One document a line for each text."""

    def __init__(self, display: Display) -> None:
        self.digits = display.digits

    def add(self, attention: Attention, views: Views) -> bytes:
        return dump_line(to_document(attention, self.digits))


class JsonRenderer(JsonReport):
    """One document for one text, a list for several."""

    def add(self, data: Attention, views: Views) -> str | bytes:
        self.count += 1
        document = to_document(data, self.display.digits)
        if views.sinks is not None:
            document["sinks"] = asdict(views.sinks)
        return self._join(dump_json(document) + "\n")


class NpzRenderer:
    """All texts in one archive, which is complete after `finish`."""

    def __init__(self, display: Display) -> None:
        self.writer = ArchiveWriter()

    def add(self, attention: Attention, views: Views) -> bytes:
        return self.writer.add(attention)

    def finish(self) -> bytes:
        return self.writer.finish()


class ParquetRenderer:
    """One row for each text, written in groups."""

    def __init__(self, display: Display) -> None:
        self.writer = ParquetWriter()
        self.record = display.first

    def add(self, attention: Attention, views: Views) -> bytes:
        self.record += 1
        return self.writer.add(attention, self.record - 1)

    def skip(self) -> None:
        self.record += 1

    def finish(self) -> bytes:
        return self.writer.finish()


def corpus_tsv(report: CorpusReport, show: str) -> str:
    """One table with a header and a line for each head and item of a kind in `SHOWS`."""
    header, rows_of = SHOWS[show]
    lines: list[Iterable[str]] = [("stream", "layer", "head", *header)]
    for stream in report.streams:
        for row in rows_of(stream):
            fields = (six_digits(x) if isinstance(x, float) else str(x) for x in row)
            lines.append((stream.stream, *fields))
    return tsv(lines)


def head_places(stream: StreamReport) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Layer, head and place in the arrays of each head, in the report's order."""
    for row in stream.rows:
        place = stream.layers.index(row.layer), stream.heads.index(row.head)
        yield row.layer, row.head, place


def _measures(stream: StreamReport) -> _Rows:
    arrays = (stream.mean, stream.deviation, stream.low, stream.high, stream.uniform)
    for layer, head, place in head_places(stream):
        for number, meaning in enumerate(stream.measures):
            at = (number, *place)
            numbers = (float(array[at]) for array in arrays)
            yield layer, head, meaning.name, *numbers, int(stream.texts[at])


def _positions(stream: StreamReport) -> _Rows:
    first, last = stream.offsets[0], stream.offsets[-1]
    for layer, head, place in head_places(stream):
        shares = [float(share) for share in stream.offset_shares[(slice(None), *place)]]
        if first:  # no distance is below 0
            yield layer, head, f"<{first}", math.nan, shares[0]
        for number, offset in enumerate(stream.offsets):
            mean = float(stream.by_offset[(number, *place)])
            yield layer, head, offset, mean, shares[number + 1]
        yield layer, head, f">{last}", math.nan, shares[-1]


def _classes(stream: StreamReport) -> _Rows:
    for layer, head, place in head_places(stream):
        for number, name in enumerate(stream.classes):
            at = (number, *place)
            yield layer, head, name, float(stream.class_shares[at]), float(stream.class_even[at])


def group_by_head(items: Sequence[Example]) -> dict[tuple[str, str], list[Example]]:
    """Pairs or links by layer and head, in their order."""
    groups: dict[tuple[str, str], list[Example]] = {}
    for item in items:
        groups.setdefault((item.layer, item.head), []).append(item)
    return groups


def _pairs(stream: StreamReport) -> _Rows:
    pairs = group_by_head(stream.pairs)
    for layer, head, _ in head_places(stream):
        for pair in pairs.get((layer, head), ()):
            yield layer, head, pair.query, pair.key, pair.mean, pair.count


def _links(stream: StreamReport) -> _Rows:
    firings = group_by_head(stream.firings)
    for layer, head, _ in head_places(stream):
        for item in firings.get((layer, head), ()):
            text = " ||| ".join(item.texts)
            yield layer, head, item.rank, item.weight, item.query, item.key, item.id, text


SHOWS: dict[str, tuple[tuple[str, ...], Callable[[StreamReport], _Rows]]] = {
    "measures": (("measure", "mean", "sd", "low", "high", "uniform", "texts"), _measures),
    "positions": (("offset", "mean", "share"), _positions),
    "classes": (("class", "share", "uniform"), _classes),
    "pairs": (("query", "key", "mean", "count"), _pairs),
    "links": (("rank", "weight", "query", "key", "id", "text"), _links),
}
"""The kinds of tables: their columns behind stream, layer and head, and the function of rows."""


def corpus_json(report: CorpusReport) -> str:
    """Everything, stream by stream and head by head, with the tables of `SHOWS` for each head."""
    streams = [_stream_document(stream) for stream in report.streams]
    return report_json("corpus", **_head(report), **_curve(report.curve), streams=streams)


def _curve(curve: PruneCurve | None) -> dict[str, Any]:
    if curve is None:
        return {}
    orders = []
    for name, order, losses in zip(curve.names, curve.orders, curve.losses.tolist(), strict=True):
        orders.append({"by": name, "heads": order, "losses": losses})
    about = {"unit": "nats per output", "texts": curve.texts, "off": list(curve.off)}
    return {"prune_curve": {**about, "orders": orders}}


def _head(report: CorpusReport) -> dict[str, Any]:
    names = "caption texts failed interval fewest provenance notes"
    return fields_of(report, names)


def _stream_document(stream: StreamReport) -> dict[str, Any]:
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


_OF_MEASURES = ("mean", "deviation", "low", "high", "uniform", "texts")
ARRAYS = (*_OF_MEASURES, "by_offset", "offset_shares", "class_shares", "class_even")


def corpus_npz(report: CorpusReport) -> bytes:
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


def npz_bytes(**members: Any) -> bytes:
    """The members of an .npz archive as its bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, **members)
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"attnviz"  # by which the file is known
    return file.getvalue()
