"""attnviz image."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, Options, Output, completing, with_options
from attnviz.request import Choice, Origin

LENSES = ("raw", "rollout", "flow", "gradient", "norm")
OFFERED = {
    *("model", "device", "device_map", "dtype", "revision", "allow_pickle", "allow_code"),
    *("explain", "layer", "head", "reduce", "over", "special"),
    *("format", "output", "grid", "html", "open_page", "quiet"),
}
"""The shared options that mean something for a picture."""


@with_options(
    without=[
        item.name
        for half in (Origin, Choice, Output)
        for item in fields(half)
        if item.name not in OFFERED
    ]
)
def image(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Picture: .png, .jpg, .webp, ….")],
    patch: Annotated[
        str | None,
        typer.Option(
            "--patch",
            metavar="ROW,COLUMN",
            rich_help_panel=CHOICE,
            help="Patch that looks, from 0,0 at the upper left, or all (as data); "
            "default: the class token, else the mean over patches.",
        ),
    ] = None,
    image_size: Annotated[
        str | None,
        typer.Option(
            "--image-size",
            metavar="SIZE",
            rich_help_panel=ORIGIN,
            help="Pixels to read the picture in: 384, or HEIGHTxWIDTH; "
            "default: what the model was trained on.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            rich_help_panel=ORIGIN,
            help="Text that is read with the picture, by a model of LLaVA's kind: its tokens look.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="N",
            rich_help_panel=CHOICE,
            help="Token of --text that looks, from 0, or all (as data); default: the last.",
        ),
    ] = None,
    lens: Annotated[
        str,
        typer.Option(
            "--lens",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help=f"What to make of the weights first: {', '.join(LENSES)}.",
            autocompletion=completing(LENSES),
        ),
    ] = "raw",
    overlay: Annotated[
        Path | None,
        typer.Option(
            "--overlay",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="One head, or the mean over a layer's heads, over the picture: .png, .svg, .pdf.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show where in a picture a vision model looks: patch by patch, over the picture and as data.

    attnviz image sample_inputs/shapes.png --model ./my-vit --overlay look.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --patch 3,5 --grid heads.png

    attnviz image sample_inputs/shapes.png --model ./my-vit --head 2 -f csv

    attnviz image sample_inputs/shapes.png --model ./my-vit --lens gradient --target cat

    attnviz image sample_inputs/shapes.png --model ./my-llava --text "Where is the tree?"
    """
    from attnviz.cli.image_run import Asked, show

    options = replace(options, choice=replace(options.choice, lens=lens))
    show(Asked(options, Path(file), patch, image_size, overlay, text, token))
