"""Files are written whole or not at all, and whether they can be is known before a model loads."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.core.errors import OutputError
from attnviz.storage.writing import PARTS, PartialFile, write_file
from tests.invoke import OWN, Done, attnviz


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading anything is a failure of the test."""

    def load(*_: object) -> None:
        raise AssertionError("a model was loaded before the outputs were checked")

    monkeypatch.setattr("attnviz.runs.many_texts.source_for", load)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("option", ["-o", "--heatmap", "--grid"])
def test_a_place_is_checked_before_a_model_loads(option, tmp_path):
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
def test_a_misspelt_wish_is_found_before_a_model_loads(arguments):
    assert attnviz("self", "a b", *OWN, *arguments).status == 2


def test_a_closed_place_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = attnviz("self", "a b", *OWN, "-o", tmp_path / "a.json")
    assert done.mistake == f"cannot write '{tmp_path / 'a.json'}': permission denied"


@pytest.mark.parametrize(
    "arguments", [("self", "a b", "--layer", "9"), ("self", "a b", "--labels", "X"), ("cross", "a")]
)
def test_a_run_that_fails_keeps_the_old_file(arguments, tmp_path):
    old, new = tmp_path / "old.npz", tmp_path / "h.png"
    old.write_bytes(b"old")
    done = attnviz(*arguments, *OWN, "-o", old, "--heatmap", new)
    assert done.status in (1, 2)
    assert done.mistake
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [("old.npz", b"old")]


def test_a_failure_half_way_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")

    def half() -> None:
        with PartialFile(path, kinds=PARTS) as draft:
            draft.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_modes_links_and_long_names_are_kept(tmp_path):
    path = tmp_path / "a.json"
    umask = os.umask(0o022)
    try:
        write_file(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o601)
        write_file(path, b"2")
        assert stat.S_IMODE(path.stat().st_mode) == 0o601
    finally:
        os.umask(umask)
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    path = tmp_path / ("é" * 120 + ".json")
    write_file(path, b"1")
    assert path.read_bytes() == b"1"
    link = tmp_path / "null.json"
    link.symlink_to("/dev/null")
    assert attnviz("self", "a b", *OWN, "-q", "-f", "none", "-o", link).err == ""
    assert link.is_symlink()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_in_one_line(tmp_path):
    link = tmp_path / "a.json"
    link.symlink_to("/dev/full")
    done = attnviz("self", "a b", *OWN, "-q", "-f", "none", "-o", link)
    assert (done.status, done.mistake) == (1, f"cannot write '{link}': No space left on device")
    with pytest.raises(OutputError, match="No space left"):
        write_file(link, b"x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("self", "a b", *OWN, "-q"), ("--version",), ("--help",)])
@pytest.mark.slow
def test_a_full_disk_behind_stdout_is_told_in_one_line(arguments):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "attnviz", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr.decode().count("\n")) == (1, 1)
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("how", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.slow
@pytest.mark.core
def test_a_signal_leaves_no_file(how, status, many, tmp_path):
    done = dying(
        how, "attnviz.analyses.view", "self", *["a b"] * (1 + many), "-o", tmp_path / "m.npz"
    )
    assert (done.status, done.err, done.out) == (status, "", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["typer", "attnviz.cli.app", "attnviz.core.options"])
@pytest.mark.parametrize(("how", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.slow
def test_a_signal_at_imports_leaves_no_traceback(how, status, module):
    done = dying(how, module, "self", "a b")
    assert (done.status, done.err, done.out) == (status, "", b"")


def dying(how: str, module: str, *arguments: object) -> Done:
    """A process that a signal hits when it imports a module."""
    code = f"""
import os, signal, sys
from attnviz.__main__ import main

class Hit:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{how})

sys.meta_path.insert(0, Hit())
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, check=False
    )
    return Done(ended.returncode, ended.stdout, ended.stderr.decode())


def test_drafts_of_other_runs(tmp_path):
    path = tmp_path / "a.json"
    for written in (b"a long first part", b"half"):
        draft = PartialFile(path, kinds=PARTS)
        draft.write(written)
        draft.close()  # as the system does with what it kills
        assert [item.name for item in tmp_path.iterdir()] == [".a.json.partial"]
    write_file(path, b"new")
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [("a.json", b"new")]

    with PartialFile(path, kinds=PARTS) as first, PartialFile(path, kinds=PARTS) as second:
        first.write(b"first")
        second.write(b"second")
        first.move()
        assert path.read_bytes() == b"first"
        with PartialFile(path, kinds=PARTS) as third:
            third.write(b"third, unfinished")
        second.move()
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [
        ("a.json", b"second")
    ]
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / ".a.json.partial").symlink_to(theirs)
    with pytest.raises(OutputError, match="symbolic links"):
        write_file(tmp_path / "a.json", b"1")
    assert theirs.read_text() == "precious"


@pytest.mark.parametrize("option", ["-o", "--html", "--grid", "--on-error"])
def test_a_link_that_leads_nowhere_is_told_in_one_line(option, tmp_path):
    suffix = {"-o": ".json", "--html": ".html", "--grid": ".png"}.get(option, "")
    loop, lost = tmp_path / f"loop{suffix}", tmp_path / f"lost{suffix}"
    loop.symlink_to(loop)
    lost.symlink_to(tmp_path / "nowhere" / "a")
    before = {*tmp_path.iterdir()}
    for place, reason in (
        (loop, "Too many levels of symbolic links"),
        (loop / f"a{suffix}", "Too many levels of symbolic links"),
        (lost, f"there is no folder '{tmp_path / 'nowhere'}'"),
        (tmp_path / f"{'x' * 300}{suffix}", "File name too long"),
        (tmp_path / ("x" * 300) / f"a{suffix}", "File name too long"),
    ):
        done = attnviz("self", "a b", *OWN, option, place)
        assert done.status == 1
        assert reason in done.mistake
    assert {*tmp_path.iterdir()} == before
