"""Short lists of names for the eye and for pipes."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.cli.output import write_text


def write_listing(
    columns: Sequence[str], rows: Sequence[Sequence[str]], output_format: str
) -> None:
    """Write rows as an aligned table, as tab-separated lines, or as a JSON list of objects."""
    if output_format == "json":
        import json

        found = [dict(zip(columns, row, strict=True)) for row in rows]
        write_text(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
        return
    if output_format == "tsv":
        write_text("".join("\t".join(row) + "\n" for row in [columns, *rows]))
        return
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        write_text("  ".join([*padded, row[-1]]) + "\n")
