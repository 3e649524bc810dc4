"""attnviz heads --atlas: the page, and that nothing changes it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnviz.runs.many_texts import AttendChunk
from tests.features.corpus.test_command import SMALL, interrupt_after
from tests.invoke import attnviz
from tests.renderers.page.test_page import document

HOSTILE = "</script><b onclick=alert(1)> \x1b[31m \u202e the cat & the </style> dog"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"the cat {'sat ' * (n % 3)}on mat {n}\n" for n in range(40)))
    return path


def atlas(texts: Path, place: Path, *more: object) -> Any:
    done = attnviz("heads", "--input", texts, *SMALL, "-f", "none", "--atlas", place, *more)
    assert (done.status, done.out) == (0, b""), done.err
    return document(place.read_text()) if place.suffix else None


def of_run(page: Any) -> Any:
    return {name: value for name, value in page.items() if name not in ("command", "provenance")}


@pytest.mark.slow
def test_the_page_says_what_the_command_says(texts, tmp_path):
    page = atlas(texts, tmp_path / "page.html")
    (stream,) = attnviz("heads", "--input", texts, *SMALL, "-f", "json").json()["streams"]
    (shown,) = page["streams"]
    assert page["texts"] == 40
    for head in stream["heads"]:
        place = str(head["layer"]), str(head["head"])
        own = next(one for one in shown["heads"] if (one["layer"], one["head"]) == place)
        for values, measure in zip(own["values"], head["measures"], strict=True):
            expected = [measure[name] for name in ("mean", "low", "high", "uniform")]
            assert values[:4] == pytest.approx(expected, rel=1e-3)
        assert own["offsets"] == pytest.approx([at["share"] for at in head["positions"]], rel=1e-3)
        assert sum(own["counts"]) == 40
        best = own["drawn"][-1][0]
        assert best[3] == pytest.approx(head["links"][0]["weight"], rel=1e-3)
        assert shown["texts"][best[0]][0] == head["links"][0]["id"]


def test_notes_and_hostile_texts_are_on_the_page(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "the cat"}\n{"words": 1}\n')
    place = tmp_path / "page.html"
    done = attnviz("heads", "--input", path, *SMALL, "-f", "none", "--atlas", place)
    assert done.status == 1
    assert document(place.read_text())["notes"][0] == "1 texts could not be read"

    path.write_text(json.dumps({"id": HOSTILE, "text": HOSTILE}) + "\n")
    page = atlas(path, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert re.findall(r"</script", html) == ["</script"] * 2
    assert "\x1b" not in html
    assert "\u202e" not in html
    (_, words), *_ = page["streams"][0]["texts"]
    assert "</script><b" in "".join(words)


@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("atlas.png", 2, "names no page: end it in .html or .htm"),
        ("texts.txt", 2, "names no page"),
        ("folder", 2, "names no page"),
        ("missing/atlas.html", 1, "there is no folder"),
    ],
)
def test_places_are_checked_before_the_work(texts, tmp_path, place, status, said):
    before = sorted(tmp_path.rglob("*"))
    done = attnviz("heads", "--input", texts, *SMALL, "-f", "none", "--atlas", tmp_path / place)
    assert (done.status, said in done.mistake) == (status, True), done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_fails_leaves_nothing(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"words": 1}\n')
    assert attnviz("heads", "--input", path, *SMALL, "--atlas", tmp_path / "page.html").status == 1
    assert [item.name for item in tmp_path.iterdir()] == ["texts.jsonl"]


@pytest.mark.slow
def test_resuming_gives_the_same_bytes(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(AttendChunk, "size", 10)
    whole, found = tmp_path / "whole.html", tmp_path / "found.html"
    atlas(texts, whole)
    how = ("heads", "--input", texts, *SMALL, "-f", "none", "--atlas", found)
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        assert attnviz(*how).status == 130
    assert not found.exists()
    done = attnviz(*how, "--resume")
    assert (done.status, "to resume: starting" in done.err) == (0, False)
    assert of_run(document(found.read_text())) == of_run(document(whole.read_text()))
    assert found.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_who_did_the_work_is_no_part_of_an_atlas(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(AttendChunk, "size", 10)
    monkeypatch.chdir(tmp_path)
    how = [
        "heads",
        "--input",
        texts.name,
        *SMALL,
        "-f",
        "none",
        "--atlas",
        "a.html",
        "-o",
        "a.json",
    ]
    made = []
    for more in (["--workers", "1"], ["--workers", "2"], ["--engine", "local"], [], ["--resume"]):
        monkeypatch.setattr("sys.argv", ["attnviz", *map(str, how), *more])
        if more == ["--resume"]:
            with monkeypatch.context() as patch:
                interrupt_after(2, patch)
                assert attnviz(*how).status == 130
        done = attnviz(*how, *more)
        assert (done.status, "to resume: starting" in done.err) == (0, False), done.err
        made.append([Path(name).read_bytes() for name in ("a.html", "a.json")])
        for name in ("a.html", "a.json"):
            Path(name).unlink()
    assert [*Path().iterdir()] == [Path(texts.name)]
    assert b"attnviz heads --input texts.txt" in made[0][0]
    assert made == [made[0]] * len(made)


def test_an_atlas_is_not_added_to_a_resumed_run(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(AttendChunk, "size", 10)
    how = ("heads", "--input", texts, *SMALL, "-f", "none", "-o", tmp_path / "found.json")
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        assert attnviz(*how).status == 130
    done = attnviz(*how, "--resume", "--atlas", tmp_path / "page.html")
    assert (done.status, "--atlas was not given and is 'given'" in done.err) == (2, True)
