"""Notebooks from their sources: `python docs/notebooks/build.py [NAME …]` runs and writes them.

A source is Markdown. A block marked `python` is a cell, one marked `py` an answer: it stays in its
words, folded away, and is run by the test alone. Pictures are kept small.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent
WIDEST, COLORS = 1000, 256
"""Pixels and colours of a picture that is kept."""
_CELL = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"^```py\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def sources() -> list[Path]:
    """Every source, in order."""
    return sorted(FOLDER.glob("[0-9]*.md"))


def notebook_of(source: Path, *, answers: bool = False) -> Any:
    """The notebook, not yet run; with its answers as cells if they are to be run, too."""
    parts = _CELL.split(source.read_text(encoding="utf-8"))
    cells = []
    for place, text in enumerate(parts):
        if place % 2:
            cells.append(nbformat.v4.new_code_cell(text.strip()))
        elif text.strip():
            cells.append(nbformat.v4.new_markdown_cell(text.strip()))
            if answers:
                found = _ANSWER.findall(text)
                cells += [nbformat.v4.new_code_cell(answer.strip()) for answer in found]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def run(notebook: Any) -> Any:
    """The notebook with its outputs; what fails raises, and says in which cell."""
    where = {"metadata": {"path": str(FOLDER)}}
    return NotebookClient(notebook, timeout=900, startup_timeout=900, resources=where).execute()


def main(names: list[str]) -> None:
    """Run and write the notebooks of these names, or all."""
    for source in sources():
        if names and source.stem not in names:
            continue
        notebook = run(notebook_of(source))
        for cell in notebook.cells:
            cell.metadata.clear()
            if cell.cell_type == "code":
                cell.outputs = [kept for one in cell.outputs if (kept := _kept(one)) is not None]
        path = source.with_suffix(".ipynb")
        path.write_text(nbformat.writes(notebook, indent=1) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


def _kept(output: Any) -> Any:
    """An output as it is committed: no notes of stderr, no page, a small picture."""
    if output.get("name") == "stderr":
        return None
    data = output.get("data")
    if data and "image/png" in data:
        data["image/png"] = _small(data["image/png"])
        for kind in ("text/html", "image/jpeg"):
            data.pop(kind, None)
        data["text/plain"] = "<Figure>"
    elif data and len(data.get("text/html", "")) > 20_000:
        data.pop("text/html")
    return output


def _small(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    if image.width > WIDEST:
        image = image.resize(
            (WIDEST, image.height * WIDEST // image.width), Image.Resampling.LANCZOS
        )
    buffer = io.BytesIO()
    # This method keeps rare colours, such as those of thin lines, where others average them away.
    few = image.quantize(COLORS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


if __name__ == "__main__":
    main([name.removesuffix(".md").removesuffix(".ipynb") for name in sys.argv[1:]])
