r"""Maps as data: tidy tables of one weight a row, JSON, .npz and Parquet.

A token may hold anything, so tables escape backslash, tab, line breaks, control and direction
characters as `\\`, `\t`, `\n`, `\r` and `\u202e`: a row is always one line, and no field can style
a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.renderers import Display, Views
from attnviz.renderers.reports import csv_text, json_list_end, json_list_part
from attnviz.storage.archive import ArchiveWriter
from attnviz.storage.documents import HIDDEN, dump_json, dump_line, to_document
from attnviz.storage.parquet import ParquetWriter

SCHEMA = 1
"""The version of the JSON documents of reports."""
_CELL = ("query_position", "query_token", "key_position", "key_token", "weight")
COLUMNS = ("id", "stream", "layer", "head", *_CELL)
_ESCAPED = re.compile(rf"[\\\x00-\x1f{HIDDEN}]")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape(text: str) -> str:
    r"""The text on one line without control characters: `\t`, `\n`, `\\`, `\u001b`."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), text)


def tsv(lines: Iterable[Iterable[str]]) -> str:
    """Lines of fields, tab-separated."""
    return "".join("\t".join(map(escape, line)) + "\n" for line in lines)


def report_json(kind: str, **parts: Any) -> str:
    """The JSON document of a kind of report."""
    return dump_json({"schema": SCHEMA, "kind": kind, **parts}) + "\n"


def weight_rows(attention: Attention) -> Iterator[tuple[str, ...]]:
    """A row for each weight of each map: layer by layer, head by head, query by query."""
    name = escape(attention.id)
    for item in attention.maps:
        yield from ((name, escape(item.stream), *row) for row in _map_rows(item))


def _map_rows(item: AttentionMap) -> Iterator[tuple[str, ...]]:
    queries, keys = (
        [
            (str(item.position(axis, place)), escape(token.text))
            for place, token in enumerate(tokens)
        ]
        for axis, tokens in enumerate((item.query_tokens, item.key_tokens))
    )
    heads = [escape(head) for head in item.heads]
    for layer, of_layer in zip(map(escape, item.layers), item.weights, strict=True):
        for head, of_head in zip(heads, of_layer, strict=True):
            # astype(str) gives the shortest text from which each float32 can be read back.
            texts = of_head.astype(str)
            texts[np.isnan(of_head)] = ""
            for query, row in zip(queries, texts.tolist(), strict=True):
                for key, weight in zip(keys, row, strict=True):
                    yield (layer, head, *query, *key, weight)


class TsvRenderer:
    """Tab-separated, without quotes."""

    def __init__(self, display: Display) -> None:
        self.started = display.begun

    def add(self, attention: Attention, views: Views) -> str:
        """The text's rows, under the header if they are the first."""
        return self.finish() + self._join(weight_rows(attention))

    def finish(self) -> str:
        """The header, unless it has been written."""
        started, self.started = self.started, True
        return "" if started else self._join([COLUMNS])

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
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""


class JsonLinesRenderer(NoRenderer):
    """One document a line for each text."""

    def add(self, attention: Attention, views: Views) -> bytes:
        """The text's line."""
        return dump_line(to_document(attention))


class JsonRenderer:
    """One document for one text; for an input that may hold several, a list."""

    def __init__(self, display: Display) -> None:
        self.many = display.many
        self.count = 0

    def add(self, attention: Attention, views: Views) -> str:
        """The text's document."""
        self.count += 1
        document = dump_json(to_document(attention))
        return json_list_part(document, self.count) if self.many else document + "\n"

    def finish(self) -> str:
        """The end of the list."""
        return json_list_end(self.count) if self.many else ""


class NpzRenderer:
    """All texts in one archive, which is complete after `finish`."""

    def __init__(self, display: Display) -> None:
        self.writer = ArchiveWriter()

    def add(self, attention: Attention, views: Views) -> bytes:
        """The text's weights."""
        return self.writer.add(attention)

    def finish(self) -> bytes:
        """The list of texts and the archive's end."""
        return self.writer.finish()


class ParquetRenderer:
    """One row for each text, written in groups."""

    def __init__(self, display: Display) -> None:
        self.writer = ParquetWriter()
        self.record = display.first

    def add(self, attention: Attention, views: Views) -> bytes:
        """A group of rows if the text completes one."""
        self.record += 1
        return self.writer.add(attention, self.record - 1)

    def skip(self) -> None:
        """Count a record that yielded no attention."""
        self.record += 1

    def finish(self) -> bytes:
        """The last rows and the end of the file."""
        return self.writer.finish()
