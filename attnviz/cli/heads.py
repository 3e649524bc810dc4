"""attnviz heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.analyses.heads import ORDERS, check_order
from attnviz.analyses.roles import ROLES
from attnviz.cli.input import InputOption, reading, texts_of
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
from attnviz.errors import UsageError, choose

FORMATS = ("table", "tsv", "json", "none")


@with_options(
    without=(
        "to",
        "lens",
        "explain",
        "generate",
        "chat",
        "labels",
        "reduce",
        "over",
        "format",
        "output",
        "heatmap",
        "grid",
        *("keep_qk", "group", "words", "links", "html", "open_page", "top", "rows", "window"),
        "verbose",
    ),
    many=(*READING, *SHARING),
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: InputOption = None,
    no_repeat: Annotated[
        bool,
        typer.Option(
            "--no-repeat",
            rich_help_panel=ORIGIN,
            help="Leave out the second run, over random words said twice, that induction needs.",
        ),
    ] = False,
    treebank: Annotated[
        str | None,
        typer.Option(
            "--treebank",
            metavar="FILE",
            rich_help_panel=ORIGIN,
            help="Sentences with dependencies (.conllu): which head finds which relation.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help=f"Only heads of this role: {', '.join(ROLES)}.",
            autocompletion=completing(ROLES),
        ),
    ] = None,
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
    similar: Annotated[
        bool,
        typer.Option(
            "--similar",
            rich_help_panel=CHOICE,
            help="Show which heads look alike instead: Jensen-Shannon divergences.",
        ),
    ] = False,
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
            help="The same as a file: .txt, .tsv or .json.",
        ),
    ] = None,
    overview: Annotated[
        Path | None,
        typer.Option(
            "--overview",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Roles and measures of all heads as a picture: .png, .svg or .pdf.",
        ),
    ] = None,
    scatter: Annotated[
        Path | None,
        typer.Option(
            "--scatter",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Heads in a plane, near where they look alike, as a picture.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does: a line a head, beside what an even look would give.

    attnviz heads "The cat sat on the mat" --model ./my-bert

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads --treebank sample_inputs/relations.conllu
    """
    from attnviz.cli import heads_run
    from attnviz.texts import Text

    choose(format_name, FORMATS, "format")
    check_order(order, role)
    asked = heads_run.Asked(
        options, order, role, similar, format_name, output, overview, scatter, not no_repeat
    )
    asked.check()
    if similar and (role is not None or order != "role"):
        raise UsageError("--similar compares all heads with one another: leave out --role, --sort")
    if treebank is not None:
        others = (text, input_file, role, similar, overview, scatter, no_repeat, order != "role")
        if any(others):
            raise UsageError(
                "--treebank brings its own sentences and scores every head on them: of the other "
                "options it takes only where attention comes from, which part, and -f and -o"
            )
        from attnviz.cli.heads_treebank import relations

        raise typer.Exit(relations(treebank, asked))
    if options.origin.weights is not None and not text and input_file is None:
        # A file of weights can bring its own tokens.
        raise typer.Exit(heads_run.measures(iter([Text("0", "")]), asked))
    texts, _ = texts_of(text or [], input_file, **reading(options))
    raise typer.Exit(heads_run.measures(texts, asked, input_file))
