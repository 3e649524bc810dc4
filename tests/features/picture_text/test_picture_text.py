"""Words over patches, against transformers' own weights, steps and embeddings."""

from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.models.donut.image_processing_pil_donut import DonutImageProcessorPil

from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.features.picture_text.layouts import BY_FAMILY, LAYOUTS
from attnviz.features.picture_text.source import ONE_PICTURE, load_picture_text_model
from attnviz.features.vision.vision_model import load_vision_model
from attnviz.models.hugging_face.capture.capture import without_cache
from attnviz.models.hugging_face.capture.kernel import stream_of, watch_kernels
from attnviz.models.hugging_face.load.family import record_logits
from attnviz.models.hugging_face.load.imports import quiet
from tests.features.picture_text.tiny_pictures import (
    PAGE,
    PICTURE_FAMILIES,
    TOWER,
    FramesReader,
    blip_2,
    captioner,
    table,
)
from tests.features.vision.tiny_vision import picture
from tests.hugging_face.ask import about, look
from tests.hugging_face.families import PICTURE_COMMAND, WRITE, documented, read_line
from tests.precision import both, check_as_near

pytestmark = pytest.mark.models

TEXT = "The red car is fast"
TEMPLATE = (
    "{% for message in messages %}USER: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}"
    "{% endfor %} ASSISTANT:"
)
FAST = ("llava", "internvl")
"""Families that the fast tier reads."""


def marked(family: str) -> Any:
    return pytest.param(family, marks=() if family in FAST else pytest.mark.slow)


every_family = pytest.mark.parametrize("family", [marked(name) for name in PICTURE_FAMILIES])


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model of a family, by its name."""
    root = tmp_path_factory.mktemp("pictures")

    @cache
    def make(family: str) -> Any:
        made = PICTURE_FAMILIES[family].build(root / family)
        return load_picture_text_model(
            made if isinstance(made, InMemoryModel) else str(made), device="cpu"
        )

    return make


def eager(model: Any, inputs: Any, **more: Any) -> Any:
    """What transformers' own eager attention gives out."""
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return model(**{**inputs, **more}, output_attentions=True, output_hidden_states=True)
    finally:
        model.set_attn_implementation("sdpa")


def sheets_of(source: Any, pictures: list[Any], *, video: bool = False) -> tuple[Any, Any, Any]:
    """The inputs, the places of image tokens and the sheets of pictures with the text."""
    asked = about(pictures[0], TEXT, more=tuple(pictures[1:]), frames=video).picture
    with quiet():
        reading = source.read(asked, TEXT)
        sight = source.sight_of(reading, asked)
    return reading, sight.places, sight.sheets


def in_float64(source: Any, inputs: Any) -> Any:
    def read(model: Any) -> Any:
        given = {
            name: row.to(model.dtype) if row.is_floating_point() else row
            for name, row in inputs.items()
        }
        return [torch.cat(layers_of(eager(model, given))).numpy()]

    return both(source.model, read)


def layers_of(found: Any) -> Any:
    """The weights of words: over all, in the encoder, or of the decoder over the encoder."""
    names = ("attentions", "encoder_attentions", "cross_attentions")
    return next(one for name in names if (one := getattr(found, name, None)))


@pytest.mark.slow
@every_family
def test_the_weights_are_those_that_transformers_hands_over(family, loaded):
    source = loaded(family)
    found = look(source, picture(), TEXT)
    assert found.provenance.settings["patches"] == PICTURE_FAMILIES[family].sheets
    reading, places, sheets = sheets_of(source, [picture()])
    if source.looks == "queries":
        crossed = list[Any]()
        with ExitStack() as hooks:
            for name, part in source.model.named_modules():
                if name.endswith("crossattention.attention"):
                    taken = part.register_forward_hook(
                        lambda _, __, given: crossed.append(given[1])
                    )
                    hooks.callback(taken.remove)
            output = eager(source.model, reading.inputs)
        theirs = torch.cat(crossed)[..., sheets[0].cells.ravel()].numpy()
        np.testing.assert_allclose(found.weights[..., 1:], theirs, atol=1e-5)
        words = found.map_of("text-to-queries").weights
        theirs = torch.cat(output.language_model_outputs.attentions)
        rows = theirs[:, :, places[-1] + 1 :][..., places].numpy()
        np.testing.assert_allclose(words, rows, atol=1e-5)
        return
    if PICTURE_FAMILIES[family].double:
        single, double = in_float64(source, reading.inputs)
    else:
        single = [torch.cat(layers_of(eager(source.model, reading.inputs))).numpy()]
    for item, sheet in zip(found.maps, sheets, strict=True):
        own = item.weights[..., -sheet.cells.size :]
        rows = slice(-len(item.query_tokens), None)
        theirs = single[0][:, :, rows][..., sheet.cells.ravel()]
        np.testing.assert_allclose(own, theirs, atol=1e-5)
        if PICTURE_FAMILIES[family].double:
            check_as_near([own], [theirs], [double[0][:, :, rows][..., sheet.cells.ravel()]])


