"""attnviz heads over pictures: numbers, the atlas, and that nothing changes them."""

import base64
import io
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from attnviz.core.errors import InputError
from attnviz.features.atlas import page as pictures
from attnviz.features.corpus import study as corpus
from attnviz.runs.inputs import pictures_in
from tests.features.corpus.test_command import interrupt_after
from tests.features.vision.tiny_vision import VISION_BUILDERS
from tests.invoke import attnviz
from tests.renderers.page.test_page import document

pytestmark = pytest.mark.usefixtures("coarse")

SENTENCES = Path(__file__).parents[3] / "sample_inputs" / "sentences.txt"
NAMES = ("a.png", "b.jpg", "deep/c.bmp")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three drawings of several shapes, one of them a folder deeper."""
    place = tmp_path / "drawings"
    (place / "deep").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        image = Image.new("RGB", (120 + 40 * number, 120), "white")
        pen = ImageDraw.Draw(image)
        pen.ellipse((10, 10 + 20 * number, 50, 50 + 20 * number), fill="red")
        pen.rectangle((70, 60 - 10 * number, 100, 90), fill="blue")
        image.save(place / name)
    return place


@pytest.mark.slow
@pytest.mark.core
def test_the_numbers_are_those_of_a_slow_loop(folder):
    (stream,) = attnviz("heads", "--input", folder, "-f", "json", "-q").json()["streams"]
    sums: dict[Any, float] = defaultdict(float)
    some = (1, 2), (3, 1)
    for name in NAMES:
        found = attnviz("image", folder / name, "--patch", "all", "-f", "json", "-q").json()
        weights = found["maps"][0]["weights"]
        for at in some:
            for query, row in enumerate(weights[at[0]][at[1]]):
                sums[at, "entropy"] -= sum(share * math.log(share) for share in row if share) / 101
                sums[at, "confidence"] += max(row) / 101
                sums[at, "special-token"] += row[0] / 101
                sums[at, "self"] += row[query] / 101
                held = sum(row[1:])
                for key, share in enumerate(row):
                    if key == 0:
                        sums[at, "special"] += share / 101
                        continue
                    (down, across), to = divmod(query - 1, 10), divmod(key - 1, 10)
                    edges = sum(end in (0, 9) for end in to)
                    sums[at, ("inside", "border", "corner")[edges]] += share / 101
                    if query:
                        apart = math.hypot(down - to[0], across - to[1])
                        sums[at, "patch-distance"] += share * apart / held / 100
                        sums[at, round(apart)] += share / 100
    heads = {(one["layer"], one["head"]): one for one in stream["heads"]}
    for at in some:
        head = heads[at]
        told = {one["measure"]: one["mean"] for one in head["measures"]}
        assert not {"previous-token", "first-token", "distance"} & set(told)
        told |= {one["class"]: one["share"] for one in head["classes"]}
        told |= {one["offset"]: one["share"] for one in head["positions"]}
        expected = {name: total / 3 for (of, name), total in sums.items() if of == at}
        shared = {name: told[name] for name in expected}
        assert shared == pytest.approx(expected, rel=2e-4, abs=1e-6)
        assert [one["class"] for one in head["classes"]] == [
            "special",
            "corner",
            "border",
            "inside",
        ]
        assert {told[name] for name in set(told) - set(expected) if name in (14, 15, 16)} == {0}


@pytest.mark.slow
def test_workers_and_resuming_give_the_same_bytes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PICTURES", 1)
    (folder / "broken.png").write_bytes(b"nothing")
    pages = [tmp_path / f"{name}.html" for name in ("whole", "shared", "resumed")]
    how = ("heads", "--input", folder, "-f", "none", "--atlas")
    whole, shared, resumed = ((*how, page) for page in pages)
    done = attnviz(*whole)
    assert (done.status, done.err.count("cannot be read as a picture")) == (1, 1), done.err
    assert attnviz(*shared, "--workers", 2).status == 1
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        assert attnviz(*resumed).status == 130
    done = attnviz(*resumed, "--resume")
    assert (done.status, "to resume: starting" in done.err) == (1, False)
    first, *others = (document(page.read_text()) for page in pages)
    assert first["notes"][0] == "1 pictures could not be read"
    for page in others:
        assert page["streams"] == first["streams"]


def test_the_atlas_shows_the_part_that_patches_cover(folder, tmp_path):
    page = tmp_path / "page.html"
    assert attnviz("heads", "--input", folder, "-f", "none", "-q", "--atlas", page).status == 0
    found = document(page.read_text())
    (stream,) = found["streams"]
    assert (found["thing"], found["texts"]) == ("picture", 3)
    assert "patches" in found["rule"]
    assert "text" not in found["rule"]
    names = [name for name, _ in stream["texts"]]
    assert sorted(names) == sorted(str(folder / name) for name in NAMES)
    for name, picture in zip(names, stream["pictures"], strict=True):
        assert (picture["special"], picture["rows"], picture["columns"]) == (["[CLS]"], 10, 10)
        kind, data = picture["image"].split(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as small, Image.open(name) as large:
            assert max(small.size) == 96
            assert small.width / small.height == pytest.approx(large.width / large.height, abs=0.02)
    place, query, key, weight, *_ = stream["heads"][6]["drawn"][-1][0]
    whole = attnviz("image", names[place], "--patch", "all", "-f", "json", "-q").json()
    weights = np.array(whole["maps"][0]["weights"])[1, 2]
    weights[0], weights[:, 0] = 0, 0
    np.fill_diagonal(weights, 0)
    assert np.unravel_index(weights.argmax(), weights.shape) == (query, key)
    assert weight == pytest.approx(weights.max(), rel=1e-3)


def test_hostile_names_are_text_and_large_pictures_smaller(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 1000)
    page = tmp_path / "page.html"
    assert attnviz("heads", "--input", folder, "-f", "none", "-q", "--atlas", page).status == 0
    for picture in document(page.read_text())["streams"][0]["pictures"]:
        with Image.open(io.BytesIO(base64.b64decode(picture["image"].split(",")[1]))) as small:
            assert 8 <= max(small.size) < 60
    (folder / "<").mkdir()
    (folder / "a.png").rename(folder / "<" / "script><b>\x1b[31m.png")
    bad = folder / os.fsdecode(b"\xff.png")
    (folder / "b.jpg").rename(bad)
    done = attnviz("heads", "--input", folder, "-f", "none", "-q", "--atlas", page)
    assert (done.status, "is not valid UTF-8" in done.err) == (1, True)
    html = page.read_text()
    assert (html.count("</script"), "\x1b" in html) == (2, False)
    names = [name for name, _ in document(html)["streams"][0]["texts"]]
    assert any("</script><b>" in name for name in names)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("{folder}", "-i", SENTENCES), 2, "is no picture (.png,"),
        ((SENTENCES, "-i", SENTENCES), 2, "or one file of texts"),
        (("{folder}/deep/none.png",), 1, "there is no file"),
        (("{empty}",), 1, "holds no picture"),
        (("{folder}", "--model", "pocket"), 2, "'pocket' reads texts"),
        (("{folder}", "--cross"), 2, "--cross is for texts"),
        (("{folder}", "--picture", "o.png"), 2, "--picture is for texts"),
        (("{folder}", "--statistics", "pairs"), 2, "--statistics pairs is for texts"),
        (("{folder}", "--max-size", "4"), 2, "--max-size is for texts"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(folder, tmp_path, arguments, status, said):
    (tmp_path / "empty").mkdir()
    places = {"folder": folder, "empty": tmp_path / "empty"}
    done = attnviz("heads", "--input", *(str(one).format(**places) for one in arguments))
    assert (done.status, said in done.mistake) == (status, True), done.err


def test_other_files_of_a_folder_and_one_that_is_closed(folder, tmp_path, monkeypatch):
    (folder / "labels.csv").write_text("a,b\n")
    done = attnviz("heads", "--input", folder)
    assert (done.status, "1 files that are no pictures are left out" in done.err) == (0, True)
    assert "3 pictures · 303 tokens" in done.text
    assert "decides" not in done.text

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match=r"' cannot be read: Permission denied$"):
        pictures_in([str(tmp_path)])


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("name", ["vit", "swin"])
def test_models_of_others_read_pictures(folder, tmp_path, name):
    (tmp_path / "model").mkdir()
    model, page = VISION_BUILDERS[name](tmp_path / "model"), tmp_path / "page.html"
    done = attnviz(
        "heads", "--input", folder, "--model", model, "-f", "none", "-q", "--atlas", page
    )
    assert done.status == 0, done.err
    streams = document(page.read_text())["streams"]
    # In windows a model gives the mean over its patches only, and no links between two.
    assert all(bool(stream["pictures"]) == (name == "vit") for stream in streams)
