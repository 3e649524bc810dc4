"""One query's look, laid out as the picture is."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.analyses.patches import (
    look_from,
    one_picture,
    over_picture,
    picture_views,
    said_looks,
    strongest_patch,
)
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import UsageError
from attnviz.core.tokens import AVERAGE, patch_grid, patch_tokens
from tests.samples import attention_of, weights_of

CLASS = Token("[CLS]", special=True)


def picture_map(rows: int, columns: int, *, marked: bool) -> AttentionMap:
    tokens = (*((CLASS,) if marked else ()), *patch_tokens(rows, columns))
    weights = weights_of((2, 3, len(tokens), len(tokens)))
    return AttentionMap("self", tokens, tokens, weights)


def test_names_give_the_grid_back() -> None:
    assert [token.text for token in patch_tokens(2, 2)] == ["0,0", "0,1", "1,0", "1,1"]
    assert patch_grid((CLASS, *patch_tokens(12, 3))) == (12, 3)


def test_the_class_token_looks_first() -> None:
    item = picture_map(2, 3, marked=True)
    found = look_from(attention_of(item), None)
    assert found.tokens == ("[CLS]",)
    assert np.array_equal(found.weights, item.weights[:, :, :1])
    assert found.provenance.steps == ("look from [CLS]",)


def test_without_one_it_is_the_mean_over_patches() -> None:
    item = picture_map(2, 3, marked=False)
    found = look_from(attention_of(item), None)
    assert found.main.query_tokens == (AVERAGE,)
    np.testing.assert_allclose(found.weights[:, :, 0], item.weights.mean(-2), atol=1e-6)


@pytest.mark.parametrize("marked", [True, False])
def test_a_patch_is_chosen_by_row_and_column(marked: bool) -> None:
    item = picture_map(2, 3, marked=marked)
    found = look_from(attention_of(item), "1,2")
    assert np.array_equal(found.weights, item.weights[:, :, -1:])
    assert np.array_equal(
        over_picture(found.main)[0, 0].ravel(), found.weights[0, 0, 0, int(marked) :]
    )


@pytest.mark.parametrize(
    ("patch", "message"), [("2,0", "0,0 to 1,2"), ("0,3", "has 2 × 3"), ("a", "ROW,COLUMN")]
)
def test_a_patch_that_is_not_there_is_told(patch: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        look_from(attention_of(picture_map(2, 3, marked=True)), patch)


def test_a_view_is_laid_out_like_the_picture_and_scaled_to_its_largest_weight() -> None:
    found = look_from(attention_of(picture_map(2, 3, marked=True)), None)
    (view,) = picture_views(found)
    mean = over_picture(found.main)[1].mean(0)
    np.testing.assert_allclose(view.map.weights[0, 0], mean / mean.max(), atol=1e-6)
    assert f"{mean.max():.2g}" in view.orientation
    assert len(view.heads) == 3
    assert len(picture_views(found, every_layer=True)) == 2


def test_what_goes_to_other_tokens_is_said() -> None:
    weights = np.array([0.25, 0.5, 0.25], np.float32)[None, None, None]
    item = AttentionMap("self", (CLASS,), (CLASS, *patch_tokens(1, 2)), weights)
    assert said_looks(item) == (
        "where [CLS] looks: rows and columns of patches; 25% goes elsewhere"
    )
    link = strongest_patch(item)
    assert (link.query, link.key, link.weight, link.key_position) == ("[CLS]", "0,0", 0.5, 1)
    assert one_picture(item)[1] == "layer 0 head 0"
