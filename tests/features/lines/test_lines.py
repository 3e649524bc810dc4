from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz import attend
from attnviz.core.attention_map import Token
from attnviz.features.lines.picture import MOST_HEADS, MOST_LINES, choose_lines, lines
from attnviz.renderers.figures.figure import TEXT_SIZE
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
    with pytest.raises(ValueError, match="9 heads"):
        lines(map_of(shares(1, MOST_HEADS + 1, 3, 3)), title="t")
    assert lines(map_of(shares(1, MOST_HEADS, 3, 3)), title="t")


def test_the_rule_says_how_much_is_drawn():
    item = map_of([[0.96, 0.04], [0.5, 0.5]])
    assert choose_lines(item).rule == (
        "drawn: the 3 strongest of 4 links, from 0.5 up; they hold 98% of the attention"
    )
    item = map_of([[0.9, 0.051, 0.049]], tokens(1), tokens(3))
    assert choose_lines(item).weights.tolist() == pytest.approx([0.9, 0.051])
    nothing = choose_lines(map_of(np.zeros((1, 2)), tokens(1), tokens(2)))
    assert nothing.rule == (
        "drawn: the 0 strongest of 2 links, from 0.05 up; they hold 0% of the attention"
    )


def test_links_of_special_tokens_are_grey_and_bounded():
    queries = (Token("[CLS]", special=True), *tokens(30))
    weights = np.full((31, 31), 0.01, dtype=np.float32)
    weights[:, 0] = 0.6
    weights[5, 7] = 0.3
    chosen = choose_lines(map_of(weights, queries, queries))
    plain = chosen.places[~chosen.pale]
    assert plain[:, 2:].tolist() == [[5, 7]]
    assert chosen.pale.sum() == 31
    assert "grey: links of special tokens" in chosen.rule
    special = tuple(Token(name, special=True) for name in "ab")
    assert not choose_lines(map_of([[0.5, 0.5], [0.9, 0.1]], special, special)).pale.any()
    keys = (*(Token("[PAD]", special=True) for _ in range(5)), Token("a"))
    weights = np.full((100, 6), 0.1, np.float32)
    chosen = choose_lines(map_of(weights, tokens(100), keys))
    assert chosen.pale.sum() == MOST_LINES


@pytest.mark.slow
@pytest.mark.core
@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 40))
def test_no_link_left_out_is_stronger_than_a_drawn_one(seed, queries, keys):
    item = map_of(shares(1, 1, queries, keys, seed=seed))
    chosen = choose_lines(item)
    left = item.weights.copy()
    left[tuple(chosen.places.T)] = 0
    assert len(chosen.weights) <= MOST_LINES
    if len(chosen.weights):
        assert left.max() <= chosen.weights.min() or left.max() < 0.05


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


def test_negative_lines_and_sides_of_other_lengths():
    weights = np.array([[[0.5, -0.4]], [[-0.3, 0.2]]], np.float32)[None]
    item = map_of(weights, tokens(1), tokens(2), values="signed")
    (collection,) = drawn(lines(item, title="t")).collections
    dashed = [style[1] is not None for style in collection.get_linestyles()]
    assert dashed == [False, True, True, False]
    alone = map_of(weights[:, :1], tokens(1), tokens(2), values="signed")
    (collection,) = drawn(lines(alone, title="t")).collections
    assert [style[1] for style in collection.get_linestyles()] == [None, None]
    assert "of the change" in choose_lines(alone).rule
    weights = np.zeros((10, 500), np.float32)
    weights[range(10), range(25, 500, 50)] = 1
    axes = drawn(lines(map_of(weights), title="t"))
    (collection,) = axes.collections
    ends = [(start[1], end[1]) for start, end in collection.get_segments()]
    assert all(abs(start - end) <= 2600 / 500 for start, end in ends)
    names = labels(axes.figure)[:10]
    assert [name.get_position()[1] for name in names] == pytest.approx(np.arange(130, 2600, 260))
    assert {name.get_size() for name in names} == {TEXT_SIZE}


@pytest.mark.parametrize(("queries", "count"), [(5, 20), (6, 20), (7, 21), (10, 30), (200, 400)])
def test_three_links_a_query_are_drawn_within_bounds(queries, count):
    item = map_of(np.full((queries, 10), 0.1, np.float32), tokens(queries), tokens(10))
    assert len(choose_lines(item).weights) == count
    assert f"the {count} strongest of {queries * 10} links" in choose_lines(item).rule


def test_heads_of_several_layers_share_a_picture():
    found = attend("The cat sat on the mat").select(head="2.3,1.0,0.4")
    for figure in (found.lines(), found.grid()):
        assert figure.axes[0].get_title() == "pocket · heads 2.3, 1.0, 0.4"
    legend = found.lines().axes[1]
    names = [text.get_text() for text in legend.texts]
    assert names == ["head 2.3", "head 1.0", "head 0.4"]
