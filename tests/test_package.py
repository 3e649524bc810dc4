"""What the package's files say of versions agrees."""

import datetime
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import attnviz
from attnviz.models.pocket.card import ATTRIBUTION

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_versions_and_citation_agree():
    lines = read("tests/lowest.txt").splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads(read("pyproject.toml"))["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["live"]]
    asked = dict(re.match(r"([\w-]+)>=([\d.]+)", need).groups() for need in needs)  # type: ignore[union-attr]
    del asked["torch"]
    assert lowest.keys() == asked.keys()
    for name, version in asked.items():
        longer, shorter = lowest[name].split("."), version.split(".")
        assert longer == shorter + ["0"] * (len(longer) - len(shorter)), name
    cited = dict(re.findall(r"^(version|date-released): (.*)$", read("CITATION.cff"), re.MULTILINE))
    told = re.findall(r"^## \[(\d.*)\] - (.*)$", read("CHANGELOG.md"), re.MULTILINE)[0]
    assert project["version"] == attnviz.__version__ == cited["version"] == told[0]
    assert cited["date-released"] == told[1]


def test_the_notice_names_every_folder_that_holds_more_than_code():
    code = {".py", ".js", ".css", ".html", ".md", ".typed"}
    files = (one for one in Path(attnviz.__file__).parent.rglob("*") if one.is_file())
    held = {file.relative_to(ROOT) for file in files if "__pycache__" not in file.parts}
    own = {"attnviz/features/live/openapi.json", "attnviz/renderers/page/scripts/tsconfig.json"}
    for file in held:
        if file.suffix not in code and str(file) not in own:
            assert str(file.parent).removesuffix("/files") in read("NOTICE"), file
    assert ATTRIBUTION.rpartition(", ")[2] in read("NOTICE")


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
    text = read("pyproject.toml")
    late = [*lasting_caps(text, datetime.datetime.now(datetime.UTC).date())]
    assert not late, f"try the newest version, then lift the cap or say until when: {late}"
    capped = 'a = ["one<2"]\n# until 2027-01-31: why\nb = ["two>=1,<3", "x>=1"]\n[project.scripts]'
    assert [*lasting_caps(capped, datetime.date(2027, 1, 31))] == ['a = ["one<2"]']
    assert len([*lasting_caps(capped, datetime.date(2027, 2, 1))]) == 2


def test_each_dependency_says_what_it_is_for():
    text = read("pyproject.toml")
    start = text.index("dependencies = [")
    lines = text[start : text.index("\n]\n", start)].splitlines()
    assert len(lines) > 10
    for before, line in pairwise(lines):
        assert "#" in line or before.strip().startswith("#"), line
