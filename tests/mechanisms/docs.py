"""The documentation's table of mechanisms, from the functions themselves.

`python -m tests.mechanisms.docs` writes it into `docs/mechanisms.md`; a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.registry import MECHANISMS
from attnviz.mechanisms.working import SIDES, shapes_of

PAGE = Path(__file__).parents[2] / "docs" / "mechanisms.md"
HEAD = "| mechanism | paper | what is computed |\n"


def table() -> Iterator[str]:
    """A line for each mechanism: its name, its papers, every formula in order."""
    yield HEAD.strip()
    yield "|---|---|---|"
    for name, row in MECHANISMS.items():
        if "co" in row.commands:
            continue
        formula, shapes = row.load(), shapes_of(row, 4, 1).items()
        options: dict[str, Any] = {"heads": 1} if row.many_heads else {}
        options |= {
            parameter: np.ones((3, shape[1]) if axes.startswith(SIDES) else shape)
            for (parameter, axes), (_, shape) in zip(row.learned.items(), shapes, strict=True)
        }
        parts = formula.parts(*[np.ones((3, 4))] * 3, **options)
        told = "<br>".join(f"{part.name} = {part.formula}" for part in parts)
        papers = re.findall(r"[A-Z][a-zé]+ (?:19|20)\d\d", inspect.getdoc(formula) or "")
        cells = (f"`{name}`", ", ".join(dict.fromkeys(papers)), told.replace("|", "\\|"))
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table in place of the one that is there."""
    before, _, after = PAGE.read_text("utf-8").partition(HEAD)
    rest = after.partition("\n\n")[2]
    PAGE.write_text(before + "\n".join(table()) + "\n\n" + rest, encoding="utf-8")


if __name__ == "__main__":
    main()
