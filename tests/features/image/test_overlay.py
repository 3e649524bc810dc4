"""Attention over pictures: what is drawn where, and in which colour."""

import numpy as np
import pytest

from attnviz.features.image.overlay import (
    Overlaying,
    PictureCrop,
    blend,
    contact_sheet,
    overlay,
    overlay_grid,
    resize,
    times_even,
)
from attnviz.renderers.colors import GLOW, colors_of

WORDS = {"title": "a model", "subtitle": "where [CLS] looks", "unit": "share"}
GREY = np.full((40, 60, 3), 128, np.uint8)


def image_of(figure):
    return figure.axes[0].images[0].get_array()


def over(weight, picture=(128, 128, 128), limits=(0.0, 1.0), table=GLOW):
    """The colour of a patch: the weight's own, the clearer the smaller it is."""
    cover = 0.9 * (abs(weight) / limits[1]) ** 0.8
    return (1 - cover) * np.array(picture) + cover * colors_of(np.float32(weight), limits, table)


def test_each_patch_has_the_colour_of_its_weight():
    weights = np.array([[0.0, 1.0], [0.5, 0.25]], np.float32)
    picture = np.full((40, 60, 3), (200, 30, 10), np.uint8)
    found = blend(picture, weights, (0.0, 1.0))
    for row, column in np.ndindex(2, 2):
        part = found[row * 20 : row * 20 + 20, column * 30 : column * 30 + 30]
        assert abs(part - over(float(weights[row, column]), (200, 30, 10))).max() <= 1
    assert (found[:20, :30] == (200, 30, 10)).all()


@pytest.mark.slow
@pytest.mark.parametrize("side", [2, 4, 16])
def test_an_even_look_leaves_the_picture_alone(side):
    """Whatever the number of patches, and however much goes elsewhere."""
    crop = PictureCrop(np.full((64, 64, 3), 128, np.uint8))
    even = np.full((side, side), 0.5 / side**2, np.float32)
    draw = {"how": Overlaying(), **WORDS}
    drawn = image_of(overlay(crop, even, **draw))
    assert (drawn[:, -drawn.shape[0] :] == 128).all()
    if side == 2:  # no patch of four can have ten times the mean
        return
    peak = np.full((side, side), 0.1, np.float32)
    peak[0, 0] = 10 / (side**2 - 10) * 0.1 * (side**2 - 1)
    assert times_even(peak).max() == pytest.approx(10, rel=1e-4)
    drawn = image_of(overlay(crop, peak, **draw))
    over = drawn[:, -drawn.shape[0] :]
    assert abs(over[2, 2].astype(int) - GLOW[-1]).max() <= 1
    assert (over[-2, -2] == 128).all()


def test_what_the_model_does_not_see_is_pale_and_said():
    pixels = np.zeros((40, 60, 3), np.uint8)
    crop = PictureCrop(pixels, region=(0.25, 0.0, 0.75, 1.0))
    figure = overlay(crop, np.ones((2, 2), np.float32), how=Overlaying(), **WORDS)
    drawn = image_of(figure)
    over = drawn[:, -drawn.shape[0] * 3 // 2 :]
    assert (over[5, 5] > 100).all()
    assert (over[5, over.shape[1] // 2] == 0).all()
    assert any("pale: what the model" in text.get_text() for text in figure.texts)
    names = {"layers": ("0",), "heads": ("0",)}
    tile = image_of(overlay_grid(crop, np.ones((1, 1, 2, 2), np.float32), **names, **WORDS))
    assert (tile == 0).all()
    assert tile.shape[0] > tile.shape[1]


def test_a_picture_keeps_its_shape_and_the_bar_its_marks():
    weights = np.zeros((8, 8), np.float32)
    weights[1, 2] = 1
    bar = overlay(PictureCrop(GREY), weights, **WORDS).axes[1]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["1", "2", "5", "> 10"]
    assert bar.get_ylabel() == "times an even share of the picture"
    assert resize(np.zeros((50, 200, 3), np.uint8), 100).shape == (25, 100, 3)
    assert resize(np.zeros((1, 900, 3), np.uint8), 100).shape == (1, 100, 3)


def test_smoothed_weights_and_patches_without_a_value():
    weights = np.array([[0.0, 1.0]], np.float32)
    step, smooth = (blend(GREY, weights, (0.0, 1.0), smooth=one) for one in (False, True))
    assert (len(np.unique(step[0], axis=0)), len(np.unique(smooth[0], axis=0)) > 10) == (2, True)
    figure = overlay(PictureCrop(GREY), weights, how=Overlaying(smooth=True), **WORDS)
    assert any("smoothed between" in text.get_text() for text in figure.texts)
    weights = np.zeros((1, 2, 2, 2), np.float32)
    weights[0, 0, 0] = -0.3, np.nan
    weights[0, 1] = np.nan  # a head that is not there
    names = {"layers": ("0",), "heads": ("0", "1")}
    image = image_of(overlay_grid(PictureCrop(GREY), weights, values="signed", **names, **WORDS))
    wide = (image.shape[1] + 6) // 2
    expected = 0.9 * colors_of(np.float32(np.nan)) + 0.1 * 128
    assert abs(image[2, wide - 10] - expected).max() <= 1
    assert (image[:, wide:] == 255).all()


def test_a_line_of_tiles_names_its_columns_once():
    tile = PictureCrop(GREY), np.full((2, 2), 0.25, np.float32)
    figure = contact_sheet([[tile] * 2] * 3, ["a", "b", "c"], ["left", "right"], **WORDS)
    assert [text.get_text() for text in figure.axes[0].texts if text.get_gid() == "word"] == [
        *("left", "right", "a", "b", "c")
    ]


@pytest.mark.slow
def test_many_heads_stay_within_the_page():
    weights = np.full((24, 16, 2, 2), 0.1, np.float32)
    names = {"layers": tuple(map(str, range(24))), "heads": tuple(map(str, range(16)))}
    for shape in ((40, 60, 3), (60, 40, 3)):
        image = image_of(
            overlay_grid(PictureCrop(np.zeros(shape, np.uint8)), weights, **names, **WORDS)
        )
        assert image.shape[1] <= 1800
        assert image.shape[0] <= 2100
