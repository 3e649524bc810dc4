"""attnviz explain."""

from pathlib import Path
from typing import Any

from attnviz.commands import arguments, findings
from attnviz.commands.command import CHOICE, INPUT, Run, command
from attnviz.core.errors import UsageError
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.experiments.questions import QUESTION, read_reference, read_written
from attnviz.features.explain.request import AnswerRequest, report_answers
from attnviz.runs.pipeline import Result


@command(
    *("model", "compute", "causal", "to", "chat", "show", "look", "page", "reading"),
    also=["explain"],
    writes="answer",
    draws={"plot": "layers by positions, with --contrast"},
    python=["token_groups"],
)
def explain(
    text: str | arguments.Texts | Result | None = arg(
        "Text, the source text of a pair, or a picture.", python=f"a picture's file, {QUESTION}"
    ),
    target: str | None = arg("Target of a pair, or second text."),
    *,
    input: str | None = INPUT,  # noqa: A002 - as the option is called
    against: str | None = opt(
        CHOICE, "--against TOKEN", "Explain by how much the answer is likelier than this one."
    ),
    contrast: str | None = opt(
        CHOICE,
        "--contrast TEXT",
        "Show instead which heads and positions restore the answer in this text of as many tokens.",
    ),
    score: bool = opt(
        CHOICE, "--score", "Of a reranker: what carries its score, token by token, head by head."
    ),
    reference: str | Path | arguments.Texts | None = rare(
        CHOICE,
        "--reference FILE",
        "Texts whose mean output replaces that of a head that is off.",
        shell=str | None,
        python="texts whose mean output replaces that of a head that is off: a file, or a list; "
        "None: English sentences.",
    ),
    **options: Any,
) -> findings.Findings:
    """Show what decided an answer: the fewest tokens and heads that give it, each measured.

    attnviz explain "Tom likes dogs. Mary likes cats. Tom likes" --model pocket-lm

    attnviz explain "The red car is fast." "La voiture rouge est rapide." --target 'rouge[3]'

    attnviz explain "The keys to the cabinet" --model pocket-lm --target next:are --against is

    attnviz explain "I like dogs. I like" --contrast "I like cats. I like" --picture a.png

    attnviz explain --input sentences.txt --model pocket-lm -f jsonl

    Returns:
        An `AnswerReport`; of several texts an `AnswersReport`; with `score` a `PairScoreReport`;
        with `contrast` a `ContrastReport` and the picture "plot".
    """
    run = Run("explain", options)
    files, show = run.options.output.picture, run.options.output.show
    if (files or show) and contrast is None:
        raise UsageError(
            f"{'--picture' if files else '--show'} draws what --contrast measures: add --contrast "
            "TEXT"
        )
    texts, kind = read_written(run, text, target, input)
    output = run.options.output
    page = output.html is not None or output.open_page
    request = AnswerRequest(run.options.choice.explain, against, contrast, score, page)
    several, each = texts.several, score or contrast is not None
    with run.report("answer", many=several and each, pages=several and not each) as report:
        others = read_reference(run, reference)
        report_answers(request, texts, kind, run.options, report, others)
    return run.result
