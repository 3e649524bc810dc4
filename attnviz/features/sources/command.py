"""attnviz sources."""

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, ORIGIN, with_options
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


@with_options("model", "compute", "to", "chat", "page", writes="sources")
def sources(
    question: Annotated[str, typer.Argument(help="What stands behind the context.")],
    context: list[Path] | None = opt(
        ORIGIN,
        "--context FILE",
        "Text file, a passage between blank lines, or messages (.jsonl). Repeatable.",
    ),
    answer: str | None = opt(
        ORIGIN, "--answer TEXT", "The answer; without it the model writes one."
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
    fail_unsupported: float | None = opt(
        CHOICE,
        "--fail-unsupported NATS",
        "Exit with 3 if a sentence of the answer has no source with such an effect.",
        min=0,
    ),
    *,
    options: Options,
) -> None:
    """Show which passages, sentences or messages of a context an answer was made from.

    attnviz sources "Tom likes" --context notes.txt

    attnviz sources "Tom likes" --context notes.txt --context sentences.txt -f json
    """
    if not context:
        raise UsageError("sources needs a context: --context FILE")
    request = SourcesRequest(tuple(context), question, answer, group, without, budget, fit)
    with Report(options, "sources") as report:
        result = report_sources(request, options, report)
    check_support(result, fail_unsupported)
    raise typer.Exit(report.status)
