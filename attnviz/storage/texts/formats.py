"""The formats of files of texts, and how each is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import PurePath

from attnviz.core.errors import UsageError
from attnviz.core.options import InputFormat, names_in
from attnviz.storage.texts import BadText, Text
from attnviz.storage.texts.lines import (
    BrokenFileError,
    FileFormat,
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
            "leave it out, or say with --input-format what the lines are"
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
        from attnviz.storage.texts.tables import csv_rows, read_table, tsv_rows

        tabs = reading.input_format == "tsv"
        rows = tsv_rows(lines, name) if tabs else csv_rows(lines, name, reading.longest)
        return read_table(rows, name, reading)
    make = partial(plain_text, pairs=reading.pairs)
    if reading.input_format == "jsonl":
        make = partial(json_text, pairs=reading.pairs, names=reading.columns)
    return make_texts(number_lines(lines, name), make, keep_blank=reading.keep_blank)
