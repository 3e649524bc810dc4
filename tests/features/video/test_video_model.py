"""Films through video models: every weight where it lies, against slow loops."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.videoprism import modeling_videoprism

from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.features.vision.vision_model import load_picture_model
from attnviz.models import attend_query
from tests.families.small_pictures import SMALL_PICTURES
from tests.features.video.tiny_videos import FilmReader, frames, model_of, processor

pytestmark = pytest.mark.models


def look(kind, patch=None):
    """A film of its frames through a model, and the model with its inputs."""
    reader = FilmReader() if kind == "vjepa2" else processor()
    model = model_of(kind)
    source = load_picture_model(InMemoryModel(model, reader))
    film = frames(source.most_frames)
    picture = Picture(film[0], patch=patch, more=tuple(film[1:]), frames=True)
    found = attend_query(source, Query("", kind="picture", picture=picture))
    word = "pixel_values_videos" if kind == "vjepa2" else "pixel_values"
    inputs = reader(film, return_tensors="pt")[word]
    return found, model, {word: inputs}


def eager(model, inputs, **more):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, output_attentions=True, **more).attentions


@pytest.mark.parametrize(
    ("kind", "patch", "row"),
    [
        ("videomae", None, None),
        ("videomae", "1,2,3", 16 + 2 * 4 + 3),
        ("vivit", None, 0),
        ("vivit", "1,2,3", 1 + 16 + 2 * 4 + 3),
        ("vjepa2", "0,3,1", 3 * 4 + 1),
    ],
)
def test_each_tube_has_the_weight_that_transformers_gives_it(kind, patch, row):
    found, model, inputs = look(kind, patch)
    more = {"skip_predictor": True} if kind == "vjepa2" else {}
    layers = eager(model, inputs, **more)
    assert [item.stream for item in found.maps] == ["video-to-frames 0-1", "video-to-frames 2-3"]
    special = layers[0].shape[-1] - 2 * 16
    worst = 0.0
    for step, item in enumerate(found.maps):
        marks = len(item.key_tokens) - 16
        assert marks == (special if step == 0 else 0)
        assert found.sheets[item.stream][0] == 2 * step
        for layer in range(2):
            for head in range(4):
                whole = layers[layer][0, head].numpy()
                own = whole.mean(axis=0) if row is None else whole[row]
                for down in range(4):
                    for across in range(4):
                        place = down * 4 + across
                        weight = item.weights[layer, head, 0, marks + place]
                        worst = max(worst, abs(weight - own[special + step * 16 + place]))
                        assert item.key_tokens[marks + place].text == f"{down},{across}"
    assert worst < 1e-5
    total = sum(item.weights.sum(-1) for item in found.maps)
    np.testing.assert_allclose(total, 1, atol=1e-5)


def test_space_and_time_are_maps_of_their_own():
    found, model, inputs = look("timesformer")
    assert [item.stream for item in found.maps] == [
        *(f"space-to-frame {number}" for number in range(3)),
        "time",
    ]
    seen = []
    hooks = [
        layer.temporal_attention.attention.qkv.register_forward_hook(
            lambda _, __, output: seen.append(output)
        )
        for layer in model.encoder.layer
    ]
    with torch.no_grad():
        space = model(**inputs, output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    for frame, item in enumerate(found.maps[:3]):
        for layer in range(2):
            oracle = space[layer][frame, :, 0].numpy()
            np.testing.assert_allclose(item.weights[layer, :, 0], oracle, atol=1e-5)
    (time,) = found.maps[3:]
    for layer, qkv in enumerate(seen):
        for head in range(4):
            rows = np.zeros((3, 3))
            for place in range(16):
                query, key, _ = qkv[place].reshape(3, 3, 4, 8)[:, :, head].transpose(0, 1)
                rows += torch.softmax(query @ key.T / 8**0.5, -1).numpy() / 16
            np.testing.assert_allclose(time.weights[layer, head], rows, atol=1e-5)
    assert any("attend apart" in note for note in found.provenance.notes)


def test_tubes_that_follow_by_place_are_put_back_by_time():
    found, model, inputs = look("joint", "1,2,3")
    layers = eager(model, inputs)
    row = 1 + (2 * 4 + 3) * 3 + 1
    for step, item in enumerate(found.maps):
        for place in range(16):
            oracle = torch.stack(layers)[:, 0, :, row, 1 + place * 3 + step].numpy()
            marks = len(item.key_tokens) - 16
            np.testing.assert_allclose(item.weights[:, :, 0, marks + place], oracle, atol=1e-5)


def test_every_tube_is_data_and_a_class_is_decided():
    found, model, inputs = look("videomae", "all")
    layers = torch.stack(eager(model, inputs))[:, 0].numpy()
    for step, item in enumerate(found.maps):
        assert item.query_tokens[21].text == "1,1,1"
        own = layers[..., step * 16 : (step + 1) * 16]
        np.testing.assert_allclose(item.weights, own, atol=1e-5)
    assert found.decision.startswith(("roll", "jump"))


def test_other_tubes_are_named_as_left_out():
    model = model_of("vjepa2")
    source = load_picture_model(InMemoryModel(model, FilmReader()))
    film = frames(4)
    asked = Picture(film[0], more=tuple(film[1:]), frames=True)
    found = attend_query(source, Query("", kind="picture", picture=asked))
    assert found.main.layers == ("0", "1")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"frames": False}, UsageError, "reads films of 4 frames: give a video file"),
        ({"lens": "rollout"}, UsageError, "--lens rollout is for pictures and texts"),
        ({"more": ()}, InputError, "reads 4 frames, and 1 are given"),
        ({"patch": "2,0,0"}, UsageError, "the film has 2 steps of 4 × 4, 0,0,0 to 1,3,3"),
    ],
)
def test_what_is_no_film_for_it_is_refused(changes, error, says):
    source = load_picture_model(InMemoryModel(model_of("videomae"), processor()))
    film = frames(4)
    asked = {"more": tuple(film[1:]), "frames": True} | changes
    with pytest.raises(AttnvizError, match=says) as caught:
        attend_query(source, Query("", kind="picture", picture=Picture(film[0], **asked)))
    assert isinstance(caught.value, error)


def test_frames_that_are_a_batch_of_pictures_are_refused():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "projection_dim": 32}
    vision = {**sizes, "image_size": 32, "patch_size": 8, "num_frames": 4, "mit_hidden_size": 32}
    config = transformers.XCLIPConfig(text_config=sizes, vision_config=vision, projection_dim=32)
    with pytest.raises(AttnvizError, match="reads the frames of a film as a batch"):
        load_picture_model(InMemoryModel(transformers.XCLIPModel(config), processor()))


def test_a_tower_of_films_beside_texts_reads_frames_of_an_image_processor(monkeypatch):
    torch.manual_seed(0)
    config = transformers.VideoPrismConfig(**SMALL_PICTURES["videoprism"])
    config._attn_implementation = "eager"
    model = transformers.VideoPrismClipModel(config).eval()
    source = load_picture_model(InMemoryModel(model, processor()))
    film = frames(4)
    asked = Picture(film[0], more=tuple(film[1:]), frames=True, patch="all")
    found = attend_query(source, Query("", kind="picture", picture=asked))
    kept, own = [], modeling_videoprism.eager_attention_forward

    def watch(*args, **more):
        made = own(*args, **more)
        kept.append(made[1].numpy())
        return made

    monkeypatch.setattr(modeling_videoprism, "eager_attention_forward", watch)
    values = processor()(film, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        model.video_model(values)
    spatial = [one for one in kept if one.shape[0] == 4]
    temporal = [one.mean(0) for one in kept if one.shape[-1] == 4]
    for step in range(4):
        space = found.map_of(f"space-to-frame {step}").weights
        np.testing.assert_allclose(space, np.stack(spatial)[:, step], atol=1e-6)
    np.testing.assert_allclose(found.map_of("time").weights, np.stack(temporal), atol=1e-6)
    assert "read through its video_model" in " ".join(found.provenance.notes)
