"""What queries for objects look at: every weight where it lies, and what each query finds."""

import numpy as np
import pytest
import torch

from attnviz.core.errors import UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Picture, Query
from attnviz.features.vision.vision_model import load_picture_model
from attnviz.models import attend_query
from tests.features.detection.tiny_detectors import model_of, processor
from tests.features.vision.tiny_vision import picture
from tests.invoke import attnviz

pytestmark = pytest.mark.models
CELLS = [f"{row},{column}" for row in range(2) for column in range(3)]


def look(kind, patch=None):
    model, reader = model_of(kind), processor(kind)
    image = picture(120, 80)
    source = load_picture_model(InMemoryModel(model, reader))
    found = attend_query(source, Query("", kind="picture", picture=Picture(image, patch=patch)))
    inputs = reader(image, return_tensors="pt")
    if kind == "videomt":  # a film of one frame
        return found, model, {"pixel_values_videos": inputs["pixel_values"][:, None]}
    return found, model, {"pixel_values": inputs["pixel_values"]}


def eager(model, inputs):
    if type(model).__name__ not in (
        "TableTransformerForObjectDetection",
        "DabDetrForObjectDetection",
    ):
        model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


def stacked(layers):
    return torch.stack([*layers])[:, 0].numpy()


@pytest.mark.parametrize("kind", ["detr", "conditional_detr", "table_transformer", "dab_detr"])
def test_queries_cells_and_each_other_have_the_weights_of_transformers(kind):
    found, model, inputs = look(kind)
    output = eager(model, inputs)
    by_name = {item.stream: item for item in found.maps}
    assert [*by_name] == ["cross", "decoder", "encoder"]
    cross = by_name["cross"]
    assert [token.text for token in cross.key_tokens] == CELLS
    oracle = stacked(output.cross_attentions)
    worst = 0.0
    for layer, head, query, cell in np.ndindex(2, 4, 5, 6):
        weight = cross.weights[layer, head, query, cell]
        worst = max(worst, abs(weight - oracle[layer, head, query, cell]))
    assert worst < 1e-5
    own = by_name["decoder"].weights
    np.testing.assert_allclose(own, stacked(output.decoder_attentions), atol=1e-5)
    encoder = stacked(output.encoder_attentions)
    mean = encoder.mean(axis=2, keepdims=True)
    np.testing.assert_allclose(by_name["encoder"].weights, mean, atol=1e-5)
    assert found.sheets["cross"] == (0, (0.0, 0.0, 120.0, 80.0))


@pytest.mark.parametrize(("patch", "rows"), [("1,2", [5]), ("all", range(6))])
def test_the_encoder_shows_a_cell_or_all_of_them(patch, rows):
    found, model, inputs = look("detr", patch)
    oracle = stacked(eager(model, inputs).encoder_attentions)[:, :, [*rows]]
    item = found.map_of("encoder")
    np.testing.assert_allclose(item.weights, oracle, atol=1e-5)
    assert [token.text for token in item.query_tokens] == [CELLS[row] for row in rows]


@pytest.mark.parametrize("kind", ["maskformer", "mask2former"])
def test_decoders_of_masks_have_the_weights_that_their_modules_give(kind):
    found, model, inputs = look(kind)
    seen = {}

    def keep(path, output):
        seen[path] = output[1][0].detach().numpy()

    names = ("encoder_attn", "cross_attn")
    for path, module in model.named_modules():
        if path.endswith(names) and kind == "mask2former":
            module.register_forward_pre_hook(
                lambda _, args, words: (args, {**words, "average_attn_weights": False}),
                with_kwargs=True,
            )
        if path.endswith(names):
            module.register_forward_hook(lambda _, __, output, p=path: keep(p, output))
    with torch.no_grad():
        if kind == "maskformer":
            model.model.transformer_module.decoder.config._attn_implementation = "eager"
        model(**inputs)
    oracle = [*seen.values()]
    read = [
        (int(layer), item.weights[place])
        for item in found.maps
        if item.stream == "cross"
        for place, layer in enumerate(item.layers)
    ]
    assert sorted(number for number, _ in read) == [*range(len(oracle))]
    for number, weights in read:
        np.testing.assert_allclose(weights, oracle[number], atol=1e-5)
    sizes = {item.weights.shape[-1] for item in found.maps if item.stream == "cross"}
    assert sizes == ({6, 24, 96} if kind == "mask2former" else {6})
    assert any("inside the backbone" in note for note in found.provenance.notes)


@pytest.mark.parametrize("kind", ["yolos", "eomt", "videomt"])
def test_queries_among_patches_are_rows_and_patches_the_last_keys(kind):
    found, model, inputs = look(kind)
    layers = [
        one for one in eager(model, inputs).attentions if kind == "yolos" or len(one[0, 0]) == 26
    ]
    (item,) = found.maps
    across, marks = (6, 1 + 5) if kind == "yolos" else (4, 5 + 5)
    for layer, whole in enumerate(layers):
        for query in range(5):
            row = 1 + 4 * across + query if kind == "yolos" else query
            start = 1 if kind == "yolos" else 10  # behind its queries, a class token and registers
            own = item.weights[layer, :, query]
            for place in range(4 * across):
                oracle = whole[0, :, row, start + place].numpy()
                np.testing.assert_allclose(own[:, marks + place], oracle, atol=1e-5)
            np.testing.assert_allclose(own.sum(-1), 1, atol=1e-5)
    assert [token.text for token in item.key_tokens[marks : marks + 2]] == ["0,0", "0,1"]


