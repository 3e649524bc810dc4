"""Which formats hold which kind of data; and data other than maps in all of them.

A command gives its data in some forms; a format writes one of them, whatever the data are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from attnviz.core.errors import UsageError, did_you_mean
from attnviz.core.registry import DATA_KINDS, FORMATS, PICTURE_SUFFIXES, DataKind, Format
from attnviz.renderers import Display, Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Given = ParamSpec("Given")
Made = TypeVar("Made")
"""What can measure texts, the best first."""


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


def as_bytes(part: str | bytes) -> bytes:
    """Text as UTF-8; bytes as they are."""
    return part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace")


def picture_suffix(path: Path, picture: str = "") -> str:
    """The suffix, which must name a kind of picture; the picture "gif" is one that moves.

    Raises:
        UsageError: it names none.
    """
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


class TextReport:
    """Tables, one below the other."""

    def __init__(self, display: Display) -> None:
        self.display, self.count = display, 0

    def add(self, data: Data, views: Views) -> str | bytes:
        """What to write for one more."""
        self.count += 1
        return _form(data.text)(self.display)

    def finish(self) -> str:
        """What to write once all are through."""
        return ""


class JsonLinesReport(TextReport):
    """A document a line."""

    def add(self, data: Data, views: Views) -> str:
        """The document on one line; or a line for each of its texts."""
        if data.lines is not None:
            return data.lines()
        import json

        from attnviz.storage.documents import dump_json

        return dump_json(json.loads(_form(data.document)())) + "\n"


class JsonReport(TextReport):
    """One document; of an input that may hold several a list, however many came."""

    def add(self, data: Data, views: Views) -> str:
        """The document, behind what joins it to the one before."""
        self.count += 1
        document = _form(data.document)()
        if not self.display.many:
            return document
        return ("[" if self.count == 1 else ",\n") + document.rstrip("\n")

    def finish(self) -> str:
        """The list's end."""
        if not self.display.many:
            return ""
        return "]\n" if self.count else "[]\n"


class TsvReport(TextReport):
    """Rows, tab-separated, behind one header."""

    def add(self, data: Data, views: Views) -> str:
        """The rows."""
        self.count += 1
        rows = _form(data.rows)()
        return self._spelt(rows if self.count == 1 else rows.partition("\n")[2])

    def _spelt(self, rows: str) -> str:
        return rows


class CsvReport(TsvReport):
    """Rows, comma-separated, quoted where needed."""

    def _spelt(self, rows: str) -> str:
        import csv
        import io

        file = io.StringIO()
        lines = (line.split("\t") for line in rows.split("\n")[:-1])
        csv.writer(file, lineterminator="\n").writerows(lines)
        return file.getvalue()


class NpzReport(TextReport):
    """One archive."""

    def add(self, data: Data, views: Views) -> bytes:
        """The archive."""
        return _form(data.arrays)()


class PharaohReport(TextReport):
    """A line of links a pair: 0-0 2-1."""

    def add(self, data: Data, views: Views) -> str:
        """The pair's line."""
        return _form(data.links)()


class TextGridReport(TextReport):
    """One TextGrid."""

    def add(self, data: Data, views: Views) -> str:
        """All of it."""
        return _form(data.textgrid)()


class VttReport(TextReport):
    """One WebVTT file."""

    def add(self, data: Data, views: Views) -> str:
        """All of it."""
        return _form(data.vtt)()


def _form(form: Callable[Given, Made] | None) -> Callable[Given, Made]:
    if form is None:
        raise UsageError("this data cannot be written in this format: choose -f json")
    return form
