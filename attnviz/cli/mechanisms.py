"""attnviz mechanisms."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.errors import choose
from attnviz.registry import MECHANISMS


def mechanisms(
    output_format: Annotated[
        str, typer.Option("--format", "-f", metavar="NAME", help="table, tsv or json.")
    ] = "table",
) -> None:
    """List the attention mechanisms, with the commands that offer them."""
    from attnviz.cli.listing import write_listing

    choose(output_format, ("table", "tsv", "json"), "format")
    rows = [(name, " ".join(entry.commands), entry.summary) for name, entry in MECHANISMS.items()]
    write_listing(("mechanism", "commands", "summary"), rows, output_format)
