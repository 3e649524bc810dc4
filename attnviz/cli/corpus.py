"""attnviz corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.analyses.heads import ORDERS, check_order
from attnviz.cli.options import (
    CHOICE,
    ORIGIN,
    OUTPUT,
    READING,
    SHARING,
    Options,
    completing,
    with_options,
)
from attnviz.errors import choose

FORMATS = ("table", "tsv", "json", "npz", "none")
SHOWS = ("measures", "positions", "classes", "pairs", "links")


@with_options(
    without=(
        *("weights", "lens", "explain", "generate", "chat", "labels", "reduce", "over"),
        *("format", "output", "heatmap", "grid", "links", "html", "open_page", "top", "verbose"),
        *("keep_qk", "group", "words", "rows", "window"),
    ),
    many=(*READING, *SHARING, "resume"),
)
def corpus(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Texts: .txt (one a line), .jsonl, .csv or .tsv; - is stdin."
        ),
    ],
    cross: Annotated[
        bool,
        typer.Option(
            "--cross",
            rich_help_panel=ORIGIN,
            help="FILE holds pairs of source and target: measure how targets attend to sources.",
        ),
    ] = False,
    show: Annotated[
        str,
        typer.Option(
            "--show",
            metavar="WHAT",
            rich_help_panel=CHOICE,
            help=f"What table and tsv hold: {', '.join(SHOWS)}. json and npz hold everything.",
            autocompletion=completing(SHOWS),
        ),
    ] = "measures",
    order: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help="Order: role (the clearest first), layer, or a measure (the largest first).",
            autocompletion=completing(ORDERS),
        ),
    ] = "role",
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            rich_help_panel=CHOICE,
            help="Heads in table and tsv, the first as sorted; all by default.",
        ),
    ] = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            "--frequencies",
            metavar="FILE",
            rich_help_panel=CHOICE,
            help="Word, tab, count a line: how frequent words are. Default: as in the texts.",
        ),
    ] = None,
    replicates: Annotated[
        int,
        typer.Option(
            "--replicates",
            metavar="N",
            min=2,
            rich_help_panel=CHOICE,
            help="Bootstrap replicates behind each interval.",
        ),
    ] = 200,
    bootstrap_seed: Annotated[
        int,
        typer.Option(
            "--bootstrap-seed",
            metavar="N",
            min=0,
            rich_help_panel=CHOICE,
            help="Seed of the bootstrap.",
        ),
    ] = 0,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help=f"What stdout gets: {', '.join(FORMATS)}.",
            autocompletion=completing(FORMATS),
        ),
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="The same as a file: .txt, .tsv, .json or .npz.",
        ),
    ] = None,
    overview: Annotated[
        Path | None,
        typer.Option(
            "--overview",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Every head's positions, classes and measures as a picture: .png, .svg or .pdf.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --overview heads.png
    """
    from attnviz.cli.corpus_asked import Asked
    from attnviz.cli.corpus_run import run

    choose(format_name, FORMATS, "format")
    choose(show, SHOWS, "thing to show")
    check_order(order, None)
    asked = Asked(
        options=options,
        file=file,
        command="cross" if cross else "self",
        show=show,
        order=order,
        top=top,
        frequencies=frequencies,
        replicates=replicates,
        seed=bootstrap_seed,
        format=format_name,
        output=output,
        overview=overview,
    )
    raise typer.Exit(run(asked))
