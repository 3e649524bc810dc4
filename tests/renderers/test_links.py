from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Token
from attnviz.renderers.colors import HEAD_COLORS, INK, LABELLED, SPECIAL, color_of, scale_of
from attnviz.renderers.figures.figure import NOTE_SIZE, TEXT_SIZE, figure_bytes, ink
from attnviz.renderers.figures.fonts import DPI, typeface
from attnviz.renderers.figures.lines import MOST_HEADS, MOST_LINES, choose_lines, lines
from tests.renderers.pictures import map_of, shares, tokens
from tests.samples import notes_of


def drawn(figure):
    (axes,) = (axes for axes in figure.axes if axes.get_label() == "links")
    return axes


def labels(figure):
    return [text for text in drawn(figure).texts if text.get_gid() == "token"]


def test_every_line_joins_its_query_to_its_key():
    item = map_of([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8], [1.0, 0.0, 0.0]])
    axes = drawn(lines(item, title="t"))
    (collection,) = axes.collections
    tops = [text.get_position()[1] for text in labels(lines(item, title="t"))][:3]
    ends = {
        tuple(tops.index(pytest.approx(point[1])) for point in segment)
        for segment in collection.get_segments()
    }
    assert ends == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 0)}


def test_a_heavier_weight_has_a_thicker_line():
    item = map_of([[0.9, 0.1], [0.3, 0.7]])
    chosen = choose_lines(item)
    (collection,) = drawn(lines(item, title="t")).collections
    # Drawn from weak to strong.
    assert list(collection.get_linewidths()) == sorted(collection.get_linewidths())
    assert sorted(chosen.weights.tolist()) == pytest.approx([0.1, 0.3, 0.7, 0.9])


def test_the_rule_says_how_many_links_hold_how_much():
    item = map_of([[0.96, 0.04], [0.5, 0.5]])
    assert choose_lines(item).rule == (
        "drawn: the 3 strongest of 4 links, from 0.5 up; they hold 98% of the attention"
    )


def test_links_of_special_tokens_are_grey_and_take_no_other_links_place():
    queries = (Token("[CLS]", special=True), *tokens(30))
    weights = np.full((31, 31), 0.01, dtype=np.float32)
    weights[:, 0] = 0.6
    weights[5, 7] = 0.3
    chosen = choose_lines(map_of(weights, queries, queries))
    plain = chosen.places[~chosen.pale]
    assert plain[:, 2:].tolist() == [[5, 7]]
    assert chosen.pale.sum() == 31
    assert "grey: links of special tokens" in chosen.rule


def test_where_every_token_is_special_none_is_grey():
    special = tuple(Token(name, special=True) for name in "ab")
    assert not choose_lines(map_of([[0.5, 0.5], [0.9, 0.1]], special, special)).pale.any()


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 40))
def test_no_link_left_out_is_stronger_than_one_that_is_drawn(seed, queries, keys):
    item = map_of(shares(1, 1, queries, keys, seed=seed))
    chosen = choose_lines(item)
    left = item.weights.copy()
    left[tuple(chosen.places.T)] = 0
    assert len(chosen.weights) <= MOST_LINES
    if len(chosen.weights):
        assert left.max() <= chosen.weights.min() or left.max() < 0.05


def test_heads_have_a_colour_each_and_a_name_each():
    figure = lines(map_of(shares(2, 3, 4, 4)), title="t")
    (key,) = (axes for axes in figure.axes if axes.get_label() == "legend")
    assert [text.get_text() for text in key.texts] == [
        f"layer {layer} head {head}" for layer in range(2) for head in range(3)
    ]
    assert len({line.get_color() for line in key.lines}) == 6


def test_more_heads_than_colours_are_refused():
    with pytest.raises(ValueError, match="9 heads"):
        lines(map_of(shares(1, MOST_HEADS + 1, 3, 3)), title="t")


