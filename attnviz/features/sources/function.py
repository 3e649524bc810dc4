"""The function of Python: attnviz.sources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.errors import UsageError, in_short
from attnviz.features.sources.request import (
    Grouping,
    SourcesRequest,
    Without,
    check_support,
    report_sources,
)
from attnviz.storage.texts import check_text


@arguments.public
def sources(
    question: str,
    context: str | Path | Sequence[str | Path],
    *,
    answer: str | None = None,
    group: Grouping = "passages",
    without: Without = "hide",
    budget: arguments.Positive = 200,
    fit: arguments.NotNegative = 0,
    fail_unsupported: arguments.Nats | None = None,
    **options: Unpack[arguments.ChatOptions],
) -> Findings:
    """Which passages, sentences or messages of a context an answer was made from.

    Args:
        question: what stands behind the context.
        context: a text file, or a list of files; a passage stands between blank lines.
        answer: the answer; None: the model writes one.
        group: what is left out: "passages", "sentences", or with chat=True "messages", a line of
            JSON with `role` and `content` each.
        without: "hide" hides a part's tokens and keeps positions, "remove" deletes its text.
        budget: runs of the model at most; of more parts, halves are left out first.
        fit: random subsets of parts on which a linear combination of heads is fitted; 0: none.
        fail_unsupported: raise an error where a sentence has no source with such an effect.
        options: those of `attnviz sources`, by name.

    Returns:
        A `SourcesReport`: one row for each part, with its effect on each sentence.
    """
    how = arguments.read_options(options)
    check_text(question)
    files = [context] if isinstance(context, str | Path) else context
    if not isinstance(files, list | tuple) or not all(isinstance(n, str | Path) for n in files):
        raise UsageError(f"context={in_short(context)} is no list of files")
    if not files:
        raise UsageError("context names no file")
    request = SourcesRequest(tuple(map(Path, files)), question, answer, group, without, budget, fit)
    with collect("sources", "sources", how) as report:
        result = report_sources(request, how, report)
    check_support(result, fail_unsupported)
    return report.findings
