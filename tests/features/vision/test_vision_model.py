"""Pictures: weights against transformers' own, windows against a slow loop, what is seen."""

import shutil

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModel, Data2VecVisionConfig
from transformers.models.beit.image_processing_pil_beit import BeitImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import attnviz as package
from attnviz.core.attention_map import DECISION
from attnviz.core.errors import AttentionError, InputError, ModelError, NotFiniteError, UsageError
from attnviz.core.options import InMemoryModel, Origin
from attnviz.core.tokens import AVERAGE
from attnviz.features.vision.picture_files import read_picture
from attnviz.features.vision.pictures import parse_size, pixels, seen_box
from attnviz.features.vision.vision_model import load_vision_model
from attnviz.models import attend_query
from attnviz.models.hugging_face.capture.kernel import eager_copy
from attnviz.models.hugging_face.load import devices
from attnviz.models.own import OwnLayer
from attnviz.models.pocket.translator import load_pocket
from attnviz.renderers.figures.heatmap import axis_names
from tests.features.vision.tiny_vision import TEXT, VISION, VISION_BUILDERS, WHOLE, build, picture
from tests.hugging_face.ask import about, attend, look

pytestmark = pytest.mark.models

SPECIAL = {
    "vit": ["[CLS]"],
    "deit": ["[CLS]", "[DIST]"],
    "dinov2": ["[CLS]"],
    "dinov2_with_registers": ["[CLS]", "[REG 0]", "[REG 1]", "[REG 2]"],
    "dinov3_vit": ["[CLS]", "[REG 0]", "[REG 1]"],
    "beit": ["[CLS]"],
    "siglip": [],
    "clip": ["[CLS]"],
    "clip_vision_model": ["[CLS]"],
}


@pytest.fixture(scope="module")
def vision_folder(tmp_path_factory):
    made = {}

    def find(kind):
        if kind not in made:
            made[kind] = VISION_BUILDERS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return find


@pytest.fixture(scope="module")
def shown(vision_folder):
    made = {}

    def find(kind):
        if kind not in made:
            made[kind] = load_vision_model(str(vision_folder(kind)), device="cpu")
        return made[kind]

    return find


def own_attention(folder, values, **options):
    """What transformers' eager attention hands over."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = getattr(model, "vision_model", None) or model
    with torch.no_grad():
        return model(pixel_values=values, output_attentions=True, **options).attentions


@pytest.mark.parametrize("name", ["FlavaModel", "CLIPSegForImageSegmentation"])
def test_a_picture_is_read_by_its_tower(name):
    side = "image_config" if "Flava" in name else "vision_config"
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    head = {"decoder_num_attention_heads": 4, "reduce_dim": 16, "extract_layers": [0, 1]}
    model = kind(kind.config_class(**{side: VISION}, text_config=TEXT, **head)).eval()
    part = model.image_model if "Flava" in name else model.clip.vision_model
    processor = ViTImageProcessorPil(**WHOLE)
    found = look(load_vision_model(InMemoryModel(model, processor)), picture())
    with torch.no_grad():
        given = eager_copy(part)(pixels(processor, picture(), None), output_attentions=True)
    np.testing.assert_allclose(found.weights, torch.cat(given.attentions).numpy(), atol=1e-6)


def test_pixels_beyond_the_last_whole_patch_are_not_seen():
    torch.manual_seed(0)
    kind = transformers.SiglipVisionModel
    model = kind(kind.config_class(**{**VISION, "image_size": 30})).eval()
    processor = ViTImageProcessorPil(size={"height": 30, "width": 30})
    found = look(load_vision_model(InMemoryModel(model, processor)), picture(60, 40))
    assert found.provenance.settings["patches"] == "3 × 3"
    assert found.seen == (0, 0, 48, 32)
    with torch.no_grad():
        values = pixels(processor, picture(60, 40), None)
        given = eager_copy(model)(values, output_attentions=True).attentions
    np.testing.assert_allclose(found.weights, torch.cat(given).numpy(), atol=1e-6)


def own_windows(folder):
    """Every layer's attention in its windows; transformers itself hands over one a stage."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for layer in model.modules():
        if hasattr(layer, "shift_size"):
            layer.attention.register_forward_hook(
                lambda _part, _given, output: found.append(output[1].numpy())
            )
    with torch.no_grad():
        model(pixel_values=processed(folder))
    return found


