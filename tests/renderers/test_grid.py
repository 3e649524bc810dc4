from itertools import pairwise

import numpy as np
import pytest

from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.grid import grid
from tests.samples import notes_of

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


def test_long_paths_of_modules_keep_their_numbers_and_their_ends():
    path = "up_blocks.1.attentions.{}.transformer_blocks.0.attn2#3"
    names = (path.format(0), path.format(1), "decoder.layers.0.self_attn")
    picture, _ = picture_and_bar(draw(shares(3, 1, 4, 4), layers=names))
    assert [label.get_text() for label in picture.get_yticklabels()] == [
        "up_b.1.atte.0.tran.0.attn2#3",
        "up_b.1.atte.1.tran.0.attn2#3",
        "decoder.layers.0.self_attn",
    ]


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


@pytest.mark.parametrize(
    ("shape", "tile", "gap"),
    [
        # Up to 16 heads stand 6 pixels apart, more of them 3.
        ((2, 3, 5, 9), (5 * 40, 9 * 40), 6),
        ((16, 1, 4, 4), (95 // 4 * 4, 95 // 4 * 4 * 3), 6),
        ((1, 17, 4, 4), (23 * 3 * 4, 23 * 4), 3),
        # Weights of a narrow map are at most three times as wide as high.
        ((2, 2, 30, 2), (30 * 12, 2 * 36), 6),
        ((2, 2, 30, 9), (30 * 12, 9 * 36), 6),
        ((2, 2, 30, 10), (30 * 12, 10 * 12), 6),
        ((1, 1, 360, 360), (360, 360), 6),
        # More weights than pixels share one; both sides alike where queries are the keys.
        ((1, 1, 361, 361), (181, 181), 6),
        ((1, 1, 400, 100), (200, 100), 6),
        ((1, 1, 100, 400), (100, 200), 6),
        ((1, 1, 721, 10), (241, 30), 6),
        # Where gaps alone would fill the picture, a tile is still a pixel wide.
        ((1, 600, 2, 2), (3, 1), 3),
    ],
)
def test_tiles_are_as_large_as_there_is_room_and_stand_apart(shape, tile, gap):
    layers, heads = shape[:2]
    image = image_of(draw(np.full(shape, 0.5, np.float32)))
    array = image.get_array()
    for axis, count, length in ((0, layers, tile[0]), (1, heads, tile[1])):
        assert array.shape[axis] == count * (length + gap) - gap
        drawn = np.flatnonzero((array >= 0).any(1 - axis))
        expected = [
            place * (length + gap) + offset for place in range(count) for offset in range(length)
        ]
        assert drawn.tolist() == expected
    assert set(np.unique(array).tolist()) <= {-1.0, 0.5}


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((1, 1, 400, 100), "; each pixel shows the strongest of 2 × 1 weights"),
        ((1, 1, 100, 400), "; each pixel shows the strongest of 1 × 2 weights"),
        ((1, 1, 100, 40), ""),
    ],
)
def test_what_shares_a_pixel_is_said(shape, said):
    (note,) = notes_of(draw(np.full(shape, 0.5, np.float32)))
    assert note == f"in each tile rows are {shape[2]} queries, columns {shape[3]} keys{said}"


def test_names_stand_at_the_middle_of_their_tiles():
    picture, _ = picture_and_bar(draw(shares(2, 3, 5, 9)))
    assert picture.get_yticks().tolist() == [99.5, 206 + 99.5]
    assert picture.get_xticks().tolist() == [179.5, 366 + 179.5, 732 + 179.5]


@pytest.mark.parametrize("name", ["0", "a long name", "a very long name that is cut"])
def test_names_touch_neither_tiles_nor_what_they_are_of_nor_the_edge(name):
    figure = draw(shares(3, 3, 4, 4), layers=(name, "1", "2"), heads=(name, "1", "2"))
    picture, bar = picture_and_bar(figure)
    renderer = figure.canvas.get_renderer()
    inside = picture.get_window_extent(renderer)
    layers = [label.get_window_extent(renderer) for label in picture.get_yticklabels()]
    heads = [label.get_window_extent(renderer) for label in picture.get_xticklabels()]
    down = picture.yaxis.label.get_window_extent(renderer)
    across = picture.xaxis.label.get_window_extent(renderer)
    assert all(down.x1 <= box.x0 and box.x1 < inside.x0 for box in layers)
    assert all(box.y1 <= across.y0 and inside.y1 < box.y0 for box in heads)
    # The room beside the tiles is the widest name and a line of text, to a few pixels.
    assert 15 <= down.x0 <= 45
    titles = [text.get_window_extent(renderer) for text in figure.texts if text.get_gid() == "head"]
    assert 0 < titles[-1].y0 - across.y1 < 40
    assert bar.get_window_extent(renderer).x0 > inside.x1


@pytest.mark.parametrize(("layers", "step"), [(40, 1), (60, 1), (80, 2), (200, 4)])
def test_names_of_many_layers_are_thinned_by_the_height_of_a_line(layers, step):
    # A line takes 1.25 × 7.5 points, 26.04 pixels at 200 to the inch.
    picture, _ = picture_and_bar(draw(shares(layers, 1, 8, 8)))
    tile = (1620 - 3 * (layers - 1)) // layers // 8 * 8 or -(-8 // 2)
    expected = -(-26.04 // (tile + 3))
    names = [label.get_text() for label in picture.get_yticklabels()]
    assert names == [str(layer) for layer in range(0, layers, int(expected))]


@pytest.mark.parametrize("length", [1, 4, 7])
def test_names_of_narrow_heads_stand_apart_and_none_that_fits_is_left_out(length):
    figure = draw(shares(1, 40, 6, 2), heads=tuple(f"{i:0{length}}" for i in range(40)))
    picture, _ = picture_and_bar(figure)
    boxes = [label.get_window_extent() for label in picture.get_xticklabels()]
    # Tiles of 36 pixels stand 3 apart; names at least .6 of their size, 12.5 pixels.
    step = (picture.get_xticks()[1] - picture.get_xticks()[0]) / 39
    widest = max(box.width for box in boxes)
    assert (step - 1) * 39 < widest + 12.5 + 2
    assert step * 39 > widest + 12.5 - 2


def test_names_have_no_ticks_and_three_points_to_what_they_are_of():
    picture, _ = picture_and_bar(draw(shares(2, 3, 4, 4)))
    for axis in (picture.xaxis, picture.yaxis):
        assert axis.labelpad == 3
        for tick in axis.get_major_ticks():
            assert tick.get_pad() == 3
            assert tick.tick1line.get_markersize() == tick.tick2line.get_markersize() == 0
