"""Rows that other packages add: the example in the documents, and packages that are broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.patience import HUNG

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "plugin"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the example."""
    place = tmp_path_factory.mktemp("example")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(place)]
    subprocess.run([*command, *options, str(EXAMPLE)], check=True, capture_output=True)
    return place


def program(*places: Path) -> Run:
    """The program, in a Python that finds packages in further folders."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, (ROOT, *places)))
        return subprocess.run(
            [sys.executable, "-m", "attnviz", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            timeout=HUNG,
        )

    return run


def declare(place: Path, package: str, group: str, name: str, value: str, code: str) -> None:
    """A package that declares one row and has one module of code."""
    info = place / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[attnviz.{group}]\n{name} = {value}\n")
    (place / f"{package}.py").write_text(code)


def broken(place: Path, group: str, name: str, value: str, code: str = "") -> Run:
    """The program beside such a package."""
    declare(place, "broken", group, name, value, code)
    return program(place)


@pytest.fixture(scope="module")
def plain() -> str:
    """What the program writes without any plug-in."""
    return program()("self", MATS[0], "-q").stdout


MATS = ("The cat sat on the mat", "-q", "-f", "json")


@pytest.mark.slow
def test_a_command_and_a_picture_are_used_and_listed(installed, tmp_path):
    run = program(installed)
    assert "Show how far heads look." in run("--help").stdout
    bars, keys = tmp_path / "bars.png", tmp_path / "keys.svg"
    done = run("reach", MATS[0], "--top", "2", "--picture", str(bars), "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [*json.loads(done.stdout)["rows"][0]] == ["head", "tokens"]
    assert "attnviz reach" in run("reach", "--help").stdout
    assert run("reach", MATS[0], "--top", "0").returncode == 2
    done = run("self", *MATS, "--picture", f"received:{keys}")
    assert (done.returncode, done.stderr) == (0, "")
    assert bars.stat().st_size > 0 < keys.stat().st_size
    code = "import inspect, attnviz_example.command as c; r = c.reach('A cat sat', top=2); "
    code += "print(r.to_rows(), [*r.picture().axes], [*inspect.signature(c.reach).parameters][:3])"
    path = f"{ROOT}{os.pathsep}{installed}"
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert "['text', 'top', 'model']" in done.stdout, done.stderr


@pytest.mark.slow
def test_mechanisms_and_lenses_are_used(installed):
    run = program(installed)
    assert "(from 'attnviz-example')" in run("models", "--mechanisms").stdout
    weights = json.loads(run("self", *MATS, "--mechanism", "cosine").stdout)["maps"][0]["weights"]
    assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-5)
    parts = json.loads(run("steps", "The cat", "--mechanism", "cosine", "-q", "-f", "json").stdout)
    query, key = (np.array(parts[name]) for name in ("query", "key"))
    sizes = np.linalg.norm(query, axis=-1)[..., None] * np.linalg.norm(key, axis=-1)
    cosines = query @ np.swapaxes(key, -1, -2) / sizes
    assert_allclose(parts["scores"], 10 * cosines, atol=1e-5)

    raw, seen = (
        np.array(json.loads(run("self", *MATS, *lens).stdout)["maps"][0]["weights"])
        for lens in ((), ("--lens", "sharper"))
    )
    assert_allclose(seen, raw**2 / (raw**2).sum(axis=-1, keepdims=True), atol=1e-5)
    streams = [
        item["stream"] for item in json.loads(run("self", *MATS, "--lens", "all").stdout)["maps"]
    ]
    assert "sharper" in streams


@pytest.mark.slow
def test_a_measure_is_in_tables_data_and_roles(installed):
    run = program(installed)
    kept = run("cache", "the cat saw the dog and the cat", "--keep", "peak:3", "-q")
    assert "peak:3" in kept.stdout, kept.stderr
    shown = run("heads", MATS[0], "--sort", "far", "-q")
    assert "far" in shown.stdout, shown.stderr
    head = json.loads(run("heads", *MATS).stdout)["heads"][0]
    place = [head[name] for name in ("layer", "head")]
    weights = np.array(
        json.loads(run("self", *MATS).stdout)["maps"][0]["weights"][int(place[0])][int(place[1])]
    )
    distance = abs(np.subtract.outer(*[np.arange(len(weights))] * 2)) >= 5
    rows = distance.any(axis=-1)
    assert head["values"]["far"] == pytest.approx(
        (weights * distance).sum(-1)[rows].mean(), abs=1e-4
    )


@pytest.mark.slow
def test_formats_of_packages_write_and_name_files(installed, tmp_path):
    path = tmp_path / "links.dot"
    done = program(installed)("self", MATS[0], "-o", str(path), "-q")
    assert done.returncode == 0, done.stderr
    assert path.read_text().startswith('digraph "0" {\n  "The" -> "the"')


WRONG = [
    ("measures", "far", "FAR", "", "AttributeError: "),
    ("measures", "wide", "FAR", "import nowhere", "ModuleNotFoundError: No module"),
    ("measures", "near", "FAR", "raise SystemExit(3)", "SystemExit: 3"),
    ("measures", "next", "FAR", "raise BaseException('no')", "BaseException: no"),
    ("lenses", "far", "FAR", "FAR = 3", "FAR' is no attnviz.core.registry.Lens"),
    ("lenses", "norm", "FAR", "FAR = 3", "there is another row of this name"),
    ("formats", "F\x1b[31m", "FAR", "FAR = 3", "lower-case letters, digits and hyphens"),
]


@pytest.mark.slow
def test_each_plugin_that_cannot_be_had_is_one_line(tmp_path, plain):
    for number, (group, name, value, code, _) in enumerate(WRONG):
        declare(tmp_path, f"broken{number}", group, name, f"broken{number}:{value}", code)
    done = program(tmp_path)("self", MATS[0], "-q")
    assert (done.returncode, done.stdout) == (0, plain)
    assert "\x1b" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(WRONG)
    for number, (*_, why) in enumerate(WRONG):
        (line,) = (line for line in lines if f"of 'broken{number}'" in line)
        assert line.startswith("note: the plug-in ")
        assert why in line


ROW = "from attnviz.core.registry import {0}\nROW = {0}('Fails.', 'broken:fail', {1})\n"
FAILS = "def fail(*arguments, **options):\n    raise ValueError('this\\nfails')\n"
ENDS = FAILS.replace("ValueError", "SystemExit")


@pytest.mark.slow
def test_measures_and_lenses_that_fail_are_left_out(tmp_path):
    for name, fails in (("bad", FAILS), ("worse", ENDS)):
        row = ROW.format("Measure", f"'{name}'").replace("broken", name)
        declare(tmp_path, name, "measures", name, f"{name}:ROW", row + fails)
    done = program(tmp_path)("heads", MATS[0], "--no-repeat")
    assert done.returncode == 0
    assert "next-token" in done.stdout
    for name, kind in (("bad", "ValueError"), ("worse", "SystemExit")):
        assert f"measure {name} of '{name}' is left out: {kind}: this fails" in done.stderr
    assert "Traceback" not in done.stderr
    run = broken(tmp_path, "lenses", "bad", "broken:ROW", ROW.format("Lens", "") + FAILS)
    done = run("self", MATS[0], "--lens", "all", "-f", "json")
    assert done.returncode == 0
    assert "lens bad is left out: this fails" in done.stdout.replace("\\n", " ")


@pytest.mark.slow
def test_ctrl_c_in_a_plugin_is_ctrl_c(tmp_path):
    fails = FAILS.replace("ValueError", "KeyboardInterrupt")
    run = broken(tmp_path, "measures", "bad", "broken:ROW", ROW.format("Measure", "'bad'") + fails)
    done = run("heads", MATS[0], "--no-repeat")
    assert (done.returncode, done.stdout) == (130, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "row", "asked", "kind"),
    [
        ("lenses", ROW.format("Lens", ""), ("--lens", "bad"), "SystemExit"),
        ("mechanisms", ROW.format("Mechanism", "('self',)"), ("--mechanism", "bad"), "ValueError"),
        ("formats", ROW.format("Format", ""), ("-f", "bad"), "BaseException"),
    ],
)
def test_what_fails_where_it_is_asked_for_is_one_line(tmp_path, group, row, asked, kind):
    fails = FAILS.replace("ValueError", kind)
    done = broken(tmp_path, group, "bad", "broken:ROW", row + fails)("self", MATS[0], *asked)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        f"attnviz: error: the plug-in 'broken' failed: {kind}: this fails"
    )


def test_code_that_is_gone_is_one_line(tmp_path):
    run = broken(tmp_path, "lenses", "bad", "broken:ROW", ROW.format("Lens", ""))
    done = run("self", MATS[0], "--lens", "bad")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "'broken:fail' of the package 'broken' cannot be loaded: AttributeError" in line
