"""The function of Python: attnviz.sources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Unpack

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

Asked = Annotated[str | Path | Sequence[str | Path], "checked by the function itself"]


@arguments.public
def sources(
    question: Asked,
    context: str | Path | Sequence[str | Path] = (),
    *,
    answer: str | None = None,
    of: Literal["answer", "output"] = "answer",
    group: Grouping = "passages",
    without: Without = "hide",
    budget: arguments.Positive = 200,
    fit: arguments.NotNegative = 0,
    resample: arguments.NotNegative = 0,
    pattern: str | None = None,
    temperature: float = 1.0,
    control_depth: bool = False,
    seed: arguments.NotNegative = 0,
    fail_unsupported: arguments.Nats | None = None,
    **options: Unpack[arguments.ChatOptions],
) -> Findings:
    r"""Which parts of a context an answer was made from, or which sentences carry a reasoning.

    Args:
        question: what stands behind the context; with of="output" a transcript or its file, or a
            list of these: text with <think> … </think>, plain text, messages (.json, .jsonl).
        context: a text file, or a list of files; a passage stands between blank lines. With
            of="output" what the model has read before.
        answer: the answer; None: the model writes one. With of="output" the right one.
        of: "answer", or "output": for each sentence of a reasoning how much later ones look at it
            by receiver heads, and what changes without it.
        group: what is left out: "passages", "sentences", or with chat=True "messages", a line of
            JSON with `role` and `content` each.
        without: "hide" hides a part's tokens and keeps positions, "remove" deletes its text.
        budget: runs of the model at most; of more parts, halves are left out first.
        fit: random subsets of parts on which a linear combination of heads is fitted; 0: none.
        resample: of output, continuations that are written from before each sentence; 0: none.
        pattern: a regular expression of the final answer in them; None: in \boxed{…}.
        temperature: of the distributions that are compared and drawn from.
        control_depth: rank weights within their row, since more rows see an early sentence.
        seed: seed of what is drawn.
        fail_unsupported: raise an error where a sentence has no source with such an effect.
        options: those of `attnviz sources`, by name.

    Returns:
        A `SourcesReport`: one row for each part, with its effect on each sentence; of output a
        `TraceReport`, with a picture "plot".
    """
    how = arguments.read_options(options)
    files = [context] if isinstance(context, str | Path) else context
    if not isinstance(files, list | tuple) or not all(isinstance(n, str | Path) for n in files):
        raise UsageError(f"context={in_short(context)} is no list of files")
    if of == "output":
        from attnviz.features.trace.request import TraceRequest, report_trace

        texts = [question] if isinstance(question, str | Path) else [*question]
        if not texts or not all(isinstance(one, str | Path) for one in texts):
            raise UsageError(f"question={in_short(question)} is no transcript and no list of them")
        reasoning = TraceRequest(
            tuple(texts),
            tuple(map(Path, files)),
            answer,
            temperature=temperature,
            control_depth=control_depth,
            resample=resample,
            pattern=pattern,
            seed=seed,
        )
        with collect("sources", "trace", how) as report:
            report_trace(reasoning, how, report)
        return report.findings
    if not isinstance(question, str):
        raise UsageError(f"question={in_short(question)} is no text")
    check_text(question)
    if not files:
        raise UsageError("context names no file")
    request = SourcesRequest(tuple(map(Path, files)), question, answer, group, without, budget, fit)
    with collect("sources", "sources", how) as report:
        result = report_sources(request, how, report)
    check_support(result, fail_unsupported)
    return report.findings
