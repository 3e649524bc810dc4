"""Texts from arguments, files of whatever format and stdin, line by line as it comes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.options import Given, Many, Options, opt
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.storage.texts import BadText, Text, check_text
from attnviz.storage.texts.formats import (
    INPUT_FORMATS,
    SUFFIXES,
    check_reading,
    format_of_file,
    is_packed,
    read_texts,
)
from attnviz.storage.texts.lines import (
    LONGEST,
    FileFormat,
    LineReader,
    open_lines,
    read_file,
    whole_lines,
)

_open: list[LineReader] = []
"""The reader of stdin, once it is open."""
USUAL = Many()
"""Files are read as their suffixes say."""


def stdin_lines(longest: int = LONGEST) -> Iterator[bytes]:
    """The lines of stdin as they come, unpacked if they are gzip."""
    buffer: Any = sys.stdin.buffer
    lines = open_lines(getattr(buffer, "raw", buffer), "stdin", longest=longest)
    _open[:] = [] if lines.packed else [lines]
    yield from whole_lines(lines, "stdin")


def stdin_is_ready() -> bool:
    """Whether stdin has data, so that reading the next line does not wait for a pipe or keyboard.

    True too for files, gzip, and systems that cannot tell; the data may be a part of a line.
    """
    if not _open or _open[0].ready:
        return True
    import select

    try:
        return bool(select.select([sys.stdin.buffer], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def count_records(file: str, how: Many = USUAL, *, pairs: bool = False) -> int | None:
    """How many texts, good and bad, a file holds; None if it can be read only once."""
    if isinstance(file, Given):
        return len(file.things)
    if file == "-" or not Path(file).is_file():
        return None
    reading = reading_of(file, how, pairs=pairs)
    return sum(1 for _ in read_texts(_lines(Path(file), reading), f"'{file}'", reading))


def reading_of(file: str, how: Many, *, pairs: bool, keep_blank: bool = False) -> FileFormat:
    """How to read a file: by --input-format, or else by its suffix."""
    path, input_format = Path(file), how.input_format
    if input_format is None:
        known = format_of_file(path)
        if known is None and not (file == "-" or path.is_fifo() or path.is_dir()):
            raise UsageError(
                f"'{file}' ends in none of {', '.join(SUFFIXES)}, with or without .gz: "
                f"rename it, or give --input-format {'|'.join(INPUT_FORMATS)}"
            )
    else:
        known = choose(input_format, INPUT_FORMATS, "input format")
    asked = {}
    if how.columns is not None:
        from attnviz.storage.texts.tables import parse_columns

        asked = parse_columns(how.columns, pairs=pairs)
    reading = FileFormat(known or "txt", pairs, keep_blank, asked, how.max_line << 20)
    check_reading(reading)
    return reading


def texts_of_file(file: str, reading: FileFormat) -> Iterator[Text | BadText]:
    """Texts as they come. A missing file or wrong columns are an error at once."""
    if file == "-":
        return _at_least_one(read_texts(stdin_lines(reading.longest), "stdin", reading), "stdin")
    from attnviz.storage.matrices import open_file

    path, name = Path(file), f"'{file}'"
    if not path.is_fifo():  # opening and closing a pipe would lose what is in it
        open_file(path).close()
    if path.is_file():
        next(read_texts(_lines(path, reading), name, reading), None)
    return _at_least_one(read_texts(_lines(path, reading), name, reading), name)


def _lines(path: Path, reading: FileFormat) -> Iterator[bytes]:
    """The lines of a file, opened at the first; unbuffered, so that a pipe does not wait."""
    from attnviz.storage.matrices import open_file

    file = open_file(path, buffering=0)
    yield from read_file(file, f"'{path}'", packed=is_packed(path), longest=reading.longest)


def _at_least_one(texts: Iterator[Text | BadText], name: str) -> Iterator[Text | BadText]:
    """The texts; an error if there are none."""
    found = False
    for text in texts:
        found = True
        yield text
    if not found:
        raise InputError(f"{name} holds no text")


PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


def pictures_in(files: Sequence[str]) -> tuple[list[Path], int]:
    """The pictures among files and in folders, and how many other files the folders hold.

    Without any picture the file is one of texts.
    """
    if any(isinstance(file, Given) for file in files):
        return [], 0
    from attnviz.storage.matrices import open_file

    found, others, aside = list[Path](), list[str](), 0
    for file in files:
        path = Path(file)
        if path.is_dir():
            inside = files_below(path)
            mine = [one for one in inside if one.suffix.lower() in PICTURES]
            if not mine:
                raise InputError(f"folder '{file}' holds no picture ({', '.join(PICTURES)})")
            aside += len(inside) - len(mine)
            found += mine
        elif path.suffix.lower() in PICTURES:
            open_file(path).close()
            found.append(path)
        else:
            others.append(file)
    if others and (found or len(others) > 1):
        mixed = f"'{others[0]}' is no picture ({', '.join(PICTURES)})"
        raise UsageError(f"{mixed}: give pictures and folders of them, or one file of texts")
    return found, aside


def files_below(folder: Path) -> list[Path]:
    """Every file below a folder, sorted by path.

    Raises:
        InputError: one of the folders cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"folder '{error.filename}' cannot be read: {error.strerror}") from error

    found = (Path(at, name) for at, _, names in os.walk(folder, onerror=refuse) for name in names)
    return sorted(one for one in found if one.is_file())


