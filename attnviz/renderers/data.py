r"""Maps as data: tidy tables, JSON and .npz.

A token may hold anything, so tables escape backslash, tab, line breaks, control and direction
characters as `\\`, `\t`, `\n`, `\r` and `\u202e`: a row is always one line, and no field can style
a terminal.
"""

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.renderers import Display, Views
from attnviz.storage import documents
from attnviz.storage.archive import ArchiveWriter
from attnviz.storage.columns import columns_of

_ESCAPED = re.compile(rf"[\\\x00-\x1f{documents.HIDDEN}]")
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


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
            texts = documents.round_weights(weights, digits).astype(str)
            texts[np.isnan(weights)] = ""
            for query, row in zip(queries, texts.tolist(), strict=True):
                for key, weight in zip(keys, row, strict=True):
                    yield (*place, *query, *key, weight)


def forms_of_maps(attention: Attention, views: Views, digits: int | None) -> dict[str, Any]:
    """The forms of one text's maps that do not depend on the texts before."""

    def document() -> str:
        whole = documents.to_document(attention, digits)
        if views.sinks is not None:
            whole["sinks"] = asdict(views.sinks)
        return documents.dump_json(whole) + "\n"

    def rows() -> str:
        lines = [columns_of("maps"), *weight_rows(attention, digits)]
        return "".join("\t".join(line) + "\n" for line in lines)

    def line() -> bytes:
        return documents.dump_line(documents.to_document(attention, digits))

    return {"rows": rows, "document": document, "lines": line}


class NpzRenderer:
    """All texts in one archive, which is complete after `finish`."""

    def __init__(self, display: Display) -> None:
        self.writer = ArchiveWriter()

    def add(self, attention: Attention, views: Views) -> bytes:
        return self.writer.add(attention)

    def finish(self) -> bytes:
        return self.writer.finish()


def npz_bytes(**members: Any) -> bytes:
    """The members of an .npz archive as its bytes."""
    file = io.BytesIO()
    np.savez_compressed(file, **members)
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"attnviz"  # by which the file is known
    return file.getvalue()
