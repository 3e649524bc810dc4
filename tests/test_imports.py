"""The house keeps its order: each room imports only the rooms below it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """The contract of pyproject.toml over the package in a folder."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_room_imports_only_the_rooms_below_it() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("renderers/csv.py", "from attnviz.analyses.select import select"),
        ("errors.py", "from attnviz.registry import FORMATS"),
        ("storage/json.py", "def late():\n    from attnviz.cli.output import note"),
    ],
)
@pytest.mark.slow
def test_the_check_fails_where_a_room_looks_up(tmp_path: Path, room: str, line: str) -> None:
    shutil.copytree(ROOT / "attnviz", tmp_path / "attnviz", ignore=shutil.ignore_patterns("files"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "attnviz" / room).open("a") as file:
        file.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


HEAVY = {"torch", "transformers", "matplotlib", "tokenizers", "safetensors"}


def at_import(path: Path) -> set[str]:
    """The packages that a module imports as soon as it is imported itself."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("room", ["cli", "sources", "storage", "analyses", "mechanisms", "."])
def test_rooms_that_every_run_enters_import_nothing_heavy(room: str) -> None:
    paths = sorted((ROOT / "attnviz" / room).glob("*.py"))
    assert paths
    assert {path.name: at_import(path) & HEAVY for path in paths if at_import(path) & HEAVY} == {}


def test_a_heavy_import_would_be_seen() -> None:
    assert "torch" in at_import(ROOT / "attnviz" / "layers" / "masks.py")
    assert "click" not in set().union(*map(at_import, (ROOT / "attnviz" / "cli").glob("*.py")))
