"""Texts from arguments, files and stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from attnviz.errors import InputError, UsageError
from attnviz.texts import BadText, Text, check_text, read_lines

InputOption = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Texts from a .txt (one a line) or .jsonl file, or - for stdin.",
    ),
]


def texts_of(
    arguments: Sequence[str], file: str | None, *, pairs: bool = False, keep_blank: bool = False
) -> tuple[Iterator[Text | BadText], bool]:
    """The texts that were given, and whether there may be several.

    Args:
        arguments: what stood on the command line; "-" is stdin.
        file: --input.
        pairs: a source and perhaps a target rather than single texts.
        keep_blank: a blank line of a file counts as a bad one instead of being left out.

    Raises:
        UsageError: none was given, or twice.
        InputError: an argument that is no text, or a file that cannot be read.
    """
    if file is not None and arguments:
        raise UsageError("both TEXT and --input were given: give one")
    if file is None and not arguments:
        if sys.stdin.isatty():
            raise UsageError("no text was given: write it in quotes, or use --input FILE or -")
        file = "-"
    if "-" in arguments and len(arguments) > 1:
        raise UsageError("- reads every text from stdin and stands alone: leave the others out")
    if file is not None or list(arguments) == ["-"]:
        return _from_file(file or "-", pairs, keep_blank), True
    if pairs:
        source, target = arguments[0], arguments[1] if len(arguments) > 1 else None
        checked = None if target is None else check_text(target, "target")
        return iter([Text("0", check_text(source, "source"), checked)]), False
    texts = [Text(str(place), check_text(text)) for place, text in enumerate(arguments)]
    return iter(texts), len(texts) > 1


def _from_file(file: str, pairs: bool, keep_blank: bool) -> Iterator[Text | BadText]:
    """Lines as they come; that there is a file to read is found out here and now."""
    if file == "-":
        found = read_lines(
            sys.stdin.buffer, "stdin", json=False, pairs=pairs, keep_blank=keep_blank
        )
        return _some(found, "stdin")
    path = Path(file)
    if not path.is_dir() and path.suffix.lower() not in (".txt", ".jsonl", ".tsv"):
        raise UsageError(f"'{file}' is neither .txt nor .jsonl: end it in one of these, or use -")
    try:
        if not path.is_fifo():  # opening a pipe would take what is in it
            path.open("rb").close()
    except IsADirectoryError as error:
        raise InputError(f"'{file}' is a folder, not a file") from error
    except FileNotFoundError as error:
        raise InputError(f"there is no file '{file}'") from error
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror}") from error
    json = path.suffix.lower() == ".jsonl"
    found = read_lines(_lines(path), f"'{file}'", json=json, pairs=pairs, keep_blank=keep_blank)
    return _some(found, f"'{file}'")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from lines


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
