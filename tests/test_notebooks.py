"""The notebooks of docs/notebooks are what their sources say, and every cell and answer runs."""

import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

nbformat = pytest.importorskip("nbformat", reason="pip install -e '.[dev]'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
LARGEST = 400_000
sys.path.insert(0, str(FOLDER))
import build  # noqa: E402

each_source = pytest.mark.parametrize("source", build.sources(), ids=lambda source: source.stem)


def cells(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


@each_source
def test_a_notebook_is_its_source_and_names_no_path(source):
    path = source.with_suffix(".ipynb")
    found = nbformat.read(path, as_version=4)
    assert cells(found) == cells(build.notebook_of(source)), f"run docs/notebooks/build.py {path}"
    assert path.stat().st_size < LARGEST
    assert any("image/png" in o.get("data", {}) for c in found.cells for o in c.get("outputs", []))
    assert not any(o.get("name") == "stderr" for c in found.cells for o in c.get("outputs", []))
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert str(Path(sys.prefix)) not in text
    text = source.read_text(encoding="utf-8")
    assert text.count("<details>") == text.count("</details>") >= 2
    assert text.count("<details><summary>Answer</summary>\n\n") == text.count("<details>")


@each_source
@pytest.mark.filterwarnings("ignore")  # as a notebook's own process does
def test_every_cell_and_every_answer_runs(source, monkeypatch):
    """In this process, which has imported torch."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell has its own
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    for kind, code in cells(build.notebook_of(source, answers=True)):
        if kind == "code":
            shell.run_cell(code).raise_error()


@pytest.mark.filterwarnings("ignore")  # jupyter's own, in this process
def test_a_kernel_runs_up_to_a_cell_that_fails(tmp_path):
    blocks = ("```python\nprint(6 * 7)\n```", "```python\n1 / 0\n```")
    (tmp_path / "1.md").write_text("words\n\n" + "\n\n".join(blocks) + "\n")
    notebook = build.notebook_of(tmp_path / "1.md")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        build.run(notebook)
    (first, *_) = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert (first.execution_count, first.outputs[0].text) == (1, "42\n")
