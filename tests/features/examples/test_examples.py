"""Files to try commands with: what is written, and what of a folder stays."""

import pytest

from attnviz.features.examples import FILES
from tests.invoke import attnviz
from tests.test_readme import ROOT

SAMPLES = ROOT / "sample_inputs"
MAKERS = {"roles.py", "shapes.py", "vowels.py"}
"""Scripts of the repository: one that brings its own environment, and two that made samples."""


def test_the_files_are_the_samples_of_the_repository(tmp_path):
    assert set(FILES) == {file.name for file in SAMPLES.glob("*.*")} - MAKERS
    done = attnviz("examples", tmp_path / "new" / "folder")
    assert [line.split()[0] for line in done.lines] == list(FILES)
    for name in FILES:
        content = (tmp_path / "new" / "folder" / name).read_bytes()
        assert content == (SAMPLES / name).read_bytes()


def test_a_file_of_ones_own_stays_and_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    done = attnviz("examples", tmp_path)
    assert done.err == "note: notes.txt: yours, which differ, stay\n"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert attnviz("examples", tmp_path, "-q").err == ""


def test_without_a_folder_they_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert attnviz("examples").lines[0].startswith("sentences.txt")
    assert not [*tmp_path.iterdir()]


def test_a_wrong_line_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = [
        ("-f", "tsv", "--fields", "id"),
        ("--fields", "file"),
        ("-f", "json", "--fields", "id"),
    ]
    for words in (*(("new", *options) for options in asked), ("",)):
        assert attnviz("examples", *words).mistake
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["file", "file/folder"])
def test_a_place_that_is_no_folder_is_one_line(name, tmp_path):
    (tmp_path / "file").write_text("")
    done = attnviz("examples", tmp_path / name)
    assert done.status == 1
    assert "cannot write" in done.mistake
