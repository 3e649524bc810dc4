from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import Token
from attnviz.renderers.figures.figure import figure_bytes, notes_of
from attnviz.renderers.figures.links import MOST_HEADS, MOST_LINES, lines_of, links
from tests.renderers.pictures import map_of, shares, tokens


def drawn(figure):
    (axes,) = (axes for axes in figure.axes if axes.get_label() == "links")
    return axes


def labels(figure):
    return [text for text in drawn(figure).texts if text.get_gid() == "token"]


def test_every_line_joins_its_query_to_its_key():
    item = map_of([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8], [1.0, 0.0, 0.0]])
    axes = drawn(links(item, title="t"))
    (collection,) = axes.collections
    tops = [text.get_position()[1] for text in labels(links(item, title="t"))][:3]
    ends = {
        tuple(tops.index(pytest.approx(point[1])) for point in segment)
        for segment in collection.get_segments()
    }
    assert ends == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 0)}


def test_a_heavier_weight_has_a_thicker_line():
    item = map_of([[0.9, 0.1], [0.3, 0.7]])
    chosen = lines_of(item)
    (collection,) = drawn(links(item, title="t")).collections
    # Drawn from weak to strong.
    assert list(collection.get_linewidths()) == sorted(collection.get_linewidths())
    assert sorted(chosen.weights.tolist()) == pytest.approx([0.1, 0.3, 0.7, 0.9])


def test_the_rule_says_how_many_links_hold_how_much():
    item = map_of([[0.96, 0.04], [0.5, 0.5]])
    assert lines_of(item).rule == (
        "drawn: the 3 strongest of 4 links, from 0.5 up; they hold 98% of the attention"
    )


def test_links_of_special_tokens_are_grey_and_take_no_other_links_place():
    queries = (Token("[CLS]", special=True), *tokens(30))
    weights = np.full((31, 31), 0.01, dtype=np.float32)
    weights[:, 0] = 0.6
    weights[5, 7] = 0.3
    chosen = lines_of(map_of(weights, queries, queries))
    plain = chosen.places[~chosen.pale]
    assert plain[:, 2:].tolist() == [[5, 7]]
    assert chosen.pale.sum() == 31
    assert "grey: links of special tokens" in chosen.rule


def test_where_every_token_is_special_none_is_grey():
    special = tuple(Token(name, special=True) for name in "ab")
    assert not lines_of(map_of([[0.5, 0.5], [0.9, 0.1]], special, special)).pale.any()


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 40))
def test_no_link_left_out_is_stronger_than_one_that_is_drawn(seed, queries, keys):
    item = map_of(shares(1, 1, queries, keys, seed=seed))
    chosen = lines_of(item)
    left = item.weights.copy()
    left[tuple(chosen.places.T)] = 0
    assert len(chosen.weights) <= MOST_LINES
    if len(chosen.weights):
        assert left.max() <= chosen.weights.min() or left.max() < 0.05


def test_heads_have_a_colour_each_and_a_name_each():
    figure = links(map_of(shares(2, 3, 4, 4)), title="t")
    (key,) = (axes for axes in figure.axes if axes.get_label() == "legend")
    assert [text.get_text() for text in key.texts] == [
        f"layer {layer} head {head}" for layer in range(2) for head in range(3)
    ]
    assert len({line.get_color() for line in key.lines}) == 6


def test_more_heads_than_colours_are_refused():
    with pytest.raises(ValueError, match="9 heads"):
        links(map_of(shares(1, MOST_HEADS + 1, 3, 3)), title="t")


@pytest.mark.parametrize("count", [3, 80, 300])
@pytest.mark.slow
def test_labels_never_touch(count):
    figure = links(map_of(shares(1, 1, count, count)), title="t")
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
    (collection,) = drawn(links(item, title="t")).collections
    colors = collection.get_colors()[:, :3]
    assert not np.allclose(colors[0], colors[1])


def test_the_same_map_gives_the_same_bytes():
    item = map_of(shares(1, 2, 5, 5))
    first, second = (figure_bytes(links(item, title="t"), ".svg") for _ in range(2))
    assert first == second
