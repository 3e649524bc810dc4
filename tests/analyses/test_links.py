import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.select import cells_between_words, sharpest, strongest_links
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.measures import Link
from attnviz.core.tokens import sink_place, word_cells
from attnviz.renderers.colors import scale_of
from tests.samples import checked, maps, self_map


def test_the_strongest_link_joins_different_words():
    weights = np.array([[[[0.9, 0.1], [0.4, 0.6]]]], np.float32)
    link = sharpest(self_map(["a", "b"]).with_weights(weights, layers=("3",), heads=("5",)))
    assert (link.query, link.key, link.layer, link.head) == ("b", "a", "3", "5")
    assert link.weight == np.float32(0.4)

    tokens = (Token("[CLS]", special=True), Token("a"), Token("b"))
    weights = np.array([[[[0, 1, 0], [0.9, 0, 0.1], [0.8, 0.2, 0]]]], np.float32)
    link = sharpest(AttentionMap("self", tokens, tokens, weights))
    assert (link.query, link.key) == ("b", "a")
    alone = sharpest(AttentionMap("self", tokens[:1], tokens[:1], np.ones((1, 1, 1, 1))))  # type: ignore[arg-type]
    assert alone.weight == 1
    weights = np.array([[[[0.9, 0.1], [0.4, 0.6]]]], np.float32)
    cross = self_map(["a", "b"]).with_weights(weights, query_side="target", key_side="source")
    assert [link.weight for link in strongest_links(cross, 1)] == [np.float32(0.9)]

    item = resting(6)
    assert sink_place(item) == 0
    assert [(link.query, link.key) for link in strongest_links(item, 3)] == [
        ("2", "1"),
        ("3", "2"),
        ("4", "3"),
    ]
    tokens = tuple(map(Token, "abc"))
    item = AttentionMap("self", tokens[:1], tokens, np.array([[[[0.8, 0.1, 0.1]]]], np.float32))
    assert [link.key for link in strongest_links(item, 3)] == ["a", "b", "c"]


@pytest.mark.slow
@checked
@given(maps("self"), st.integers(1, 300))
def test_links_are_the_largest_cells_in_order(item, count):
    links = strongest_links(item, count, between_words=False)
    expected = np.sort(np.abs(item.weights).ravel())[::-1][:count]
    assert np.array_equal([abs(link.weight) for link in links], expected)


def test_of_equal_cells_the_first_comes_first():
    even = self_map(["a", "b", "c"]).with_weights(np.full((1, 1, 3, 3), 1 / 3, np.float32))
    assert [(link.query, link.key) for link in strongest_links(even, 6)] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("b", "c"),
        ("c", "a"),
        ("c", "b"),
    ]
    link = sharpest(even)
    assert (link.query, link.key) == ("a", "b")
    item = self_map(["a", "b"], signed=True)
    weights = np.array([[[[0, 0.2], [-0.7, 0]]]], np.float32)
    link = sharpest(item.with_weights(weights))
    assert link.weight == np.float32(-0.7)


def resting(count: int, **fields: object) -> AttentionMap:
    """Every token of a causal text rests on the first, and a little on the one before it."""
    weights = 0.2 * np.eye(count, k=-1)
    weights[:, 0] += 0.7
    words = [Token(str(place)) for place in range(count)]
    tokens = tuple(words)
    return AttentionMap("causal", tokens, tokens, weights[None, None], **fields)  # type: ignore[arg-type]


def test_a_sink_holds_much_and_more_than_an_even_look():
    count = 6
    tokens = tuple(map(Token, "abcdef"))
    causal = np.tri(count) / np.tri(count).sum(axis=1, keepdims=True)
    even = AttentionMap("causal", tokens, tokens, causal[None, None].astype(np.float32))
    # The first token gets 41 % of uniform attention under a causal mask: no sink.
    assert causal[:, 0].mean() > 0.4
    assert sink_place(even) is None
    for share, sink in ((0.29, None), (0.31, 2)):
        weights = np.full((1, 2, count, count), (1 - share) / (count - 1), np.float32)
        weights[..., 2] = share
        assert sink_place(AttentionMap("self", tokens, tokens, weights)) == sink
    weights = np.full((1, 1, 6, 6), 0.1, np.float32)
    weights[..., 2] = 0.5
    one = AttentionMap("self", *2 * (tuple(map(Token, "abcdef")),), weights)
    assert sink_place(one) is None
    assert scale_of(one) == (0, 1)
    assert sink_place(one.with_weights(weights, heads=("mean",))) == 2

    assert sink_place(resting(3)) is None
    assert sink_place(resting(4)) == 0
    assert sink_place(resting(6, blocks=(2, 2))) is None
    assert sink_place(resting(6, query_side="target", key_side="source")) is None
    assert sink_place(resting(6, values="signed")) is None
    empty = resting(6).with_weights(np.zeros((1, 1, 6, 6), np.float32))
    assert sink_place(empty) is None

    item = resting(4)
    assert word_cells(item).tolist() == [[False, True, True, True]] * 4
    tokens = (*item.key_tokens[:3], Token("<eos>", special=True))
    marked = item.with_weights(item.weights, query_tokens=tokens, key_tokens=tokens)
    row = [False, True, True, False]
    assert word_cells(marked).tolist() == [row, row, row, [False] * 4]
    marks = (Token("<eos>", special=True),) * 4
    assert word_cells(item.with_weights(item.weights, key_tokens=marks)).all()


def test_links_of_blocks_and_of_parts():
    given = tuple(
        Link(name, "x", weight, "0", "0", 0, 0) for name, weight in (("p", 0.2), ("q", 1))
    )
    item = self_map(["a", "b", "c"])
    blocks = item.with_weights(item.weights, blocks=(2, 2), links=given)
    assert strongest_links(blocks, 2) == [given[1], given[0]]
    assert sharpest(blocks) == given[1]
    alone = item.with_weights(item.weights, links=given)
    assert strongest_links(alone, 2) == strongest_links(item, 2)
    unread = item.with_weights(item.weights, blocks=(2, 2))
    assert strongest_links(unread, 2) == strongest_links(item, 2)

    part = item.with_weights(item.weights[:, :, 1:], query_tokens=item.query_tokens[1:])
    allowed = cells_between_words(part)
    assert allowed.tolist() == [[True] * 3] * 2
    square = cells_between_words(item)
    assert square is not None
    assert (square == ~np.eye(3, dtype=bool)).all()
