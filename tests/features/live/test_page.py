"""`attnviz live`: where its page goes. What the page does is tested in tests/renderers/page."""

import pytest

from attnviz.features.explain.search import REFERENCE
from attnviz.features.live.command import TRANSLATIONS
from attnviz.models.pocket.translator import load_pocket
from tests.invoke import attnviz


@pytest.mark.slow
def test_a_page_goes_to_its_file(monkeypatch, tmp_path):
    path, opened = tmp_path / "live.html", list[str]()
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)) or True)
    done = attnviz("live", "-o", path, "-v", "--open")
    assert (done.status, done.out) == (0, b"")
    assert f"\nnote: wrote '{path}', 9." in done.err
    assert path.read_bytes().startswith(b"<!doctype html>")
    assert path.stat().st_size <= 10_000_000
    assert opened == [path.as_uri()]


def test_the_sample_translations_are_the_models_own():
    model = load_pocket()
    assert [model.translate(text) for text in REFERENCE] == [*TRANSLATIONS]
    together = model.write([model.encode_text(text) for text in REFERENCE])
    assert [text for text, *_ in together] == [*TRANSLATIONS]


@pytest.mark.parametrize(
    ("path", "more", "status", "message"),
    [
        ("live.txt", (), 2, "--output 'live.txt' must end in .html or .htm"),
        ("none/live.html", (), 1, "there is no folder 'none'"),
        ("live.html", ("--port", 8700), 2, "--port is for a server, and -o writes a page"),
        ("live.html", ("--model", "pocket-lm"), 2, "a page with the model 'pocket' inside"),
        ("live.html", ("--device", "cpu"), 2, "leave --model and its options out"),
    ],
)
def test_what_no_page_can_hold_is_told_before_the_work(path, more, status, message):
    done = attnviz("live", "-o", path, *more)
    assert (done.status, message in done.mistake) == (status, True)