@pytest.mark.parametrize("count", [3, 80, 300])
@pytest.mark.slow
def test_labels_never_touch(count):
    figure = lines(map_of(shares(1, 1, count, count)), title="t")
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in labels(figure)]
    for side in ("left", "right"):
        column = [
            box
            for box, text in zip(boxes, labels(figure), strict=True)
            if text.get_horizontalalignment() == side
        ]
        ordered = sorted(column, key=lambda box: box.y0)
        for low, high in pairwise(ordered):
            assert low.y1 <= high.y0 + 2
    if count == 300:
        assert any("of 300 queries" in note for note in notes_of(figure))
    else:
        assert len(boxes) == 2 * count


def test_signed_values_are_drawn_in_two_colours():
    item = map_of([[0.4, -0.4]], tokens(1), tokens(2), values="signed")
    (collection,) = drawn(lines(item, title="t")).collections
    colors = collection.get_colors()[:, :3]
    assert not np.allclose(colors[0], colors[1])


def test_the_same_map_gives_the_same_bytes():
    item = map_of(shares(1, 2, 5, 5))
    first, second = (figure_bytes(lines(item, title="t"), ".svg") for _ in range(2))
    assert first == second


def legend_of(figure):
    (axes,) = (axes for axes in figure.axes if axes.get_label() == "legend")
    return axes


def test_one_heads_lines_lie_between_its_labels_and_are_as_heavy_as_its_weights():
    figure = lines(map_of([[0.9, 0.1], [0.3, 0.7]]), title="t")
    axes = drawn(figure)
    (collection,) = axes.collections
    ends = {text.get_horizontalalignment(): text.get_position()[0] for text in labels(figure)}
    starts, stops = ends["right"] + 12, ends["left"] - 12
    # Rows stand 32 pixels apart; drawn from weak to strong.
    expected = [(16, 48), (48, 16), (48, 48), (16, 16)]
    for segment, (query, key) in zip(collection.get_segments(), expected, strict=True):
        np.testing.assert_allclose(segment, [(starts, query), (stops, key)])
    weights = np.array([0.1, 0.3, 0.7, 0.9])
    np.testing.assert_allclose(collection.get_linewidths(), 0.4 + 3.6 * weights, rtol=1e-5)
    colors = collection.get_colors()
    np.testing.assert_allclose(colors[:, 3], 0.5 + 0.45 * weights, rtol=1e-5)
    for color, weight in zip(colors, weights, strict=True):
        # No thin line is lighter than a weight of .45 is.
        assert color[:3] == pytest.approx(ink(color_of(max(weight, 0.45))), abs=0.005)
    assert 619 < stops - starts <= 620.001
    width, _ = figure.get_size_inches() * 200
    assert axes.get_xlim() == (0, width)
    assert axes.get_ylim() == (64, 0)
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert 18 <= min(box.x0 for box in boxes) <= 24
    assert 18 <= width - max(box.x1 for box in boxes) <= 24
    names = [text for text in axes.texts if text.get_gid() != "token"]
    assert [text.get_position() for text in names] == [(ends["right"], -6), (ends["left"], -6)]
    assert [text.get_position()[1] for text in labels(figure)] == [16, 48, 16, 48]


def test_a_token_that_is_labelled_or_special_looks_so():
    queries = (Token("a", label="B-PER"), Token("[SEP]", special=True), Token("c"))
    figure = lines(map_of(shares(3, 3), queries, queries), title="t")
    looks = [(text.get_text(), text.get_color(), text.get_weight()) for text in labels(figure)[:3]]
    assert looks == [
        ("a · B-PER", ink(LABELLED), "bold"),
        ("[SEP]", ink(SPECIAL), "normal"),
        ("c", ink(INK), "normal"),
    ]


