from dataclasses import replace

import numpy as np
import pytest

from attnviz.analyses.entropy import row_entropy
from attnviz.analyses.select import select, strongest_links
from attnviz.analyses.view import (
    describe_run,
    few_heads,
    first_focus,
    head_lines,
    head_worth_showing,
    orientation,
    sides,
    views,
)
from attnviz.core.attention_map import AttentionMap, Focus, Link, TextParts, Token, known_mean
from attnviz.core.options import Choice
from attnviz.runs.outputs import draw, views_of
from tests.samples import attention_of, self_map

WORDS = ["a", "b", "c"]


def test_the_mean_of_the_last_layer_has_a_line_a_head():
    item = self_map(WORDS, 3, 4)
    (view,) = views(attention_of(item), as_chosen=True)
    assert np.allclose(view.map.weights[0, 0], item.weights[2].mean(axis=0), atol=1e-6)
    assert view.run == "sample · self · 3 layers × 4 heads"
    assert view.which == "mean over the heads of layer 2"
    assert view.caption == f"{view.run} · {view.which}"
    assert view.orientation == "rows attend to columns"
    assert [line.head for line in view.heads] == ["0", "1", "2", "3"]
    assert view.strongest is not None
    assert view.strongest.weight == pytest.approx(
        np.where(np.eye(3, dtype=bool), 0, item.weights).max()
    )
    assert not view.second
    assert view.focus is None
    item = self_map(WORDS, 1, 2).with_weights(self_map(WORDS, 1, 2).weights, layers=("5",))
    found = attention_of(item, focus={"self": Focus("1", "2", "why")})
    (view,) = views(found, as_chosen=True)
    assert "mean over the heads of layer 5" in view.caption
    assert views(found)[0].map.layers == ("5",)


def test_a_focus_has_its_reason_and_the_mean_behind():
    item = self_map(WORDS, 3, 4)
    focus = Focus("1", "2", "trained to align")
    first, mean = views(attention_of(item, focus={"self": focus}))
    assert np.array_equal(first.map.weights[0, 0], item.weights[1, 2])
    assert first.caption.endswith("layer 1 head 2 (trained to align)")
    assert (first.heads, first.strongest, first.second, first.focus) == ((), None, False, focus)
    assert np.allclose(mean.map.weights[0, 0], item.weights[1].mean(axis=0), atol=1e-6)
    assert (mean.caption, mean.orientation) == ("mean over the heads of layer 1", "")
    assert (len(mean.heads), mean.second, mean.focus) == (4, True, None)
    assert mean.strongest is not None
    item, focus = self_map(WORDS, 3, 2), Focus("1", "1", "why")
    found = views(attention_of(item, focus={"self": focus}), every_layer=True, top=2)
    assert [view.map.heads for view in found] == [("mean",), ("1",), ("mean",)]
    assert [view.focus for view in found] == [None, focus, None]
    assert [len(view.links) for view in found] == [2, 2, 2]


def layered(*heads: np.ndarray, words: list[str] | None = None) -> AttentionMap:
    """A layer of two heads for each pair given."""
    weights = np.stack(heads).astype(np.float32).reshape(-1, 2, *heads[0].shape)
    return AttentionMap("self", *2 * (tuple(map(Token, words or list("abcde"))),), weights)


UNIFORM = np.full((5, 5), 0.2)
RESTING = np.tile([0.9, 0.05, 0.05, 0, 0], (5, 1))
BEFORE = 0.8 * np.eye(5, k=-1) + 0.04
AFTER = 0.7 * np.eye(5, k=1) + 0.06
JUMPS = np.full((5, 5), 0.04)
JUMPS[range(5), [3, 2, 4, 1, 0]] = 0.84


def test_the_head_that_says_most_comes_first():
    item = layered(RESTING, UNIFORM, AFTER, BEFORE, JUMPS, UNIFORM)
    chosen = Focus("2", "0", "says most: b → c .84")
    assert head_worth_showing(item) == chosen
    first, mean = views(attention_of(item))
    assert first.caption.endswith(f"3 layers × 2 heads · layer 2 head 0 ({chosen.why})")
    assert first.focus == chosen
    assert np.array_equal(first.map.weights[0, 0], item.weights[2, 0])
    assert (mean.caption, len(mean.heads)) == ("mean over the heads of layer 2", 2)
    found = head_worth_showing(layered(UNIFORM, JUMPS, JUMPS, UNIFORM))
    assert found == Focus("0", "1", "says most: b → c .84")
    item = layered(RESTING, BEFORE)
    cross = item.with_weights(item.weights, query_side="target", key_side="source")
    found = head_worth_showing(cross)
    assert found == Focus("0", "1", "says most: b → a .84")


