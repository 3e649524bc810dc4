"""Pages that are made say what the program takes; examples and the gallery are what it runs."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

import attnviz
from attnviz.cli.app import build_command
from attnviz.core.registry import COMMANDS
from attnviz.features.examples import FILES
from docs import pages, tables
from docs.pages import DOCS, ROOT, reference
from tests.invoke import attnviz as run

MADE = pages.generated_pages()
SHARED = reference.shared()
MANUAL = {path: text for path, text in SHARED.items() if path.endswith(".1")}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_page_of_a_command_have_its_options(name, monkeypatch):
    listed = set(re.findall(r"│ (--[\w-]+)", run(name, "--help-all").text)) - {"--help"}
    shown = set(re.findall(r"^\| `(--[\w-]+)`", MADE[f"commands/{name}.md"], re.MULTILINE))
    assert listed == shown - {"--help"}
    assert f"]({name}.md)" in MADE["commands/index.md"]

    monkeypatch.setenv("COLUMNS", "600")
    short, whole = (run(name, option).text for option in ("--help", "--help-all"))
    explained, every = (set(re.findall(r"│ +(--[\w-]+)", text)) for text in (short, whole))
    named = set(re.findall(r"(?<!│ )(--[\w-]+)", short.partition("More options")[2]))
    assert len(explained) <= 23
    assert explained | named - {"--help-all"} >= every
    assert not explained & (named - {"--help-all"})


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_commands_help_has_two_examples(name):
    page = next(one for one in (reference.main_page(), *reference.pages()) if one.name == name)
    assert len(page.examples) >= 2
    for example in page.examples:
        understood(re.search(r"attnviz (?:[^|>']|'[^']*')*", example)[0])  # type: ignore[index]


def understood(line: str) -> None:
    """Parse a command line as the program would, without doing what it says."""
    _, name, *words = shlex.split(line)
    build_command(name).make_context(name, words)


PAGES = [file for file in DOCS.glob("*.md") if file.stem not in ("gallery", "plugins")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_command_that_is_not_run_is_understood(page):
    for block in re.findall(
        r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    ):
        for line in block.splitlines():
            if line.startswith("attnviz ") and not line.startswith("attnviz --"):
                understood(re.match(r"(?:[^|>'\"#]|'[^']*'|\"[^\"]*\")*", line)[0])  # type: ignore[index]


def test_the_page_of_python_has_every_name():
    parts = dict(
        re.findall(
            r"^## attnviz\.(\w+)\n(.*?)(?=^## |\Z)", MADE["reference.md"], re.DOTALL | re.MULTILINE
        )
    )
    assert set(parts) == {*attnviz.__all__, "layers"}
    for name, text in parts.items():
        if ":::" not in text:
            taken = inspect.signature(getattr(attnviz, name)).parameters
            own = re.findall(r"^- `(\w+)`:", text, re.MULTILINE)
            options = re.findall(r"^\| `(\w+)", text, re.MULTILINE)
            assert {*own, *options} >= {*taken}, name


def test_the_gallery_and_navigation_are_whole():
    commands = pages.gallery()
    files = {file.name: file for file in (DOCS / "gallery").glob("*")}
    assert len(commands) >= 20
    assert set(commands) == set(files)
    assert sum(file.stat().st_size for file in files.values()) < 3e6
    for name, command in commands.items():
        assert name in command
        understood(f"attnviz {command}")

    listed = re.findall(
        r"^ +- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    kept = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    made = {
        name for name in MADE if not name.startswith("commands/") or name == "commands/index.md"
    }
    assert (set(listed), len(listed)) == (kept | made, len(set(listed)))


def looks_like(one: Image.Image, other: Image.Image) -> bool:
    """Whether two pictures differ by no more than fonts of another machine make them.

    Glyphs of other versions lie a pixel aside: the mean of 4 × 4 pixels changes by less than a
    quarter of the scale, but for 3 % of all blocks.
    """
    if max(abs(a - b) for a, b in zip(one.size, other.size, strict=True)) > 4:
        return False
    size = other.width // 4, other.height // 4
    blocks = (
        np.asarray(item.convert("RGB").resize(size, Image.Resampling.BOX), float)
        for item in (one, other)
    )
    return bool((np.abs(np.subtract(*blocks)).max(axis=-1) > 64).mean() < 0.03)


@pytest.mark.slow
@pytest.mark.core
def test_pictures_of_the_gallery_are_what_their_commands_draw(tmp_path):
    kept = {name: Image.open(DOCS / "gallery" / name) for name in ("links.png", "window.png")}
    for path, content in pages.draw_gallery(*kept).items():
        assert looks_like(Image.open(BytesIO(content)), kept[Path(path).name])
    # A pixel aside is alike; the weights of another seed, another picture and a blank one are not.
    window = kept["window.png"].convert("RGB")
    assert looks_like(ImageChops.offset(window, 1, 1), window)
    other = shlex.split(pages.gallery()["window.png"].replace("-window", "-window:seed=3"))
    assert run(*other[:-1], tmp_path / "other.png", "-q", "-f", "none").status == 0
    with Image.open(tmp_path / "other.png") as drawn:
        assert not looks_like(drawn, window)
    assert not looks_like(kept["links.png"], window)
    assert not looks_like(Image.new("RGB", window.size, "white"), window)


@pytest.mark.parametrize("name", ["names", pytest.param("columns", marks=pytest.mark.slow)])
def test_a_table_that_is_made_is_the_codes(name):
    text = (DOCS / "tables" / f"{name}.md").read_text("utf-8")
    assert text == tables.made(name), "python docs/tables.py writes it"


def test_links_and_brackets_of_pages():
    known = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*") if file.is_file()} | set(MADE)
    texts = {str(file.relative_to(DOCS)): file.read_text("utf-8") for file in DOCS.glob("*.md")}
    for page, text in {**texts, **MADE}.items():
        text = pages.on_page_markdown(text)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]*)?\)", text):
            assert str(Path(page).parent / link) in known, (page, link)
    readme = (ROOT / "README.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)#:\s]+)\)", readme):
        assert (ROOT / link).exists(), link
    # Outside it `[layers,] [heads,]` is a link to the heading called "heads,".
    texts = {str(file.relative_to(DOCS)): file.read_text("utf-8") for file in DOCS.rglob("*.md")}
    for page, text in {**texts, **MADE}.items():
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.findall(r".*\] ?\[.*", prose), page


def test_manual_pages_and_completions_have_all():
    assert {Path(path).stem for path in MANUAL} == {
        "attnviz",
        *(f"attnviz-{one}" for one in COMMANDS),
    }
    for name in COMMANDS:
        bold = set(
            re.findall(
                r"\\fB(--[\w-]+)", MANUAL[f"share/man/man1/attnviz-{name}.1"].replace("\\-", "-")
            )
        )
        assert bold == set(
            re.findall(r"^\| `(--[\w-]+)`", MADE[f"commands/{name}.md"], re.MULTILINE)
        )
    assert {path.split("/")[1] for path in SHARED} == {"man", "bash-completion", "zsh", "fish"}
    for shell, path in reference.COMPLETIONS.items():
        assert "_ATTNVIZ_COMPLETE" in SHARED[path]
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=SHARED[path], text=True, check=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_word_against_a_manual_page():
    for path, text in MANUAL.items():
        command = ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        assert not done.stderr, (path, done.stderr)
        assert "EXIT STATUS" in done.stdout


def named(requirements: list[str]) -> set[str]:
    """The packages that are required, as they are imported."""
    names = (re.split(r"[<>=]", one)[0].replace("-", "_") for one in requirements)
    return {{"pillow": "PIL"}.get(name, name) for name in names}


@pytest.mark.slow
def test_manual_pages_are_made_with_a_build_alone():
    """A wheel is built where pyproject.toml's build requirements are, and nothing else."""
    code = """
import sys
class Refuse:
    def find_spec(self, name, *_):
        if name.split(".")[0] in sys.argv[1:]:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from docs.reference import shared
shared()
"""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    others = named(wanted["project"]["dependencies"]) - named(wanted["build-system"]["requires"])
    command = [sys.executable, "-c", code, *(others - {"rich"})]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_wheel_has_them_and_an_editable_has_not(monkeypatch):
    from hatch_build import CustomBuildHook

    monkeypatch.setattr(sys, "path", [*sys.path])
    hook = CustomBuildHook(str(ROOT), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    made: dict[str, dict[str, str]] = {"shared_data": {}, "force_include": {}}
    hook.initialize("editable", made)
    assert made == {"shared_data": {}, "force_include": {}}
    hook.initialize("standard", made)
    assert {path: Path(file).read_text() for file, path in made["shared_data"].items()} == SHARED
    hook.finalize("standard", made, "")
    assert not any(map(Path.exists, map(Path, made["shared_data"])))
    assert {Path(file).name for file in made["force_include"]} == set(FILES)
    assert all(map(Path.exists, map(Path, made["force_include"])))
