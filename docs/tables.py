"""Tables of the documents that are made from code: names with what they mean, and columns.

`python docs/tables.py` writes them into the folder `tables`; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT)]

Rows = list[tuple[str, ...]]


def names() -> Iterator[str]:
    """Every name that an option takes, by what it is."""
    from attnviz.core import registry
    from attnviz.features.compare.report import RULES

    tables = {
        "Measures of heads": registry.MEASURES,
        "Lenses (`--lens`)": registry.LENSES,
        "Formats (`-f`)": registry.FORMATS,
        "Rules of a cache (`--keep`)": registry.POLICIES,
    }
    yield "# Names\n\nWhat each name means. `python docs/tables.py` writes this page."
    for title, rows in tables.items():
        told = [(f"`{name}`", row.summary) for name, row in rows.items()]
        yield f"## {title}\n\n{table(('name', 'what it is'), told)}"
    yield f"## Verdicts on a head of a training run\n\n{table(('name', 'rule'), [*RULES.items()])}"


KINDS = {"text": "text", "place": "number", "whole": "whole number", "number": "number"}
HEAD = ("schema", "kind")
TYPES = {"string": "", "integer": "whole", "number": "number", "boolean": "bool"}


def columns() -> Iterator[str]:
    """What every table and every document holds."""
    from attnviz.features.schemas.layouts import LAYOUTS, json_schema
    from attnviz.storage.columns import COLUMNS, TABLES

    yield (
        "# Columns and fields\n\nThe columns of every table that `-f tsv` and `-f csv` write, by "
        "the name of the document with the same numbers; then the fields of every document. "
        "`python docs/tables.py` writes this page."
    )
    yield (
        "Names in capitals stand for several; `MEASURE_low`, `MEASURE_high`, `writes` and `run` "
        "are there where they have values. A layer or head is a number, unless it is no single "
        "one, which has a name."
    )
    rows: Rows = [(f"`{name}`", ", ".join(own.split())) for name, own in TABLES.items()]
    yield table(("table", "columns"), rows)
    rows = [(f"`{name}`", KINDS[kind], about) for name, (kind, about) in COLUMNS.items()]
    yield table(("column", "type", "what it holds"), rows)
    yield (
        "Every document has `schema` and `kind`, and these fields. A field without a type is a "
        "text; [] is a list. Provenance is `source, model, trained bool, device, dtype, "
        "settings {…}, steps [text], notes [text], versions {…}`; a place is the number of a "
        "layer or head."
    )
    rows = []
    for name, layout in LAYOUTS.items():
        schema = json_schema(name)
        types = schema.get("$defs", {})
        top = types[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        own = fields({n: one for n, one in top["properties"].items() if n not in HEAD}, types)
        rows.append(
            (f"`{name}`", layout.summary, ", ".join([*own, *(["…"] if layout.open else [])]))
        )
    yield table(("document", "what it is", "fields"), rows)


def fields(properties: Any, types: Any) -> list[str]:
    """Each field with its type behind it."""
    return [f"{name} {type_of(one, types)}".rstrip() for name, one in properties.items()]


def type_of(part: Any, types: Any) -> str:
    """The type of a part of a schema in short."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        known = {"Provenance": "Provenance"} | ({"why": "as why"} if name.endswith("Why") else {})
        return known.get(name) or known.get("why") or type_of(types[name], types)
    if "anyOf" in part:
        kinds = (type_of(one, types) for one in part["anyOf"] if one.get("type") != "null")
        return " or ".join(dict.fromkeys(filter(None, kinds)))
    if "properties" in part:
        return "{" + ", ".join(fields(part["properties"], types)) + "}"
    kind = part.get("type", "")
    if kind == "array":
        items = part.get("prefixItems") or [part.get("items") or {}]
        return f"[{', '.join(type_of(one, types) or 'text' for one in items)}]"
    if isinstance(kind, list):
        return "place" if {"integer", "string"} <= {*kind} else TYPES[kind[0]]
    return "{…}" if kind == "object" else TYPES.get(kind, "")


def table(head: tuple[str, ...], rows: Rows) -> str:
    """A table of Markdown."""
    lines = [" | ".join(line).replace("\n", " ") for line in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


PAGES: dict[str, Callable[[], Iterator[str]]] = {"names": names, "columns": columns}


def made(name: str) -> str:
    """The text of a page."""
    return "\n\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / "tables" / f"{page}.md").write_text(made(page), encoding="utf-8")
