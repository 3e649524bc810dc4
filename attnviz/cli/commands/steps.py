"""attnviz steps and attnviz lesson."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli.commands.listings import write_listing
from attnviz.cli.options import OUTPUT, with_options
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options, opt
from attnviz.core.registry import LESSONS
from attnviz.renderers.reports import listing
from attnviz.teach.steps.request import SIZE, StepsRequest

GIVEN = "What it is about"


@with_options("mechanism", "model", "compute", "stream", "heads", "page", writes="steps")
def steps(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SENTENCE]",
            help="File of matrices (.json, .npz, .safetensors; - is stdin), or a sentence: what "
            "has a space in it, is no file and does not end like one. Without: a worked example.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[TARGET]", help="Second sentence, whose words are the queries."),
    ] = None,
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence, of one word or more."),
    example: str | None = opt(
        GIVEN,
        "--example NAME",
        "Worked example: self, cross or naive; with a FILE of several, one of them.",
        suggested=("self", "cross", "naive"),
    ),
    number_of_heads: int = opt(
        GIVEN, "--heads N", "Heads of the mechanism, default 1.", default=1, min=1
    ),
    causal: bool = opt(GIVEN, "--causal", "Hide later positions."),
    mask: str | None = opt(
        GIVEN,
        "--mask ROWS|FILE",
        "1 where a query may look, a row a query: '1 0 1, 1 1 1'; one row is for all. Or a file "
        "that holds it as mask.",
    ),
    padding: int = opt(GIVEN, "--padding N", "Hide the last N keys.", default=0, min=0, rare=True),
    size: int | None = opt(GIVEN, "--size N", f"Features of a sentence, default {SIZE}.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", "Seed of what is drawn, default 0.", min=0),
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
    w_query, w_key and w_value, or none of them (naive attention); of co-attention
    first and second; optionally
    mask (1: a query may look), tokens, query_tokens, key_tokens. Results in it
    are compared with the computed ones. A sentence gets random vectors; with
    --model they are those of one head.

    attnviz steps

    attnviz steps "The cat sat" --mechanism rotary --heads 2 --html cat.html

    attnviz steps --model pocket --head 2.0 "The red car" "La voiture rouge"

    attnviz steps -f json | jq .weights
    """
    from attnviz.cli.report import Report

    if diagram and options.output.format not in (None, "table"):
        raise UsageError(
            f"--diagram and -f {options.output.format} both want stdout: choose one, or use -o FILE"
        )
    asked = StepsRequest(
        file=file,
        target=target,
        text=text,
        example=example,
        heads=number_of_heads,
        causal=causal,
        mask=mask,
        padding=padding,
        size=size,
        seed=seed,
        diagram=diagram,
        scatter=scatter is not None,
    )
    with Report(options, "steps", pictures={"scatter": scatter}) as report:
        report.add(asked.data(options))
        report.finish("computed")


_LIST = ", ".join(LESSONS)


@with_options("page", writes="lesson")
def lesson(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {_LIST}.")] = None,
    length: int | None = opt(GIVEN, "--length N", "Positions, or pairs of delta.", min=1),
    size: int | None = opt(GIVEN, "--size N", "Features of a position or head.", min=1),
    heads: int | None = opt(GIVEN, "--heads N", "Heads of alibi, default 8.", min=1),
    window: int | None = opt(GIVEN, "--window N", "Positions to either side, default 2.", min=1),
    steps: int | None = opt(GIVEN, "--steps N", "Steps of training, default 300.", min=1),
    seed: int | None = opt(GIVEN, "--seed N", "Seed of random numbers, default 0.", min=0),
    text: str | None = opt(GIVEN, "--text TEXT", "Sentence that is attended over."),
    model: Path | None = opt(
        GIVEN, "--model -m CONFIG_OR_FOLDER", "Configuration that cache works out."
    ),
    plot: Path | None = opt(OUTPUT, "--plot FILE", "The lesson as a picture: .png, .svg or .pdf."),
    *,
    options: Options,
) -> None:
    """Teach one thing about attention in numbers.

    positions, rotary, alibi: how a position is told. scaling, temperature,
    online, sinks: how scores become weights. masking, padding, window: what
    may be seen. linear, delta: attention without a softmax. cache, groups:
    what is kept of the past. training, induction: what is learned.

    attnviz lesson scaling

    attnviz lesson positions --plot positions.png
    """
    from attnviz.cli.report import Report
    from attnviz.teach.lessons.teaching import lesson_data, teach

    if name is None:
        rows = [(one, row.summary) for one, row in LESSONS.items()]
        write_listing(listing(("lesson", "summary"), rows), options)
        return
    choose(name, LESSONS, "lesson")
    wanted: dict[str, Any] = {"length": length, "size": size, "heads": heads, "window": window}
    wanted |= {"steps": steps, "seed": seed, "text": text, "model": model}
    given = {option: value for option, value in wanted.items() if value is not None}
    with Report(options, "lesson", pictures={"plot": plot}) as report:
        report.add(lesson_data(teach(name, given)))
        report.finish("taught")
