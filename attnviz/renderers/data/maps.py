r"""Maps as data: tidy tables of one weight a row, JSON, .npz and Parquet.

In tables tokens may hold anything, so backslash, tab, line breaks, control and direction
characters are spelt `\\`, `\t`, `\n`, `\r` and `\u202e`: a row is always one line, and nothing in
it can style a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.renderers import Display, Views
from attnviz.renderers.reports import comma_separated
from attnviz.storage.archive import ArchiveWriter
from attnviz.storage.documents import HIDDEN, dump_json, dump_line, to_document
from attnviz.storage.parquet import ParquetWriter

SCHEMA = 1
"""Of the documents of reports."""
COLUMNS = (
    *("id", "stream", "layer", "head"),
    *("query_position", "query_token", "key_position", "key_token", "weight"),
)
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


def rows(attention: Attention) -> Iterator[tuple[str, ...]]:
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
            # astype(str) spells each float32 as shortly as it can be read back exactly.
            spelt = of_head.astype(str)
            spelt[np.isnan(of_head)] = ""
            for query, row in zip(queries, spelt.tolist(), strict=True):
                for key, weight in zip(keys, row, strict=True):
                    yield (layer, head, *query, *key, weight)


class TsvRenderer:
    """Tab-separated, without quotes."""

    def __init__(self, display: Display) -> None:
        self.started = display.begun

    def add(self, attention: Attention, views: Views) -> str:
        """The text's rows, behind the header if they are the first."""
        header = "" if self.started else self._join([COLUMNS])
        self.started = True
        return header + self._join(rows(attention))

    def finish(self) -> str:
        """The header alone where no text came."""
        return "" if self.started else self._join([COLUMNS])

    def _join(self, lines: Iterable[tuple[str, ...]]) -> str:
        return "".join("\t".join(line) + "\n" for line in lines)


class CsvRenderer(TsvRenderer):
    """Comma-separated, quoted where needed."""

    def _join(self, lines: Iterable[tuple[str, ...]]) -> str:
        return comma_separated(lines)


class NoRenderer:
    """Says nothing."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: Views) -> str | bytes:
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""


class JsonLinesRenderer(NoRenderer):
    """A document a line, a line a text."""

    def add(self, attention: Attention, views: Views) -> bytes:
        """The text's line."""
        return dump_line(to_document(attention))


class JsonRenderer:
    """One document for one text; for an input that may hold several, a list, however many came."""

    def __init__(self, display: Display) -> None:
        self.many = display.many
        self.count = 0

    def add(self, attention: Attention, views: Views) -> str:
        """The text's document, behind what joins it to the one before."""
        self.count += 1
        joint = ("[" if self.count == 1 else ",\n") if self.many else ""
        return joint + dump_json(to_document(attention)) + ("" if self.many else "\n")

    def finish(self) -> str:
        """The list's end."""
        if not self.many:
            return ""
        return "]\n" if self.count else "[]\n"


class NpzRenderer:
    """All texts in one archive, which can be read once its end is written."""

    def __init__(self, display: Display) -> None:
        self.writer = ArchiveWriter()

    def add(self, attention: Attention, views: Views) -> bytes:
        """The text's weights."""
        return self.writer.add(attention)

    def finish(self) -> bytes:
        """The list of texts and the archive's end."""
        return self.writer.finish()


class ParquetRenderer:
    """One row a text; rows are written in groups."""

    def __init__(self, display: Display) -> None:
        self.writer = ParquetWriter()
        self.record = display.first

    def add(self, attention: Attention, views: Views) -> bytes:
        """A group of rows, where the text's completes one."""
        self.record += 1
        return self.writer.add(attention, self.record - 1)

    def skip(self) -> None:
        """A record came to nothing: the next one's number is one more."""
        self.record += 1

    def finish(self) -> bytes:
        """The last rows and the end of the file."""
        return self.writer.finish()
