"""Whatever saves from Python saves whole or not at all, and says in one line why it could not."""

import inspect
import os
import re
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.callbacks import Recorder, sample_files
from attnviz.commands.findings import Findings
from attnviz.core.errors import OutputError
from attnviz.features.watch.function import Watched
from attnviz.runs.pipeline import Result
from attnviz.storage.writing import write_file
from tests.invoke import OWN
from tests.invoke import attnviz as run

pytestmark = pytest.mark.usefixtures("coarse")

PACKAGE = Path(attnviz.__file__).parent
SUFFIXES = {"page": ".html", "save": ".npz"}
WRITES = r"\.write_(?:bytes|text)\(|\.savefig\(|\bmkstemp\(|\bumask\(|\bopen\([^)]*\"[wax]b?\""
"""What opens a file to write, or learns how it should be opened."""
BESIDES = {
    "features/watch/command.py": ['open(os.devnull, "w"'],
    "cli/destinations.py": ["mkstemp("],  # of a page without a name
    "models/hugging_face/load/imports.py": ['open("wb"'],  # of os.devnull
    "renderers/figures/figure.py": [".savefig("],  # into memory
    "storage/archive.py": ['open(entry, "w"'],  # in memory
}


def methods() -> list[tuple[str, str]]:
    """Every method that is given a file to write."""
    return [
        (kind.__name__, name)
        for kind in (Result, Watched, Findings)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and "file" in inspect.signature(method).parameters
    ]


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    """One of each kind that saves, with something in it."""
    import torch

    with attnviz.watch(key_tokens=list("abcd")) as watched:
        torch.rand(1, 1, 16, 4).softmax(-1) @ torch.ones(1, 1, 4, 4)
    result = attnviz.from_numpy(np.full((2, 3, 3), 1 / 3), tokens=list("abc"))
    findings = attnviz.heads(["the cat sat", "a dog"], mechanism="multi-head", atlas=True)
    return {"Result": result, "Watched": watched, "Findings": findings}


def save(things: dict[str, Any], kind: str, name: str, path: Path) -> None:
    more = {"word": "b"} if name == "overlay" else {}
    getattr(things[kind], name)(file=path, **more)


def suffix_of(kind: str, name: str) -> str:
    if (kind, name) == ("Findings", "save"):
        return ".json"
    return SUFFIXES.get(name, ".png")


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk without room, with an old file of each kind."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    may = os.getuid() == 0 and shutil.which("mount") is not None
    mounted = may and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    for suffix in (".npz", ".json", ".png", ".html"):
        (folder / f"old{suffix}").write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if mounted:
        with pytest.raises(OSError, match="No space"):
            (folder / "filler").write_bytes(bytes(1 << 16))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if mounted:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\na dog\n")
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A folder of two samples of a training run."""
    for step in (1, 2):
        result = attnviz.from_numpy(np.full((2, 3, 3), 1 / 3))
        result.save(tmp_path / f"step-{step:08d}.npz")
    return tmp_path


def held(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def test_there_is_something_of_everything_that_saves(things):
    assert {kind for kind, _ in methods()} == set(things)
    assert len(methods()) >= 12


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(("kind", "name"), methods())
def test_a_full_disk_keeps_the_old_file(kind, name, full, things):
    suffix = suffix_of(kind, name)
    before = held(full)
    for path in (full / f"old{suffix}", full / f"new{suffix}"):
        with pytest.raises(OutputError, match=rf"^cannot write '{path}': [^\n]*$"):
            save(things, kind, name, path)
        assert held(full) == before


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), methods())
def test_a_place_that_cannot_be_is_named(kind, name, tmp_path, things):
    suffix = suffix_of(kind, name)
    (folder := tmp_path / f"folder{suffix}").mkdir()
    for path, reason in (
        (folder, "it is a folder"),
        (tmp_path / "nowhere" / f"a{suffix}", f"there is no folder '{tmp_path / 'nowhere'}'"),
    ):
        with pytest.raises(OutputError, match=f"^cannot write '{path}': {reason}$"):
            save(things, kind, name, path)
    assert [*tmp_path.rglob("*")] == [folder]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), methods())
def test_what_is_saved_is_whole_and_keeps_its_mode(kind, name, tmp_path, things):
    path, link = (tmp_path / f"{stem}{suffix_of(kind, name)}" for stem in ("a", "link"))
    path.write_bytes(b"old" * 100_000)
    path.chmod(0o640)
    link.symlink_to(path)
    save(things, kind, name, link)
    assert {*tmp_path.iterdir()} == {path, link}
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_size > 100
    assert not path.read_bytes().endswith(b"oldold")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("heads", "--input", "TEXTS", *OWN, "-o", "new.json"),
        ("heads", "--input", "TEXTS", *OWN, "--picture", "new.png"),
        ("heads", "--input", "TEXTS", *OWN, "--atlas", "new.html"),
        *(
            ("compare", "SAMPLES", option, f"new{suffix}")
            for option, suffix in (
                *(
                    ("--html", ".html"),
                    ("--picture", ".png"),
                    ("--picture", ".gif"),
                    ("-o", ".json"),
                ),
            )
        ),
        ("lesson", "masking", "--html", "new.html"),
    ],
    ids=" ".join,
)
def test_a_command_on_a_full_disk_leaves_nothing(words, texts, samples, full):
    before, places = held(full), {"TEXTS": texts, "SAMPLES": samples}
    *given, name = words
    done = run(*(places.get(word, word) for word in given), full / name, "-q")
    assert done.status == 1
    assert re.fullmatch(r"cannot write '[^\n]*", done.mistake)
    assert held(full) == before


def test_a_full_temporary_folder_is_told_in_one_line(full, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(full))
    done = run("heads", "--input", "-", "-q", *OWN, stdin=b"the cat sat\n" * 9)
    assert done.mistake.startswith("cannot keep the texts in a temporary file: ")


def test_a_full_disk_leaves_the_run_and_older_samples(full):
    import torch

    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    recorder = Recorder(Attends(), torch.ones(1, 2, 30, 4), full, every=1)
    before = held(full)
    with pytest.warns(UserWarning, match="no sample at step 1: cannot write"):
        recorder.step(1)
    assert (held(full), sample_files(full)) == (before, {})


@pytest.mark.slow
def test_only_the_one_way_to_save_opens_files():
    found = {
        str(path.relative_to(PACKAGE)): re.findall(WRITES, text)
        for path in PACKAGE.rglob("*.py")
        if re.search(WRITES, text := path.read_text("utf-8"))
    }
    assert found == BESIDES


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_mode_of_the_umask(umask, tmp_path, monkeypatch):
    before = os.umask(umask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("the umask is the whole process's"))
            write_file(tmp_path / "a", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask


def test_a_private_file_is_never_open_to_others(tmp_path, monkeypatch):
    path, draft = tmp_path / "a", tmp_path / ".a.partial"
    path.touch(0o600)
    draft.touch(0o644)  # a killed run has left it
    seen: list[int] = []
    real: Callable[[int, bytes], int] = os.write

    def write(file: int, data: bytes) -> int:
        seen.append(stat.S_IMODE(draft.stat().st_mode))
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    write_file(path, b"secret")
    assert seen == [0o600] == [stat.S_IMODE(path.stat().st_mode)]
