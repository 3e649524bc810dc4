"""Short lists of names for the eye and for pipes."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.cli.output import write_text


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
