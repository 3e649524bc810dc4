"""Texts from arguments, files and stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, TypedDict

import typer

from attnviz.cli.options import Options
from attnviz.errors import UsageError
from attnviz.texts import BadText, Text, check_text

InputOption = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Texts from .txt (one a line), .jsonl, .csv or .tsv, also .gz; - is stdin.",
    ),
]


class Reading(TypedDict):
    """How files are to be read, as `texts_of` takes it."""

    columns: str | None
    input_format: str | None


def reading(options: Options) -> Reading:
    """How files were asked to be read."""
    return {"columns": options.many.columns, "input_format": options.many.input_format}


def texts_of(
    arguments: Sequence[str],
    file: str | None,
    *,
    pairs: bool = False,
    keep_blank: bool = False,
    columns: str | None = None,
    input_format: str | None = None,
) -> tuple[Iterator[Text | BadText], bool]:
    """The texts that were given, and whether there may be several.

    Args:
        arguments: what stood on the command line; "-" is stdin.
        file: --input.
        pairs: a source and perhaps a target rather than single texts.
        keep_blank: a blank line of a file counts as a bad one instead of being left out.
        columns: --columns, like "text=sentence,id=key".
        input_format: --input-format, where the file's name does not say it.

    Raises:
        UsageError: none was given, or twice, or a format or columns that do not exist.
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
        from attnviz.cli.input_file import reading_of, texts_of_file

        how = reading_of(file or "-", pairs, keep_blank, columns, input_format)
        return texts_of_file(file or "-", how), True
    if columns is not None or input_format is not None:
        given = "--columns" if columns is not None else "--input-format"
        raise UsageError(f"{given} is for files and stdin: leave it out, or give --input FILE")
    if pairs:
        source, target = arguments[0], arguments[1] if len(arguments) > 1 else None
        checked = None if target is None else check_text(target, "target")
        return iter([Text("0", check_text(source, "source"), checked)]), False
    texts = [Text(str(place), check_text(text)) for place, text in enumerate(arguments)]
    return iter(texts), len(texts) > 1
