"""attnviz steps."""

from typing import Annotated

import typer

from attnviz.cli.options import OPTIONS, OUTPUT, with_options
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.core.registry import MECHANISMS
from attnviz.features.steps.request import SIZE, StepsRequest

GIVEN = "What it is about"


@with_options(
    *("model", "compute", "stream", "heads", "look", "page"),
    writes="steps",
    draws={"scatter": "inputs, values and outputs in three dimensions"},
)
def steps(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|SENTENCE]",
            help="A file of matrices (.json, .npz, .safetensors; - is stdin), or a sentence in "
            "quotes. Without it a worked example.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[TARGET]", help="Second sentence, whose words are the queries."),
    ] = None,
    text: str | None = opt(GIVEN, "--text TEXT", "A sentence, also of a single word."),
    example: str | None = opt(
        GIVEN,
        "--example NAME",
        "A worked example: self, cross or naive; or one of several in FILE, by name.",
        suggestions=("self", "cross", "naive"),
    ),
    mechanism: str | None = opt(
        GIVEN,
        "--mechanism NAME",
        f"Which attention: rotary, or rotary:heads=2,size=8,seed=1 (default: one head, {SIZE} "
        "features, seed 0); 'attnviz models --mechanisms' lists the names.",
        suggestions=tuple(MECHANISMS),
    ),
    causal: bool = opt(GIVEN, "--causal", OPTIONS["causal"].help),
    mask: str | None = opt(
        GIVEN,
        "--mask ROWS|FILE",
        "1 where a query may look, a row for each: '1 0 1, 1 1 1', or one for all; or a file.",
    ),
    padding: int = rare(GIVEN, "--padding N", "Hide the last N keys.", default=0, min=0),
    diagram: bool = opt(OUTPUT, "--diagram", "Print the flow of data as Mermaid text instead."),
    *,
    options: Options,
) -> None:
    """Show the arithmetic of attention, matrix by matrix.

    A file names its matrices: inputs, or query_input and key_value_input;
    w_query, w_key and w_value, or none of them (naive attention); or query, key
    and value, used as they are; of co-attention first and second; optionally
    mask (1: a query may look), tokens, query_tokens, key_tokens. Results in it
    are compared with the computed ones. A sentence gets random vectors; with
    --model they are those of one head.

    attnviz steps

    attnviz steps "The cat sat" --mechanism rotary:heads=2 --html cat.html

    attnviz steps --model pocket --head 2.0 "The red car" "La voiture rouge"

    attnviz steps -f json | jq .weights
    """
    from attnviz.cli.report import Report

    if diagram and options.output.format not in (None, "table"):
        raise UsageError(
            f"--diagram and -f {options.output.format} both want stdout: choose one, or use -o FILE"
        )
    request = StepsRequest(
        file=file,
        target=target,
        text=text,
        example=example,
        mechanism=mechanism,
        causal=causal,
        mask=mask,
        padding=padding,
        diagram=diagram,
        scatter=options.pictures["scatter"] is not None,
    )
    with Report(options, "steps") as report:
        report.add(request.data(options))
        report.finish("computed")
