"""A newcomer's forty tasks (tests/tasks.md): each command runs and shows what stands under it."""

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.features.examples.test_help import build_named
from tests.test_readme import environment, outcome

pytestmark = pytest.mark.models

TEXT = (Path(__file__).parent / "tasks.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
TASK = re.compile(r"^(\d+)\. (.*?)\n\n *```console\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def tasks(section: str) -> list[tuple[str, str, list[str]]]:
    """The question of each task, its command, and what it shows."""
    found = TASK.findall(SECTIONS[section])
    bodies = [dedent(body).splitlines() for _, _, body in found]
    return [
        (f"{number}. {question}", body[0].removeprefix("$ "), body[1:])
        for (number, question, _), body in zip(found, bodies, strict=True)
    ]


def test_there_are_forty_tasks_eight_a_section():
    numbers = [one[0].partition(".")[0] for section in SECTIONS for one in tasks(section)]
    assert numbers == [str(number) for number in range(1, 41)]
    assert [len(tasks(section)) for section in SECTIONS] == [8] * 5
    assert all(shown for section in SECTIONS for _, _, shown in tasks(section))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the block of tasks.md was run that comes before them."""
    folder = tmp_path_factory.mktemp("tasks")
    (block,) = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    subprocess.run(["bash", "-ec", block], cwd=folder, env=environment(), check=True)
    return folder


QUICK = ("A student", "A shell script")
CASES = [
    pytest.param(section, marks=[pytest.mark.slow] * (section not in QUICK)) for section in SECTIONS
]


@pytest.mark.parametrize("section", CASES)
def test_a_task_shows_what_stands_under_it(section, begun):
    for question, command, shown in tasks(section):
        if "jq " in command and shutil.which("jq") is None:
            continue
        build_named(command, begun)
        output, status = outcome(command, begun)
        found, shows = " ".join(output.split()), f"{question}\n$ {command}\n{output}"
        wanted = next((line for line in shown if line.startswith("status ")), "status 0")
        assert f"status {status}" == wanted, shows
        for line in shown:
            if line.startswith("file "):
                assert (begun / line.removeprefix("file ")).is_file(), question
            elif not line.startswith("status "):
                assert line in found, shows
