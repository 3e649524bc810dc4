"""attnviz sources."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnviz.cli.options import CHOICE, ORIGIN, SEED, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.features.sources.request import (
    Grouping,
    SourcesRequest,
    Without,
    check_support,
    report_sources,
)

Of = Literal["answer", "output"]


@with_options(
    *("model", "compute", "to", "chat", "generate", "look", "show", "page"),
    also=("resume",),
    writes=("sources", "trace"),
    draws={"plot": "with --of output, what each sentence changes later"},
)
def sources(
    question: Annotated[
        list[str],
        typer.Argument(
            help="What stands behind the context; with --of output FILEs with a reasoning."
        ),
    ],
    context: list[Path] | None = opt(
        ORIGIN,
        "--context FILE",
        "Text file, a passage between blank lines, or messages (.jsonl). Repeatable.",
    ),
    answer: str | None = opt(
        ORIGIN,
        "--answer TEXT",
        "The answer; without it the model writes one. With --of output the right one.",
    ),
    of: Of = opt(
        CHOICE,
        "--of WHAT",
        "What is explained: {choices}. output: which sentences of a reasoning carry it, in a FILE "
        "(<think> … </think>, text, messages) or behind a prompt with --generate N.",
        default="answer",
    ),
    group: Grouping = opt(
        CHOICE, "--group WHAT", "What is left out: {choices}.", default="passages"
    ),
    without: Without = opt(
        CHOICE,
        "--without HOW",
        "How a part is left out: {choices}. hide keeps the positions of all others.",
        default="hide",
    ),
    budget: int = opt(
        CHOICE,
        "--budget RUNS",
        "Runs of the model at most; of more parts, halves are left out first.",
        default=200,
        min=2,
    ),
    fit: int = rare(
        CHOICE,
        "--fit N",
        "Also leave out N random halves of the parts, and learn how much the attention "
        "of each head counts.",
        default=0,
        min=0,
    ),
    resample: int = opt(
        CHOICE,
        "--resample N",
        "Of output: also write N continuations from before each sentence.",
        default=0,
        min=0,
    ),
    pattern: str | None = rare(
        CHOICE,
        "--pattern REGEX",
        r"The final answer in a continuation: the first group, or all; by default \boxed{…}.",
    ),
    temperature: float = rare(
        CHOICE,
        "--temperature T",
        "Of the distributions that are compared and drawn from; the published recipe has 0.6.",
        default=1.0,
        min=0,
    ),
    control_depth: bool = rare(
        CHOICE,
        "--control-depth",
        "Rank weights within their row, since more rows see an early sentence.",
    ),
    seed: int = rare(CHOICE, "--seed N", SEED, default=0, min=0),
    fail_unsupported: float | None = opt(
        CHOICE,
        "--fail-unsupported NATS",
        "Exit with 3 if a sentence of the answer has no source with such an effect.",
        min=0,
    ),
    *,
    options: Options,
) -> None:
    """Show which parts of a context an answer was made from; or which sentences carry a reasoning.

    attnviz sources "Tom likes" --context notes.txt

    attnviz sources "Tom likes" --context notes.txt --context sentences.txt -f json

    attnviz sources reasoning.txt --of output --picture anchors.png
    """
    of_answer = {
        "--group": group != "passages",
        "--without": without != "hide",
        "--budget": budget != 200,
        "--fit": fit,
        "--fail-unsupported": fail_unsupported is not None,
    }
    of_output = {
        "--resample": resample,
        "--pattern": pattern,
        "--temperature": temperature != 1,
        "--control-depth": control_depth,
        "--seed": seed,
        "--generate": options.origin.generate,
        "--resume": options.many.resume,
        "--picture": options.pictures["plot"] or options.output.show,
    }
    others = of_answer if of == "output" else of_output
    if clash := [name for name, value in others.items() if value]:
        needs = "is for an answer: leave --of output out" if of == "output" else "needs --of output"
        raise UsageError(f"{clash[0]} {needs}")
    files = tuple(context or ())
    if of == "output":
        from attnviz.features.trace.request import TraceRequest, report_trace

        reasoning = TraceRequest(
            *(tuple(question), files, answer, temperature, control_depth, resample, pattern, seed)
        )
        with Report(options, "trace", many=len(question) > 1) as report:
            report_trace(reasoning, options, report)
        raise typer.Exit(report.status)
    if len(question) > 1:
        raise UsageError(f"sources answers one question, and got {len(question)}: quote it")
    if not files:
        raise UsageError("sources needs a context: --context FILE")
    request = SourcesRequest(files, question[0], answer, group, without, budget, fit)
    with Report(options, "sources") as report:
        result = report_sources(request, options, report)
    check_support(result, fail_unsupported)
    raise typer.Exit(report.status)