def test_the_link_of_a_head_is_named_whole_but_short():
    words = ["The", "cat", "the", "x" * 30, "e"]
    links = np.full((5, 5), 0.04)
    links[[0, 3], [2, 1]] = 0.84
    found = head_worth_showing(layered(UNIFORM, links, words=words))
    assert found.why == f"says most: {'x' * 23}… → cat .84"
    links[:] = 0.0101
    links[[0, 3], [2, 1]] = 0.0437
    found = head_worth_showing(layered(UNIFORM, links, words=words))
    assert found.why.endswith("→ cat .044")
    assert found != head_worth_showing(layered(UNIFORM, links))
    text = "cats and dogs run far"
    pieces = [(0, 3), (3, 4), (5, 8), (9, 13), (14, 17), (18, 21)]
    tokens = tuple(Token(text[start:end], start, end) for start, end in pieces)
    weights = np.full((1, 2, 6, 6), 1 / 6, np.float32)
    weights[0, 1, 3] = 0.4, 0.5, 0.025, 0.025, 0.025, 0.025
    found = head_worth_showing(AttentionMap("self", tokens, tokens, weights), (text, text))
    assert found.why == "says most: dogs → cats .90"


@pytest.mark.parametrize(
    "item",
    [
        self_map(WORDS, 3, 1),
        self_map(WORDS, 2, 2, signed=True),
        self_map(["a", "b"], 2, 2),
        self_map(WORDS, 2, 2).with_weights(self_map(WORDS, 2, 2).weights, blocks=(2, 2)),
        self_map(WORDS, 1, 2).with_weights(np.zeros((1, 2, 3, 3), np.float32)),
    ],
)
def test_no_head_stands_out(item):
    assert head_worth_showing(item) is None


def test_no_head_is_first_untrained_or_in_blocks():
    (view,) = views(attention_of(self_map(WORDS, 3, 2), trained=False))
    assert "mean over the heads of layer 2" in view.caption
    item = self_map(WORDS, 2, 2)
    (view,) = views(attention_of(item.with_weights(item.weights, blocks=(2, 2))))
    assert view.which == "mean over the heads of layer 1 (blocks hide which head says most)"


def test_captions_say_layers_heads_and_reductions():
    found = views(attention_of(self_map(WORDS, 3, 2)), every_layer=True)
    assert [view.map.layers for view in found] == [("0",), ("1",), ("2",)]
    (view,) = views(attention_of(self_map(WORDS)))
    assert view.caption == "sample · self · layer 0 head 0"
    assert (view.heads, view.strongest) == ((), None)
    item = self_map(WORDS)
    item = item.with_weights(item.weights, layers=("mean",), heads=("max",))
    (view,) = views(attention_of(item))
    assert view.caption == "sample · self · mean over layers max over heads"
    found = attention_of(self_map(WORDS, 2, 1))
    item, title = few_heads(found, views(found)[0])
    assert item is found.main
    assert title == "layers 0, 1 · head 0"

    item = self_map(WORDS).with_weights(self_map(WORDS).weights, layers=("rollout",))
    assert views(attention_of(item))[0].which == "through all layers, head 0"
    mean = item.with_weights(item.weights, heads=("mean",))
    assert views(attention_of(mean))[0].which == "through all layers, mean over heads"
    two = self_map(WORDS, 1, 2)
    two = two.with_weights(two.weights, layers=("rollout",))
    (view,) = views(attention_of(two), as_chosen=True)
    assert view.which == "mean over the heads of rollout over layers"
    assert view.map.heads == ("mean",)


@pytest.mark.parametrize(("top", "kept"), [(0, 0), (1, 1), (4, 4)])
def test_as_many_links_come_as_were_asked_for(top, kept):
    item = self_map(WORDS, 2, 2)
    (view,) = views(attention_of(item), as_chosen=True, top=top)
    assert view.links == tuple(strongest_links(item, kept))
    assert view.strongest == strongest_links(item, 1)[0]


@pytest.mark.parametrize("top", [0, 1, 3])
def test_every_lens_has_a_view_of_the_last_layer(top):
    items = [
        self_map(WORDS, 3, 2, seed).with_weights(self_map(WORDS, 3, 2, seed).weights, stream=name)
        for seed, name in enumerate(("raw", "rollout"))
    ]
    found = views(replace(attention_of(*items), lens_name="all"), top=top)
    assert [view.run.split(" · ")[1] for view in found] == ["raw", "rollout"]
    for view, item in zip(found, items, strict=True):
        assert view.map.layers == ("2",)
        assert np.allclose(view.map.weights[0, 0], item.weights[2].mean(axis=0), atol=1e-6)
        assert view.strongest == strongest_links(item, 1)[0]
        assert view.links == tuple(strongest_links(item, top))


@pytest.mark.parametrize(("heads", "kept"), [(1, 1), (2, 2), (8, 8), (9, 1)])
def test_eight_heads_at_most_stand_side_by_side(heads, kept):
    found = attention_of(self_map(WORDS, 1, heads))
    item, title = few_heads(found, views(found)[0])
    assert item.weights.shape[1] == kept
    listed = ", ".join(map(str, range(heads)))
    assert title.endswith(f"layer 0 · heads {listed}") == (1 < heads < 9)


