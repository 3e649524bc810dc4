"""Short lists of names for the eye and for pipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from attnviz.cli.output import write_text
from attnviz.core.errors import choose
from attnviz.core.registry import MECHANISMS


def write_listing(
    columns: Sequence[str], rows: Sequence[Sequence[str]], output_format: str
) -> None:
    """Write rows as an aligned table, as tab-separated lines, or as a JSON list of objects."""
    write_text(listing(columns, rows, output_format))


def listing(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    output_format: str,
    *,
    titled: bool = False,
) -> str:
    """Rows as an aligned table ("table"), tab-separated lines ("tsv") or JSON objects ("json").

    Args:
        columns: a name each; the table shows them only where it is titled.
        rows: a text for each column.
        output_format: "table", "tsv" or "json".
        titled: whether the table begins with the columns' names.
    """
    if output_format == "json":
        import json

        found = [dict(zip(columns, row, strict=True)) for row in rows]
        return json.dumps(found, ensure_ascii=False, indent=2) + "\n"
    if output_format == "tsv":
        return "".join("\t".join(row) + "\n" for row in [columns, *rows])
    shown = [columns, *rows] if titled else list(rows)
    widths = [max(map(len, column)) for column in list(zip(*shown, strict=True))[:-1]]
    padded = [
        [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        for row in shown
    ]
    return "".join("  ".join(row) + "\n" for row in padded)


# <mechanisms> attnviz mechanisms.


def mechanisms(
    output_format: Annotated[
        str, typer.Option("--format", "-f", metavar="NAME", help="table, tsv or json.")
    ] = "table",
) -> None:
    """List the attention mechanisms, with the commands that offer them."""
    choose(output_format, ("table", "tsv", "json"), "format")
    rows = [(name, " ".join(entry.commands), entry.summary) for name, entry in MECHANISMS.items()]
    write_listing(("mechanism", "commands", "summary"), rows, output_format)


# <models> attnviz models.


def models(
    name: Annotated[
        str | None, typer.Argument(help="'pocket' prints the shipped model's card.")
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", "-f", metavar="NAME", help="table, tsv or json.")
    ] = "table",
) -> None:
    """List the models found on this machine: the shipped one and the Hugging Face cache."""
    choose(output_format, ("table", "tsv", "json"), "format")
    from attnviz.models.hugging_face.load.locate import list_cached_models
    from attnviz.models.pocket.card import card, summary

    if name is not None:
        choose(name, ("pocket",), "model with a card")
        write_text(card())
        return
    rows = [("pocket", "shipped", summary())]
    rows += [(str(item), "hugging face", item.model_type or "") for item in list_cached_models()]
    write_listing(("model", "from", "about"), rows, output_format)