def test_heads_have_a_lane_and_a_colour_each():
    weights = np.zeros((2, 2, 2, 2), np.float32)
    weights[..., 0] = 1
    item = map_of(weights)
    figure = lines(item, title="t")
    (collection,) = drawn(figure).collections
    chosen = choose_lines(item)
    order = np.lexsort((np.abs(chosen.weights), ~chosen.pale))
    # Four lanes over three quarters of a row of 32 pixels: 6 pixels apart.
    for segment, color, number in zip(
        collection.get_segments(), collection.get_colors(), order, strict=True
    ):
        layer, head, query, key = chosen.places[number]
        lane = (2 * layer + head - 1.5) * 6
        assert segment[:, 1].tolist() == [32 * query + 16 + lane, 32 * key + 16 + lane]
        assert color[:3] == pytest.approx(ink(HEAD_COLORS[2 * layer + head]))
    assert set(collection.get_linewidths()) == {6 * 72 / 200}
    assert [line.get_color() for line in legend_of(figure).lines] == [
        ink(color) for color in HEAD_COLORS[:4]
    ]


def test_one_layers_heads_are_named_without_it_and_eight_heads_still_have_colours():
    figure = lines(map_of(shares(1, 8, 3, 3)), title="t")
    key = legend_of(figure)
    assert [text.get_text() for text in key.texts] == [f"head {head}" for head in range(8)]
    assert {line.get_linewidth() for line in key.lines} == {2.5}
    # Lanes of many heads would be too narrow for lines of three times the least width.
    (collection,) = drawn(figure).collections
    assert collection.get_linewidths().max() <= 1.2


def test_the_legend_shows_lines_beside_their_names_in_rows_that_fit():
    figure = lines(map_of(shares(1, 8, 3, 3)), title="t")
    key = legend_of(figure)
    room = figure.get_size_inches()[0] * 200
    place, row = 20.0, 0
    renderer = figure.canvas.get_renderer()
    high = int(1.25 * 6.5 * 200 / 72) + 6
    for line, text in zip(key.lines, key.texts, strict=True):
        needed = 44 + text.get_window_extent(renderer).width + 28
        if place + needed > room - 20 + 3:
            place, row = 20.0, row + 1
        assert line.get_xdata()[0] == pytest.approx(place, abs=12)
        assert line.get_xdata()[1] - line.get_xdata()[0] == 36
        assert text.get_position()[0] - line.get_xdata()[0] == 44
        assert text.get_position()[1] == line.get_ydata()[0] == line.get_ydata()[1]
        assert line.get_ydata()[0] == high * (row + 0.5)
        place += needed
    assert row >= 1
    assert key.get_ylim() == (high * (row + 1), 0)
    assert key.get_xlim() == (0, room)


