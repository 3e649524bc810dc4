import numpy as np
import pytest

from attnviz.features.grid.picture import grid
from attnviz.renderers.figures.figure import figure_bytes
from tests.renderers.pictures import fitted, map_of, picture_and_bar, shares
from tests.samples import notes_of


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
@pytest.mark.core
def test_every_weight_of_every_head_is_in_the_one_image(shape):
    weights = shares(*shape)
    cut = tiles(draw(weights), *shape[:2])
    tall, wide = (cut.shape[axis] // shape[axis] for axis in (2, 3))
    assert np.array_equal(cut[:, :, ::tall, ::wide], weights)
    assert np.array_equal(np.repeat(np.repeat(weights, tall, 2), wide, 3), cut)


def test_long_paths_keep_their_numbers_and_ends():
    path = "up_blocks.1.attentions.{}.transformer_blocks.0.attn2#3"
    names = (path.format(0), path.format(1), "decoder.layers.0.self_attn")
    picture, _ = picture_and_bar(draw(shares(3, 1, 4, 4), layers=names))
    assert [label.get_text() for label in picture.get_yticklabels()] == [
        "up_b.1.atte.0.tran.0.attn2#3",
        "up_b.1.atte.1.tran.0.attn2#3",
        "decoder.layers.0.self_attn",
    ]


def test_gaps_zeros_and_weights_beyond_the_bar():
    figure = draw(np.zeros((1, 2, 3, 3), dtype=np.float32))
    image = image_of(figure)
    colors = image.to_rgba(image.get_array(), bytes=True)
    middle = colors[0, colors.shape[1] // 2]
    assert middle.tolist() == [255, 255, 255, 255]
    assert colors[0, 0].tolist() != [255, 255, 255, 255]
    weights = np.full((2, 2, 20, 20), 0.01, np.float32)
    weights[0, 0, 0, 0] = 0.4
    _, bar = picture_and_bar(grid(map_of(weights), title="t"))
    assert [text.get_text() for text in bar.get_yticklabels()][-1] == "> 0.01"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "tile", "gap"),
    [
        # Up to 16 heads stand 6 pixels apart, more of them 3.
        ((2, 3, 5, 9), (5 * 40, 9 * 40), 6),
        ((16, 1, 4, 4), (95 // 4 * 4, 95 // 4 * 4 * 3), 6),
        ((2, 17, 4, 4), (23 * 3 * 4, 23 * 4), 3),
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
        ((2, 600, 2, 2), (3, 1), 3),
    ],
)
def test_tiles_are_as_large_as_there_is_room(shape, tile, gap):
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


def texts_of(figure, gid):
    return [text for text in figure.axes[0].texts if text.get_gid() == gid]


def test_strips_of_heads_wrap_and_are_named():
    item = map_of(shares(1, 12, 40, 40))
    places = {}
    for width in (None, "single"):
        figure = fitted(grid, item, width, title="t") if width else grid(item, title="t")
        names = texts_of(figure, "head")
        assert [text.get_text() for text in names] == [f"head {number}" for number in range(12)]
        places[width] = [len({text.get_position()[axis] for text in names}) for axis in (0, 1)]
    assert places == {None: [4, 3], "single": [4, 3]}
    item = map_of(shares(1, 3, 6, 6), layers=("several",), heads=("2.3", "1.0", "0.4"))
    figure = grid(item, title="t")
    assert [text.get_text() for text in texts_of(figure, "head")] == [
        "head 2.3",
        "head 1.0",
        "head 0.4",
    ]
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("", "")


def test_tiles_name_few_tokens_and_count_many():
    figure = grid(map_of(shares(2, 3, 4, 6)), title="t")
    names = [text.get_text() for text in texts_of(figure, "token")]
    # The columns above each of three tiles, the rows beside each of two.
    assert names == [f"word{n}" for n in range(6)] * 3 + [f"word{n}" for n in range(4)] * 2
    assert not any("in each tile" in text.get_text() for text in figure.texts)
    figure = grid(map_of(shares(2, 3, 60, 60)), title="t")
    assert not texts_of(figure, "token")
    assert "in each tile rows are the 60 queries, columns the 60 keys" in notes_of(figure)
