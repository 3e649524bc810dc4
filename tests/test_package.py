"""What the package's files say of versions agrees."""

import re
import tomllib
from pathlib import Path

import attnviz

ROOT = Path(__file__).parents[1]


def test_versions_and_citation_agree():
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["live"]]
    asked = dict(re.match(r"([\w-]+)>=([\d.]+)", need).groups() for need in needs)  # type: ignore[union-attr]
    del asked["torch"]
    assert lowest.keys() == asked.keys()
    for name, version in asked.items():
        longer, shorter = lowest[name].split("."), version.split(".")
        assert longer == shorter + ["0"] * (len(longer) - len(shorter)), name
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == attnviz.__version__
