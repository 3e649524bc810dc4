"""attnviz sources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from attnviz.commands.command import CHOICE, ORIGIN, SEED, Run, command
from attnviz.commands.findings import Findings
from attnviz.core.errors import UsageError, in_short
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.sources.request import (
    Grouping,
    SourcesRequest,
    Without,
    check_support,
    report_sources,
)
from attnviz.storage.texts import check_text

Of = Literal["answer", "output"]
Files = str | Path | Sequence[str | Path]


@command(
    *("model", "compute", "to", "chat", "generate", "look", "show", "page"),
    also=("resume",),
    writes=("sources", "trace"),
    draws={"plot": "with --of output, what each sentence changes later"},
)
def sources(
    question: Annotated[Files, "checked by the function itself"] = arg(
        "What stands behind the context; with --of output FILEs with a reasoning.",
        default=...,
        shell=list[str],
        python='what stands behind the context; with of="output" a transcript or its file, or a '
        "list of these: text with <think> … </think>, plain text, messages (.json, .jsonl).",
    ),
    context: Files | None = opt(
        ORIGIN,
        "--context FILE",
        "Text file, a passage between blank lines, or messages (.jsonl). Repeatable.",
        shell=list[Path] | None,
    ),
    *,
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
    **options: Any,
) -> Findings:
    """Show which parts of a context an answer was made from; or which sentences carry a reasoning.

    attnviz sources "Tom likes" --context notes.txt

    attnviz sources "Tom likes" --context notes.txt --context sentences.txt -f json

    attnviz sources reasoning.txt --of output --picture anchors.png

    Returns:
        A `SourcesReport`: one row for each part, with its effect on each sentence; of output a
        `TraceReport`, with a picture "plot".
    """
    run = Run("sources", options)
    how = run.options
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
        "--generate": how.origin.generate,
        "--resume": how.many.resume,
        "--picture": how.pictures.get("plot") or how.output.show,
    }
    others = of_answer if of == "output" else of_output
    if run.in_shell and (clash := [name for name, value in others.items() if value]):
        needs = "is for an answer: leave --of output out" if of == "output" else "needs --of output"
        raise UsageError(f"{clash[0]} {needs}")
    paths = [context] if isinstance(context, str | Path) else () if context is None else context
    if not isinstance(paths, list | tuple) or not all(isinstance(n, str | Path) for n in paths):
        raise UsageError(f"context={in_short(context)} is no list of files")
    files = tuple(map(Path, paths))
    texts = question if isinstance(question, list | tuple) else [question]
    if of == "output":
        from attnviz.features.trace.request import TraceRequest, report_trace

        if not texts or not all(isinstance(one, str | Path) for one in texts):
            raise UsageError(f"question={in_short(question)} is no transcript and no list of them")
        reasoning = TraceRequest(
            *(tuple(texts), files, answer, temperature, control_depth, resample, pattern, seed)
        )
        with run.report("trace", many=len(texts) > 1) as report:
            report_trace(reasoning, how, report)
        return run.result
    if run.in_shell and len(texts) > 1:
        raise UsageError(f"sources answers one question, and got {len(texts)}: quote it")
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise UsageError(f"question={in_short(question)} is no text")
    if not run.in_shell:
        check_text(texts[0])
    if not files:
        raise UsageError("sources needs a context: --context FILE")
    request = SourcesRequest(files, texts[0], answer, group, without, budget, fit)
    with run.report("sources") as report:
        result = report_sources(request, how, report)
    check_support(result, fail_unsupported)
    return run.result
