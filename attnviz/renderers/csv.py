r"""Tidy tables, one weight a row: comma- or tab-separated.

Tokens may hold anything, so backslash, tab, line breaks, control and direction characters are
spelt `\\`, `\t`, `\n`, `\r` and `\u202e` in both: a row is always one line, and nothing in it can
style a terminal.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

from attnviz.attention_map import Attention, AttentionMap
from attnviz.renderers import Display, Views
from attnviz.storage.json import HIDDEN

COLUMNS = (
    "id",
    "stream",
    "layer",
    "head",
    "query_position",
    "query_token",
    "key_position",
    "key_token",
    "weight",
)
_ESCAPED = re.compile(rf"[\\\x00-\x1f{HIDDEN}]")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape(text: str) -> str:
    r"""The text on one line without control characters: `\t`, `\n`, `\\`, `\u001b`."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), text)


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
            for query, row in zip(queries, of_head.astype(str).tolist(), strict=True):
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
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(lines)
        return file.getvalue()
