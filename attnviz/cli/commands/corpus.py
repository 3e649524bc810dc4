"""attnviz corpus."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.commands.heads import BY, CROSS, SORT, WITH_EFFECT
from attnviz.cli.destinations import PAGES
from attnviz.cli.options import CHOICE, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.runs.corpus import SHOWS, CorpusJournal, CorpusRequest, report_corpus
from attnviz.runs.head_measures import Instead
from attnviz.runs.inputs import corpus_input
from attnviz.runs.resumable import can_resume


@with_options(
    *("model", "compute", "mechanism", "causal", "generate", "to", "long"),
    *("stream", "heads", "special", "look", "reading", "sharing", "scores"),
    also=("resume",),
    writes="corpus",
    draws={
        "overview": "every head's positions, classes and measures",
        "curve": "the loss while heads are switched off one after another, with --effect",
    },
)
def corpus(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Texts: .txt (one a line), .jsonl, .csv or .tsv; - is stdin. Or a picture, or a "
            "folder of pictures.",
        ),
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILE…", help="Further pictures and folders.")
    ] = None,
    cross: bool = CROSS,
    show: str = opt(
        CHOICE,
        "--show WHAT",
        "What tables and rows hold: {choices}. json and npz always hold everything.",
        default="measures",
        choices=SHOWS,
    ),
    order: str = SORT,
    effect: bool = WITH_EFFECT,
    by: Instead = BY,
    top: int | None = opt(
        CHOICE,
        "--top N",
        "How many heads (with --wiring: pairs) to list; by default all heads, 20 pairs.",
        min=1,
    ),
    frequencies: Path | None = rare(
        CHOICE,
        "--frequencies FILE",
        "How frequent words are: word, tab, count on each line. By default counted in the texts.",
    ),
    wiring: bool = opt(
        CHOICE, "--wiring", "Show instead which heads read which heads, with intervals."
    ),
    atlas: Path | None = opt(
        OUTPUT,
        "--atlas PAGE",
        "Page to browse all heads, with texts in which each attends strongly, usually, weakly.",
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --picture heads.png

    attnviz corpus sample_inputs/sentences.txt --atlas atlas.html -f none

    attnviz corpus sample_inputs/sentences.txt --wiring --model pocket-lm

    attnviz corpus ./my-pictures --model ./my-vit --atlas atlas.html -f none

    attnviz corpus sample_inputs/pairs.tsv --cross --effect --sort effect --picture curve:curve.png
    """
    pictures = options.pictures
    request = CorpusRequest(
        cross=cross,
        order=order,
        effect=effect,
        by=by,
        show=show,
        top=top,
        frequencies=frequencies,
        overview=pictures["overview"] is not None,
        curve=pictures["curve"] is not None,
        samples=atlas is not None,
        wiring=wiring,
    )
    inputs = corpus_input([file, *(more or ())], options.many, pairs=cross)
    request.check(inputs, options)
    if atlas is not None:
        if atlas.suffix.lower() not in PAGES:
            raise UsageError(f"--atlas '{atlas}' names no page: end it in {' or '.join(PAGES)}")
        values = tuple((name, value) for name, value in options.given if name != "atlas")
        options = replace(options, given=values, output=replace(options.output, html=atlas))
    output_file = next((p for p in (options.output.output, *pictures.values(), atlas) if p), None)
    journal = None
    if output_file is not None and can_resume(output_file) and inputs.file is not None:
        journal = CorpusJournal(output_file, request.question(inputs, options))
    elif options.many.resume:
        raise UsageError(
            "--resume continues an interrupted run: give the texts as a file, and -o FILE, "
            "--picture FILE or --atlas PAGE"
        )
    with Report(options, "corpus") as report:
        report_corpus(request, inputs, options, report, journal=journal)
    raise typer.Exit(report.status)
