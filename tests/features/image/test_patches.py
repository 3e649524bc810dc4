"""One query's look, laid out as the picture is."""

import numpy as np
import pytest

from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.core.tokens import AVERAGE, patch_grid, patch_tokens
from attnviz.features.image.patches import (
    look_from,
    look_from_token,
    one_picture,
    over_picture,
    picture_views,
    query_place,
    said_looks,
    strongest_patch,
    with_sinks,
)
from attnviz.features.lenses.rollout import UNIT as FLOW
from tests.samples import attention_of, weights_of

CLASS = Token("[CLS]", special=True)


def picture_map(rows: int, columns: int, *, marked: bool) -> AttentionMap:
    tokens = (*((CLASS,) if marked else ()), *patch_tokens(rows, columns))
    weights = weights_of((2, 3, len(tokens), len(tokens)))
    return AttentionMap("self", tokens, tokens, weights)


def test_names_give_the_grid_back_and_words_are_averaged():
    assert [token.text for token in patch_tokens(2, 2)] == ["0,0", "0,1", "1,0", "1,1"]
    assert patch_grid((CLASS, *patch_tokens(12, 3))) == (12, 3)
    weights = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) / 20
    found = merge_words(words_over(weights).main, "red cars", "")
    assert [token.text for token in found.query_tokens] == ["red", "cars"]
    np.testing.assert_allclose(found.weights[0, 0, 1], weights[0, 0, 1:].mean(axis=0))


def test_who_looks_first():
    item = picture_map(2, 3, marked=True)
    found = look_from(attention_of(item), None)
    assert found.tokens == ("[CLS]",)
    assert np.array_equal(found.weights, item.weights[:, :, :1])
    assert found.provenance.steps == ("look from [CLS]",)
    item = picture_map(2, 3, marked=False)
    found = look_from(attention_of(item), None)
    assert found.main.query_tokens == (AVERAGE,)
    np.testing.assert_allclose(found.weights[:, :, 0], item.weights.mean(-2), atol=1e-6)
    item = picture_map(2, 3, marked=True)
    one = item.with_weights(item.weights[:, :, :1], query_tokens=(CLASS,))
    assert look_from(attention_of(one), None).main is one


@pytest.mark.parametrize("marked", [True, False])
def test_a_patch_is_chosen_by_row_and_column(marked):
    item = picture_map(2, 3, marked=marked)
    found = look_from(attention_of(item), "1,2")
    assert np.array_equal(found.weights, item.weights[:, :, -1:])
    assert np.array_equal(
        over_picture(found.main)[0, 0].ravel(), found.weights[0, 0, 0, int(marked) :]
    )


@pytest.mark.parametrize(
    ("patch", "message"), [("2,0", "0,0 to 1,2"), ("0,3", "has 2 × 3"), ("a", "ROW,COLUMN")]
)
def test_a_patch_that_is_not_there_is_told(patch, message):
    with pytest.raises(UsageError, match=message):
        look_from(attention_of(picture_map(2, 3, marked=True)), patch)


def test_what_goes_to_other_tokens_is_said():
    weights = np.array([0.25, 0.5, 0.25], np.float32)[None, None, None]
    item = AttentionMap("self", (CLASS,), (CLASS, *patch_tokens(1, 2)), weights)
    assert said_looks(item) == (
        "where [CLS] looks: rows and columns of patches; 25% goes elsewhere"
    )
    link = strongest_patch(item)
    assert (link.query, link.key, link.weight, link.key_position) == ("[CLS]", "0,0", 0.5, 1)
    assert one_picture(item)[1] == "layer 0 head 0"
    weights = np.zeros((2, 2, 1, 3), np.float32)
    weights[1, :, 0] = [[0.5, 0.25, 0.25], [0, 0.5, 0.5]]
    item = AttentionMap("self", (CLASS,), (CLASS, *patch_tokens(1, 2)), weights)
    assert said_looks(item).endswith("; 25% goes elsewhere")
    weights = np.full((2, 2, 1, 7), 0.1, np.float32)
    weights[1, 0, 0, 6] = 0.4
    item = AttentionMap("self", (CLASS,), (CLASS, *patch_tokens(2, 3)), weights)
    link = strongest_patch(item)
    assert (link.key, link.layer, link.head) == ("1,2", "1", "0")
    assert (link.query_position, link.key_position) == (0, 6)


