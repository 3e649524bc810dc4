"""What CONTRIBUTING.md shows must fit the code: each door's file is run and found by its row."""

import re
import subprocess
import sys
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
PATHS = re.findall(r"`((?:attnviz|tests|fuzz|benchmarks|docs)/[\w./]+)`", TEXT + SECURITY)


def test_every_door_has_its_example():
    assert [table for _, _, table, _ in DOORS] == [
        "MECHANISMS",
        "MEASURES",
        "COMMANDS",
    ]
    doors = TEXT[TEXT.index("## Doors") : TEXT.index("## Changes")]
    assert doors.count("\n") <= 150


@pytest.mark.parametrize(
    ("file", "code", "row"),
    [pytest.param(file, code, row, id=table) for file, code, table, row in DOORS],
)
def test_a_doors_row_names_what_its_file_defines(file, code, row):
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


OPEN = """
import sys
from types import ModuleType
from attnviz.core import registry
from tests.test_contributing import DOORS

for file, code, table, row in DOORS:
    module = sys.modules[file.replace("/", ".")] = ModuleType(file.replace("/", "."))
    exec(compile(code, file, "exec"), vars(module))
    getattr(registry, table).update(eval(f"{{{row}}}", vars(registry)))
from attnviz.cli import app
for line in (
    "self a.b.a --mechanism cosine -q",
    "heads a.b.a -f tsv -q --sort second-back",
    "count a.b.a",
):
    assert app.run(line.replace("a.b.a", "a_b_a").split()) == 0, line
"""
"""A program that has all the examples' rows in their tables and uses each once."""


@pytest.mark.slow
def test_what_each_door_shows_works_as_it_says():
    command = [sys.executable, "-W", "error", "-c", OPEN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("cosine (untrained)", "\tsecond-back\t", "\t\n6\n"):
        assert said in done.stdout, done.stdout


@pytest.mark.parametrize("path", sorted(set(PATHS) - {f"{file}.py" for file, *_ in DOORS}))
def test_every_path_leads_somewhere(path):
    assert (ROOT / path).exists()
