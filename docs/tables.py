"""Tables of the documents that are made from code: names with what they mean, and columns.

`python docs/tables.py` writes them into the folder `tables`; a test compares them.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT)]

Rows = list[tuple[str, ...]]


def names() -> Iterator[str]:
    """Every name that an option takes, by what it is."""
    from attnviz.core import registry
    from attnviz.core.measures import RULES

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


TSV = {
    "`self`, `cross`, `image`, `audio`": "self 'The cat sat'",
    "`heads`": "heads 'The cat sat on the mat'",
    "`compare A B`": "compare 'The cat sat' 'The dog sat'",
    "`ablate`": "ablate 'The cat' 'Le chat' --head 0.0",
    "`ablate --lenses`": "ablate 'The cat sat.' --lenses",
    "`why`": "why 'The cat sat down.' --model pocket-lm",
    "`sources`": "sources 'Tom likes' --context notes.txt",
    "`cache`": "cache 'the cat saw the cat' --keep h2o:3",
    "`align`": "align pairs.tsv",
}
"""A command whose table has the columns of a row of the page."""


def columns() -> Iterator[str]:
    """The columns of each command's tables, as a run writes them."""
    import shlex

    from attnviz.cli.app import run

    yield (
        "# Columns\n\nThe columns of every table that `-f tsv` and `-f csv` write. `python "
        "docs/tables.py` writes this page."
    )
    rows: Rows = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(["examples", ".", "-q", "-f", "none"])
        for about, command in TSV.items():
            run([*shlex.split(command), "-q", "-f", "none", "-o", "found.tsv"])
            first = Path("found.tsv").read_text(encoding="utf-8").partition("\n")[0]
            rows.append((about, ", ".join(f"`{name}`" for name in first.split("\t"))))
    yield table(("command", "columns"), rows)


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
