"""attnviz models."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli.output import write_text
from attnviz.errors import choose


def models(
    name: Annotated[
        str | None, typer.Argument(help="'pocket' prints the shipped model's card.")
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", "-f", metavar="NAME", help="table, tsv or json.")
    ] = "table",
) -> None:
    """List the models found on this machine: the shipped one and the Hugging Face cache."""
    from attnviz.cli.listing import write_listing

    choose(output_format, ("table", "tsv", "json"), "format")
    from attnviz.hugging_face.cache import list_cached_models
    from attnviz.pocket.card import card, summary

    if name is not None:
        choose(name, ("pocket",), "model with a card")
        write_text(card())
        return
    rows = [("pocket", "shipped", summary())]
    rows += [(str(item), "hugging face", item.model_type or "") for item in list_cached_models()]
    write_listing(("model", "from", "about"), rows, output_format)
