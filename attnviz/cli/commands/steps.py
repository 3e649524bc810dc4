"""`attnviz steps`: the arithmetic of attention, matrix by matrix."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli.options import OUTPUT, with_options
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options, opt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.renderers.reports import Data
    from attnviz.teach.steps.arithmetic import Steps
    from attnviz.teach.steps.given import Given

GIVEN = "What it is about"
SIZE = 4
"""Features of a sentence's vectors: few enough for the eye; --size gives more."""
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,10}$")


@with_options(writes="steps")
def steps(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SENTENCE]",
            help="File of matrices (.json, .npz, .safetensors), or a sentence: what has a space in "
            "it, is no file and does not end like one (.json). Without: a worked example.",
        ),
    ] = None,
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence, of one word or more."),
    causal: bool = opt(GIVEN, "--causal", "Hide later positions."),
    size: int | None = opt(GIVEN, "--size N", f"Features of a sentence, default {SIZE}.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", "Seed of a sentence's vectors, default 0.", min=0),
    scatter: Path | None = opt(
        OUTPUT,
        "--scatter FILE",
        "Inputs, values and outputs in three dimensions: .png, .svg or .pdf.",
    ),
    diagram: bool = opt(OUTPUT, "--diagram", "Print the flow of the data as Mermaid text instead."),
    *,
    options: Options,
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
    from attnviz.cli.report import Report

    if diagram and options.output.format not in (None, "table"):
        raise UsageError(
            f"--diagram and -f {options.output.format} both want stdout: choose one, or use -o FILE"
        )
    with Report(options, "steps", pictures={"scatter": scatter}) as report:
        sentence = _sentence(file, text)
        if sentence is None and not (size is seed is None):
            raise UsageError("--size and --seed are for a sentence: a file brings its own numbers")
        given = _given(file, sentence, size or SIZE, seed or 0)
        from attnviz.teach.steps.arithmetic import arithmetic

        result = arithmetic(given, causal=causal)
        if report.format != "table" or diagram:
            for line in result.notes:
                report.say(line)
        report.add(_data(result, diagram))
        report.finish()
        report.say_done("computed")


def _sentence(file: str | None, text: str | None) -> str | None:
    """The sentence that was asked for, or None where a file was, or nothing."""
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


def _data(result: Steps, diagram: bool) -> Data:
    from attnviz.renderers.reports import Data
    from attnviz.storage.documents import dump_json
    from attnviz.teach.steps import show

    def archive() -> bytes:
        import numpy as np

        file = io.BytesIO()
        np.savez_compressed(file, **result.arrays())  # type: ignore[arg-type]
        return file.getvalue()

    def figure() -> Figure:
        from attnviz.teach.steps.scatter import scatter

        return scatter(result)

    return Data(
        text=lambda display: show.mermaid(result) if diagram else show.table(result, display),
        document=lambda: dump_json(result.data()) + "\n",
        arrays=archive,
        figures={"scatter": figure},
        about=result.title,
        value=result,
    )
