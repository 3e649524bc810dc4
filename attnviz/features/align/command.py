"""attnviz align, and what `cross` does where it is asked for alignments."""

from pathlib import Path
from typing import Any

from attnviz.commands.arguments import Texts, read_texts
from attnviz.commands.command import Run, command
from attnviz.commands.cross import AGAINST, SCORE, SYMMETRIZE
from attnviz.commands.findings import Findings
from attnviz.core.options.option import arg
from attnviz.runs.inputs import TextInput


def align_texts(
    run: Run, texts: TextInput, how: str | None, against: str, score: Path | None
) -> Findings:
    """Find the links of each pair, or with a gold file the scores."""
    from attnviz.features.align import request

    work = request.check_alignment(run.options, how, against)
    if score is None:
        with run.report("alignment", many=texts.several) as report:
            request.report_links(work, texts, run.options, report)
        return run.result
    gold = request.read_gold_file(score)
    with run.report("scores") as report:
        request.report_scores(work, gold, texts, run.options, report)
    return run.result


@command(
    *("model", "compute", "to", "long", "heads", "reading", "sharing"),
    writes=("alignment", "scores"),
)
def align(
    file: str | Path | Texts | None = arg(
        "Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin.",
        default="-",
        shell=str,
        python="a file of pairs, or a list of pairs.",
    ),
    *,
    symmetrize: str | None = SYMMETRIZE,
    against: str = AGAINST,
    score: Path | None = SCORE,
    **options: Any,
) -> Findings:
    """Align the words of sentence pairs: one Pharaoh line (0-0 2-1) per pair, in order.

    attnviz align pairs.tsv --score pairs.gold

    head -n 3 pairs.tsv | attnviz align - > links.txt
    """
    run = Run("align", options)
    many, name, pairs = run.options.many, None, file
    if isinstance(file, str | Path):
        pairs, name = None, str(file) if run.in_shell or file != "-" else None
    texts = read_texts("align", pairs, name, many, pairs=True, keep_blank=True)
    return align_texts(run, texts, symmetrize, against, score)