@pytest.mark.parametrize("heads", ["2.0,1.0", "2.1,0.0", "2.1,0.0,1.1"])
def test_heads_of_several_layers_have_views_and_panels(heads):
    item = self_map(WORDS, 3, 2)
    found = select(attention_of(item), None, None, heads)
    many = views_of(found, Choice(head=heads))
    shown = {view.which: view.map.weights[0, 0] for view in many()}
    assert len(shown) == heads.count(",") + 1
    for layer, head in (name.split(".") for name in heads.split(",")):
        np.testing.assert_array_equal(
            shown[f"layer {layer} head {head}"], item.weights[int(layer), int(head)]
        )
    figure = draw(found, "heatmap", many)
    panels = [axes for axes in figure.axes if axes.get_label() == "self"]
    assert len(panels) == len(shown)
    assert len({axes.images[0].get_clim() for axes in panels}) == 1
    (mean,) = views_of(found, Choice(head=heads, reduce="mean"))()
    assert "mean" in mean.which or len(mean.map.heads) == 1


def test_a_run_is_said_with_all_that_sets_it_apart():
    item = self_map(WORDS, 1, 2).with_weights(self_map(WORDS, 1, 2).weights, blocks=(2, 3))
    found = replace(
        attention_of(item, steps=("lens norm", "look from a", "special drop")),
        parts=TextParts("prompt and output", 3, (4, 5)),
        decision="yes",
    )
    assert describe_run(found, item) == (
        "sample · self · lens norm · special drop · 4 tokens read, 5 written · decides yes"
        " · blocks of 2 × 3 tokens · 1 layer × 2 heads"
    )
    square = item.with_weights(item.weights, blocks=(2, 2))
    assert "blocks of 2 tokens" in describe_run(attention_of(square), square)

    item = self_map(WORDS)
    assert describe_run(attention_of(item, trained=False), item) == "sample (untrained) · self"
    assert orientation(item) == "rows attend to columns"
    cross = item.with_weights(item.weights, query_side="target", key_side="source")
    assert orientation(cross) == "rows (target) attend to columns (source)"
    signed = cross.with_weights(item.weights, values="signed")
    assert orientation(signed) == "rows (target) against columns (source)"


@pytest.mark.parametrize(("layers", "heads"), [(1, 2), (2, 1)])
def test_two_matrices_are_enough_for_a_strongest_link(layers, heads):
    (view,) = views(attention_of(self_map(WORDS, layers, heads)), as_chosen=True)
    assert view.strongest is not None


def test_blocks_keep_links_and_have_no_entropy():
    links = tuple(Link("a", "b", 0.5, layer, "0", 0, 1) for layer in ("0", "1"))
    item = self_map(WORDS, 2, 1)
    item = item.with_weights(item.weights, blocks=(2, 2), links=links)
    found = views(attention_of(item), every_layer=True)
    assert [view.map.links for view in found] == [links[:1], links[1:]]

    item = self_map(WORDS, 1, 2)
    lines = head_lines(item.with_weights(item.weights, blocks=(2, 2)))
    assert [line.head for line in lines] == ["0", "1"]
    assert all(np.isnan(line.entropy) for line in lines)
    links = tuple(
        Link("x", "y", share, "0", head, 0, 1) for head, share in (("1", 0.4), ("0", 0.3))
    )
    linked = head_lines(item.with_weights(item.weights, blocks=(2, 2), links=links))
    assert [(line.pattern, line.weight) for line in linked] == [("x → y", 0.3), ("x → y", 0.4)]
    assert all(line.profile.dtype == np.float64 for line in lines)
    means = known_mean(row_entropy(item.weights))[0]
    assert np.allclose([line.entropy for line in head_lines(item)], means)


def test_sides_say_which_is_which():
    item = self_map(WORDS)
    assert sides(item) == "left attends to right"
    cross = item.with_weights(item.weights, query_side="target", key_side="source")
    assert sides(cross) == "left (target) attends to right (source)"
    signed = cross.with_weights(item.weights, values="signed")
    assert sides(signed) == "left (target) against right (source)"
    output = item.with_weights(item.weights, query_side="output")
    assert sides(output) == "left is what is predicted, right (text) its attribution"
    assert orientation(output) == "the row is what is predicted, columns (text) its attribution"


def test_the_first_head_is_the_sources_or_says_most():
    item = layered(BEFORE, JUMPS)
    plain = attention_of(item)
    assert first_focus(plain, item) == Focus("0", "1", "says most: b → c .84")
    assert first_focus(plain, item, as_chosen=True) is None
    given = attention_of(item, focus={"self": Focus("0", "0", "why"), "b": Focus("0", "1", "no")})
    assert first_focus(given, item, as_chosen=True) == Focus("0", "0", "why")
    without = item.with_weights(item.weights[:, 1:], heads=("1",))
    assert first_focus(given, without) is None
