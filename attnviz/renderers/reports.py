"""Which formats can hold which kind of data; and the formats of reports, which are not maps.

A report comes in several forms (text, rows, a document, …); a format writes one of these forms.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import UsageError, choose, did_you_mean
from attnviz.core.records import asdict, dataclass, field, replace
from attnviz.core.registry import FORMATS, DataKind, Form, Format
from attnviz.renderers import DATA_KINDS, PICTURE_SUFFIXES, Display, Renderer, Views
from attnviz.storage.columns import columns_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import Attention


def formats_of(kind: DataKind) -> dict[str, Format]:
    """The formats that can hold a kind of data, the usual one first."""
    forms = (*DATA_KINDS[kind][1], "nothing")
    formats = {name: entry for name, entry in FORMATS.items() if entry.form in forms}
    usual = next(name for name, entry in formats.items() if entry.form == forms[0])
    return {usual: formats[usual], **formats}


def format_of(path: Path, kind: DataKind = "maps") -> str:
    formats = formats_of(kind)
    for name, entry in formats.items():
        if entry.suffix and entry.suffix == path.suffix.lower():
            return name
    suffixes = [entry.suffix for entry in formats.values() if entry.suffix]
    raise UsageError(
        f"'{path}' names no data format: end it in {', '.join(suffixes)}."
        f"{did_you_mean(path.suffix, suffixes)}"
    )


def make_renderer(name: str, display: Display, kind: DataKind = "maps") -> Renderer:
    entry = FORMATS[choose(name, FORMATS, "format")]
    if display.fields and name in CUT:
        return CutReport(display, name, kind)
    kind_of = entry.load() if kind == "maps" else entry.load_report()
    renderer: Renderer = kind_of(display, *([entry.form] if kind_of is TextReport else []))
    if isinstance(renderer, TsvReport) and kind != "maps":
        renderer.header = ()
    return renderer


def render_all(renderer: Renderer, results: Iterable[tuple[Any, Views]]) -> bytes:
    """All results as one file."""
    parts = [renderer.add(*result) for result in results]
    return b"".join(map(as_bytes, (*parts, renderer.finish())))


def as_bytes(part: str | bytes) -> bytes:
    """Text as UTF-8; bytes unchanged."""
    return part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace")


def csv_text(lines: Iterable[Iterable[str]]) -> str:
    """Lines of fields, quoted where needed."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def picture_suffix(path: Path, picture: str = "") -> str:
    """The file's suffix, which must be that of a picture; for the picture "gif", .gif."""
    suffix, suffixes = path.suffix.lower(), (".gif",) if picture == "gif" else PICTURE_SUFFIXES
    if suffix not in suffixes:
        raise UsageError(f"'{path}' names no picture: end it in {', '.join(suffixes)}")
    return suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The forms of a command's result; None for a form that it does not have."""

    text: Callable[[Display], str] | None = None
    rows: Callable[[], str] | None = None  # tab-separated; no field has a tab or a line break
    document: Callable[[], str] | None = None
    lines: Callable[[], str | bytes] | None = None  # unless they are the document on one line
    arrays: Callable[[], bytes] | None = None
    links: Callable[[], str] | None = None
    textgrid: Callable[[], str] | None = None
    vtt: Callable[[], str] | None = None
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    page: Callable[[str], str] | None = None  # HTML that names the given command line
    about: str = ""  # for a picture's metadata
    value: Any = None  # the report itself
    notes: Sequence[str] = ()  # what its table shows, and readers of other formats must know


@dataclass(frozen=True, slots=True)
class Item:
    """One result, in every form that a place may ask for."""

    data: Attention | Data
    views: Views  # what a reader is shown of maps, worked out once and only if somebody asks
    # its own pictures by name; of maps the usual ones need none
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    page: Callable[[str], str] | None = None  # makes its own page, for this command line

    @property
    def attention(self) -> Attention:
        """The maps of a result that is no other data."""
        assert not isinstance(self.data, Data)
        return self.data


def data_of(
    value: Any,
    table: Callable[..., str],
    rows: Callable[[Any], str],
    document: Callable[[Any], str] | str,
    *options: object,
    **more: Any,
) -> Data:
    """The forms of a value, by the functions that write them; the table also takes `options`.

    A document that holds the fields of the value is named by its kind.
    """
    from attnviz.storage.documents import dump_json, report_json

    write = partial(report_json, document) if isinstance(document, str) else document
    more |= {"rows": partial(rows, value), "document": partial(write, value)}
    if "about" not in more and hasattr(value, "provenance"):
        more["about"] = dump_json(asdict(value.provenance))
    return Data(text=partial(table, value, *options), value=value, **more)


