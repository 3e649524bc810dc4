"""attnviz models."""

from __future__ import annotations

from typing import Annotated

import typer

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
    from attnviz.cli.output import note

    choose(output_format, ("table", "tsv", "json"), "format")
    from attnviz.hugging_face.cache import list_cached_models

    rows = [(str(item), "hugging face") for item in list_cached_models()]
    if not rows and output_format == "table":
        note("no models in the Hugging Face cache; --model also takes a folder")
    write_listing(("model", "kind"), rows, output_format)
