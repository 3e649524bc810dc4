"""attnviz explain."""

from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, INPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.features.explain.request import AnswerRequest, report_answers
from attnviz.runs.inputs import texts_of
from attnviz.runs.readers import read_texts_or_file


@with_options(
    *("model", "compute", "causal", "to", "chat", "show", "look", "page", "reading"),
    also=["explain"],
    writes="answer",
    draws={"plot": "layers by positions, with --contrast"},
)
def explain(
    text: Annotated[
        str | None, typer.Argument(help="Text, the source text of a pair, or a picture.")
    ] = None,
    target: Annotated[str | None, typer.Argument(help="Target of a pair, or second text.")] = None,
    input_file: str | None = INPUT,
    against: str | None = opt(
        CHOICE, "--against TOKEN", "Explain by how much the answer is likelier than this one."
    ),
    contrast: str | None = opt(
        CHOICE,
        "--contrast TEXT",
        "Show instead which heads and positions restore the answer in this text of as many tokens.",
    ),
    reference: str | None = rare(
        CHOICE, "--reference FILE", "Texts whose mean output replaces that of a head that is off."
    ),
    *,
    options: Options,
) -> None:
    """Show what decided an answer: the fewest tokens and heads that give it, each measured.

    attnviz explain "Tom likes dogs. Mary likes cats. Tom likes" --model pocket-lm

    attnviz explain "The red car is fast." "La voiture rouge est rapide." --target 'rouge[3]'

    attnviz explain "The keys to the cabinet" --model pocket-lm --target next:are --against is

    attnviz explain "I like dogs. I like" --contrast "I like cats. I like" --picture a.png

    attnviz explain --input sentences.txt --model pocket-lm -f jsonl
    """
    request = AnswerRequest(options.choice.explain, against, contrast)
    files = options.output.picture
    if (files or options.output.show) and contrast is None:
        raise UsageError(
            f"{'--picture' if files else '--show'} draws what --contrast measures: add --contrast "
            "TEXT"
        )
    texts, kind, options = read_texts_or_file(text, target, input_file, options)
    with Report(options, "answer") as report:
        others = texts_of([], reference, options.many, pairs=True) if reference else None
        report_answers(request, texts, kind, options, report, others)
    raise typer.Exit(report.status)