def processed(folder, **options):
    processor = AutoImageProcessor.from_pretrained(folder)
    return processor(picture(), return_tensors="pt", **options)["pixel_values"]


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("kind", SPECIAL)
def test_weights_equal_what_transformers_hands_over(kind, vision_folder, shown):
    found = look(shown(kind), picture())
    expected = torch.cat(own_attention(vision_folder(kind), processed(vision_folder(kind))))
    np.testing.assert_allclose(found.weights, expected.numpy(), atol=1e-5)
    tokens = found.main.key_tokens
    assert [token.text for token in tokens if token.special] == SPECIAL[kind]
    patches = [token.text for token in tokens if not token.special]
    assert patches == [f"{row},{column}" for row in range(4) for column in range(4)]
    assert found.main.query_side == found.main.key_side == "picture"
    assert found.provenance.settings["attention"] == "sdpa, probed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "dinov2", "beit", "clip"])
def test_other_sizes_than_the_trained_one_are_read(kind, vision_folder, shown):
    found = look(shown(kind), picture(), size=(48, 32))
    wanted = {"size": {"height": 48, "width": 32}, "do_center_crop": False}
    options = {} if kind == "dinov2" else {"interpolate_pos_encoding": True}
    values = processed(vision_folder(kind), **wanted)
    expected = torch.cat(own_attention(vision_folder(kind), values, **options))
    np.testing.assert_allclose(found.weights, expected.numpy(), atol=1e-5)
    assert found.provenance.settings["patches"] == "6 × 4"
    assert found.main.key_tokens[-1].text == "5,3"


def test_maps_of_a_second_eager_pass_say_so(tmp_path):
    config = Data2VecVisionConfig(**VISION, use_relative_position_bias=True)
    build(tmp_path, "Data2VecVisionModel", config, BeitImageProcessorPil(**WHOLE))
    notes = look(load_vision_model(str(tmp_path), device="cpu"), picture()).provenance.notes
    assert any("second, eager pass" in note for note in notes)


def test_pictures_that_cannot_be_read_are_refused(shown, monkeypatch):
    with pytest.raises(UsageError, match=r"--image-size 33x32 is no multiple .* 8 × 8 pixels"):
        look(shown("vit"), picture(), size=(33, 32))
    monkeypatch.setattr(devices, "free_bytes", lambda _: 3 * 4 * 8 * 17**2 - 1)
    with pytest.raises(ModelError, match=r"picture of 17 tokens would .* --image-size"):
        look(shown("vit"), picture())
    monkeypatch.setattr(devices, "free_bytes", lambda _: 3 * 4 * 8 * 17**2)
    look(shown("vit"), picture())
    monkeypatch.undo()

    def fail(*_, **__):
        raise ValueError("Input image size (3*3)\ndoes not match")

    model = shown("deit")
    monkeypatch.setattr(type(model.model), "forward", fail)
    with pytest.raises(ModelError, match=r"cannot run on this picture: Input image size \(3\*3\)$"):
        look(model, picture())


def test_a_classifier_says_what_it_sees(vision_folder, shown):
    from transformers import ViTForImageClassification

    own = ViTForImageClassification.from_pretrained(vision_folder("vit")).eval()
    with torch.no_grad():
        share = own(processed(vision_folder("vit"))).logits[0].softmax(-1)
    settings = look(shown("vit"), picture()).provenance.settings
    best = int(share.argmax())
    assert settings[DECISION] == f"{('cat', 'dog')[best]} ({share[best]:.0%})"


