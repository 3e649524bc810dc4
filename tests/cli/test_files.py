"""Files are written whole or not at all, and whether they can be is known before a model loads."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.cli.output import Draft, write_file
from attnviz.core.errors import OutputError
from tests.invoke import OWN, attnviz


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading anything is a failure of the test."""

    def load(*_: object) -> None:
        raise AssertionError("a model was loaded before the outputs were checked")

    monkeypatch.setattr("attnviz.runs.many_texts.opened", load)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("option", ["-o", "--heatmap", "--grid"])
def test_a_place_that_cannot_be_written_is_found_before_a_model_loads(
    option: str, tmp_path: Path
) -> None:
    suffix = ".json" if option == "-o" else ".png"
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    for place, reason in (
        (tmp_path / "nowhere" / f"a{suffix}", "there is no folder"),
        (folder, "it is a folder"),
    ):
        done = attnviz("self", "a b", *OWN, option, place)
        assert done.status == 1
        assert done.mistake.startswith(f"cannot write '{place}': {reason}")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    "arguments",
    [("-o", "a.jsno"), ("--heatmap", "a.pn"), ("-f", "jso"), ("--layer", "x"), ("--reduce", "no")],
)
def test_a_misspelt_wish_is_found_before_a_model_loads(arguments: tuple[str, str]) -> None:
    assert attnviz("self", "a b", *OWN, *arguments).status == 2


def test_a_closed_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = attnviz("self", "a b", *OWN, "-o", tmp_path / "a.json")
    assert done.mistake == f"cannot write '{tmp_path / 'a.json'}': permission denied"


@pytest.mark.parametrize(
    "arguments",
    [("self", "a b", "--layer", "9"), ("self", "a b", "--labels", "X"), ("cross", "a")],
)
def test_a_run_that_fails_leaves_no_file_and_keeps_the_old_one(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    old, new = tmp_path / "old.npz", tmp_path / "h.png"
    old.write_bytes(b"old")
    done = attnviz(*arguments, *OWN, "-o", old, "--heatmap", new)
    assert done.status in (1, 2)
    assert done.mistake
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [("old.npz", b"old")]


def test_a_failure_half_way_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def half() -> None:
        with Draft(path) as draft:
            draft.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_usual_mode_and_keeps_the_one_it_had(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    umask = os.umask(0o022)
    try:
        write_file(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o600)
        write_file(path, b"2")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(umask)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_very_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 120 + ".json")
    write_file(path, b"1")
    assert path.read_bytes() == b"1"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    link = tmp_path / "a.json"
    link.symlink_to("/dev/full")
    done = attnviz("self", "a b", *OWN, "-q", "-f", "none", "-o", link)
    assert (done.status, done.mistake) == (1, f"cannot write '{link}': No space left on device")
    with pytest.raises(OutputError, match="No space left"):
        write_file(link, b"x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("self", "a b", *OWN, "-q"), ("--version",), ("--help",)])
@pytest.mark.slow
def test_a_full_disk_behind_stdout_is_told_in_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "attnviz", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert b"No space left on device" in done.stderr


def test_a_special_file_is_written_in_its_place(tmp_path: Path) -> None:
    link = tmp_path / "a.json"
    link.symlink_to("/dev/null")
    assert attnviz("self", "a b", *OWN, "-q", "-f", "none", "-o", link).err == ""
    assert link.is_symlink()
