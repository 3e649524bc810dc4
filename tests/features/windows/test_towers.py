"""Towers alone, packed and numbered patches, class tokens of windows, and what is asked beside."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.pix2struct.image_processing_pil_pix2struct import (
    Pix2StructImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.models.superglue.image_processing_pil_superglue import SuperGlueImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.models.vitpose.image_processing_pil_vitpose import VitPoseImageProcessorPil

from attnviz.core.errors import AttentionError, ModelError
from attnviz.features.vision import pictures
from tests.families.small_pictures import SMALL_PICTURES
from tests.features.vision.tiny_vision import picture
from tests.features.windows.test_pictures import make
from tests.hugging_face.ask import look

pytestmark = pytest.mark.models


def tower(name, kind, processor):
    config = transformers.CONFIG_MAPPING[name](**SMALL_PICTURES[name])
    return make(getattr(transformers, kind), config, processor)


def test_a_tower_of_packed_patches_is_read_alone_row_by_row(monkeypatch):
    """The processor puts patches that are merged, 2 × 2, beside each other."""
    size = {"shortest_edge": 32 * 48, "longest_edge": 32 * 48}
    reader = Qwen2VLImageProcessorPil(patch_size=8, merge_size=2, size=size)
    source = tower("qwen3_vl_vision", "Qwen3VLVisionModel", reader)
    shown = look(source, picture(48, 32))
    kept, own = [], modeling_qwen3_vl.eager_attention_forward

    def watch(*args, **more):
        made = own(*args, **more)
        kept.append(made[1][0].numpy())
        return made

    monkeypatch.setattr(modeling_qwen3_vl, "eager_attention_forward", watch)
    made = reader(picture(48, 32), return_tensors="pt")
    rows, columns = made["image_grid_thw"][0, 1:].tolist()
    with torch.no_grad():
        source.model(made["pixel_values"], grid_thw=made["image_grid_thw"])
    numbers = np.arange(rows * columns).reshape(rows // 2, columns // 2, 2, 2)
    place = numbers.transpose(0, 2, 1, 3).ravel()  # of each patch, row by row
    expected = np.stack(kept)[:, :, place][..., place]
    np.testing.assert_allclose(shown.maps[0].weights, expected, atol=1e-6)
    assert shown.provenance.settings["patches"] == f"{rows} × {columns}"


def test_class_tokens_of_windows_are_one_row_and_one_key():
    source = tower(
        "rf_detr_dinov2",
        "RfDetrDinov2Backbone",
        ViTImageProcessorPil(size={"height": 64, "width": 64}),
    )
    given = source.processor(picture(64, 64), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        windows, whole = source.model(given, output_attentions=True).attentions
    shown = look(source, picture(64, 64))
    first, second = (item.weights[0, :, 0] for item in rows_of(shown))
    np.testing.assert_allclose(first[:, 0], windows[:, :, 0, 0].mean(0), atol=1e-6)
    tiles = windows[:, :, 0, 1:].numpy().reshape(2, 2, -1, 4, 4) / 4
    grid = tiles.transpose(2, 0, 3, 1, 4).reshape(-1, 64)
    np.testing.assert_allclose(first[:, 1:], grid, atol=1e-6)
    marks = range(0, 68, 17)  # four sequences of a class token and 16 patches
    row = whole[0, :, marks].mean(1).numpy()
    np.testing.assert_allclose(second[:, 0], row[:, marks].sum(-1), atol=1e-6)
    assert "layers 0 to 1: each special token is repeated 4 times" in " ".join(
        shown.provenance.notes
    )


def rows_of(shown):
    """A map of one layer for each layer."""
    maps = []
    for item in shown.maps:
        for layer in range(len(item.layers)):
            weights = item.weights[layer : layer + 1]
            maps.append(type(item)(item.stream, item.query_tokens, item.key_tokens, weights))
    return maps


def test_patches_that_say_their_rows_and_columns():
    reader = Pix2StructImageProcessorPil(max_patches=40)
    source = tower("pix2struct", "Pix2StructForConditionalGeneration", reader)
    shown = look(source, picture(96, 60))
    made = reader(picture(96, 60), return_tensors="pt")
    encoder = source.model.encoder
    with torch.no_grad():
        eager = encoder(**made, output_attentions=True).attentions
    count = int(made["attention_mask"].sum())
    expected = np.stack([one[0, :, :count, :count].numpy() for one in eager])
    np.testing.assert_allclose(shown.maps[0].weights, expected, atol=1e-6)
    np.testing.assert_allclose(shown.seen, (0, 0, 96, 60), atol=0.5)


def test_a_model_of_poses_reads_the_whole_picture_as_one_box():
    reader = VitPoseImageProcessorPil(size={"height": 64, "width": 64})
    source = tower("vitpose", "VitPoseForPoseEstimation", reader)
    shown = look(source, picture(64, 64))
    made = reader(picture(64, 64), boxes=[[[0, 0, 64, 64]]], return_tensors="pt")
    with torch.no_grad():
        output = source.model(made["pixel_values"], output_attentions=True)
    assert shown.provenance.settings["boxes"] == "the whole picture"
    heads = np.stack([one[0].numpy() for one in output.attentions])
    assert shown.maps[0].weights.shape[:2] == heads.shape[:2]
    assert pictures.required_extras(reader) == ["boxes"]


def test_what_is_asked_for_beside_a_picture_is_said():
    source = tower("seggpt", "SegGptModel", ViTImageProcessorPil(size={"height": 32, "width": 32}))
    with pytest.raises(AttentionError, match=r"asks for 'prompt_pixel_values' and 'prompt_masks'"):
        look(source, picture(32, 32))
    pair = tower("superglue", "SuperGlueForKeypointMatching", SuperGlueImageProcessorPil())
    with pytest.raises(ModelError, match="matches the two pictures of a pair, and one"):
        look(pair, picture(32, 32))
