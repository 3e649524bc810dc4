"""Pictures of models that pad, pack, cut into windows: from a folder, to what is shown and said."""

import numpy as np
import pytest
import torch
import transformers
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from attnviz.core.errors import UsageError
from attnviz.core.options import InMemoryModel
from attnviz.features.vision.vision_model import load_vision_model
from tests.features.vision.tiny_vision import picture
from tests.hugging_face.ask import look

pytestmark = pytest.mark.models

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def make(kind, config, processor):
    torch.manual_seed(0)
    model = kind._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for one in model.parameters():
            if one.ndim > 1:
                one.normal_(std=min(0.3, 1.7 / max(one[0].numel(), 1) ** 0.5))
    return load_vision_model(InMemoryModel(model, processor))


@pytest.fixture(scope="module")
def sam():
    pixels = {"image_size": 128, "patch_size": 8}
    config = transformers.SamConfig(
        vision_config={**SIZES, **pixels, "window_size": 5, "global_attn_indexes": [1],
                       "output_channels": 32, "mlp_dim": 48},
        prompt_encoder_config={**pixels, "hidden_size": 32, "mask_input_channels": 8},
        mask_decoder_config={**SIZES, "mlp_dim": 48, "iou_head_hidden_dim": 32},
    )  # fmt: skip
    processor = SamImageProcessorPil(
        size={"longest_edge": 128}, pad_size={"height": 128, "width": 128}
    )
    return make(transformers.SamModel, config, processor)


def siglip2(most):
    sizes = {**SIZES, "intermediate_size": 48}
    config = transformers.Siglip2VisionConfig(**sizes, num_patches=64, patch_size=16)
    processor = Siglip2ImageProcessorPil(patch_size=16, max_num_patches=most)
    return make(transformers.Siglip2VisionModel, config, processor)


def test_a_picture_that_sam_pads_shows_its_own_patches_alone(sam):
    """128 × 80 pixels of 128 × 128 are the picture: 10 of 16 rows of patches."""
    shown = look(sam, picture(96, 60))
    assert [layer for item in shown.maps for layer in item.layers] == ["0", "1"]
    assert shown.provenance.settings["patches"] == "10 × 16"
    np.testing.assert_allclose(shown.seen, (0, 0, 96, 60), atol=0.5)
    given = sam.processor(picture(96, 60), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        windows, whole = sam.model.vision_encoder(given, output_attentions=True).attentions
    expected = whole.reshape(4, 256, 256).numpy()[:, :160, :160]
    row = shown.maps[-1].weights[-1].mean(1)  # every patch asks
    np.testing.assert_allclose(row, expected.mean(1), atol=1e-5)
    assert windows.shape == (16 * 4, 25, 25)
    said = " ".join(shown.provenance.notes)
    assert "layer 0: each patch looks inside its own of 16 windows of 5 × 5" in said
    assert "fall on padding beside the picture" in said
    assert "read through its vision_encoder (SamVisionEncoder)" in said


def test_packed_patches_lie_row_by_row_and_padding_is_masked():
    source = siglip2(44)
    shown = look(source, picture(96, 60))
    given = source.processor(picture(96, 60), return_tensors="pt")
    rows, columns = given["spatial_shapes"][0].tolist()
    assert rows * columns < 44
    assert shown.provenance.settings["patches"] == f"{rows} × {columns}"
    with torch.no_grad():
        layers = source.model(
            given["pixel_values"],
            pixel_attention_mask=given["pixel_attention_mask"],
            spatial_shapes=given["spatial_shapes"],
            output_attentions=True,
        ).attentions
    many = rows * columns
    expected = torch.cat([*layers]).numpy()[:, :, :many, :many]
    np.testing.assert_allclose(shown.weights.mean(2), expected.mean(2), atol=1e-5)
    np.testing.assert_allclose(shown.seen, (0, 0, 96, 60), atol=2)


def test_a_patch_beside_the_picture_is_refused(sam):
    with pytest.raises(UsageError, match=r"patch 99,0 does not exist: the picture has 10 × 16"):
        look(sam, picture(96, 60), patch="99,0")
