"""The house keeps its order: rooms import only the rooms below, and never in a circle."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import igraph
import pytest

from attnviz.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attnviz"
FEATURES = PACKAGE / "features"
MOST_FILES = 158  # of the core, which is the package without its features
MOST_LINES = 34_000
MOST_LINES_OF_A_FEATURE = 2_000
MOST_IN_A_ROOM = 16
MOST_WITHOUT_A_CONTRACT = 8
MOST_AT_THE_ROOT = 12


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(of: ast.AST) -> Iterator[ast.AST]:
    """The statements in a piece of code, also those in others; what they compute is passed over."""
    for node in ast.iter_child_nodes(of):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield node
            yield from statements(node)


class Written(NamedTuple):
    """What is read of a file, which is parsed once."""

    imports: list[ast.Import | ast.ImportFrom]
    functions: list[str]
    names: list[str]
    """The names that the module itself gives a value."""


@cache
def written_in(path: Path) -> Written:
    module = ast.parse(path.read_text(encoding="utf-8"))
    every = [*statements(module)]
    return Written(
        [one for one in every if isinstance(one, ast.Import | ast.ImportFrom)],
        [one.name for one in every if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)],
        [
            target.id
            for one in module.body
            if isinstance(one, ast.Assign)
            for target in one.targets
            if isinstance(target, ast.Name)
        ],
    )


def imports_of(path: Path, modules: Iterable[str]) -> set[str]:
    """The modules of the package that a file imports, wherever in it: also in functions and for
    the type checker only.
    """
    found = set()
    for node in written_in(path).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & set(modules)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import one another round in a circle."""
    graph = igraph.Graph.ListDict({name: sorted(to) for name, to in arrows.items()}, directed=True)
    names = graph.vs["name"]
    return [
        sorted(names[place] for place in group)
        for group in graph.connected_components("strong")
        if len(group) > 1
    ]


def arrows_of(package: Path) -> dict[str, set[str]]:
    """What each module of a package imports of it."""
    modules = modules_of(package)
    return {name: imports_of(path, modules) - {name} for name, path in modules.items()}


def test_no_import_runs_in_a_circle():
    arrows = arrows_of(PACKAGE)
    assert sum(map(len, arrows.values())) > 300
    assert circles(arrows) == []


@pytest.mark.parametrize(
    "line",
    [
        "from attnviz.core.registry import LENSES",
        "def late():\n    from attnviz.core import registry",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import attnviz.core.registry",
    ],
)
def test_a_circle_would_be_found(tmp_path, line):
    room = tmp_path / "attnviz" / "core"
    room.mkdir(parents=True)
    (room / "errors.py").write_text(line + "\n")
    (room / "registry.py").write_text("from attnviz.core.errors import UsageError\n")
    found = circles(arrows_of(tmp_path / "attnviz"))
    assert found == [["attnviz.core.errors", "attnviz.core.registry"]]


def sources_in(folder: Path) -> list[Path]:
    return [*folder.rglob("*.py"), *folder.rglob("*.pyi")]


def lines_of(files: Iterable[Path]) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in files)


def test_the_core_and_features_stay_small():
    core = [file for file in sources_in(PACKAGE) if FEATURES not in file.parents]
    assert len(core) <= MOST_FILES
    assert lines_of(core) <= MOST_LINES
    for feature in FEATURES.iterdir():
        files = sources_in(feature)
        assert len(files) <= MOST_IN_A_ROOM, feature.name
        assert lines_of(files) <= MOST_LINES_OF_A_FEATURE, feature.name

    rooms = {path.parent for path in PACKAGE.rglob("*.py")}
    crowded = {
        str(room.relative_to(ROOT)): count
        for room in rooms
        if (count := len([*room.glob("*.py")])) > MOST_IN_A_ROOM + (room / "__init__.py").exists()
    }
    assert crowded == {}
    top = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert len(top - {"__init__.py", "__main__.py", "__pycache__"}) <= MOST_AT_THE_ROOT


def test_what_is_left_works_without_features(tmp_path):
    package = tmp_path / "attnviz"
    package.mkdir()
    for part in PACKAGE.iterdir():
        if part != FEATURES:
            (package / part.name).symlink_to(part)
    for words in (
        ("--help",),
        ("self", "the red car", "-f", "tsv"),
        ("cross", "the car", "la voiture"),
    ):
        run = (sys.executable, "-m", "attnviz", *words)
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "car" in done.stdout) == (0, True), done.stderr


