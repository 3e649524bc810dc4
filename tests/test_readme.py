"""The README's blocks, run as a newcomer would run them.

In a ```console block a line after `$ ` is run by bash, and what follows must be what it prints
(stdout and stderr together); a line `…` stands for any lines. A ```python block is run as one
script. The ```make blocks are the Makefile of the folder, in which also lie three checkpoints of a
tiny model, `checkpoints/step-1000` to `-3000`. Blocks of another kind (```sh: setting up, which CI
itself does) are not run.
`python -m tests.test_readme` writes what the commands print now into the blocks that have no `…`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.models, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(console|python|make)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    """The README's blocks of one kind."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [body for found, body in BLOCK.findall(text) if found == kind]


def commands() -> list[tuple[str, str]]:
    """Each command of the README's console blocks with the output printed under it."""
    found: list[tuple[str, str]] = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more
            found.append((command, output.strip("\n")))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with the sample inputs, shared by the commands as by a reader's session."""
    place = tmp_path_factory.mktemp("readme")
    furnish(place)
    return place


def furnish(place: Path, *, models: bool = True) -> None:
    """Lay into a folder what the README's commands take for granted."""
    shutil.copytree(ROOT / "sample_inputs", place / "sample_inputs")
    (place / "Makefile").write_text("\n".join(blocks("make")), encoding="utf-8")
    if models:
        save_checkpoints(place / "checkpoints")


def save_checkpoints(place: Path) -> None:
    """A tiny model early in a training run, after a step that changes little, and after a leap."""
    import torch
    from safetensors.torch import load_file, save_file

    from tests.hugging_face.tiny_models import gpt2

    first = gpt2(place / "step-1000")
    weights = load_file(first / "model.safetensors")
    for step, change in (("2000", 0.001), ("3000", 0.3)):
        generator = torch.Generator().manual_seed(0)
        moved = {
            name: array + change * torch.randn(array.shape, generator=generator)
            for name, array in weights.items()
        }
        shutil.copytree(first, place / f"step-{step}")
        save_file(moved, place / f"step-{step}" / "model.safetensors", {"format": "pt"})


def matches(expected: str, printed: str) -> bool:
    """Whether the output is the expected one, a line `…` standing for any lines."""
    pattern = "(?:.*\n)*?".join(
        re.escape(part) for part in re.split(r"^…\n", expected + "\n", flags=re.MULTILINE)
    )
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


def test_a_wildcard_line_stands_for_any_lines_and_nothing_else_does() -> None:
    assert matches("a\n…\nc", "a\nb\nb\nc")
    assert matches("a\nc", "a\nc\n")
    assert not matches("a\n…\nc", "a\nb\nd")
    assert not matches("a", "a\nb")


def test_there_are_blocks_to_run() -> None:
    assert len(commands()) >= 8
    assert blocks("python")


def printed(command: str, folder: Path) -> str:
    """What a command prints when it is run in a folder, on no terminal."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["HF_HUB_OFFLINE"] = "1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(("command", "expected"), commands(), ids=[c for c, _ in commands()])
def test_a_console_block_prints_what_it_says(command: str, expected: str, folder: Path) -> None:
    for tool in ("jq", "parallel", "make"):
        if tool in command.split() and shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    found = printed(command, folder)
    assert matches(expected, found), found


@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs(code: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def update() -> None:
    """Write what every command prints now into the README, where nothing is left out by `…`."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        furnish(Path(place))
        for command, expected in commands():
            found = printed(command, Path(place)).strip("\n")
            if "…" not in expected.split("\n"):
                old = f"$ {command}\n{expected}\n" if expected else f"$ {command}\n"
                assert old in text, f"write this command in one line: {command}"
                text = text.replace(old, f"$ {command}\n{found}\n" if found else f"$ {command}\n")
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
