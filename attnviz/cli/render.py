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
    file: Annotated[str, typer.Argument(help="Saved map, arrays or alignments; - is stdin.")],
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="ID",
            rich_help_panel=ORIGIN,
            help="Of several texts, the one by id.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Turn a saved map into any output; no model is loaded.

    attnviz self "The cat sat" -f npz | attnviz render - --grid heads.png
    """
    from attnviz.cli.replay import replay

    raise typer.Exit(replay(file, record, options))