@pytest.mark.parametrize(
    ("values", "names"),
    [("share", [".10", ".50", "1.0"]), ("signed", ["−.08", "−.40", "−.80", ".08", ".40", ".80"])],
)
def test_one_heads_legend_shows_three_weights_of_the_scale(values, names):
    item = map_of([[0.8, 0.1], [0.3, 0.7]], values=values)
    key = legend_of(lines(item, title="t"))
    assert [text.get_text() for text in key.texts] == names
    widths = [line.get_linewidth() for line in key.lines]
    assert widths == pytest.approx([0.76, 2.2, 4.0] * (len(names) // 3))
    limits = (-0.8, 0.8) if values == "signed" else (0, 1)
    least = 0.45 * limits[1]
    for line, name in zip(key.lines, names, strict=True):
        value = float(name.replace("−", "-"))
        shown = np.copysign(max(abs(value), least), value)
        assert line.get_color() == pytest.approx(ink(color_of(shown, limits)))


def test_grey_lines_lie_below_the_others_and_are_half_as_heavy():
    queries = (Token("[CLS]", special=True), *tokens(2))
    weights = np.array([[0.0, 0, 0], [0.6, 0, 0.4], [1.0, 0, 0]])
    item = map_of(weights, queries, queries)
    (collection,) = drawn(lines(item, title="t")).collections
    grey = [color[:3] == pytest.approx(ink((205, 205, 205))) for color in collection.get_colors()]
    assert grey == [True, True, False]
    # On a scale to .4, that of the words.
    assert scale_of(item) == (0, 0.4)
    assert collection.get_linewidths().tolist() == [2.0, 2.0, 4.0]
    assert choose_lines(item).rule == (
        "drawn: the 1 strongest of 4 links, from 0.4 up; they hold 20% of the attention; "
        "grey: links of special tokens as strong, with 80%"
    )


def test_negative_lines_of_several_heads_are_dashed():
    weights = np.array([[[0.5, -0.4]], [[-0.3, 0.2]]], np.float32)[None]
    item = map_of(weights, tokens(1), tokens(2), values="signed")
    (collection,) = drawn(lines(item, title="t")).collections
    dashed = [style[1] is not None for style in collection.get_linestyles()]
    assert dashed == [False, True, True, False]
    alone = map_of(weights[:, :1], tokens(1), tokens(2), values="signed")
    (collection,) = drawn(lines(alone, title="t")).collections
    assert [style[1] for style in collection.get_linestyles()] == [None, None]
    assert "of the change" in choose_lines(alone).rule


@pytest.mark.parametrize(("queries", "count"), [(5, 20), (6, 20), (7, 21), (10, 30), (200, 400)])
def test_three_links_a_query_are_drawn_within_bounds(queries, count):
    item = map_of(np.full((queries, 10), 0.1, np.float32), tokens(queries), tokens(10))
    assert len(choose_lines(item).weights) == count
    assert f"the {count} strongest of {queries * 10} links" in choose_lines(item).rule


def test_grey_lines_are_bounded_too():
    keys = (*(Token("[PAD]", special=True) for _ in range(5)), Token("a"))
    weights = np.full((100, 6), 0.1, np.float32)
    chosen = choose_lines(map_of(weights, tokens(100), keys))
    assert chosen.pale.sum() == MOST_LINES


def test_links_below_a_twentieth_of_the_scale_are_not_drawn():
    item = map_of([[0.9, 0.051, 0.049]], tokens(1), tokens(3))
    assert choose_lines(item).weights.tolist() == pytest.approx([0.9, 0.051])
    nothing = choose_lines(map_of(np.zeros((1, 2)), tokens(1), tokens(2)))
    assert nothing.rule == (
        "drawn: the 0 strongest of 2 links, from 0.05 up; they hold 0% of the attention"
    )


def test_where_labels_do_not_fit_those_of_the_strongest_links_are_named():
    weights = np.full((400, 400), 0.0005, np.float32)
    weights[137, 251] = 0.8
    figure = lines(map_of(weights, tokens(400), tokens(400)), title="t")
    sides = {
        side: [text for text in labels(figure) if text.get_horizontalalignment() == side]
        for side in ("right", "left")
    }
    assert "word137" in [text.get_text() for text in sides["right"]]
    assert "word251" in [text.get_text() for text in sides["left"]]
    # 2,600 pixels for 400 tokens: 6.5 for each, where a line takes 17.57 (5.5 points).
    for texts in sides.values():
        places = sorted(text.get_position()[1] / 6.5 - 0.5 for text in texts)
        assert np.diff(places).min() >= 3
        assert np.diff(places).max() <= 5
        assert {text.get_size() for text in texts} == {5.5}
    (note,) = (note for note in notes_of(figure) if note.startswith("named"))
    assert note == (
        f"named: {len(sides['right'])} of 400 queries and {len(sides['left'])} of 400 keys, "
        "those of the strongest links first"
    )


def test_title_subtitle_and_notes_stand_in_the_figure_in_order():
    figure = lines(map_of(shares(1, 1, 3, 3)), title="what was run", subtitle="left to right")
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    height = figure.get_size_inches()[1] * 200
    tops = [height - box.y1 for box in boxes]
    axes, key = (part.get_window_extent(renderer) for part in (drawn(figure), legend_of(figure)))
    names = drawn(figure).texts[0].get_window_extent(renderer)
    title, subtitle, note = boxes
    assert 18 <= tops[0] <= 30
    assert title.y0 > subtitle.y1 > subtitle.y0 > names.y1
    assert subtitle.y0 - names.y1 < 40
    assert axes.y0 - key.y1 == pytest.approx(16, abs=0.5)
    assert 0 < key.y0 - note.y1 < 20
    assert 18 <= note.y0 <= 40
    assert {round(box.x0) for box in boxes} <= {20, 21, 22}


def test_names_of_a_legend_stand_28_pixels_before_the_next_line():
    key = legend_of(lines(map_of(shares(1, 3, 3, 3)), title="t"))
    face = typeface([text.get_text() for text in key.texts])
    starts = [line.get_xdata()[0] for line in key.lines]
    widths = [face.width(text.get_text(), NOTE_SIZE) for text in key.texts]
    assert starts[0] == 20
    np.testing.assert_allclose(np.diff(starts), [44 + width + 28 for width in widths[:-1]])


@pytest.mark.parametrize("count", [200, 260, 762])
def test_lines_of_many_tokens_are_thinner_than_the_room_of_a_token(count):
    weights = np.zeros((count, count), np.float32)
    weights[137, 25] = 1
    (collection,) = drawn(lines(map_of(weights), title="t")).collections
    room = 2600 / count * 72 / DPI
    assert collection.get_linewidths().tolist() == pytest.approx([min(4, 0.75 * room)])


def test_a_side_that_is_much_shorter_is_spread_over_the_height_of_the_other():
    weights = np.zeros((10, 500), np.float32)
    weights[range(10), range(25, 500, 50)] = 1
    axes = drawn(lines(map_of(weights), title="t"))
    (collection,) = axes.collections
    ends = [(start[1], end[1]) for start, end in collection.get_segments()]
    assert all(abs(start - end) <= 2600 / 500 for start, end in ends)
    names = labels(axes.figure)[:10]
    assert [name.get_position()[1] for name in names] == pytest.approx(np.arange(130, 2600, 260))
    assert {name.get_size() for name in names} == {TEXT_SIZE}


@pytest.mark.parametrize(("count", "size"), [(97, 7.5), (120, 6.24), (145, 5.5)])
def test_text_is_as_large_as_the_room_of_a_token_allows(count, size):
    figure = lines(map_of(np.eye(count)), title="t")
    assert [text.get_size() for text in labels(figure)] == pytest.approx([size] * 2 * count)
    assert len(labels(figure)) == 2 * count


def test_where_labels_would_touch_by_a_hair_one_of_two_is_named():
    # A label of the least size takes 17.57 pixels, a token of 150 only 17.33.
    figure = lines(map_of(np.eye(150)), title="t")
    assert len(labels(figure)) == 150


@pytest.mark.parametrize("length", range(1, 13))
def test_a_legend_ends_before_the_right_edge(length):
    heads = tuple(f"{head:0{length}}" for head in range(8))
    figure = lines(map_of(shares(1, 8, 3, 3), heads=heads), title="t")
    key = legend_of(figure)
    face = typeface([text.get_text() for text in key.texts])
    for line, text in zip(key.lines, key.texts, strict=True):
        needed = 44 + face.width(text.get_text(), NOTE_SIZE) + 28
        assert line.get_xdata()[0] + needed <= figure.get_size_inches()[0] * 200 - 20 + 1e-6


def test_lines_and_legend_take_the_whole_width_of_the_figure():
    figure = lines(map_of(shares(3, 3)), title="t")
    for axes in (drawn(figure), legend_of(figure)):
        box = axes.get_position()
        assert (box.x0, box.x1) == pytest.approx((0, 1), abs=1e-9)
