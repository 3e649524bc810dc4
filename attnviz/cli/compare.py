"""attnviz compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, Options, completing, with_options
from attnviz.errors import choose

FORMATS = ("table", "tsv", "json", "none")


def _side(panel: str, name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, rich_help_panel=panel, help=text)


@with_options(
    without=(
        *("to", "weights", "labels", "format", "output", "heatmap", "grid", "links", "top"),
        *("html", "open_page", "keep_qk", "verbose", "rows", "window"),
    )
)
def compare(
    a: Annotated[str, typer.Argument(help="Text, or a saved map: .npz, .json, .safetensors.")],
    b: Annotated[
        str | None, typer.Argument(help="The other; without it the same text or map.")
    ] = None,
    model_a: Annotated[
        str | None, _side(ORIGIN, "--model-a", "ID_OR_FOLDER", "Model of A, instead of --model.")
    ] = None,
    model_b: Annotated[
        str | None, _side(ORIGIN, "--model-b", "ID_OR_FOLDER", "Model of B, instead of --model.")
    ] = None,
    revision_a: Annotated[
        str | None, _side(ORIGIN, "--revision-a", "NAME", "Revision of A's model.")
    ] = None,
    revision_b: Annotated[
        str | None, _side(ORIGIN, "--revision-b", "NAME", "Revision of B's model.")
    ] = None,
    layer_a: Annotated[
        str | None, _side(CHOICE, "--layer-a", "WHICH", "Layers of A, instead of --layer.")
    ] = None,
    layer_b: Annotated[
        str | None, _side(CHOICE, "--layer-b", "WHICH", "Layers of B, instead of --layer.")
    ] = None,
    head_a: Annotated[
        str | None, _side(CHOICE, "--head-a", "WHICH", "Heads of A, instead of --head.")
    ] = None,
    head_b: Annotated[
        str | None, _side(CHOICE, "--head-b", "WHICH", "Heads of B, instead of --head.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", metavar="N", min=1, rich_help_panel=OUTPUT, help="Heads and links to name."
        ),
    ] = 10,
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
            help="Data file: .tsv or .json; .npz keeps B − A as a map for 'attnviz render'.",
        ),
    ] = None,
    heatmap: Annotated[
        Path | None,
        typer.Option(
            "--heatmap",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="B − A in the head that differs most: .png, .svg or .pdf.",
        ),
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option("--grid", metavar="FILE", rich_help_panel=OUTPUT, help="B − A in every head."),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="NATS",
            min=0,
            rich_help_panel=OUTPUT,
            help="Exit with 1 if a head's divergence is larger (0: none, 0.693: all).",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what changed between two attentions: of texts, models, heads or saved maps.

    attnviz compare "The cat sat on the mat" "The dog sat on the mat"

    attnviz compare "The cat sat" --model-a ./step-1000 --model-b ./step-2000 --fail-above 0.05

    attnviz compare before.npz after.npz --heatmap change.png
    """
    from attnviz.cli.compare_run import Asked, Side, run_comparison

    choose(format_name, FORMATS, "format")

    def side(text: str, model: str | None, revision: str | None, *which: str | None) -> Side:
        origin = replace(
            options.origin,
            model=model or options.origin.model,
            revision=revision or options.origin.revision,
        )
        layer, head = which
        choice = replace(
            options.choice,
            layer=layer or options.choice.layer,
            head=head or options.choice.head,
        )
        return Side(text, origin, choice)

    sides = (
        side(a, model_a, revision_a, layer_a, head_a),
        side(a if b is None else b, model_b, revision_b, layer_b, head_b),
    )
    asked = Asked(sides, top, format_name, output, heatmap, grid, fail_above, options.output.quiet)
    raise typer.Exit(run_comparison(asked))
