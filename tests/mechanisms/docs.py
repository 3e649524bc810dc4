"""The documentation's table of mechanisms, from the functions themselves.

`python -m tests.mechanisms.docs` writes `docs/tables/mechanisms.md`; a test compares them.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from attnviz.core.registry import MECHANISMS
from attnviz.mechanisms.formula import example_parts

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "mechanisms.md"
HEAD = "| mechanism | paper | what is computed |\n"


def table() -> Iterator[str]:
    """A line for each mechanism: its name, its papers, every formula in order."""
    yield HEAD.strip()
    yield "|---|---|---|"
    for name, row in MECHANISMS.items():
        told = "<br>".join(f"{part.name} = {part.formula}" for part in example_parts(row, 3, 4, 1))
        papers = re.findall(r"[A-Z][a-zé]+ (?:19|20)\d\d", inspect.getdoc(row.load()) or "")
        cells = (f"`{name}`", ", ".join(dict.fromkeys(papers)), told.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table in place of the one that is there."""
    before = PAGE.read_text("utf-8").partition(HEAD)[0]
    PAGE.write_text(before + "\n".join(table()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