@pytest.mark.parametrize(
    ("kind", "streams"), [("deformable_detr", ["decoder"]), ("rt_detr", ["decoder", "encoder"])]
)
def test_sampled_attention_is_left_out_with_its_reason(kind, streams):
    found, model, inputs = look(kind)
    assert [item.stream for item in found.maps] == streams
    oracle = stacked(eager(model, inputs).decoder_attentions)
    np.testing.assert_allclose(found.map_of("decoder").weights, oracle, atol=1e-5)
    (note,) = [one for one in found.provenance.notes if "samples points" in one]
    assert ("the encoder" in note) == (kind == "deformable_detr")


def test_queries_are_named_by_what_they_find_and_where():
    found, model, inputs = look("detr")
    with torch.no_grad():
        output = model(**inputs)
    shares = output.logits[0].softmax(-1)[:, :2]
    for one in found.found:
        score, best = shares[one.query].max(-1)
        assert (one.label, one.score) == (["cat", "dog"][best], pytest.approx(float(score)))
        across, down, wide, high = output.pred_boxes[0, one.query].tolist()
        assert one.box[0] == pytest.approx((across - wide / 2) * 120, abs=1e-3)
        assert one.box[3] == pytest.approx((down + high / 2) * 80, abs=1e-3)
        assert found.main.query_tokens[one.query].text.startswith(
            f"query {one.query}: {one.label} "
        )
    oracle = sorted((float(one.max()) for one in shares), reverse=True)
    assert [one.score for one in found.found] == pytest.approx(oracle)
    assert len(found.provenance.settings["objects"]) == 5


def test_a_picture_of_any_size_has_cells_up_to_its_padded_edge():
    reader = processor()
    reader.size = {"shortest_edge": 80, "longest_edge": 200}
    source = load_picture_model(InMemoryModel(model_of("detr"), reader))
    asked = Picture(picture(120, 80))
    found = attend_query(source, Query("", kind="picture", picture=asked))
    assert found.map_of("cross").weights.shape[-1] == 3 * 4  # of 80 × 120 pixels
    _, (_, _, right, bottom) = found.sheets["cross"]
    assert (right, bottom) == (pytest.approx(128), pytest.approx(96))


def test_what_it_cannot_do_is_refused():
    source = load_picture_model(InMemoryModel(model_of("detr"), processor()))
    asked = Picture(picture(), lens="rollout")
    with pytest.raises(UsageError, match="finds objects, and --lens rollout is for models of one"):
        attend_query(source, Query("", kind="picture", picture=asked))


def test_the_command_draws_the_surest_queries_with_their_boxes(tmp_path, coarse):
    folder, image = tmp_path / "detr", tmp_path / "a.png"
    model_of("detr").save_pretrained(folder)
    processor().save_pretrained(folder)
    picture(120, 80).save(image)
    asked = ("image", image, "--model", folder)
    files = [tmp_path / name for name in ("a.svg", "heads.png", "page.html")]
    done = attnviz(
        *asked, "--picture", files[0], "--grid", files[1], "--html", files[2], "-f", "json"
    )
    assert done.status == 0, done.err
    drawn = files[0].read_text()
    assert drawn.count('id="object"') >= 4
    cross = done.json()["maps"][0]
    assert (cross["stream"], cross["query_text"]) == ("cross", "objects")
    one = attnviz(*asked, "--token", "2", "--picture", tmp_path / "one.png", "-f", "json").json()
    assert [token["text"][:7] for token in one["maps"][0]["query_tokens"]] == ["query 2"]
    done = attnviz(*asked, "--patch", "1,1", "--picture", tmp_path / "cell.png", "-v")
    assert (done.status, "1 picture in" in done.err) == (0, True)
    done = attnviz(*asked, "--token", "9")
    assert done.mistake == "query 9 does not exist: the model has 0 to 4"


def test_queries_without_weights_over_the_picture_are_a_table_and_no_picture(tmp_path):
    folder, image = tmp_path / "deformable", tmp_path / "a.png"
    model_of("deformable_detr").save_pretrained(folder)
    processor().save_pretrained(folder)
    picture(120, 80).save(image)
    asked = ("image", image, "--model", folder)
    done = attnviz(*asked)
    assert (done.status, "query 0" in done.text) == (0, True), done.err
    assert "samples points" in done.err
    done = attnviz(*asked, "--picture", tmp_path / "a.svg", "-f", "none")
    assert done.status == 2
    assert "has no weights from its queries to the picture" in done.err
