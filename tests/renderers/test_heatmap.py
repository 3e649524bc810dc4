import io

import numpy as np
import pytest
from PIL import Image

from attnviz.core.attention_map import Token
from attnviz.renderers.colors import SIGNED_SHADES
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.heatmap import cell_number, heatmap

from .pictures import map_of, picture_and_bar, pixels, shares

AXIS_NAMES = {"query (attends)", "key (attended)"}


def draw(weights, queries=None, keys=None, **fields):
    figure = heatmap(map_of(weights, queries, keys, **fields), title="what was run")
    figure_bytes(figure, ".png")
    return figure


def cells(figure):
    picture, _ = picture_and_bar(figure)
    return [text for text in picture.texts if text.get_text() not in AXIS_NAMES]


def labels(figure, side):
    picture, _ = picture_and_bar(figure)
    return picture.get_yticklabels() if side == "rows" else picture.get_xticklabels()


@pytest.mark.slow
def test_numbers_are_the_weights_and_fit_their_cells():
    weights = shares(4, 6, sharpness=1)
    texts = cells(draw(weights))
    assert len(texts) == (weights >= 0.005).sum()
    for text in texts:
        column, row = text.get_position()
        assert float(text.get_text()) == pytest.approx(weights[row, column], abs=0.005)
    figure = draw(-shares(16, 16), values="signed", unit="difference")
    picture, _ = picture_and_bar(figure)
    width = pixels(figure, picture)[2] / 16
    assert len(cells(figure)) > 100
    assert max(text.get_window_extent().width for text in cells(figure)) < width
    row = tuple(map(Token, ["$x_1$", "[bold]", "\x1b[31m", "\u202e", " "]))
    figure = draw(shares(5, 5), row, row)
    shown = [label.get_text() for label in labels(figure, "rows")]
    assert shown == ["$x_1$", "[bold]", "‹1B›[31m", "‹202E›", "␣"]
    assert not any(label.get_parse_math() for label in labels(figure, "rows"))
    weights = shares(3100, 4)
    picture, _ = picture_and_bar(draw(weights))
    image = picture.images[0].get_array()
    assert image.shape == (1034, 4)
    assert np.array_equal(image[0], weights[:3].max(0))


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.46, 2, ".46"),
        (0.46, 1, ".5"),
        (0.004, 2, ".00"),
        (1.0, 2, "1"),
        (0.998, 2, "1"),
        (-0.2, 2, "−.20"),
        (1.25, 1, "1.2"),
        (-12.4, 2, "−12"),
        (0.0123, 3, ".012"),
        (12345.0, 2, "1e4"),
    ],
)
def test_a_number_is_as_short_as_it_can_be(value, digits, text):
    assert cell_number(value, digits) == text


def test_long_tokens_sentences_and_heads():
    figure = draw(shares(1, 2), None, (Token("x" * 100_000), Token("y")))
    assert labels(figure, "columns")[0].get_text() == "x" * 17 + "…"

    names = ["Anna lived with her mother.", "Extraordinarily tired people slept."]
    item = map_of([[0.5, 0.5], [0.5, 0.5]])
    tokens = tuple(map(Token, names))
    item = item.with_weights(item.weights, query_tokens=tokens, key_tokens=tokens)
    axes = heatmap(item, title="").axes[0]
    cut = ["Anna lived with…", "Extraordinarily…"]
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in ticks] == cut
    with pytest.raises(ValueError, match="one head"):
        heatmap(map_of(shares(1, 2, 3, 3)), title="x")

    # Not the white of what is outside: float32 holds −0.4 as a little less.
    weights = np.array([[-0.4, 0.1], [0.2, -0.3]], dtype=np.float32)
    shown = map_of(weights, values="signed")
    figure = heatmap(shown, title="x", limits=(-0.4, 0.4))
    with Image.open(io.BytesIO(figure_bytes(figure, ".png"))) as png:
        left, bottom, _, height = pixels(figure, figure.axes[0])
        corner = int(left) + 8, int(png.height - bottom - height) + 8
        assert png.convert("RGB").getpixel(corner) == tuple(SIGNED_SHADES[0].tolist())


@pytest.mark.parametrize(
    ("queries", "keys"),
    [(3, 3), (12, 12), (40, 40), (120, 120), (5, 30), (60, 4), (1, 1), (6, 300)],
)
@pytest.mark.slow
@pytest.mark.core
def test_labels_never_overlap_or_leave_the_figure(queries, keys):
    words = ["a", "sentence", "of", "extraordinarily", "long", "words"]
    row = tuple(Token(words[i % 6], label="B" if i % 17 == 8 else None) for i in range(300))
    figure = draw(shares(queries, keys), row[:queries], row[:keys])
    width, height = figure.get_size_inches() * 200
    for side in ("rows", "columns"):
        shown = labels(figure, side)
        for label in shown:
            box = label.get_window_extent()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= width
            assert box.y1 <= height
        picture, _ = picture_and_bar(figure)
        apart = np.diff(sorted(_across(picture, label, side) for label in shown))
        line = 200 / 72 * shown[0].get_fontsize()
        assert all(apart >= line)


@pytest.mark.parametrize(
    ("word", "count", "angle"),
    [("a", 12, 0), ("extraordinarily", 12, 45), ("extraordinarily", 60, 90)],
)
def test_names_of_keys_turn_only_where_they_have_no_room(word, count, angle):
    figure = draw(shares(3, count), (Token("a"),) * 3, (Token(word),) * count)
    assert {label.get_rotation() for label in labels(figure, "columns")} == {angle}


def _across(picture, label, side):
    """Pixels at which a label's line lies, measured at right angles to the line."""
    x, y = label.get_position()
    place = picture.transData.transform((x, y))[1 if side == "rows" else 0]
    return place * np.sin(np.radians(label.get_rotation() or 90))
