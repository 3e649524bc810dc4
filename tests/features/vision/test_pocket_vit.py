"""The picture model: transformers' numbers, what it decides and looks at, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnviz.core.effects import HeadAt, Intervention, log_probabilities
from attnviz.core.errors import UsageError
from attnviz.core.query import Picture, Query
from attnviz.features.vision.picture_files import read_picture
from attnviz.features.vision.pocket_vit import (
    FOLDER,
    PicturePocket,
    load_pocket_vit,
    square_pixels,
)
from tests.invoke import attnviz

SHAPES = Path(__file__).parents[3] / "sample_inputs" / "shapes.png"
STAR = [(row, column) for row in range(4, 7) for column in range(1, 4)]
"""The patches that the sample's star lies in."""


@pytest.fixture(scope="module")
def model() -> PicturePocket:
    return load_pocket_vit()


@pytest.fixture(scope="module")
def query() -> Query:
    return Query("", kind="picture", picture=Picture(read_picture(SHAPES)))


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.core
@pytest.mark.filterwarnings("ignore")
def test_its_weights_and_scores_are_those_of_transformers(model, query):
    import torch
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    theirs: Any = AutoModelForImageClassification.from_pretrained(
        FOLDER, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    assert type(theirs).__name__ == "ViTForImageClassification"
    given, attention = model.read(query)
    reader: Any = AutoImageProcessor.from_pretrained(FOLDER)
    read = reader(read_picture(SHAPES), return_tensors="pt")["pixel_values"]
    np.testing.assert_allclose(given.transpose(2, 0, 1), read[0], atol=1e-5)
    with torch.inference_mode():
        output = theirs(read, output_attentions=True)
    states, _ = model.forward(model.weights, model.inputs(given))
    scores = model.scores(model.weights, states[0])
    np.testing.assert_allclose(scores, output.logits[0], atol=1e-4)
    for own, weights in zip(attention.main.weights, output.attentions, strict=True):
        np.testing.assert_allclose(own, weights[0], atol=1e-5)


def test_the_odd_shape_of_a_picture_is_named():
    done = attnviz("image", SHAPES, "-f", "json")
    assert (done.status, done.err.count("outside")) == (0, 0)
    found = done.json()
    assert found["provenance"]["model"] == "pocket-vit"
    assert found["provenance"]["settings"]["decision"].startswith("star")
    look = np.array(found["maps"][0]["weights"])[3, 0, 0, 1:].reshape(10, 10)
    assert sum(look[place] for place in STAR) > 0.6


def test_what_it_cannot_read_is_refused_in_one_line(model, query):
    assert "reads texts" in attnviz("image", SHAPES, "--model", "pocket-lm").mistake
    assert "reads no text" in attnviz("image", SHAPES, "--text", "What is this?").mistake
    assert "leave --image-size out" in attnviz("image", SHAPES, "--image-size", 160).mistake
    assert "no class" in attnviz("image", SHAPES, "--lens", "effect", "--target", "tree").mistake
    with pytest.raises(UsageError, match="reads pictures"):
        model.read(Query("a text"))


def test_a_picture_is_read_or_said_to_lie_outside(model, query):
    assert model.read(query)[1].provenance.notes == ()
    noise = np.random.default_rng(0).integers(0, 40, (96, 128, 3), dtype=np.uint8)
    picture = Picture(Image.fromarray(noise))
    (note,) = model.read(Query("", kind="picture", picture=picture))[1].provenance.notes
    assert "lies outside" in note
    found = square_pixels(Image.new("RGB", (3, 5), (0, 255, 51)), 4)
    np.testing.assert_allclose(found, np.broadcast_to([-1, 1, -0.6], (4, 4, 3)), atol=1e-6)


def test_lenses_and_switched_off_heads_work_on_it(model, query):
    for lens in ("rollout", "norm", "effect", "gradient"):
        done = attnviz("image", SHAPES, "--lens", lens, "-f", "json", "-q")
        assert done.status == 0, lens
    experiment = model.experiment(query)
    off = Intervention(heads=(HeadAt("self", "3", 0),))
    plain, without = log_probabilities(experiment, [Intervention(), off])[:, 0]
    assert plain - without > 0.1
    assert experiment.spell(experiment.outputs[0].number) == "star"


@pytest.mark.slow
def test_the_cards_figures_are_measured_again(model):
    from training.drawings import Scene
    from training.picture_figures import measure

    origin = json.loads((FOLDER / "origin.json").read_text(encoding="utf-8"))
    figures = measure(model, Scene(**origin["recipe"]["scene"]), [])
    told = origin["figures"]
    assert figures["unseen"]["right"] == pytest.approx(told["unseen"]["right"], abs=2e-3)
    assert figures["outside"]["drawings"] == told["outside"]["drawings"]
    assert told["outside"]["found"] >= 0.9 * told["outside"]["parts"]
    for found, said in zip(figures["heads"], told["heads"], strict=True):
        for name in ("odd", "shapes", "same", "colour"):
            np.testing.assert_allclose(found[name], said[name], atol=2e-3)
    assert figures["unseen"]["right"] >= 0.9
    assert f"{told['unseen']['right']:.1%} named right" in attnviz("models", "pocket-vit").text
