"""attnviz align, and what `cross` does where it is asked for alignments."""

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.commands.cross import AGAINST, SCORE, SYMMETRIZE
from attnviz.cli.options import with_options
from attnviz.core.options import Options
from attnviz.runs.inputs import TextInput, texts_of


def align_texts(
    texts: TextInput, how: str | None, against: str, score: Path | None, options: Options
) -> int:
    """Write the links of each pair, or with a gold file the scores; answers the status."""
    from attnviz.cli.report import Report
    from attnviz.features.align import request

    work = request.check_alignment(options, how, against)
    if score is None:
        with Report(options, "alignment", many=texts.several) as report:
            request.report_links(work, texts, options, report)
        return report.status
    gold = request.read_gold_file(score)
    with Report(options, "scores") as report:
        request.report_scores(work, gold, texts, options, report)
    return report.status


@with_options(
    *("model", "compute", "to", "long", "heads", "reading", "sharing"),
    writes=("alignment", "scores"),
)
def align(
    file: Annotated[
        str,
        typer.Argument(
            help="Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin."
        ),
    ] = "-",
    symmetrize: str | None = SYMMETRIZE,
    against: str = AGAINST,
    score: Path | None = SCORE,
    *,
    options: Options,
) -> None:
    """Align the words of sentence pairs: one Pharaoh line (0-0 2-1) per pair, in order.

    attnviz align pairs.tsv --score pairs.gold

    head -n 3 pairs.tsv | attnviz align - > links.txt
    """
    texts = texts_of([], file, options.many, pairs=True, keep_blank=True)
    raise typer.Exit(align_texts(texts, symmetrize, against, score, options))
