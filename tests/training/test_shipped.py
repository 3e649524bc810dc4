"""The recipes of the causal and the picture model in small: texts, drawings, losses, files."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.core.query import Picture, Query
from attnviz.features.pocket_lm.language_model import EMBEDDING, causal_shape, load_pocket_lm
from attnviz.features.vision.pocket_vit import load_pocket_vit, vision_shape
from attnviz.models.light.network import run_layers
from attnviz.models.pocket.text import END
from tests.pocket.small import SENTENCES
from training import causal, causal_figures, picture, picture_figures
from training.drawings import SHAPES, Scene, draw, of_patches
from training.train import arguments, main

NARROW = {"hidden_size": 20, "head_dim": 4, "intermediate_size": 24}
SMALL_LM = causal_shape({**causal.CONFIG, **NARROW})
SMALL_VIT = replace(vision_shape(picture.CONFIG), side=32, patch=8, size=16, heads=2, inner=16)


def test_what_comes_again_says_how_far_back_it_was():
    random, recipe = np.random.default_rng(0), causal.Recipe(random=0.5, again=0.5)
    sentences = [[10, 11, 12], [13, 14], [15, 16, 17, 18, 19]]
    again = 0
    for _ in range(40):
        text = causal.draw(random, sentences, np.arange(10, 20), recipe)
        assert text.ids.shape == text.back.shape == (recipe.length + 1,)
        assert text.ids[0] == END
        places = np.flatnonzero(text.back)
        assert (text.ids[places] == text.ids[places - text.back[places]]).all()
        again += len(places)
    assert again > 40


def test_the_led_heads_losses_by_hand():
    weights = causal.first_weights(SMALL_LM, 0)
    ids = np.array([[END, 50, 51, 50, 51, 52]])
    back = np.array([[0, 0, 0, 2, 2, 0]])
    found = causal.losses(weights, SMALL_LM, causal.Text(ids, back))
    torch.manual_seed(0)
    layer, head = causal.INDUCTION
    read = weights[EMBEDDING][torch.from_numpy(ids[:, :-1])]
    _, shares, _ = run_layers(weights, SMALL_LM, read)
    looks = shares[layer][0, head]
    by_hand = -(math.log(looks[3, 2]) + math.log(looks[4, 3])) / 2
    assert found.induction.item() == pytest.approx(by_hand, abs=0.02)  # but for what is dropped
    layer, head = causal.PREVIOUS
    before = [math.log(shares[layer][0, head, row, row - 1]) for row in range(1, 5)]
    assert found.previous.item() == pytest.approx(-np.mean(before), abs=0.02)
    assert found.next.item() == pytest.approx(math.log(8000), abs=0.1)


@pytest.mark.slow
def test_a_causal_run_learns_and_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(causal_figures, "SEQUENCES", 4)
    (tmp_path / "pairs.txt").write_text(SENTENCES, encoding="utf-8")
    (tmp_path / "unseen.txt").write_text("The cat sleeps.\nI see the dog.\n", encoding="utf-8")
    output = tmp_path / "run"
    options = {
        "--model": "pocket-lm", "--data": tmp_path / "pairs.txt", "--output": output,
        "--unseen": tmp_path / "unseen.txt", "--pieces": 192, "--warm-up": 2, "--steps": 6,
    }  # fmt: skip
    given = [str(part) for option in options.items() for part in option]
    causal.train(arguments([*given, "--stop-after", "3"]), SMALL_LM)
    causal.train(arguments([*given, "--resume"]), SMALL_LM)
    origin = json.loads((output / "model" / "origin.json").read_text(encoding="utf-8"))
    assert origin["data"]["sentences"] == len(SENTENCES.splitlines()) - 2
    assert origin["figures"]["unseen"]["sentences"] == 2
    assert len(origin["figures"]["heads"]) == 15
    model = load_pocket_lm(folder=output / "model")
    assert model.read(Query("The cat sleeps."))[1].main.weights.shape[:2] == (3, 5)
    with pytest.raises(SystemExit):
        main(["--model", "pocket-lm", "--data", "a", "--output", "b"])


def test_drawings_and_patches_know_whose_they_are():
    drawing = draw(np.random.default_rng(3), 64, Scene(fewest=5, most=5))
    assert drawing.pixels.shape == (64, 64, 3)
    assert set(np.unique(drawing.owner)) == set(range(6))
    assert len(drawing.shapes) == 5
    inside = [drawing.pixels[drawing.owner == number].mean(0) for number in range(1, 6)]
    apart = [np.abs(inside[0] - other).max() for other in inside[1:]]
    assert min(apart) > 30  # the odd one's colour is none of theirs
    again = draw(np.random.default_rng(3), 64, Scene(fewest=5, most=5))
    np.testing.assert_array_equal(drawing.pixels, again.pixels)
    owner = np.zeros((4, 4), dtype=np.uint8)
    owner[:2, :2], owner[0, 3], owner[2:, 2:] = 1, 2, [[2, 3], [3, 3]]
    np.testing.assert_array_equal(of_patches(owner, 2, least=0.5), [[1, 0], [0, 3]])
    np.testing.assert_array_equal(of_patches(owner, 2, least=0.25), [[1, 2], [0, 3]])


def test_a_picture_run_learns_and_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_figures, "UNSEEN", 50)
    output = tmp_path / "run"
    options = {
        "--model": "pocket-vit", "--output": output, "--pieces": 8, "--warm-up": 2, "--steps": 4,
    }  # fmt: skip
    given = [str(part) for option in options.items() for part in option]
    picture.train(arguments(given), SMALL_VIT, picture.Recipe(drawings=60))
    origin = json.loads((output / "model" / "origin.json").read_text(encoding="utf-8"))
    assert origin["figures"]["unseen"]["drawings"] == 50
    model = load_pocket_vit(folder=output / "model")
    drawing = draw(np.random.default_rng(0), 32, Scene())
    from PIL import Image

    seen = Query("", kind="picture", picture=Picture(Image.fromarray(drawing.pixels)))
    given_pixels, attention = model.read(seen)
    assert given_pixels.shape == (32, 32, 3)
    assert attention.main.weights.shape == (4, 2, 17, 17)
    assert set(origin["figures"]["heads"][0]) >= {"odd", "shapes", "same", "colour"}
    assert len(SHAPES) == len(model.labels)
