"""attnviz render."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli.options import ORIGIN, Options, with_options


@with_options(
    without=(
        "model",
        "mechanism",
        "weights",
        "causal",
        "to",
        "generate",
        "chat",
        "size",
        "heads",
        "seed",
        "device",
        "dtype",
        "revision",
        "allow_pickle",
        "allow_code",
        "device_map",
        "keep_qk",
        *("max_size", "rows", "window"),
        "explain",
    )
)
def render(
    file: Annotated[
        str,
        typer.Argument(
            help="Saved maps, or the name of their shards; arrays, alignments; -: stdin."
        ),
    ],
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="ID_OR_NUMBER",
            rich_help_panel=ORIGIN,
            help="Of several texts, the one of this id, or else of this number from 0.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Turn a saved map into any output; no model is loaded.

    attnviz self "The cat sat" -f npz | attnviz render - --grid heads.png

    attnviz render maps.parquet --record 17 -f heatmap
    """
    from attnviz.cli.replay import replay

    raise typer.Exit(replay(file, record, options))
