"""`attnviz live`: where its page goes. What the page does is tested in tests/renderers/page."""

import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from attnviz.analyses.explain import REFERENCE
from attnviz.cli.commands.serve import TRANSLATIONS
from attnviz.models.pocket.translator import load_pocket
from tests.invoke import attnviz


@pytest.mark.slow
def test_a_page_goes_to_its_file_and_says_so_only_when_asked(tmp_path):
    path = tmp_path / "live.html"
    done = attnviz("live", "-o", path, "-v")
    assert (done.status, done.out) == (0, b"")
    assert done.err.startswith(f"note: wrote '{path}', 9.")
    assert path.read_bytes().startswith(b"<!doctype html>")


def test_the_sample_translations_are_the_models_own():
    model = load_pocket()
    assert [model.translate(text) for text in REFERENCE] == [*TRANSLATIONS]


@pytest.mark.slow
def test_without_a_file_the_page_is_opened(monkeypatch, tmp_path):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    done = attnviz("live")
    assert (done.status, done.out) == (0, b"")
    (page,) = (Path(unquote(urlparse(url).path)) for url in opened)
    assert page.parent == tmp_path
    assert page.stat().st_size <= 10_000_000


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("live.txt", 2, "--output 'live.txt' must end in .html or .htm"),
        ("none/live.html", 1, "there is no folder 'none'"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(path, status, message):
    done = attnviz("live", "-o", path)
    assert (done.status, message in done.mistake) == (status, True)