INPUT = opt(
    "Options",
    "--input -i FILE",
    "Read texts from a file: .txt (one a line), .jsonl, .csv, .tsv, each also .gz; - is stdin.",
)


def doubts(given: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Notes on arguments that may be mistakes: a text that names a file, or single words."""
    texts = [value for name, value in given if name in ("text", "source", "target")]
    for text in texts:
        # os.path, since Path.is_file() raises where a text is longer than a name can be.
        if text != "-" and os.path.isfile(text):  # noqa: PTH113
            yield f"'{text}' is read as text and is also a file: --input {text} reads the file"
    words = [text for text in texts if text.strip() and len(text.split()) == 1 and text != "-"]
    if len(words) == len(texts) > 2:
        yield f"{len(texts)} texts of one word each: quote a sentence to make it one text"


def texts_of(
    arguments: Sequence[str],
    file: str | None,
    how: Many = USUAL,
    *,
    pairs: bool = False,
    keep_blank: bool = False,
) -> tuple[Iterator[Text | BadText], bool]:
    """The texts of the arguments, of a file or of stdin, and whether there may be several."""
    if file is not None and arguments:
        raise UsageError("both TEXT and --input were given: give one")
    if file is None and not arguments:
        if sys.stdin.isatty():
            raise UsageError("no text was given: write it in quotes, or use --input FILE or -")
        file = "-"
    if "-" in arguments and len(arguments) > 1:
        raise UsageError("- reads every text from stdin and stands alone: leave the others out")
    if isinstance(file, Given):
        return iter(file.things), True
    if file is not None or list(arguments) == ["-"]:
        file = "-" if file is None else file
        reading = reading_of(file, how, pairs=pairs, keep_blank=keep_blank)
        return texts_of_file(file, reading), True
    if how.columns is not None or how.input_format is not None:
        given = "--columns" if how.columns is not None else "--input-format"
        raise UsageError(f"{given} is for files and stdin: leave it out, or give --input FILE")
    if pairs:
        source, target = arguments[0], arguments[1] if len(arguments) > 1 else None
        checked = None if target is None else check_text(target, "target")
        return iter([Text("0", check_text(source, "source"), checked)]), False
    texts = [Text(str(place), check_text(text)) for place, text in enumerate(arguments)]
    return iter(texts), len(texts) > 1


def given_texts(
    text: str | None, target: str | None, file: str | None, options: Options
) -> tuple[Iterator[Text | BadText], bool, Command]:
    """The texts, whether there may be several, and the command whose models can read them."""
    arguments = [one for one in (text, target) if one is not None]
    pairs = target is not None or file is not None
    texts, many = texts_of(arguments, file, options.many, pairs=pairs)
    command: Command = "cross" if pairs else "self"
    check_origin(options.origin, command)
    return texts, many, command
