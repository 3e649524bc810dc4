"""attnviz steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.commands.command import OPTIONS, OUTPUT, Run, command
from attnviz.core.errors import UsageError, in_short
from attnviz.core.options.option import arg, opt, rare
from attnviz.core.registry import MECHANISMS
from attnviz.features.steps.request import SIZE, StepsRequest

if TYPE_CHECKING:
    from attnviz.commands.findings import Findings

GIVEN = "What it is about"


@command(
    *("model", "compute", "stream", "heads", "look", "page"),
    writes="steps",
    draws={"scatter": "inputs, values and outputs in three dimensions"},
)
def steps(
    file: str | Path | Mapping[str, Any] | None = arg(
        "A file of matrices (.json, .npz, .safetensors; - is stdin), or a sentence in quotes. "
        "Without it a worked example.",
        "[FILE|SENTENCE]",
        shell=str | None,
        python="a file of matrices (.json, .npz, .safetensors), or a sentence: what has a space "
        "in it, is no file and does not end like one; or arrays by name, as a file has them: "
        '{"query": Q, "key": K, "value": V}. None: a worked example.',
    ),
    target: str | None = arg("Second sentence, whose words are the queries.", "[TARGET]"),
    *,
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
    **options: Any,
) -> "Findings":
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

    Returns:
        Every matrix; the picture "scatter"; a page.
    """
    run = Run("steps", options)
    how = run.options
    if not isinstance(file, str | Path | Mapping | None):
        raise UsageError(f"file={in_short(file)} is no file, sentence or dictionary of arrays")
    if diagram and how.output.format not in (None, "table"):
        raise UsageError(
            f"--diagram and -f {how.output.format} both want stdout: choose one, or use -o FILE"
        )
    request = StepsRequest(
        file=str(file) if isinstance(file, Path) else file,
        target=target,
        text=text,
        example=example,
        mechanism=mechanism,
        causal=causal,
        mask=mask,
        padding=padding,
        diagram=diagram,
        scatter=how.pictures.get("scatter") is not None,
    )
    return run.write(request.data(how), "steps", "computed")