@pytest.mark.slow
@every_family
def test_the_documentation_tells_what_is_found(family, loaded):
    found = read_line([look(loaded(family), picture(), TEXT)], PICTURE_COMMAND)
    assert found in documented().values(), WRITE


@every_family
def test_a_written_word_looks_where_its_step_looked(family, loaded):
    source = replace(loaded(family), max_new_tokens=3)
    model = source.model
    found = look(source, picture(), TEXT)
    reading, places, sheets = sheets_of(source, [picture()])
    model.set_attn_implementation("eager")
    try:
        steps = model.generate(
            **reading.inputs, max_new_tokens=3, do_sample=False, output_attentions=True,
            return_dict_in_generate=True,
        )  # fmt: skip
    finally:
        model.set_attn_implementation("sdpa")
    crossed = getattr(steps, "cross_attentions", None) or steps.attentions
    rows = [torch.cat([layer[:, :, -1:] for layer in step]) for step in crossed]
    if source.looks == "queries":
        item = found.map_of("text-to-queries")
        pairs = [(item.weights, places)]
    else:
        pairs = [
            (item.weights[..., -sheet.cells.size :], sheet.cells.ravel())
            for item, sheet in zip(found.maps, sheets, strict=True)
        ]
    for weights, keys in pairs:
        for step in range(weights.shape[2]):
            theirs = rows[step][:, :, 0, keys].float().numpy()
            np.testing.assert_allclose(weights[:, :, step], theirs, atol=1e-5)
    assert any("generated greedily" in note for note in found.provenance.notes)


@contextmanager
def without_mixing(model: Any) -> Any:
    """Towers whose patches know nothing of each other: their attention gives nothing."""
    paths = {id(module): name for name, module in model.named_modules()}

    def silenced(call: Any) -> Any:
        inside = stream_of(paths[id(call.module)]) in ("vision", "encoder")
        return torch.zeros_like(call.output) if inside else None

    with watch_kernels(silenced), ExitStack() as hooks:
        for name, part in model.named_modules():  # DaViT calls no kernel, and mixes by convolution
            mixing = type(part).__name__.endswith(("WindowAttention", "ChannelAttention"))
            if "vision" in name and (mixing or getattr(part, "groups", 1) > 1):
                nothing = part.register_forward_hook(lambda _, __, output: torch.zeros_like(output))
                hooks.callback(nothing.remove)
        yield


def embedded(source: Any, pictures: list[Any], *, video: bool = False) -> Any:
    """What the text model reads at each position, or the patches of a tower behind queries."""
    reading, _, _ = sheets_of(source, pictures, video=video)
    with without_mixing(source.model), torch.no_grad():
        if "encoder_outputs" in reading.inputs:
            return source.model.encoder(reading.inputs["pixel_values"]).last_hidden_state[0]
        found = source.model(**reading.inputs, output_hidden_states=True)
    if source.looks == "queries":
        return found.vision_outputs.last_hidden_state[0]
    names = ("hidden_states", "encoder_hidden_states")
    return next(one for name in names if (one := getattr(found, name, None)))[0][0]


def painted(
    image: Any, box: tuple[float, ...], shape: tuple[int, int], cell: tuple[int, int]
) -> Any:
    """The picture with the middle of a cell in other colours."""
    pixels = np.array(image)
    left, top, right, bottom = box
    high, wide = (bottom - top) / shape[0], (right - left) / shape[1]
    rows = slice(*(max(round(top + (cell[0] + part) * high), 0) for part in (0.2, 0.8)))
    columns = slice(*(max(round(left + (cell[1] + part) * wide), 0) for part in (0.2, 0.8)))
    pixels[rows, columns] = 255 - pixels[rows, columns]
    return Image.fromarray(pixels)


