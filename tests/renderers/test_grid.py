from itertools import pairwise

import numpy as np
import pytest

from attnviz.renderers.figures.figure import figure_bytes, notes_of
from attnviz.renderers.figures.grid import grid

from .pictures import map_of, picture_and_bar, pixels, shares


def draw(weights, **fields):
    figure = grid(map_of(weights, **fields), title="what was run")
    figure_bytes(figure, ".png")
    return figure


def image_of(figure):
    picture, _ = picture_and_bar(figure)
    (image,) = picture.images
    return image


def tiles(figure, layers, heads):
    """The heads cut out of the composite again, shape (layers, heads, rows, columns) of pixels."""
    array = image_of(figure).get_array()
    inside = array >= image_of(figure).get_clim()[0]
    rows = np.flatnonzero(inside.any(1)).reshape(layers, -1)
    columns = np.flatnonzero(inside.any(0)).reshape(heads, -1)
    return np.array([[array[np.ix_(down, across)] for across in columns] for down in rows])


@pytest.mark.parametrize("shape", [(1, 1, 3, 3), (4, 6, 12, 12), (2, 3, 5, 9), (3, 2, 20, 4)])
@pytest.mark.slow
def test_every_weight_of_every_head_is_in_the_one_image(shape):
    weights = shares(*shape)
    cut = tiles(draw(weights), *shape[:2])
    tall, wide = (cut.shape[axis] // shape[axis] for axis in (2, 3))
    assert np.array_equal(cut[:, :, ::tall, ::wide], weights)
    assert np.array_equal(np.repeat(np.repeat(weights, tall, 2), wide, 3), cut)


def test_heads_run_across_and_layers_down():
    weights = np.zeros((2, 3, 2, 2), dtype=np.float32)
    weights[1, 0] = 0.9
    cut = tiles(draw(weights), 2, 3)
    assert (cut[1, 0] == np.float32(0.9)).all()
    assert cut.max(axis=(2, 3)).sum() == np.float32(0.9)


def test_layers_are_named_on_the_left_and_heads_on_top():
    figure = draw(shares(2, 3, 4, 4), layers=("3", "7"), heads=("0", "5", "mean"))
    picture, _ = picture_and_bar(figure)
    assert [label.get_text() for label in picture.get_yticklabels()] == ["3", "7"]
    assert [label.get_text() for label in picture.get_xticklabels()] == ["0", "5", "mean"]
    assert (picture.get_xlabel(), picture.get_ylabel()) == ("head", "layer")
    assert picture.xaxis.get_label_position() == "top"
    tile = pixels(figure, picture)[2] / 3
    middles = picture.transData.transform([(x, 0) for x in picture.get_xticks()])[:, 0]
    left = pixels(figure, picture)[0]
    assert middles == pytest.approx([left + tile * (i + 0.5) for i in range(3)], abs=3)


@pytest.mark.slow
def test_names_of_narrow_heads_are_thinned_so_that_they_do_not_touch():
    figure = draw(shares(2, 40, 6, 2), heads=tuple(f"head {i}" for i in range(40)))
    picture, _ = picture_and_bar(figure)
    boxes = [label.get_window_extent() for label in picture.get_xticklabels()]
    assert 1 < len(boxes) < 40
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_all_heads_share_one_scale():
    weights = shares(2, 2, 30, 30, sharpness=0.1)
    weights[1, 1, 0, 0] = 0.27
    figure = draw(weights)
    picture, bar = picture_and_bar(figure)
    assert picture.images[0].get_clim() == bar.images[0].get_clim() == (0.0, 0.3)


def test_signed_heads_are_shown_around_zero():
    figure = draw(shares(2, 2, 4, 4) - 0.5, values="signed", unit="difference")
    low, high = image_of(figure).get_clim()
    assert low == -high


def test_gaps_are_white_and_zeros_are_not():
    figure = draw(np.zeros((1, 2, 3, 3), dtype=np.float32))
    image = image_of(figure)
    colors = image.to_rgba(image.get_array(), bytes=True)
    middle = colors[0, colors.shape[1] // 2]
    assert middle.tolist() == [255, 255, 255, 255]
    assert colors[0, 0].tolist() != [255, 255, 255, 255]


@pytest.mark.parametrize(
    "shape", [(12, 12, 64, 64), (32, 32, 40, 40), (1, 32, 16, 16), (2, 2, 1024, 1024)]
)
@pytest.mark.slow
def test_each_value_of_the_composite_is_one_pixel(shape):
    figure = draw(np.broadcast_to(np.float32(0.5), shape))
    picture, _ = picture_and_bar(figure)
    left, bottom, width, height = pixels(figure, picture)
    assert image_of(figure).get_array().shape == (round(height), round(width))
    for place in (left, bottom, width, height):
        assert place == pytest.approx(round(place), abs=1e-6)
    assert max(figure.get_size_inches()) < 10


def test_heads_too_large_to_draw_show_their_strongest_weights_and_say_so():
    weights = np.zeros((2, 2, 1024, 1024), dtype=np.float32)
    weights[0, 1, 700, 3] = 0.8
    figure = draw(weights)
    cut = tiles(figure, 2, 2)
    assert cut[0, 1].max() == np.float32(0.8)
    assert cut.sum() == pytest.approx(0.8)
    assert notes_of(figure) == (
        "in each tile rows are the 1024 queries, columns the 1024 keys; "
        "each pixel shows the strongest of 3 × 3 weights",
    )