def test_no_two_public_classes_have_one_name():
    names = Counter(
        name
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class ([A-Za-z]\w*)", file.read_text("utf-8"), re.MULTILINE)
    )
    assert [name for name, count in names.items() if count > 1] == []


PARTICIPLE = re.compile(
    "[a-z]*(ed|[dkprstvwz]en)|begun|bent|bound|brought|built|caught|done|drawn|felt|found|gone|"
    "grown|held|kept|known|laid|left|lost|made|meant|met|paid|seen|sent|shown|sought|stood|struck|"
    "taught|thought|told|understood|won|wound"
)
# Verbs and nouns that end as participles do.
OTHERS = re.compile("[a-z]*(embed|even|feed|listen|need|often|open|seed|shorten|speed|token)")
# Words of the field, sides and colours, and rows of tables.
TERMS = {"bound", "colored", "learned", "left", "masked", "pooled", "red", "repeated", "saturated"}
TERMS |= {"begun", "scaled", "signed"}


def bare_participle(name: str) -> bool:
    """Whether a name is a single participle, which does not say what is done or comes back."""
    word = name.strip("_")
    return bool(PARTICIPLE.fullmatch(word)) and not OTHERS.fullmatch(word)


def test_no_function_is_called_by_a_bare_participle():
    folders = (PACKAGE, *(ROOT / name for name in ("benchmarks", "fuzz", "training")))
    found = [
        f"{path.name}: {name}"
        for folder in folders
        for path in folder.rglob("*.py")
        for name in written_in(path).functions
        if bare_participle(name)
        and not (path.parent.name == "mechanisms" and name in MECHANISMS)  # named as its row
    ]
    assert found == []
    names = ("_kept", "watched", "written", "kept_heads", "soften", "read", "__len__", "token")
    assert [*map(bare_participle, names)] == [True] * 3 + [False] * 5


def test_parameters_are_no_bare_participles():
    """Fields are left out: those of reports are the keys of documents, which users read."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
        bodies = [one.body for one in nodes if isinstance(one, ast.ClassDef)]
        fields = {getattr(one, "target", None) for body in bodies for one in body}
        names = {one.arg for one in nodes if isinstance(one, ast.arg)} | {
            one.id
            for one in nodes
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one not in fields
        }
        found += [f"{path.name}: {name}" for name in names - TERMS if bare_participle(name)]
    assert found == []


def test_no_module_gives_a_name_two_values():
    """A merge may leave a constant twice, and the later value counts."""
    for path in PACKAGE.rglob("*.py"):
        given = Counter(written_in(path).names)
        twice = [name for name, times in given.items() if times > 1]
        assert not twice, f"{path.name}: {twice}"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml over the package in a folder."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("renderers/data.py", "from attnviz.analyses.select import select"),
        ("core/errors.py", "from attnviz.storage.archive import ZIP"),
        ("features/sources/request.py", "from attnviz.features.why.request import Why"),
        ("storage/documents.py", "def late():\n    from attnviz.cli.places import note"),
    ],
)
@pytest.mark.slow
def test_the_check_fails_where_a_room_looks_up(tmp_path, room, line):
    shutil.copytree(PACKAGE, tmp_path / "attnviz", ignore=shutil.ignore_patterns("files"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "attnviz" / room).open("a") as file:
        file.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_every_contract_names_each():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (own,) = (one["modules"] for one in contracts if one["type"] == "independence")
    folders = {f"attnviz.features.{file.parent.name}" for file in FEATURES.glob("*/__init__.py")}
    assert {*own} == folders

    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    ordered = set()
    for contract in contracts:
        for layer in " | ".join(contract.get("layers", [])).split(" | "):
            ordered |= {f"{room}.{layer}" for room in contract.get("containers", [])} | {layer}
    for room in {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}:
        inside = {path.stem for path in room.glob("*.py")} - {"__init__"}
        if len(inside) > MOST_WITHOUT_A_CONTRACT:
            dotted = ".".join(room.relative_to(ROOT).parts)
            assert {f"{dotted}.{name}" for name in inside} <= ordered


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


@pytest.mark.parametrize(
    "room", ["cli", "commands", "core", "models", "runs", "storage", "analyses", "mechanisms", "."]
)
def test_rooms_of_every_run_import_nothing_heavy(room):
    paths = sorted((PACKAGE / room).glob("*.py"))
    assert paths
    assert {path.name: at_import(path) & HEAVY for path in paths if at_import(path) & HEAVY} == {}


def test_a_heavy_import_would_be_seen():
    assert "torch" in at_import(FEATURES / "layers" / "attention.py")
    assert "click" not in set().union(*map(at_import, (PACKAGE / "cli").glob("*.py")))
