"""The blocks of the README and of the pages that guide a reader, run as a newcomer would run them.

The commands of a page run one after the other in a folder of its own. In a ```console block a line
after `$ ` is a command, run by bash unless it is attnviz alone; the lines below it are its output,
stdout and stderr together, where `…` stands for any lines. A ```python block is one script. Other
blocks (```sh: setting up, which CI does) do not run. `python -m tests.test_readme` writes the
present output into blocks without `…`. The pages of `test_docs` have numbers that depend on the
processor.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import every_document_checked
from tests.invoke import attnviz
from tests.printed import matches

pytestmark = [pytest.mark.models, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(console|python|make)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("index", "student", "researcher", "engineer-model", "engineer-corpus"),
            *("models", "python"),
        )
    ),
]


def blocks(page: Path, kind: str) -> list[str]:
    """The blocks of one kind of a page."""
    return [body for found, body in BLOCK.findall(page.read_text("utf-8")) if found == kind]


def commands(page: Path) -> list[tuple[str, str]]:
    """Each command of a page's console blocks with the output printed under it."""
    found: list[tuple[str, str]] = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more
            found.append((command, output.strip("\n")))
    return found


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample inputs."""
    place = tmp_path_factory.mktemp("readme") / "furnished"
    furnish(place)
    return place


@pytest.fixture
def folder(furnished: Path, tmp_path: Path) -> Path:
    """A copy of it for the commands of one page."""
    return shutil.copytree(furnished, tmp_path / "session")


def furnish(place: Path) -> None:
    """Put the files that the commands expect into a folder."""
    shutil.copytree(ROOT / "sample_inputs", place / "sample_inputs")


def test_the_readme_is_short_with_blocks_to_run():
    assert len(commands(PAGES[0])) == 10
    assert all(commands(page) or blocks(page, "python") for page in PAGES)
    assert len(PAGES[0].read_text("utf-8").splitlines()) <= 100


@pytest.fixture(autouse=True)
def documents_checked() -> Iterator[None]:
    """Whatever a command of a page writes, its JSON document keeps to `attnviz --schema`."""
    with every_document_checked():
        yield


PROCESSES = ("watch",)
"""Commands that change the process they run in, or wait in it for a signal."""
PLAIN = re.compile(
    r"""attnviz ((?:[^#$*`~|<>;&\n'"]|'[^']*'|"[^"$`]*")*?)(?: (\||&&) (.*))?""", re.DOTALL
)
"""attnviz without help of a shell, and what comes behind it."""


def printed(command: str, folder: Path) -> str:
    """What a command prints when it is run in a folder, on no terminal."""
    return outcome(command, folder)[0]


def outcome(command: str, folder: Path, stdin: bytes = b"") -> tuple[str, int]:
    """What a command prints, and its status.

    attnviz at its beginning runs in this process: most of its time is that of importing torch.
    """
    plain = PLAIN.fullmatch(command)
    if plain and (words := shlex.split(plain[1]))[0] not in PROCESSES:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as the program does, see attnviz/__main__.py
            patch.chdir(folder)
            patch.delenv("COLUMNS", raising=False)
            done = attnviz(*words, stdin=stdin, together=plain[2] != "|")
        if plain[2] == "|":
            text, status = outcome(plain[3], folder, done.out)
            return done.err + text, status
        if plain[2] and not done.status:
            text, status = outcome(plain[3], folder)
            return done.text + text, status
        return done.text, done.status
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return run.stdout.decode(), run.returncode


def environment() -> dict[str, str]:
    """The variables of a process that finds attnviz, on no terminal and without a network."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")
    }
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {"PATH": path, "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page, folder):
    lacking = {tool for tool in ("jq", "parallel") if shutil.which(tool) is None}
    left_out = set[str]()
    for command, expected in commands(page):
        if missing := lacking & set(command.split()):
            left_out |= missing
            continue
        found = printed(command, folder)
        assert matches(expected, found), f"$ {command}\n{found}"
    if left_out:
        pytest.skip(f"commands with {', '.join(sorted(left_out))} were left out: not installed")


CODE = [pytest.param(code, id=page.stem) for page in PAGES for code in blocks(page, "python")]


@pytest.mark.parametrize("code", CODE)
def test_a_python_block_runs(code, folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})


def update(page: Path) -> None:
    """Write what every command prints now into a page, where nothing is left out by `…`."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        furnish(Path(place, "session"))
        for command, expected in commands(page):
            found = printed(command, Path(place, "session")).strip("\n")
            if "…" not in expected.split("\n"):
                old = f"$ {command}\n{expected}\n" if expected else f"$ {command}\n"
                assert old in text, f"write this command in one line: {command}"
                text = text.replace(old, f"$ {command}\n{found}\n" if found else f"$ {command}\n")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        update(page)