TEXT = tuple(Token(word) for word in ("what", "is", "this"))


def over_text() -> AttentionMap:
    """Three words of a text over a picture of two rows and three columns."""
    weights = weights_of((2, 2, 3, 6))
    return AttentionMap("cross", TEXT, patch_tokens(2, 3), weights, query_side="text",
                        key_side="picture")  # fmt: skip


@pytest.mark.parametrize(("which", "place"), [(None, 2), ("0", 0), ("1", 1), ("2", 2)])
def test_a_token_looks_at_the_picture(which, place):
    item = over_text()
    found = look_from_token(attention_of(item), which)
    assert np.array_equal(found.weights, item.weights[:, :, place : place + 1])
    assert found.main.query_tokens == (TEXT[place],)
    assert found.provenance.steps == (f"look from token {place} ('{TEXT[place].text}')",)


@pytest.mark.parametrize("which", ["3", "-1", "a"])
def test_a_token_that_is_not_there_is_told(which):
    with pytest.raises(UsageError, match=r"the text has 0 to 2 \(0:what 1:is 2:this\)"):
        look_from_token(attention_of(over_text()), which)


@pytest.mark.parametrize(
    ("patch", "marks", "place"),
    [(None, 1, 0), (None, 0, None), ("0,0", 0, 0), ("0,0", 2, 2), ("1,2", 1, 6), ("1,0", 1, 4)],
)
def test_a_query_stands_where_its_patch_does(patch, marks, place):
    assert query_place((*(CLASS,) * marks, *patch_tokens(2, 3)), patch) == place


def test_views_of_the_last_layer_or_of_every_one():
    item = look_from(attention_of(picture_map(2, 3, marked=True)), None).main
    found = picture_views(attention_of(item), every_layer=True)
    for layer, view in enumerate(found):
        mean = over_picture(item)[layer].mean(0)
        np.testing.assert_allclose(view.map.weights[0, 0], mean / mean.max(), atol=1e-6)
        assert view.caption.endswith(f"mean over the heads of layer {layer}")
        assert f"{mean.max():.2g}" in view.orientation
        assert len(view.heads) == 3
        assert [token.text for token in view.map.query_tokens] == ["0", "1"]
        assert [token.text for token in view.map.key_tokens] == ["0", "1", "2"]
        assert view.map.unit == f"share of the largest weight, {mean.max():.2g}"
    (last,) = picture_views(attention_of(item))
    assert last.caption == found[1].caption
    one = item.with_weights(item.weights[:, :1], heads=("0",))
    assert picture_views(attention_of(one))[0].heads == ()
    weights = np.zeros((1, 1, 1, 3), np.float32)
    item = AttentionMap("self", (CLASS,), (CLASS, *patch_tokens(1, 2)), weights)
    (view,) = picture_views(attention_of(item))
    assert view.map.weights.tolist() == [[[[0, 0]]]]
    item = look_from(attention_of(picture_map(2, 3, marked=True)), None).main
    (view,) = picture_views(attention_of(item))
    shown = view.map
    assert (shown.stream, shown.layers, shown.heads) == ("self", ("1",), ("mean",))
    assert (shown.query_side, shown.key_side) == ("text", "columns")
    assert view.strongest == strongest_patch(item)
    two = item.with_weights(item.weights[:, :2], heads=("0", "1"))
    assert [line.head for line in picture_views(attention_of(two))[0].heads] == ["0", "1"]