@pytest.mark.slow
@every_family
@pytest.mark.parametrize("count", [1, 2])
def test_a_painted_cell_changes_its_own_token_most(family, count, loaded):
    if count > 1 and not PICTURE_FAMILIES[family].pictures:
        pytest.skip("reads one picture")
    source = loaded(family)
    pictures = [picture(120, 80), picture(100, 140)][:count]
    _, _, sheets = sheets_of(source, pictures)
    before = embedded(source, pictures)
    for sheet in sheets:
        rows, columns = sheet.cells.shape
        for cell in {(0, 0), (0, columns - 1), (rows - 1, 0), (rows // 2, columns // 2)}:
            changed = list(pictures)
            changed[sheet.picture] = painted(
                pictures[sheet.picture], sheet.box, sheet.cells.shape, cell
            )
            moved = (embedded(source, changed) - before).norm(dim=-1).numpy()
            inside = moved[sheet.cells]
            most = int(inside.argmax())
            assert divmod(most, columns) == cell, (sheet.name, cell)


@pytest.mark.parametrize(
    "family", [marked(name) for name, row in PICTURE_FAMILIES.items() if row.video]
)
def test_a_painted_frame_changes_the_tokens_of_its_step(family, loaded):
    source = loaded(family)
    reader = copy(source.processor)
    reader.video_processor = FramesReader(source.processor.image_processor)
    reader.video_token = getattr(reader, "video_token", "<video>")
    source = replace(source, processor=reader)
    frames = [picture(64, 64), *(Image.fromarray(255 - np.array(picture(64, 64))) for _ in "12")]
    found = look(source, frames[0], TEXT, more=tuple(frames[1:]), frames=True)
    _, _, sheets = sheets_of(source, frames, video=True)
    assert list(found.sheets) == [f"text-to-{sheet.name}" for sheet in sheets]
    steps = ["frames 0-1", "frame 2"] if "qwen" in family else [f"frame {n}" for n in range(3)]
    assert [sheet.name for sheet in sheets] == steps
    before = embedded(source, frames, video=True)
    for sheet in sheets:
        shape = sheet.cells.shape
        for cell in ((0, shape[1] - 1), (shape[0] - 1, 0)):
            changed = list(frames)
            changed[sheet.picture] = painted(frames[sheet.picture], sheet.box, shape, cell)
            moved = (embedded(source, changed, video=True) - before).norm(dim=-1).numpy()
            assert moved[sheet.cells[cell]] == moved.max() > 0, (sheet.name, cell)


@every_family
def test_reading_changes_no_bit_of_what_the_model_gives_out(family, loaded):
    source = loaded(family)
    reading, _, sheets = sheets_of(source, [picture()])
    assert {sheet.name for sheet in sheets} <= {"picture", "picture tiles", "picture overview"}
    kept = without_cache(source.model, reading.inputs, logits_to_keep=1)  # as a pass is asked
    with torch.no_grad():
        plain = source.model(**kept).logits
    with record_logits(source.model) as logits:
        look(source, picture(), TEXT)
    assert torch.equal(logits[0], plain)


SWIN = {"image_size": 32, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 4], "window_size": 2}
ENCODERS = {
    "deit": (transformers.DeiTConfig, TOWER, ["[CLS]", "[DIST]"], "4 × 4"),
    "dinov2": (transformers.Dinov2WithRegistersConfig, {**TOWER, "num_register_tokens": 3},
               ["[CLS]", "[REG 0]", "[REG 1]", "[REG 2]"], "4 × 4"),
    "swin": (transformers.SwinConfig, {**SWIN, "patch_size": 4}, [], "4 × 4"),
    "donut": (transformers.DonutSwinConfig, {**SWIN, "patch_size": 2}, [], "8 × 8"),
}  # fmt: skip
"""Encoders of captioners: the tokens before their patches, and the grid that the decoder sees."""


@pytest.mark.parametrize("name", ENCODERS)
def test_a_caption_over_any_encoder(name, tmp_path):
    kind, sizes, special, grid = ENCODERS[name]
    source = load_picture_text_model(str(captioner(tmp_path, kind(**sizes))), device="cpu")
    found = look(source, picture(), TEXT)
    assert found.provenance.settings["patches"] == grid
    tokens = found.main.key_tokens
    assert [token.text for token in tokens if token.special] == special
    reading, _, _ = sheets_of(source, [picture()])
    theirs = torch.cat(eager(source.model, reading.inputs).cross_attentions).numpy()
    np.testing.assert_allclose(found.weights, theirs, atol=1e-5)
    assert found.text == TEXT
    assert [one.special for one in found.main.query_tokens[:2]] == [True, False]


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (96, 40)])
def test_the_padding_of_a_page_is_part_of_its_grid(size, tmp_path):
    canvas = {"height": 32, "width": 64}
    images = DonutImageProcessorPil(size=canvas, do_align_long_axis=True)
    encoder = transformers.ViTConfig(**{**TOWER, "image_size": (32, 64)})
    source = load_picture_text_model(str(captioner(tmp_path, encoder, images)), device="cpu")
    spot = (10, 8, 34, 30)  # left, top, right, bottom
    page = Image.new("RGB", size)
    page.paste((255, 255, 255), spot)
    found = look(source, page, TEXT)
    ((_, box),) = found.sheets.values()
    pixels = images(page, return_tensors="np")["pixel_values"][0].mean(0)
    if size[0] < size[1]:  # the processor has turned it, and its cells are turned back
        pixels = np.rot90(pixels)
    patches = tuple(side // 8 for side in pixels.shape)
    assert found.provenance.settings["patches"] == " × ".join(map(str, patches))
    down, across = np.nonzero(pixels > 0)
    found = across.min(), down.min(), across.max() + 1, down.max() + 1
    scale = (box[2] - box[0]) / pixels.shape[1], (box[3] - box[1]) / pixels.shape[0]
    put_back = [box[n % 2] + edge * scale[n % 2] for n, edge in enumerate(found)]
    np.testing.assert_allclose(put_back, spot, atol=2 * max(scale))


def test_captions_that_a_model_writes_or_reads(loaded):
    source = replace(loaded("vision-encoder-decoder"), max_new_tokens=4)
    found = look(source, picture())
    ids = source.model.generate(
        source.processor.image_processor(picture(), return_tensors="pt")["pixel_values"],
        max_new_tokens=4, do_sample=False,
    )[0].tolist()  # fmt: skip
    assert found.text == source.tokenizer.decode(ids, skip_special_tokens=True)
    assert len(found.main.query_tokens) == len(ids) - 1
    with pytest.raises(UsageError, match="--generate is read together with --text"):
        look(replace(loaded("llava"), max_new_tokens=4), picture())
    source = loaded("vision-encoder-decoder")
    found = look(load_vision_model(source.name, device="cpu"), picture())
    values = source.processor.image_processor(picture(), return_tensors="pt")["pixel_values"]
    theirs = torch.cat(eager(source.model.encoder, {"pixel_values": values}).attentions).numpy()
    np.testing.assert_allclose(found.weights, theirs, atol=1e-5)


@pytest.mark.slow
def test_a_chat_template_is_used_where_there_is_one(loaded, monkeypatch):
    source = loaded("llava")
    monkeypatch.setattr(source.processor, "chat_template", TEMPLATE)
    found = look(source, picture(), TEXT)
    assert found.text == f" {TEXT} ASSISTANT:"
    words = [found.text[token.start : token.end].strip() for token in found.main.query_tokens]
    assert "".join(words) == "".join(found.text.split())


def test_every_row_is_built_and_says_why_it_is_one():
    named = [family for row in LAYOUTS.values() for family in row.families]
    assert len(named) == len(set(named)) == len(BY_FAMILY)
    built = {name.replace("blip_2", "blip-2") for name in PICTURE_FAMILIES}
    assert built >= set(named)
    assert all(row.why and row.about for row in LAYOUTS.values())
    assert PAGE.read_text(encoding="utf-8").endswith("\n".join(table()) + "\n")


def test_what_a_family_does_not_read_is_refused(loaded, folder_of):
    with pytest.raises(InputError, match="blank"):
        look(loaded("llava"), picture(), " ")
    with pytest.raises(UsageError, match="reads no video: leave --video out"):
        look(loaded("llava"), picture(), TEXT, more=(picture(),), frames=True)
    with pytest.raises(ModelError, match=r"leave --text out, or use a model of LLaVA's kind"):
        load_picture_text_model(str(folder_of("bert")), device="cpu")


def test_second_pictures_and_videos_are_refused(loaded):
    assert set(ONE_PICTURE) == {
        name.replace("blip_2", "blip-2")
        for name, family in PICTURE_FAMILIES.items()
        if not family.pictures
    }
    with pytest.raises(UsageError, match="reads one picture, and 2 are given"):
        look(loaded("blip_2"), picture(), TEXT, more=(picture(),))
    source = loaded("qwen2_vl")
    if hasattr(source.processor, "video_processor"):
        pytest.skip("torchvision is there")
    with pytest.raises(ModelError, match="needs torchvision"):
        look(source, picture(), TEXT, more=(picture(),), frames=True)


def test_queries_before_two_models_are_refused(tmp_path):
    t5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1,
          "num_heads": 4, "vocab_size": 400, "decoder_start_token_id": 1}  # fmt: skip
    with pytest.raises(ModelError, match="use a model with a decoder alone"):
        load_picture_text_model(str(blip_2(tmp_path, t5)), device="cpu")
