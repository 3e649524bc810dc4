"""attnviz image: data, pictures and mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.features.vision.tiny_vision import VISION_BUILDERS, picture
from tests.invoke import attnviz

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("coarse")]

SHAPES = Path(__file__).parents[3] / "sample_inputs" / "shapes.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return VISION_BUILDERS["vit"](tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def swin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return VISION_BUILDERS["swin"](tmp_path_factory.mktemp("swin"))


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return VISION_BUILDERS["llava"](tmp_path_factory.mktemp("llava"))


def test_the_table_is_laid_out_like_the_picture(folder):
    done = attnviz("image", SHAPES, "--model", folder, "-q")
    assert (done.status, done.err) == (0, "")
    assert "where [CLS] looks" in done.text
    start = next(place for place, line in enumerate(done.lines) if line.split() == list("0123"))
    assert [line.split()[0] for line in done.lines[start + 1 :][:4]] == list("0123")
    assert "heads of layer 1" in done.text


@pytest.mark.slow
def test_data_is_one_row_of_the_whole_matrix(folder):
    whole = attnviz("image", SHAPES, "--model", folder, "--patch", "all", "-f", "json").json()
    weights = np.array(whole["maps"][0]["weights"])
    assert weights.shape == (2, 4, 17, 17)
    for patch, place in ((None, 0), ("0,0", 1), ("3,1", 14)):
        chosen = () if patch is None else ("--patch", patch)
        found = attnviz("image", SHAPES, "--model", folder, *chosen, "-f", "json").json()
        np.testing.assert_array_equal(found["maps"][0]["weights"], weights[:, :, place : place + 1])
    assert found["provenance"]["settings"]["picture"] == "shapes.png"
    asked = ("image", SHAPES, "--model", folder, "--lens", "flow", "--image-size", 88)
    done = attnviz(*asked, "--patch", "all", "-f", "json")
    assert (done.status, done.mistake) == (
        2,
        "flow would solve 14,884 maximum-flow problems, more than 10,000: choose one --patch (122 "
        "problems), give a smaller --image-size (at most 99 patches), or use --lens rollout",
    )
    assert attnviz(*asked, "-f", "json").status == 0


def test_the_strongest_links_of_the_look_are_listed(folder):
    look = ("image", SHAPES, "--model", folder, "--patch", "2,3")
    weights = np.array(attnviz(*look, "-f", "json").json()["maps"][0]["weights"])[:, :, 0, 1:]
    weights[:, :, 4 * 2 + 3] = 0  # the patch itself
    listed = [line.split() for line in attnviz(*look, "-f", "links", "--top", "3", "-q").lines]
    best = sorted(weights.ravel(), reverse=True)[:3]
    assert [float(words[3]) for words in listed] == pytest.approx(best, abs=0.006)
    assert {tuple(words[:2]) for words in listed} == {("2,3", "→")}


def test_a_lens_looks_through_all_heads(folder):
    done = attnviz(
        "image", SHAPES, "--model", folder, "--special", "drop", "--layer", 1, "--head", "0,2",
        "-f", "json",
    )  # fmt: skip
    (item,) = done.json()["maps"]
    assert np.array(item["weights"]).shape == (1, 2, 1, 16)
    assert (item["layers"], item["heads"]) == ([1], [0, 2])
    assert "special tokens were left out" in done.err
    done = attnviz("image", SHAPES, "--model", folder, "--lens", "rollout", "-f", "json")
    (item,) = done.json()["maps"]
    weights = np.array(item["weights"])
    assert weights.shape == (2, 1, 1, 17)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    done = attnviz("image", SHAPES, "--model", folder, "--image-size", "48x64", "-f", "json")
    assert done.json()["provenance"]["settings"]["patches"] == "6 × 8"


@pytest.mark.parametrize("patch", [None, "2,1"])
def test_flow_is_solved_for_the_query_that_looks_alone(patch, folder):
    asked = ("image", SHAPES, "--model", folder, "--lens", "flow", "-f", "json")
    whole = attnviz(*asked, "--patch", "all")
    assert "flow takes 289 maximum-flow problems over 2 layers" in whole.err
    done = attnviz(*asked, *(() if patch is None else ("--patch", patch)))
    assert "flow takes 17 maximum-flow problems over 2 layers" in done.err
    place = 0 if patch is None else 10
    (item,) = done.json()["maps"]
    expected = np.array(whole.json()["maps"][0]["weights"])[:, :, place : place + 1]
    np.testing.assert_array_equal(item["weights"], expected)
    assert item["query_tokens"][0]["text"] == (patch or "[CLS]")


@pytest.mark.slow
def test_the_gradient_lens_explains_a_class(folder, tmp_path):
    asked = ("image", SHAPES, "--model", folder, "--lens", "gradient")
    raw = attnviz("image", SHAPES, "--model", folder, "-f", "json").json()
    decided = raw["provenance"]["settings"]["decision"].split()[0]
    for name in (None, "cat", "dog"):
        target = () if name is None else ("--target", name)
        page = tmp_path / f"{name}.html"
        done = attnviz(*asked, *target, "-f", "json", "--picture", tmp_path / "a.png",
                       "--html", page)  # fmt: skip
        (item,) = done.json()["maps"]
        assert item["query_tokens"][0]["text"].startswith(f"→ {name or decided} ")
        assert np.array(item["weights"]).sum() == pytest.approx(1, abs=1e-5)
        assert page.stat().st_size > 10_000
    assert "attribution of dog" in attnviz(*asked, "--target", "dog").text


def test_norms_are_shares_of_all_heads_together_or_of_one(folder, tmp_path):
    asked = ("image", SHAPES, "--model", folder, "--lens", "norm")
    done = attnviz(
        *asked, "-f", "json", "--grid", tmp_path / "a.png", "--html", tmp_path / "a.html"
    )
    (item,) = done.json()["maps"]
    assert (item["stream"], item["heads"]) == ("self", ["sum"])
    np.testing.assert_allclose(np.array(item["weights"]).sum(-1), 1, atol=1e-5)
    (item,) = attnviz(*asked, "--head", "2", "-f", "json").json()["maps"]
    assert (item["stream"], item["heads"]) == ("self-by-head", [2])
    assert "layer 1, its heads summed" in attnviz(*asked).text


@pytest.mark.parametrize("lens", ["rollout", "flow", "gradient", "norm"])
def test_windows_are_seen_raw_only(lens, swin):
    done = attnviz("image", SHAPES, "--model", swin, "--lens", lens)
    assert done.status == 1
    assert f"attends in windows, and --lens {lens} needs every token" in done.mistake
    assert done.mistake.endswith("use --lens raw")


@pytest.mark.slow
@pytest.mark.parametrize(
    "suffix", [".png", *(pytest.param(other, marks=pytest.mark.slow) for other in (".svg", ".pdf"))]
)
def test_pictures_and_files_are_written(suffix, folder, tmp_path):
    one, every, data = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", tmp_path / "c.npz"
    done = attnviz(
        "image", SHAPES, "--model", folder, "--patch", "1,2", "--picture", one, "--grid", every,
        "-o", data, "-f", "none",
    )  # fmt: skip
    assert (done.status, done.out) == (0, b"")
    assert all(path.stat().st_size > 1000 for path in (one, every))
    again = attnviz("render", data, "-f", "json").json()
    assert [token["text"] for token in again["maps"][0]["query_tokens"]] == ["1,2"]


@pytest.mark.slow
def test_windows_are_drawn_with_their_coarser_patches(swin, tmp_path):
    done = attnviz(
        "image", SHAPES, "--model", swin, "--patch", "11,11", "--grid", tmp_path / "a.png",
        "--picture", tmp_path / "b.png", "-f", "tsv",
    )  # fmt: skip
    assert done.status == 0
    assert {row[1] for row in done.rows[1:]} == {"self"}
    assert {row[2] for row in done.rows[1:]} == set("0123")
    drawn = tmp_path / "a.svg"
    attnviz("image", SHAPES, "--model", swin, "--grid", drawn, "-f", "none")
    assert drawn.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("nothing.png",), 1, "'nothing.png' does not exist"),
        ((SHAPES, "--patch", "x"), 2, "--patch 'x' is no patch: write ROW,COLUMN"),
        ((SHAPES, "--patch", "9,9"), 2, "the picture has 4 × 4, 0,0 to 3,3"),
        ((SHAPES, "--image-size", "big"), 2, "--image-size 'big' is no size"),
        ((SHAPES, "--image-size", "30"), 2, "is no multiple"),
        ((SHAPES, "--picture", "a.bmp"), 2, "'a.bmp' names no picture"),
        ((SHAPES, "--layer", "7"), 2, "layer 7 does not exist"),
        ((SHAPES, "--lens", "flw"), 2, "Did you mean 'flow'"),
        ((SHAPES, "--lens", "gradient", "--target", "bird"), 2, "'bird' is no class of this model"),
        ((SHAPES, "--target", "cat"), 2, "add --lens gradient"),
    ],
)
def test_mistakes_are_one_line(arguments, status, message, folder):
    done = attnviz("image", *arguments, "--model", folder)
    assert done.status == status
    assert message in done.mistake


@pytest.mark.slow
def test_tokens_of_a_text_look_at_the_picture(llava, tmp_path):
    text = "The red car"
    asked = ("image", SHAPES, "--model", llava, "--text", text)
    whole = attnviz(*asked, "--token", "all", "-f", "json").json()
    (item,) = whole["maps"]
    tokens = [token["text"] for token in item["query_tokens"]]
    assert tokens == ["↵", "The", "red", "car"]
    weights = np.array(item["weights"])
    assert weights.shape == (3, 4, 4, 16)
    assert (weights.sum(-1) < 1).all()
    for token, place in ((None, 3), ("1", 1)):
        chosen = () if token is None else ("--token", token)
        done = attnviz(*asked, *chosen, "-f", "json", "--picture", tmp_path / "a.png")
        np.testing.assert_array_equal(
            done.json()["maps"][0]["weights"], weights[:, :, place : place + 1]
        )
    assert "where 'car' looks" in attnviz(*asked).text
    sheet = tmp_path / "b.png"
    done = attnviz(*asked, "--token", "all", "--picture", sheet)
    assert "where the mean over 4 words looks" in done.text
    assert sheet.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.core
def test_what_is_written_is_data_a_contact_sheet_and_a_page(llava, tmp_path):
    asked = ("image", SHAPES, "--model", llava, "--text", "The red car", "--generate", 3)
    files = [tmp_path / name for name in ("a.png", "b.svg", "c.html")]
    options = zip(("--picture", "--grid", "--html"), files, strict=True)
    done = attnviz(*asked, "-f", "json", *(word for pair in options for word in pair))
    assert done.status == 0
    (item,) = done.json()["maps"]
    assert np.array(item["weights"]).shape == (3, 4, 3, 16)
    assert "generated greedily" in done.err
    assert "where the model looked when it wrote 3 words" in attnviz(*asked).text
    assert all(file.stat().st_size > 1000 for file in files)


@pytest.mark.slow
def test_a_page_of_too_many_heads_has_their_mean(llava, tmp_path, monkeypatch):
    monkeypatch.setattr("attnviz.renderers.page.MOST_WEIGHTS", 300)
    page = tmp_path / "a.html"
    asked = ("--text", "The red car", "--generate", 3, "--html", page)
    assert attnviz("image", SHAPES, "--model", llava, *asked).status == 0
    text = page.read_text()
    assert '"heads":["mean"]' in text
    assert '"rows":4,"columns":4' in text


def test_frames_and_further_pictures_need_a_text(llava, folder, tmp_path):
    for arguments in ((SHAPES,), ("--generate", 3)):
        done = attnviz("image", SHAPES, "--model", llava, *arguments)
        given = "a second picture" if arguments == (SHAPES,) else arguments[0]
        assert (done.status, done.mistake) == (
            2,
            f"{given} is read together with --text: give that too",
        )
    done = attnviz("image", SHAPES, "--model", llava, "--text", "a", "--video")
    assert done.mistake == f"'{SHAPES}' is a single picture: --video needs two frames or more"
    several = tmp_path / "a.gif"
    frames = [Image.new("RGB", (8, 8), (3 * number, 0, 0)) for number in range(65)]
    frames[0].save(several, save_all=True, append_images=frames[1:])
    done = attnviz("image", several, "--model", llava, "--text", "a", "--video")
    assert "reads no video: leave --video out" in done.mistake
    done = attnviz("image", several, "--model", folder, "--video")
    assert "this model reads single pictures: leave --video out" in done.mistake
    frames[0].save(several)
    done = attnviz("image", SHAPES, several, "--model", llava, "--text", "a", "--video")
    assert done.mistake.startswith("frames of a video are of one size, and these have 8 × 8 and ")


def test_what_the_input_lacks_is_told(llava, folder, tmp_path):
    done = attnviz("image", SHAPES, "--model", llava, "--text", "The red car", "--token", "9")
    assert done.status == 2
    assert "token 9 does not exist: the text has 0 to 3 (0:↵ 1:The" in done.mistake
    done = attnviz("image", SHAPES, "--model", llava, "--text", "The red car", "-f", "json")
    assert [token["text"] for token in done.json()["maps"][0]["query_tokens"]] == ["car"]
    done = attnviz("image", SHAPES, "--model", folder, "--text", "a")
    assert done.status == 1
    assert "(vit) has no processor of pictures and texts: leave --text out, or use" in done.mistake
    done = attnviz("image", SHAPES, "--model", folder, "--token", "1")
    assert done.mistake == "--token chooses a token of --text: give that too"
    path = tmp_path / "a.png"
    path.write_text("hello")
    done = attnviz("image", path, "--model", folder)
    assert done.status == 1
    assert "cannot be read as a picture" in done.mistake
    picture().save(path)
    assert attnviz("image", path, "--model", folder, "-f", "none", "-q").status == 0


@pytest.mark.slow
def test_effects_of_a_picture_are_signed(folder, tmp_path):
    drawn, data = tmp_path / "a.png", tmp_path / "c.jsonl"
    done = attnviz(
        "image", SHAPES, "--model", folder, "--lens", "effect", "--picture", drawn,
        "-o", data, "-f", "table",
    )  # fmt: skip
    assert done.status == 0
    assert drawn.stat().st_size > 1000
    assert "1 stands for the largest effect" in " ".join(done.text.split())
    document = json.loads(data.read_text())
    assert document["maps"][0]["values"] == "signed"
    assert 0 < len(document["measured"]) <= 20
    for one in document["measured"]:
        link, item = one["link"], document["maps"][0]
        assert (link["query"], link["query_position"]) == (item["query_tokens"][0]["text"], 0)
        layer, head = item["layers"].index(link["layer"]), item["heads"].index(link["head"])
        cell = item["weights"][layer][head][0][link["key_position"]]
        assert cell == pytest.approx(one["estimated"])
        assert one["measured"] == pytest.approx(one["estimated"], rel=0.5)
