"""`attnviz steps`: the arithmetic of attention, matrix by matrix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.core.errors import InputError, UsageError, choose

if TYPE_CHECKING:
    from attnviz.teach.steps.given import Given

FORMATS = ("table", "json", "none")
SIZE = 4
"""Features of a sentence's vectors: few enough for the eye; --size gives more."""
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,10}$")


def steps(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SENTENCE]",
            help="File of matrices (.json, .npz, .safetensors), or a sentence: what has a space in "
            "it, is no file and does not end like one (.json). Without: a worked example.",
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Sentence, of one word or more.")
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Hide later positions.")] = False,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help=f"Features of a sentence, default {SIZE}.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of a sentence's vectors, default 0.")
    ] = None,
    format_name: Annotated[
        str, typer.Option("--format", "-f", help="What stdout gets: table, json or none.")
    ] = "table",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for every matrix (.json, .npz).")
    ] = None,
    scatter: Annotated[
        Path | None,
        typer.Option(
            "--scatter",
            help="Picture (.png, .svg, .pdf) of inputs, values and outputs in three dimensions.",
        ),
    ] = None,
    diagram: Annotated[
        bool, typer.Option("--diagram", help="Print the flow of the data as Mermaid text instead.")
    ] = False,
) -> None:
    """Show the arithmetic of attention, matrix by matrix.

    A file names its matrices: inputs, or query_input and key_value_input;
    w_query, w_key and w_value, or none of them (naive attention); optionally
    mask (1: a query may look), tokens, query_tokens, key_tokens. Results in it
    are compared with the computed ones. A sentence gets random vectors.

    attnviz steps

    attnviz steps "The cat sat" --causal --scatter cat.png

    attnviz steps -f json | jq .weights
    """
    choose(format_name, FORMATS, "format")
    if diagram and format_name == "json":
        raise UsageError("--diagram and -f json both want stdout: choose one, or use -o FILE.json")
    _check_files(output, scatter)
    sentence = _sentence(file, text)
    if sentence is None and not (size is seed is None):
        raise UsageError("--size and --seed are for a sentence: a file brings its own numbers")
    given = _given(file, sentence, size or SIZE, seed or 0)
    _write(given, causal, "diagram" if diagram else format_name, output, scatter)


def _sentence(file: str | None, text: str | None) -> str | None:
    """The sentence that was asked for, or None where a file was, or nothing.

    Raises:
        UsageError: both were given.
        InputError: it is blank.
    """
    if text is not None and file is not None:
        raise UsageError("give either --text or an argument, not both")
    if text is None:
        if file is None or (file and (_exists(file) or _SUFFIX.search(file))):
            return None
        if file.strip() and not any(map(str.isspace, file.strip())):
            return None
    from attnviz.storage.texts import check_text

    return check_text(text or file or "", "sentence")


def _exists(name: str) -> bool:
    """False also for a sentence that is longer than any file's name can be."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def _given(file: str | None, sentence: str | None, size: int, seed: int) -> Given:
    from attnviz.teach.steps.given import Given, seeded_sentence, worked_example

    if sentence is not None:
        return seeded_sentence(sentence, size, seed)
    if file is None:
        return worked_example()
    if not _exists(file):
        raise InputError(f"there is no file '{file}'; to attend over a sentence, use --text")
    if Path(file).is_dir():
        raise InputError(f"'{file}' is a folder, not a file of matrices")
    return Given.from_file(Path(file))


def _check_files(output: Path | None, scatter: Path | None) -> None:
    """Find out before the work whether both files can be written, and as what.

    Raises:
        UsageError: an unknown suffix.
    """
    from attnviz.cli.output import check_writable
    from attnviz.core.registry import PICTURE_SUFFIXES

    for path, suffixes, option in (
        (output, (".json", ".npz"), "-o"),
        (scatter, PICTURE_SUFFIXES, "--scatter"),
    ):
        if path is not None:
            if path.suffix.lower() not in suffixes:
                raise UsageError(f"{option} '{path}' must end in {', '.join(suffixes)}")
            check_writable(path)


def _write(
    given: Given, causal: bool, shown: str, output: Path | None, scatter: Path | None
) -> None:
    """Compute once and write everything that was asked for."""
    from attnviz.cli.output import note, write_file, write_text
    from attnviz.teach.steps.arithmetic import arithmetic
    from attnviz.teach.steps.show import as_json, as_npz

    result = arithmetic(given, causal=causal)
    if output is not None:
        as_bytes = as_npz(result) if output.suffix.lower() == ".npz" else as_json(result).encode()
        write_file(output, as_bytes)
    if scatter is not None:
        from attnviz.renderers.figures.figure import figure_bytes
        from attnviz.teach.steps.scatter import scatter as draw

        write_file(scatter, figure_bytes(draw(result), scatter.suffix.lower(), result.title))
    if shown != "table":
        for line in result.notes:
            note(line)
    if shown == "json":
        write_text(as_json(result))
    elif shown == "diagram":
        from attnviz.teach.steps.show import mermaid

        write_text(mermaid(result))
    elif shown == "table":
        from attnviz.cli.sinks import display_of_stdout
        from attnviz.teach.steps.show import table

        write_text(table(result, display_of_stdout(many=False)))
