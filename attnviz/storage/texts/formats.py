"""The formats of files of texts: plain lines, JSON, and tables.

A column of a table holds what its name in a header says, or its number. In CSV (RFC 4180) a row may
span several lines. In TSV a tab always separates columns and quotes are letters, as in cut and awk.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import PurePath

from attnviz.core.errors import InputError, UsageError, choose, did_you_mean, is_number
from attnviz.core.options import InputFormat
from attnviz.core.options.option import names_in
from attnviz.core.records import dataclass
from attnviz.storage.texts import BadText, Text, check_text
from attnviz.storage.texts.lines import (
    LONGEST,
    BrokenFileError,
    FileFormat,
    Line,
    decode_lines,
    json_text,
    make_texts,
    number_lines,
    plain_text,
)

SUFFIXES = {".txt": "txt", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
INPUT_FORMATS = names_in(InputFormat)


def is_packed(path: PurePath) -> bool:
    """Whether the name says gzip."""
    return path.suffix.lower() == ".gz"


def format_of_file(path: PurePath) -> str | None:
    """The format that the name says, `.gz` aside; None where it says none."""
    bare = path.with_suffix("") if is_packed(path) else path
    return SUFFIXES.get(bare.suffix.lower())


def check_reading(reading: FileFormat) -> None:
    """Raise a UsageError where columns of plain lines are asked for: they have none."""
    if reading.columns and reading.input_format == "txt":
        raise UsageError(
            "--columns is for .csv, .tsv and .jsonl, plain lines have none: "
            "leave it out, or write before the file what its lines are, csv:FILE"
        )


def read_texts(lines: Iterable[bytes], name: str, reading: FileFormat) -> Iterator[Text | BadText]:
    """Each raw line or row as a text; one that cannot be used is a BadText.

    Where the file breaks off, the last item is a BadText. Blank lines are left out.

    Raises:
        AttnvizError: a table without the columns that are needed.
    """
    try:
        yield from _texts(lines, name, reading)
    except BrokenFileError as error:
        yield BadText(f"line {error.line + 1} of {name}", error, error.line + 1)


def _texts(lines: Iterable[bytes], name: str, reading: FileFormat) -> Iterator[Text | BadText]:
    if reading.input_format in ("csv", "tsv"):
        tabs = reading.input_format == "tsv"
        rows = tsv_rows(lines, name) if tabs else csv_rows(lines, name)
        return read_table(rows, name, reading)
    make = partial(plain_text, pairs=reading.pairs)
    if reading.input_format == "jsonl":
        make = partial(json_text, pairs=reading.pairs, names=reading.columns)
    return make_texts(number_lines(lines, name), make, keep_blank=reading.keep_blank)


SHOWN = 8  # columns of a file that a message names at most
ROW_LINES = 10_000  # lines of a row at most: an unclosed quote must not swallow the file


@dataclass(frozen=True, slots=True)
class Row(Line):
    """A row of a table: its fields, or the error why it has none."""

    fields: tuple[str, ...] = ()
    problem: str = ""


def tsv_rows(lines: Iterable[bytes], name: str) -> Iterator[Row]:
    """Each line, split at its tabs."""
    for line in number_lines(lines, name):
        yield Row(line.number, line.line, line.raw, name, tuple(line.raw.split("\t")))


def csv_rows(lines: Iterable[bytes], name: str) -> Iterator[Row]:
    """Each row; a quote that is never closed costs only the line that opens it.

    The lines after it are read again, one by one: a second such quote among them would fail as the
    first did, so it fails at once. No line is read more than twice.
    """
    csv.field_size_limit(2**31 - 1)  # as many letters as the module can count everywhere
    source = decode_lines(lines)
    again: deque[str] = deque()
    row: list[str] = []

    def feed() -> Iterator[str]:
        length = 0
        while len(row) < (1 if fails else ROW_LINES) and length <= LONGEST:
            line = again.popleft() if again else next(source, None)
            if line is None:
                return
            length = (length if row else 0) + len(line)
            row.append(line)
            yield line

    reader = csv.reader(feed(), strict=True)
    number, begins = 0, 1
    while True:
        fields, problem = [], ""
        fails = len(again) > 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = str(error)
            if len(row) > 1 or "end of data" in problem:
                problem = "a quote is opened and not closed before a comma or the line's end"
            again.extendleft(reversed(row[1:]))
            del row[1:]
            reader = csv.reader(feed(), strict=True)
        raw = "".join(row).rstrip("\r\n")
        yield Row(number, begins, raw, name, tuple(fields), problem)
        number, begins = number + 1, begins + len(row)
        row.clear()


def parse_columns(text: str, *, pairs: bool) -> dict[str, str]:
    """The column of each role in `text=sentence,id=key`: a name, or a number from 1.

    With `pairs` the roles are source (or text), target, id and labels, else text, id and labels.

    Raises:
        UsageError: it is not written like this.
    """
    roles = ("source", "target", "id", "labels") if pairs else ("text", "id", "labels")
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if not (equals and column):
            raise UsageError(f"--columns '{text}' is not like {roles[0]}=NAME,id=NAME")
        choose(role, (*roles, "text") if pairs else roles, "role in --columns")
        role = roles[0] if role == "text" else role
        if role in columns:
            raise UsageError(f"--columns names a column for '{role}' twice: give one")
        columns[role] = column
    numbers = [is_number(column) for column in columns.values()]
    if any(numbers) and not all(numbers):
        raise UsageError(
            "--columns mixes names and numbers: give names where the first line is a header, "
            "numbers where it is none"
        )
    if all(numbers) and roles[0] not in columns:
        raise UsageError(f"--columns gives no number for '{roles[0]}': add {roles[0]}=NUMBER")
    if "0" in columns.values():
        raise UsageError("--columns counts columns from 1: there is no column 0")
    return columns


def read_table(rows: Iterable[Row], name: str, reading: FileFormat) -> Iterator[Text | BadText]:
    """The texts of a table; one of texts or pairs with tabs needs no header."""
    rows, columns, pairs = iter(rows), reading.columns, reading.pairs
    first = next((row for row in rows if not row.blank), None)
    if first is None:
        return
    most = 2 if pairs else 1
    role = "source" if pairs else "text"
    tabs = reading.input_format == "tsv"
    if pairs and role not in columns and _is_single(first.fields, tabs=tabs):
        columns = {**columns, role: "text"}
    bare = tabs and not columns and role not in first.fields
    if bare and len(first.fields) <= most:
        make = partial(_bare_text, pairs=pairs, most=most)
        yield from make_texts(chain([first], rows), make, keep_blank=reading.keep_blank)
        return
    if first.problem:
        raise InputError(f"{first.where} is not CSV: {first.problem}")
    header, places = _find_places(first, columns, role, name)
    if not header:
        rows = chain([first], rows)
    before = first.number + header
    main = columns.get(role, role) if header else role
    make = partial(_row_text, first=first, places=places, before=before, main=main)
    yield from make_texts(rows, make, keep_blank=reading.keep_blank)


def _is_single(header: Sequence[str], *, tabs: bool) -> bool:
    """Whether a header names single texts where pairs are read, which may have no target."""
    names = [name.strip() for name in header]
    pair = tabs and len(names) == 2 and not {"target", "id", "labels"}.intersection(names)
    return "text" in names and "source" not in names and not pair


def _bare_text(row: Row, *, pairs: bool, most: int) -> Text:
    if len(row.fields) > most:
        raise InputError(f"{row.where} has {count(len(row.fields), 'column')}, not {most}")
    return plain_text(row, pairs=pairs)


def _row_text(row: Row, first: Row, places: Mapping[str, int], before: int, main: str) -> Text:
    """The text of a row; columns missing at its end are empty, and one too many is an error."""
    if row.problem:
        raise InputError(f"{row.where} is not CSV: {row.problem}")
    width = len(first.fields)
    if len(row.fields) > width:
        raise InputError(
            f"{row.where} has {count(len(row.fields), 'column')}, {first.where} {width}"
        )
    cells = {role: row.fields[at] for role, at in places.items() if at < len(row.fields)}
    text = cells.get("source" if "source" in places else "text", "")
    target = cells.get("target")
    return row.text(
        cells.get("id") or row.number - before,
        check_text(text, f"{main} in {row.where}"),
        target=None if target is None else check_text(target, f"target in {row.where}"),
        labels=tuple(cells.get("labels", "").split()) or None,
    )


def _find_places(
    first: Row, columns: Mapping[str, str], main: str, name: str
) -> tuple[bool, dict[str, int]]:
    """Whether the first row is a header and no record, and where each role stands, from 0."""
    fields, pairs = first.fields, main == "source"
    header = not columns or not all(is_number(column) for column in columns.values())
    if header:
        places = _by_name([field.strip() for field in fields], columns, main, name)
    else:
        places = {role: int(number) - 1 for role, number in columns.items()}
        if max(places.values()) >= len(fields):
            raise UsageError(
                f"--columns asks for column {max(places.values()) + 1}: "
                f"{first.where} has {count(len(fields), 'column')}"
            )
    if main not in places:
        example = "source=NAME,target=NAME" if pairs else "text=NAME"
        raise InputError(
            f"{name} has no column '{main}', only {_list_names(fields)}: say --columns {example}, "
            "with numbers from 1 where the first line is no header"
        )
    if not pairs:
        places.pop("target", None)
    return header, places


def _by_name(
    names: Sequence[str], columns: Mapping[str, str], main: str, name: str
) -> dict[str, int]:
    """The place of each role in the header; those that were asked for must be there."""
    places = {}
    for role in (main, "target", "id", "labels"):
        column = columns.get(role, role)
        if names.count(column) > 1:
            raise InputError(f"{name} has {names.count(column)} columns '{column}'")
        if column in names:
            places[role] = names.index(column)
        elif role in columns:
            raise UsageError(
                f"--columns {role}={column}: {name} has no column '{column}', only "
                f"{_list_names(names)}.{did_you_mean(column, names[:SHOWN])}"
            )
    return places


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _list_names(names: Sequence[str]) -> str:
    """Names, shortened for a message: a first line may hold anything."""
    cut = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:SHOWN]]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in cut) + more
