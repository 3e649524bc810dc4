"""The points that probes find in what processors make of pictures, against cuts made by hand."""

import json

import numpy as np
import pytest
import torch
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from attnviz.core.errors import ModelError
from attnviz.features.picture_text.probe import (
    Cells,
    extend_points,
    find_owners,
    find_points,
    without_mixing,
)
from attnviz.features.picture_text.sheets import grids_of
from attnviz.features.picture_text.source import load_picture_text_model
from tests.features.picture_text.tiny_pictures import SQUARE, qwen3_vl
from tests.features.vision.tiny_vision import picture
from tests.hugging_face.ask import look

pytestmark = pytest.mark.models


def test_points_of_a_resized_picture_lie_where_its_pixels_do():
    images = SiglipImageProcessorPil(**SQUARE)
    sizes = [(60, 40), (90, 64)]
    read = [picture(*size) for size in sizes]
    found = find_points(lambda given: images(list(given), return_tensors="pt"), read)
    number, x, y = found["pixel_values"]
    for one, (wide, high) in enumerate(sizes):
        assert (number[one] == one).all()
        middles = (np.arange(32) + 0.5) / 32
        np.testing.assert_allclose(x[one, 0], np.tile(middles * wide, (32, 1)), atol=0.1)
        np.testing.assert_allclose(y[one, 0], np.tile(middles * high, (32, 1)).T, atol=0.1)


def test_points_of_tiles_lie_in_their_own_part_of_the_picture():
    images = GotOcr2ImageProcessorPil(**SQUARE, crop_to_patches=True, max_patches=6)
    found = find_points(lambda given: images(list(given), return_tensors="pt"), [picture(90, 60)])
    _, x, y = found["pixel_values"]
    assert len(x) == 7  # two rows of three tiles, and the whole
    for tile in range(6):
        row, column = divmod(tile, 3)
        assert x[tile].min() > column * 30
        assert x[tile].max() < (column + 1) * 30
        assert y[tile].min() > row * 30
        assert y[tile].max() < (row + 1) * 30
    assert x[6].min() < 2
    assert x[6].max() > 88


def test_an_image_of_two_pictures_is_no_plane():
    y, x = np.mgrid[:4.0, :4.0]
    points = np.tile(np.stack([x // 2, x, y])[:, None, None], (1, 1, 3, 1, 1))
    points[1:, ..., 3] = np.nan
    np.testing.assert_array_equal(extend_points(points, np.ones((1, 3, 4, 4))), points)


def test_what_is_cut_by_its_content_is_refused():
    def cut(given):
        bright = np.array(given[0])[..., 0] > 127
        return {"pixel_values": torch.zeros(1, 3, 4, 4 + bool(bright.any()))}

    with pytest.raises(ModelError, match="by what it shows, not by its size alone"):
        find_points(cut, [picture(8, 8)])


MIXES = {
    "sorted": np.eye(12)[::-1].copy(),
    "in pairs": np.repeat(np.eye(6), 2, axis=1) * np.tile([1.0, -0.5], 6),
    "with their mean": np.concatenate([np.eye(12), np.full((1, 12), 1 / 12)]),
    "behind their mean": np.concatenate([np.full((1, 12), 1 / 12), np.eye(12)]),
}
"""What each position is made of: rows of weights of twelve patches."""


@pytest.mark.parametrize("name", MIXES)
def test_patches_are_told_from_each_other_by_powers_of_two(name):
    mix = torch.tensor(MIXES[name], dtype=torch.float32)
    values = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    width = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))

    def embed(inputs):
        return (mix @ torch.tanh(inputs["pixels"] @ width))[None]

    found, embeddings = find_owners(embed, {"pixels": values}, ["pixels"])
    weights = np.where(np.ptp(mix.numpy(), axis=1, keepdims=True) > 0, mix.numpy(), 0)
    expected = np.abs(weights).argmax(axis=0)
    np.testing.assert_array_equal(found["pixels"], np.repeat(expected[:, None], 3, axis=1))
    torch.testing.assert_close(embeddings, embed({"pixels": values})[0])


def test_patches_that_are_interpolated_are_refused():
    mix = torch.eye(12) + 0.5 * torch.roll(torch.eye(12), 1, 0)
    values = torch.randn(12, 3)
    with pytest.raises(ModelError, match="goes into more than one token"):
        find_owners(lambda given: (mix @ given["pixels"])[None], {"pixels": values}, ["pixels"])
    with pytest.raises(ModelError, match="made of patches of its own"):
        find_owners(lambda given: (0 * mix @ given["pixels"])[None], {"pixels": values}, ["pixels"])


def cells(x, y, size):
    places, zeros = np.arange(len(x)), np.zeros(len(x), dtype=np.int64)
    sizes = np.full(len(x), float(size))
    return Cells(places, zeros, zeros, np.array(x, float), np.array(y, float), sizes, sizes, {})


def test_cells_make_grids_with_boxes_or_none():
    (grid,) = grids_of(cells([5, 15, 25, 5, 15, 25], [5, 5, 5, 15, 15, 15], 10), [(30, 20)])
    assert grid.cells.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert grid.box == (0, 0, 30, 20)
    twice = grids_of(cells([5, 15, 5, 15], [5, 5, 5, 5], 10), [(24, 10)])
    assert [one.cells.tolist() for one in twice] == [[[0, 1]], [[2, 3]]]
    assert twice[0].box == (0, 0, 20, 10)
    assert grids_of(cells([5, 15, 5], [5, 5, 15], 10), [(20, 20)]) is None
    smaller = cells([5, 15, 21, 5, 15, 21], [5, 5, 5, 15, 15, 15], 10)
    smaller.width[[2, 5]] = 2  # where the picture ends within a cell
    (grid,) = grids_of(smaller, [(22, 20)])
    assert grid.cells.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pooling_by_attention_has_places_and_attention_of_tokens_to_each_other_gives_nothing():
    class SomeAttention(torch.nn.Module):
        def forward(self, queries, keys=None):
            return queries.new_ones(queries.shape)

    part = SomeAttention()
    model = torch.nn.Sequential(part)
    one, four = torch.zeros(2, 1, 3), torch.zeros(2, 4, 3)
    with without_mixing(model):
        assert part(one, keys=four).eq(1).all()
        assert part(four, keys=four).eq(0).all()
        assert part(four).eq(0).all()
    assert part(four).eq(1).all()


def test_edges_of_a_trained_qwen_count_pixels_of_the_whole_picture(tmp_path):
    folder = qwen3_vl(tmp_path / "qwen")
    file = folder / "processor_config.json"
    facts = json.loads(file.read_text("utf-8"))
    facts["image_processor"]["size"] = {"longest_edge": 16_777_216, "shortest_edge": 4096}
    file.write_text(json.dumps(facts), encoding="utf-8")
    found = look(load_picture_text_model(str(folder), device="cpu"), picture(), "a")
    assert found.provenance.settings["patches"] == "4 × 5"
    facts["image_processor"]["size"]["longest_edge"] = 1 << 40
    file.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(ModelError, match=r"1 to 268,435,456 pixels are allowed"):
        look(load_picture_text_model(str(folder), device="cpu"), picture(), "a")
