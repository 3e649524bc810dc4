"""What CONTRIBUTING.md shows must fit the code: each door's file is run and found by its row."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attnviz.core import registry
from attnviz.core.registry import Entry

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOORS = re.findall(
    r"^The file `([\w/]+)\.py`.*?```python\n(.*?)^```.*?^The row in `(\w+)`.*?```python\n(.*?)^```",
    TEXT,
    re.DOTALL | re.MULTILINE,
)
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PATHS = re.findall(r"`((?:attnviz|tests|docs)/[\w./]+)`", TEXT + SECURITY)


def test_every_door_has_its_example() -> None:
    assert [table for _, _, table, _ in DOORS] == [
        "MECHANISMS",
        "MEASURES",
        "LENSES",
        "FORMATS",
        "PICTURES",
        "COMMANDS",
    ]


@pytest.mark.parametrize(
    ("file", "code", "row"),
    [pytest.param(file, code, row, id=table) for file, code, table, row in DOORS],
)
def test_a_doors_row_names_what_its_file_defines(file: str, code: str, row: str) -> None:
    module = ModuleType(file.replace("/", "."))
    exec(compile(code, f"<{file}>", "exec"), vars(module))
    ((_, entry),) = eval(f"{{{row}}}", vars(registry)).items()
    assert isinstance(entry, Entry)
    place, _, attribute = (entry.room + entry.target).partition(":")
    assert place == module.__name__
    made: Any = getattr(module, attribute)
    assert made.__module__ == module.__name__
    first = (made.__doc__ or "").split("\n")[0]
    assert first == entry.summary or isinstance(made, type)


@pytest.mark.parametrize("path", sorted(set(PATHS) - {f"{file}.py" for file, *_ in DOORS}))
def test_every_path_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
