"""What the package's files say of versions agrees."""

import datetime
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
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


CAPPED = re.compile(r'"[\w.-]+(?:\[[^]]*])?[^"]*(?:<|==)[^"]*"')


def lasting_caps(text: str, today: datetime.date) -> Iterator[str]:
    """Lines of pyproject.toml that cap a version for ever, or for longer than they say."""
    lines = text[: text.index("[project.scripts]")].splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if CAPPED.search(line):
            above = before if before.lstrip().startswith("#") else ""
            until = re.search(r"until (\d{4}-\d\d-\d\d)", above + line)
            if not until or datetime.date.fromisoformat(until[1]) < today:
                yield line.strip()


def test_no_version_is_capped_for_ever():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    late = [*lasting_caps(text, datetime.datetime.now(datetime.UTC).date())]
    assert not late, f"try the newest version, then lift the cap or say until when: {late}"
    capped = 'a = ["one<2"]\n# until 2027-01-31: why\nb = ["two>=1,<3", "x>=1"]\n[project.scripts]'
    assert [*lasting_caps(capped, datetime.date(2027, 1, 31))] == ['a = ["one<2"]']
    assert len([*lasting_caps(capped, datetime.date(2027, 2, 1))]) == 2


def test_each_dependency_says_what_it_is_for():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    start = text.index("dependencies = [")
    lines = text[start : text.index("\n]\n", start)].splitlines()
    assert len(lines) > 10
    for before, line in pairwise(lines):
        assert "#" in line or before.strip().startswith("#"), line
