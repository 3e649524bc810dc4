"""attnviz align."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import READING, SHARING, Options, completing, with_options
from attnviz.errors import choose

WAYS = ("forward", "reverse", "intersection", "union", "grow-diag-final-and", "product")

SymmetrizeOption = Annotated[
    str | None,
    typer.Option(
        "--symmetrize",
        metavar="HOW",
        help="forward, reverse, intersection, union, grow-diag-final-and or product.",
        autocompletion=completing(WAYS),
    ),
]
AgainstOption = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="SIDE",
        help="A decoder row stands for the token it has read (input) or predicts (output).",
        autocompletion=completing(("input", "output")),
    ),
]
ScoreOption = Annotated[
    Path | None,
    typer.Option(
        "--score",
        metavar="GOLD",
        help="Lines of links by hand (0-0 sure, 1?1 possible): score every layer and head.",
    ),
]


FormatOption = Annotated[
    str,
    typer.Option("--format", "-f", metavar="NAME", help="Of --score: table, tsv or json."),
]


@with_options(
    without=(
        *(
            "generate",
            "chat",
            "weights",
            "causal",
            "size",
            "heads",
            "seed",
            "mechanism",
            "lens",
            "explain",
            "stream",
            "reduce",
        ),
        *("over", "labels", "format", "heatmap", "grid", "links", "html", "open_page", "top"),
        *("keep_qk", "group", "words", "rows", "window"),
    ),
    many=(*READING, *SHARING),
)
def align(
    file: Annotated[
        str,
        typer.Argument(
            help="Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin."
        ),
    ] = "-",
    symmetrize: SymmetrizeOption = None,
    against: AgainstOption = "input",
    score: ScoreOption = None,
    score_format: FormatOption = "table",
    *,
    options: Options,
) -> None:
    """Align the words of sentence pairs: a Pharaoh line (0-0 2-1) a pair, in order.

    attnviz align sample_inputs/pairs.tsv --score sample_inputs/pairs.gold

    paste en.txt fr.txt | attnviz align - > links.txt
    """
    from attnviz.cli.align_run import Alignment, run_alignment
    from attnviz.cli.input import reading, texts_of

    choose(score_format, ("table", "tsv", "json"), "format")
    pairs, _ = texts_of([], file, pairs=True, keep_blank=True, **reading(options))
    asked = Alignment(symmetrize, against, score, score_format)
    raise typer.Exit(run_alignment(pairs, options, asked, file))