def slow_row(weights, rows, columns, window, shift, query):
    """One patch's attention by the definition: walk over every slot of every window."""
    high, wide = -(-rows // window) * window, -(-columns // window) * window
    across = wide // window
    heads = weights.shape[1]
    found = np.zeros((heads, rows * columns))

    def patch(number, slot):
        y = number // across * window + slot // window
        x = number % across * window + slot % window
        return (y + shift) % high, (x + shift) % wide

    for number in range(len(weights)):
        for asking in range(window * window):
            y, x = patch(number, asking)
            if (y, x) != query:
                continue
            for asked in range(window * window):
                ky, kx = patch(number, asked)
                if ky < rows and kx < columns:
                    found[:, ky * columns + kx] = weights[number, :, asking, asked]
    return found


@pytest.mark.slow
def test_windows_are_put_back_as_a_slow_loop_does(vision_folder, shown):
    folder = vision_folder("swin")
    windows = own_windows(folder)
    # Layers 0 and 1 have 12 × 12 patches in windows of 4; the later ones 6 × 6, which are padded.
    grids = [(12, 12, 0), (12, 12, 2), (6, 6, 0), (6, 6, 2)]
    for row, column in [(5, 7), (11, 0)]:
        found = look(shown("swin"), picture(), patch=f"{row},{column}")
        layers = [layer for item in found.maps for layer in item.weights[:, :, 0]]
        for (rows, columns, shift), weights, layer in zip(grids, windows, layers, strict=True):
            query = (row * rows // 12, column * columns // 12)
            expected = slow_row(weights, rows, columns, 4, shift, query)
            np.testing.assert_allclose(layer, expected, atol=1e-5)
        assert [item.layers for item in found.maps] == [("0", "1"), ("2", "3")]
        assert [len(item.key_tokens) for item in found.maps] == [144, 36]
    weights = own_windows(folder)[3]
    rows = [slow_row(weights, 6, 6, 4, 2, (row, column)) for row in range(6) for column in range(6)]
    found = look(shown("swin"), picture())
    assert found.main.query_tokens == (AVERAGE,)
    np.testing.assert_allclose(found.maps[1].weights[1, :, 0], np.mean(rows, axis=0), atol=1e-5)


@pytest.mark.parametrize("kind", ["vit", "dinov2", "beit", "siglip", "clip"])
@pytest.mark.parametrize("shape", [(60, 40), (40, 60), (97, 41)])
def test_what_is_said_to_be_seen_is_what_the_model_gets(kind, shape, shown):
    model = shown(kind)
    whole = picture(*shape)
    values = pixels(model.processor, whole, None)[0].numpy()
    mean, scale = (
        np.array(getattr(model.processor, name))[:, None, None]
        for name in ("image_mean", "image_std")
    )
    given = values * scale + mean
    height, width = given.shape[1:]
    box = seen_box(model.processor, whole, None)
    again = whole.resize((width, height), Image.Resampling.BICUBIC, box=box)
    expected = np.asarray(again).transpose(2, 0, 1) / 255
    # A crop by whole pixels of a resized picture lies up to one of them off.
    assert abs(given - expected).mean() < 0.03


def test_pictures_are_asked_about_like_texts_one_or_many(shown):
    model = shown("vit")
    queries = [about(picture()), about(picture(97, 41)), about(picture(), size=(48, 32))]
    first, second, third = model.attend(queries)
    np.testing.assert_array_equal(first.weights, look(model, picture()).weights)
    assert (first.seen, second.seen) == ((0, 0, 60, 40), (0, 0, 97, 41))
    assert third.provenance.settings["patches"] == "6 × 4"
    assert not model.lacks("experiment")
    assert not model.lacks("values")
    with pytest.raises(UsageError, match=r"reads pictures, not texts"):
        attend(model, "a text")


def test_a_picture_is_no_text_and_a_text_no_picture(loaded, copy_of, vision_folder):
    query = about(picture())
    for source in (load_pocket(), OwnLayer(Origin(mechanism="naive"), "self")):
        with pytest.raises(UsageError, match=r"a picture needs a vision model: attnviz image"):
            attend_query(source, query)
    with pytest.raises(UsageError, match=r"reads texts: it answers no query of kind 'picture'"):
        attend_query(loaded("bert"), query)
    folder = copy_of("bert")
    source = vision_folder("vit") / "preprocessor_config.json"
    (folder / "preprocessor_config.json").write_text(source.read_text())
    with pytest.raises(ModelError, match=r"\(bert\) reads no pictures: it asks for 'input_ids'"):
        load_vision_model(str(folder), device="cpu")


@pytest.mark.parametrize("ask", ["attend", "gradients", "values"])
def test_windows_give_no_lens_every_row(ask, shown):
    model, query = shown("swin"), about(picture(), lens="norm")
    asked = attend_query if ask == "attend" else getattr(type(model), ask)
    with pytest.raises(AttentionError, match=r"attends in windows, and --lens norm needs"):
        asked(model, query)


def test_models_that_read_no_pictures_say_so(vision_folder, shown, folder_of):
    from attnviz.models.hugging_face.text_model import load_model

    with pytest.raises(AttentionError, match=r"\(ConvNextModel\) has no attention between patch"):
        look(shown("convnext"), picture())
    # Its detection tokens stand behind the patches, and would be taken for some.
    with pytest.raises(ModelError, match="reads pictures in another way than by patches alone"):
        shown("yolos")
    with pytest.raises(ModelError, match=r"has no image processor"):
        load_vision_model(str(folder_of("bert")), device="cpu")
    with pytest.raises(UsageError, match=r"attends in windows: choose one --patch"):
        look(shown("swin"), picture(), patch="all")
    with pytest.raises(UsageError, match=r"patch 12,0 does not exist: the picture has 12 × 12"):
        look(shown("swin"), picture(), patch="12,0")
    folder = vision_folder("vit")
    with pytest.raises(ModelError, match=r"has no tokenizer|use 'attnviz image'"):
        load_model(str(folder), device="cpu")


def test_pictures_are_read_upright_and_on_white(tmp_path):
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png").getpixel((0, 0)) == (255, 255, 255)
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    picture(6, 4).save(tmp_path / "b.jpg", exif=exif)
    assert read_picture(tmp_path / "b.jpg").size == (4, 6)


@pytest.mark.parametrize(
    ("data", "message"), [(None, "does not exist"), (b"", "cannot be"), (b"hello", "cannot be")]
)
def test_what_is_no_picture_is_refused(data, message, tmp_path):
    path = tmp_path / "a.png"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_picture(path)
    with pytest.raises(InputError, match="is a folder"):
        read_picture(tmp_path)


@pytest.mark.parametrize(("text", "size"), [("384", (384, 384)), ("224x336", (224, 336))])
def test_sizes_are_height_times_width(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-3", "1x2x3", "a"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="write 384 or HEIGHTxWIDTH"):
        parse_size(text)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("vit", "vit.encoder.layer.1.attention.attention.query.weight"),
        ("swin", "encoder.layers.0.blocks.1.attention.self.query.weight"),
    ],
)
def test_a_picture_whose_attention_is_not_finite_is_refused(kind, name, vision_folder, tmp_path):
    folder = shutil.copytree(vision_folder(kind), tmp_path / kind)
    tensors = load_file(folder / "model.safetensors")
    tensors[name][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = load_vision_model(str(folder), device="cpu")
    with pytest.raises(NotFiniteError, match=r"layer 1 head 0 \(stream 'self'\) is NaN"):
        look(model, picture())


def test_registers_are_keys_of_a_kind_that_can_be_left_out(vision_folder):
    folder = str(vision_folder("dinov2_with_registers"))
    whole = package.image(picture(), model=folder, layer="last").main
    kinds = [token.kind for token in whole.key_tokens]
    assert kinds == ["token", *["register"] * 3, *["token"] * (len(kinds) - 4)]
    assert axis_names(whole)[1] == "key (attended): 1 token | 3 registers | 16 tokens"
    one = package.image(picture(), model=folder, layer="last", special="renormalise:register").main
    assert "[REG 0]" not in [token.text for token in one.key_tokens]
    kept = np.delete(whole.weights, [1, 2, 3], axis=-1)
    np.testing.assert_allclose(one.weights, kept / kept.sum(-1, keepdims=True), atol=1e-6)
