"""Which formats hold which kind of data; and data other than maps in all of them.

A command gives its data in some forms; a format writes one of them, whatever the data are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import UsageError, choose, did_you_mean
from attnviz.core.registry import DATA_KINDS, FORMATS, PICTURE_SUFFIXES, DataKind, Format
from attnviz.renderers import Display, Renderer, Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import Attention


def formats_of(kind: DataKind) -> dict[str, Format]:
    """The formats that can hold a kind of data, its usual one first."""
    forms = (*DATA_KINDS[kind], "nothing")
    found = {name: entry for name, entry in FORMATS.items() if entry.form in forms}
    usual = next(name for name, entry in found.items() if entry.form == forms[0])
    return {usual: found[usual], **found}


def format_of(path: Path, kind: DataKind = "maps") -> str:
    """The format that a file's suffix names, of those that can hold a kind of data."""
    formats = formats_of(kind)
    for name, entry in formats.items():
        if entry.suffix and entry.suffix == path.suffix.lower():
            return name
    known = [entry.suffix for entry in formats.values() if entry.suffix]
    raise UsageError(
        f"'{path}' names no data format: end it in {', '.join(known)}."
        f"{did_you_mean(path.suffix, known)}"
    )


def make_renderer(name: str, display: Display, kind: DataKind = "maps") -> Renderer:
    """A fresh renderer of a kind of data in a format."""
    entry = FORMATS[choose(name, FORMATS, "format")]
    made: Renderer = (entry.load() if kind == "maps" else entry.load_report())(display)
    if isinstance(made, TextReport):
        made.form = entry.form
    return made


def rendered(renderer: Renderer, results: Iterable[tuple[Any, Views]]) -> bytes:
    """All of the results, from the first byte to the last."""
    parts = [renderer.add(*result) for result in results]
    return b"".join(map(as_bytes, (*parts, renderer.finish())))


def as_bytes(part: str | bytes) -> bytes:
    """Text as UTF-8; bytes as they are."""
    return part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace")


def comma_separated(lines: Iterable[Iterable[str]]) -> str:
    """Lines of fields, quoted where needed."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def picture_suffix(path: Path, picture: str = "") -> str:
    """The suffix, which must name a kind of picture; the picture "gif" is one that moves."""
    suffix, known = path.suffix.lower(), (".gif",) if picture == "gif" else PICTURE_SUFFIXES
    if suffix not in known:
        raise UsageError(f"'{path}' names no picture: end it in {', '.join(known)}")
    return suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a command made; None where it has no such form.

    Attributes:
        text: a table for the eye.
        rows: a header and rows, tab-separated, in which no field holds a tab or a line break.
        lines: documents a line, where these are not the document.
        page: its page of HTML, for the command line that is named on it.
        about: what is kept in a picture's metadata.
        value: the report that they are made of, with its fields.
        notes: what its table says, and a reader of another format must be told.
    """

    text: Callable[[Display], str] | None = None
    rows: Callable[[], str] | None = None
    document: Callable[[], str] | None = None
    lines: Callable[[], str] | None = None
    arrays: Callable[[], bytes] | None = None
    links: Callable[[], str] | None = None
    textgrid: Callable[[], str] | None = None
    vtt: Callable[[], str] | None = None
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    page: Callable[[str], str] | None = None
    about: str = ""
    value: Any = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One result, in every form that a place may ask for.

    Attributes:
        views: what a reader is shown of maps, worked out once and only if somebody asks.
        figures: its own pictures by name; of maps the usual ones need none.
        page: makes its own page, for the command line that is named on it.
    """

    data: Attention | Data
    views: Views
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    page: Callable[[str], str] | None = None

    @property
    def attention(self) -> Attention:
        """The maps of a result that is no other data."""
        assert not isinstance(self.data, Data)
        return self.data


def data_of(
    value: Any,
    table: Callable[..., str],
    rows: Callable[[Any], str],
    document: Callable[[Any], str],
    *chosen: object,
    **more: Any,
) -> Data:
    """A value as data, by what writes it in each form; the table takes what is `chosen`, too."""
    more |= {"rows": partial(rows, value), "document": partial(document, value)}
    return Data(text=partial(table, value, *chosen), value=value, **more)


def listing(
    columns: Sequence[str], values: Sequence[Sequence[Any]], *, titled: bool = False
) -> Data:
    """Rows as data: an aligned table, tab-separated lines, JSON objects.

    Shares stay numbers in JSON; elsewhere they have three digits.
    """
    import json

    from attnviz.renderers.printable import printable

    def spelled(cell: Any) -> str:
        """A number in three digits; a name may come from a folder, which anything may be called."""
        text = f"{cell:.3f}" if isinstance(cell, float) else str(cell)
        return printable(text) if text else ""

    rows = [list(map(spelled, row)) for row in values]

    def table(display: Display) -> str:
        shown = [columns, *rows] if titled else rows
        widths = [max(map(len, column)) for column in list(zip(*shown, strict=True))[:-1]]
        return "".join(
            "  ".join([*(c.ljust(n) for c, n in zip(row, widths, strict=False)), row[-1]]) + "\n"
            for row in shown[: display.rows or None]
        ) + display.left_out(len(shown))

    def document() -> str:
        from attnviz.storage.documents import spelt

        found = [dict(zip(columns, row, strict=True)) for row in values]
        return spelt(json.dumps(found, ensure_ascii=False, indent=2)) + "\n"

    return Data(
        text=table,
        rows=lambda: "".join("\t".join(row) + "\n" for row in [columns, *rows]),
        document=document,
    )


class TextReport:
    """Tables, texts or arrays, one behind the other: the field of the data that `form` names."""

    form = "text"

    def __init__(self, display: Display) -> None:
        self.display, self.count = display, 0

    def add(self, data: Data, views: Views) -> str | bytes:
        """What to write for one more."""
        self.count += 1
        return self._join(self._made(data))  # type: ignore[no-any-return]

    def finish(self) -> str:
        """What to write once all are through."""
        return ""

    def _made(self, data: Data) -> Any:
        make = getattr(data, self.form)
        if make is None:
            raise UsageError("this data cannot be written in this format: choose -f json")
        return make(self.display) if self.form == "text" else make()

    def _join(self, made: Any) -> Any:
        """What stands there for it, behind the one before."""
        return made


class JsonReport(TextReport):
    """One document; of an input that may hold several a list, however many came."""

    def _join(self, made: str) -> str:
        if not self.display.many:
            return made
        return ("[" if self.count == 1 else ",\n") + made.rstrip("\n")

    def finish(self) -> str:
        """The list's end."""
        if not self.display.many:
            return ""
        return "]\n" if self.count else "[]\n"


class JsonLinesReport(TextReport):
    """A document a line."""

    def add(self, data: Data, views: Views) -> str:
        """The document on one line; or a line for each of its texts."""
        if data.lines is not None:
            return data.lines()
        import json

        from attnviz.storage.documents import dump_json

        return dump_json(json.loads(self._made(data))) + "\n"


class TsvReport(TextReport):
    """Rows, tab-separated, behind one header."""

    def _join(self, made: str) -> str:
        return made if self.count == 1 else made.partition("\n")[2]


class CsvReport(TsvReport):
    """Rows, comma-separated, quoted where needed."""

    def _join(self, made: str) -> str:
        return comma_separated(line.split("\t") for line in super()._join(made).split("\n")[:-1])