def draw_by(name: str, *values: Any) -> Figure:
    """What "module:function" of `renderers.figures`, or of a feature, draws.

    matplotlib is loaded only now.
    """
    module, _, function = name.partition(":")
    file = import_module(module if "." in module else f"attnviz.renderers.figures.{module}")
    draw: Callable[..., Figure] = getattr(file, function)
    return draw(*values)


def listing(
    kind: str, columns: Sequence[str], values: Sequence[Sequence[Any]], *, headings: bool = False
) -> Data:
    """Rows as a table, as lines with tabs, and as JSON, where shares stay numbers."""
    from attnviz.renderers.printable import printable

    def spell(cell: Any) -> str:
        """A number in three digits; a name may come from a folder, which anything may be called."""
        text = f"{cell:.3f}" if isinstance(cell, float) else str(cell)
        return printable(text) if text else ""

    rows = [list(map(spell, row)) for row in values]

    def table(display: Display) -> str:
        lines = [columns, *rows] if headings else rows
        widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
        return "".join(
            "  ".join([*(c.ljust(n) for c, n in zip(row, widths, strict=False)), row[-1]]) + "\n"
            for row in lines[: display.rows or None]
        ) + display.more_rows_note(len(lines))

    def document() -> str:
        import json

        from attnviz.storage.documents import escape_hidden, to_report

        report = to_report(kind, rows=[dict(zip(columns, row, strict=True)) for row in values])
        # A folder's name may be no UTF-8, which orjson refuses.
        return escape_hidden(json.dumps(report, ensure_ascii=False)) + "\n"

    return Data(
        text=table,
        rows=lambda: "".join("\t".join(row) + "\n" for row in [columns, *rows]),
        document=document,
    )


class TextReport:
    """One form of each result, written one after another; maps have rows, documents and lines."""

    form: Form = "text"

    def __init__(self, display: Display, form: Form | None = None) -> None:
        self.display, self.form, self.count = display, form or self.form, 0

    def add(self, data: Any, views: Views) -> str | bytes:
        """What to write for one more result."""
        if not isinstance(data, Data):
            from attnviz.renderers.data import forms_of_maps

            data = Data(**forms_of_maps(data, views, self.display.digits))
        self.count += 1
        return self._join(self._write(data))  # type: ignore[no-any-return]

    def finish(self) -> str:
        return ""

    def _write(self, data: Any) -> Any:
        write = getattr(data, self.form)
        if write is None:
            raise UsageError("this data cannot be written in this format: choose -f json")
        return write(self.display) if self.form == "text" else write()

    def _join(self, text: Any) -> Any:
        """The text of one result, joined to the text before it."""
        return text


class NoReport(TextReport):
    """Writes nothing."""

    def _write(self, data: Any) -> str:
        return ""


class JsonReport(TextReport):
    """One document for one text, however it came; a list for several, even if some failed.

    The first waits until there is a second, or none.
    """

    form = "document"
    first = ""
    is_open = False

    def skip(self) -> None:
        """Count a text that failed."""
        self.count += 1

    def _join(self, text: str) -> str:
        if not self.display.many:
            return text
        texts = [*([self.first] if self.first else []), text.rstrip("\n")]
        if self.count == 1 and not self.display.as_list:
            (self.first,) = texts
            return ""
        before, self.is_open, self.first = ",\n" if self.is_open else "[", True, ""
        return before + ",\n".join(texts)

    def finish(self) -> str:
        if not self.display.many:
            return ""
        if self.is_open:
            return "]\n"
        return f"{self.first}\n" if self.first and self.count == 1 else f"[{self.first}]\n"


class JsonLinesReport(TextReport):
    """One document a line."""

    form = "document"

    def _write(self, data: Data) -> str | bytes:
        if data.lines is not None:
            return data.lines()
        import json

        from attnviz.storage.documents import dump_json

        return dump_json(json.loads(super()._write(data))) + "\n"


CUT = ("json", "jsonl", "tsv", "csv")
"""The formats of numbers as text: --fields cuts them, --digits rounds the weights in them."""


