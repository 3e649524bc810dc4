"""The formats of files of texts, and how each is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from attnviz.core.errors import UsageError
from attnviz.core.options import InputFormat, names_in
from attnviz.storage.texts import BadText, Text
from attnviz.storage.texts.lines import (
    LONGEST,
    BrokenFileError,
    json_text,
    make_texts,
    number_lines,
    plain_text,
)

SUFFIXES = {".txt": "txt", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
INPUT_FORMATS = names_in(InputFormat)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How a file of texts is read.

    Attributes:
        pairs: source and target are wanted rather than single texts; in .txt, and in .tsv without a
            header, they stand to the left and right of a tab or |||.
        keep_blank: a blank line is a BadText too, for output that stays line by line.
        columns: which column of a table, or key of an object, holds what; from `parse_columns`.
        longest: bytes of a line or row at most.
    """

    input_format: str = "txt"
    pairs: bool = False
    keep_blank: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    longest: int = LONGEST


def is_packed(path: PurePath) -> bool:
    """Whether the name says gzip."""
    return path.suffix.lower() == ".gz"


def format_of_file(path: PurePath) -> str | None:
    """The format that the name says, `.gz` aside; None where it says none."""
    bare = path.with_suffix("") if is_packed(path) else path
    return SUFFIXES.get(bare.suffix.lower())


def check_reading(reading: FileFormat) -> None:
    """Refuse columns of plain lines, which have none, with a UsageError."""
    if reading.columns and reading.input_format == "txt":
        raise UsageError(
            "--columns is for .csv, .tsv and .jsonl, plain lines have none: "
            "leave it out, or say with --input-format what the lines are"
        )


def read_texts(lines: Iterable[bytes], name: str, reading: FileFormat) -> Iterator[Text | BadText]:
    """Each raw line or row as a text; one that cannot be used comes as a BadText.

    Where the file breaks off, that is a last BadText. Blank lines are left out.

    Raises:
        AttnvizError: a table without the columns that are needed.
    """
    try:
        yield from _texts(lines, name, reading)
    except BrokenFileError as error:
        yield BadText(f"line {error.line + 1} of {name}", error, error.line + 1)


def _texts(lines: Iterable[bytes], name: str, reading: FileFormat) -> Iterator[Text | BadText]:
    pairs, keep_blank, columns = reading.pairs, reading.keep_blank, reading.columns
    if reading.input_format in ("csv", "tsv"):
        from attnviz.storage.texts.tables import csv_rows, read_table, tsv_rows

        bare = reading.input_format == "tsv"
        return read_table(
            tsv_rows(lines, name) if bare else csv_rows(lines, name, reading.longest),
            name,
            columns=columns,
            pairs=pairs,
            keep_blank=keep_blank,
            bare=bare,
        )
    if reading.input_format == "jsonl":
        return make_texts(
            number_lines(lines, name),
            lambda line: json_text(line, pairs=pairs, names=columns),
            keep_blank=keep_blank,
        )
    return make_texts(
        number_lines(lines, name), lambda line: plain_text(line, pairs=pairs), keep_blank=keep_blank
    )
