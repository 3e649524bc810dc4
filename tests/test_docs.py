"""Further pages of docs/, whose numbers depend a little on the processor; see `test_readme`.

The lines under `$ command` are its output, a ```text block is the output of the ```python block
above it. Numbers may differ by one in their last digit, and bars accordingly. `python -m
tests.test_docs` writes the present output into the pages.
"""

import contextlib
import io
import re
import shlex
import tempfile
import warnings
from pathlib import Path

import pytest

from tests.invoke import attnviz
from tests.printed import alike
from tests.test_readme import ROOT, documents_checked, furnish, printed

__all__ = ["documents_checked"]  # a fixture

pytestmark = pytest.mark.slow

NAMES = ("cache", "effects", "live", "mechanisms")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES]
PAGES.append(ROOT / "attnviz" / "cli" / "guide.md")
BLOCK = re.compile(
    r"^```console\n(?P<console>.*?)^```$"
    r"|^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<text>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


def steps(page: Path) -> list[tuple[str, str, bool]]:
    """Each command or script of a page, what it prints, and whether it is a command."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["code"]:
            found.append((block["code"], block["text"] or "", False))
            continue
        for part in re.split(r"^\$ ", block["console"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output, True))
    return found


def run(step: str, folder: Path, *, command: bool) -> str:
    """What a command or a script prints in a folder."""
    if command:
        return printed(step, folder)
    out = io.StringIO()
    with warnings.catch_warnings(), contextlib.chdir(folder), contextlib.redirect_stdout(out):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # a script leaves its files to its end
        exec(compile(step, "<script>", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample inputs."""
    place = tmp_path_factory.mktemp("docs")
    furnish(place)
    return place


@pytest.mark.parametrize(
    ("step", "expected", "command"),
    [pytest.param(*one, id=one[0].split("\n")[0]) for page in PAGES for one in steps(page)],
)
def test_a_page_shows_what_is_printed(step, expected, command, folder):
    found = run(step, folder, command=command)
    assert alike(expected, found) if expected else "error: " not in found, found


def test_every_block_is_known_and_no_link_dead():
    for page in PAGES:
        kinds = re.findall(r"^```(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(kinds) <= {"console", "python", "text", "sh"}
        assert [step for step, _, _ in steps(page)]

    # Pages that only the site has are no files here.
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    dead = []
    for page in pages:
        for link in LINK.findall(prose(page)):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (
                heading and target.suffix == ".md" and heading not in anchors(target)
            ):
                dead.append((page.name, link))
    assert dead == []


def update() -> None:
    """Write into the pages what every command and script prints now."""
    with tempfile.TemporaryDirectory() as place:
        furnish(Path(place))
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            for step, expected, command in steps(page):
                found = run(step, Path(place), command=command).strip("\n") + "\n"
                if command:
                    text = text.replace(f"$ {step}\n{expected}", f"$ {step}\n{found}", 1)
                else:
                    above = f"{step}```\n\n```text\n"
                    text = text.replace(above + expected, above + found, 1)
            page.write_text(text, encoding="utf-8")


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page ends in."""
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one) for one in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in plain}


def test_files_and_options_that_pages_name_work():
    own = ROOT / "attnviz"
    missing = [
        (script.name, name)
        for script in (own / "renderers" / "page").rglob("*.js")
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|js))`", script.read_text("utf-8"))
        if not any((place / name).is_file() for place in (ROOT, own, script.parent))
    ]
    assert missing == []
    row = next(
        line for line in PAGES[-1].read_text("utf-8").split("\n") if "`attnviz ablate" in line
    )
    for option in re.findall(r"`[^`]*?(--\w+ [^`]+)`", row):
        words = shlex.split(option)
        assert attnviz("ablate", "The red car", "La voiture rouge", *words).status == 0, option


if __name__ == "__main__":
    update()