@pytest.mark.parametrize(
    ("layers", "heads", "which"),
    [
        (("0", "7"), ("3",), "layer 7 head 3"),
        (("0", "7"), ("sum",), "layer 7, its heads summed"),
        (("mean",), ("3",), "mean layer head 3"),
        (("rollout",), ("mean",), "through all layers"),
        (("0",), ("0", "1"), "mean over the heads of layer 0"),
    ],
)
def test_one_matrix_is_named(layers, heads, which):
    item = AttentionMap(
        "self", (CLASS,), patch_tokens(1, 2), weights_of((len(layers), len(heads), 1, 2)),
        layers=layers, heads=heads,
    )  # fmt: skip
    shown, said = one_picture(item)
    assert said == which
    np.testing.assert_allclose(shown.weights[0, 0], item.weights[-1].mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("token", "side", "inside", "said"),
    [
        (CLASS, "text", 0.75, "where [CLS] looks: rows and columns of patches; 25% goes elsewhere"),
        (CLASS, "text", 0.996, "where [CLS] looks: rows and columns of patches"),
        (CLASS, "text", 0.99, "where [CLS] looks: rows and columns of patches; 1% goes elsewhere"),
        (AVERAGE, "text", 1, "where the patches look on average: rows and columns of patches"),
        (Token("0,1"), "text", 1, "where patch 0,1 looks: rows and columns of patches"),
        (Token("dog"), "words", 1, "where 'dog' looks: rows and columns of patches"),
        (
            Token("→ dog"),
            "output",
            0.5,
            "attribution of dog: rows and columns of patches; 50% lies in other tokens",
        ),
    ],
)
def test_who_looks_is_said(token, side, inside, said):
    weights = np.array([[[[1 - inside, inside / 2, inside / 2]]]], np.float32)
    item = AttentionMap("s", (token,), (CLASS, *patch_tokens(1, 2)), weights, query_side=side)
    assert said_looks(item) == said
    assert "elsewhere" not in said_looks(item.with_weights(weights, unit=FLOW))


@pytest.mark.slow
def test_a_mean_over_many_patches_is_summed_exactly():
    tokens = patch_tokens(64, 64)
    weights = np.zeros((1, 1, len(tokens), len(tokens)), np.float32)
    weights[..., 0] = 1 / 3
    found = look_from(attention_of(AttentionMap("self", tokens, tokens, weights)), None)
    assert found.weights.dtype == np.float32
    assert found.weights[0, 0, 0, 0] == np.float32(1 / 3)


def test_patches_without_a_value_stay_so():
    tokens = patch_tokens(2, 2)
    weights = np.full((1, 1, 4, 4), 0.25, np.float32)
    weights[0, 0, 0, 1], weights[0, 0, :, 2], weights[0, 0, 3, 3] = np.nan, np.nan, -0.5
    item = AttentionMap("self", tokens, tokens, weights, values="signed")
    mean = look_from(attention_of(item), None)
    np.testing.assert_allclose(mean.weights[0, 0, 0], [0.25, 0.25, np.nan, 0.0625])
    (view,) = picture_views(mean)
    np.testing.assert_allclose(view.map.weights[0, 0], [[1, 1], [np.nan, 0.25]])
    assert strongest_patch(look_from(attention_of(item), "1,1").main).weight == -0.5


def words_over(weights: np.ndarray, marks: tuple[str, ...] = ()) -> Attention:
    """Words of "red cars" over a grid of patches behind tokens that have no place in it."""
    rows = weights.shape[2]
    tokens = (Token("red", 0, 3), Token("car", 4, 7), Token("##s", 7, 8))[:rows]
    side = int((weights.shape[3] - len(marks)) ** 0.5)
    keys = (*(Token(mark, special=True) for mark in marks), *patch_tokens(side, side))
    item = AttentionMap(
        "text-to-picture", tokens, keys, weights, query_side="text", key_side="picture"
    )
    return Attention((item,), Provenance("file", "m"), "red cars")


def test_sinks_get_five_times_the_even_share():
    weights = np.full((1, 3, 2, 17), 0.01, np.float32)
    weights[:, :2, :, 0] = 0.3  # no place: two heads of three
    weights[:, :2, :, 1] = 0.31  # the upper left patch
    weights[:, 2, :, 9] = 0.9  # one head alone
    found = with_sinks(words_over(weights, ("[REG 0]",)))
    rows = {row["key"]: row for row in found.provenance.settings["sinks"]}
    assert set(rows) == {"[REG 0]", "0,0"}
    assert rows["[REG 0]"]["where"] == "no place in the picture"
    assert rows["0,0"]["where"] == "in a corner"
    assert rows["0,0"]["heads"] == pytest.approx(2 / 3, abs=0.01)
    each = [0.31 / (0.3 + 0.31 + 15 * 0.01)] * 2 + [0.01 / (0.9 + 16 * 0.01)]
    assert rows["0,0"]["times"] == pytest.approx(17 * np.mean(each), abs=0.05)
    assert "0,0 (in a corner) of text-to-picture" in found.provenance.notes[-1]
    even = words_over(np.full((1, 1, 1, 16), 0.05, np.float32))
    assert with_sinks(even) is even
