"""Texts from a file or stdin, of whatever format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnviz.errors import InputError, UsageError, choose
from attnviz.texts import BadText, Text
from attnviz.texts.columns import parse_columns
from attnviz.texts.formats import (
    INPUT_FORMATS,
    SUFFIXES,
    Reading,
    check_reading,
    format_of_file,
    is_packed,
    read_texts,
)
from attnviz.texts.streams import read_file


def count_records(
    file: str,
    *,
    pairs: bool = False,
    keep_blank: bool = False,
    columns: str | None = None,
    input_format: str | None = None,
) -> int | None:
    """How many texts, good and bad, a file gives; None of what can be read only once.

    It reads the file once over, as `texts_of` would.

    Raises:
        AttnvizError: as `texts_of`.
    """
    if file == "-" or not Path(file).is_file():
        return None
    reading = reading_of(file, pairs, keep_blank, columns, input_format)
    return sum(1 for _ in read_texts(_lines(Path(file)), f"'{file}'", reading))


def reading_of(
    file: str, pairs: bool, keep_blank: bool, columns: str | None, input_format: str | None
) -> Reading:
    """How to read a file: as its name says, unless a format was given.

    Raises:
        UsageError: the name says nothing, or what was given does not exist.
    """
    path = Path(file)
    if input_format is None:
        input_format = format_of_file(path)
        if input_format is None and not (file == "-" or path.is_fifo() or path.is_dir()):
            raise UsageError(
                f"'{file}' ends in none of {', '.join(SUFFIXES)}, with or without .gz: "
                f"rename it, or give --input-format {'|'.join(INPUT_FORMATS)}"
            )
    else:
        choose(input_format, INPUT_FORMATS, "input format")
    asked = {} if columns is None else parse_columns(columns, pairs)
    reading = Reading(input_format or "txt", pairs, keep_blank, asked)
    check_reading(reading)
    return reading


def texts_of_file(file: str, reading: Reading) -> Iterator[Text | BadText]:
    """Texts as they come; that there is a file with the right columns is found out here and now."""
    if file == "-":
        from attnviz.cli.stdin import stdin_lines

        return _some(read_texts(stdin_lines(), "stdin", reading), "stdin")
    path, name = Path(file), f"'{file}'"
    try:
        if not path.is_fifo():  # opening a pipe would take what is in it
            path.open("rb").close()
    except IsADirectoryError as error:
        raise InputError(f"{name} is a folder, not a file") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file {name}") from error
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    if path.is_file():
        next(read_texts(_lines(path), name, reading), None)
    return _some(read_texts(_lines(path), name, reading), name)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, opened once they are wanted; a pipe gives what it has at once."""
    yield from read_file(path.open("rb", buffering=0), f"'{path}'", is_packed(path))


def _some(texts: Iterator[Text | BadText], name: str) -> Iterator[Text | BadText]:
    """The texts, where there is at least one.

    Raises:
        InputError: there is none.
    """
    found = False
    for text in texts:
        found = True
        yield text
    if not found:
        raise InputError(f"{name} holds no text")