def check_digits(digits: int | None, formats: Iterable[str], kind: DataKind) -> None:
    """Refuse other digits than 1 to 6, and to round what is no map as text; a UsageError."""
    if digits is None:
        return
    if not 1 <= digits <= 6:
        raise UsageError(f"digits={digits} is out of range: 1 to 6")
    if kind != "maps" or not set(formats) & set(CUT):
        raise UsageError(f"--digits rounds the weights of maps in {', '.join(CUT)}: add -f json")


def parse_fields(text: str | None) -> tuple[str, ...]:
    """The names in "heads.layer,heads.values"."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise UsageError(f"--fields '{text}' names no field: write heads.layer,heads.values")
    return names


class CutReport(JsonReport):
    """The output of another renderer in a format of `CUT`, cut to the fields of --fields.

    A field of the first document, or a column, must be there; in later documents it may be null.
    """

    def __init__(self, display: Display, name: str, kind: DataKind) -> None:
        super().__init__(display)
        self.name, self.fields, self.columns = name, display.fields, list[int]()
        self.names, self.tree = dict[str, None](), dict[str, Any]()
        for field_name in self.fields:
            level = self.tree
            for part in field_name.split("."):
                level = level.setdefault(part, {})
        # The header is read though an interrupted run has written it; a list is joined here.
        many = display.many and name != "json"
        plain = replace(display, fields=(), begun=False, many=many)
        self.inner = make_renderer(name, plain, kind)

    def add(self, data: Any, views: Views) -> str:
        """The fields of one more result."""
        text = as_bytes(self.inner.add(data, views)).decode()
        if self.name in ("tsv", "csv"):
            return self._cut_rows(text)
        lines = [text] if self.name == "json" else text.splitlines()
        self.count += len(lines)
        cut = "".join(self._cut_document(line) + "\n" for line in lines)
        return self._join(cut) if self.name == "json" else cut

    def finish(self) -> str:
        """What closes the data."""
        if self.name == "json":
            return super().finish()
        text = as_bytes(self.inner.finish()).decode()
        return self._cut_rows(text) if self.name in ("tsv", "csv") else text

    def _cut_rows(self, text: str) -> str:
        tabs = self.name == "tsv"
        rows = (
            [line.split("\t") for line in text.split("\n")[:-1]]
            if tabs
            else list(csv.reader(io.StringIO(text)))
        )
        if rows and not self.columns:
            self.columns = [rows[0].index(choose(name, rows[0], "column")) for name in self.fields]
            rows = rows[1:] if self.display.begun else rows
        cut = [[row[column] for column in self.columns] for row in rows]
        return "".join("\t".join(row) + "\n" for row in cut) if tabs else csv_text(cut)

    def _cut_document(self, line: str) -> str:
        import json

        from attnviz.storage.documents import dump_json

        cut = self._pick(json.loads(line), self.tree)
        if self.names:  # of the first document
            for name in self.fields:
                choose(name, self.names, "field")
            self.names = {}
        return dump_json(cut)

    def _pick(self, value: Any, tree: dict[str, Any], at: str = "") -> Any:
        if not tree:
            return value
        if isinstance(value, list) and value:
            return [self._pick(one, tree, at) for one in value]
        if not isinstance(value, dict) or not value:
            if value in (None, [], {}):  # fields of an empty value are unknown
                self.names |= dict.fromkeys(one for one in self.fields if one.startswith(at))
            return value
        self.names |= dict.fromkeys(f"{at}{name}" for name in value)
        return {
            name: self._pick(value[name], below, f"{at}{name}.") if name in value else None
            for name, below in tree.items()
        }


class TsvReport(TextReport):
    """Rows, tab-separated, under one header; under none where an interrupted run wrote it."""

    form = "rows"
    header: Sequence[str] = columns_of("maps")  # which stands there without any maps, too

    def finish(self) -> str:
        is_empty = self.header and not self.count and not self.display.begun
        self.count += 1
        return self._join("\t".join(self.header) + "\n") if is_empty else ""

    def _join(self, text: str) -> str:
        is_first = self.count == 1 and not self.display.begun
        return text if is_first else text.partition("\n")[2]


class CsvReport(TsvReport):
    """Rows, comma-separated, quoted where needed."""

    def _join(self, text: str) -> str:
        return csv_text(line.split("\t") for line in super()._join(text).split("\n")[:-1])
