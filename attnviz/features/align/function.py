"""The function of Python: attnviz.align."""

from pathlib import Path
from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.features.align.request import (
    check_alignment,
    read_gold_file,
    report_links,
    report_scores,
)


@arguments.public
def align(
    file: str | Path | arguments.Texts | None = None,
    *,
    symmetrize: str | None = None,
    against: str = "input",
    score: Path | None = None,
    **options: Unpack[arguments.AlignOptions],
) -> Findings:
    """The words of sentence pairs that translate each other, for each pair in order.

    Args:
        file: a file of pairs, or a list of pairs.
        symmetrize: how the two directions are joined: forward, reverse, intersection, union,
            grow-diag-final, grow-diag-final-and or product.
        against: a decoder row stands for the token it has read ("input") or predicts ("output").
        score: a file of correct links (0-0 sure, 1?1 possible): score every layer and head.
        options: those of `attnviz align`, by name.
    """
    how = arguments.read_options(options)
    work = check_alignment(how, symmetrize, against)
    name = str(file) if isinstance(file, str | Path) else None
    texts = arguments.read_texts(
        "align", None if name else file, name, how.many, pairs=True, keep_blank=True
    )
    gold = None if score is None else read_gold_file(score)
    with collect("align", "alignment" if gold is None else "scores", how) as report:
        if gold is None:
            report_links(work, texts, how, report)
        else:
            report_scores(work, gold, texts, how, report)
    return report.findings
