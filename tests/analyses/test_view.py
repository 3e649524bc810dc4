from __future__ import annotations

import numpy as np
import pytest

from attnviz.analyses.view import describe_run, orientation, views
from attnviz.core.attention_map import Focus
from tests.samples import attention_of, self_map

WORDS = ["a", "b", "c"]


def test_the_mean_of_the_last_layer_comes_first_with_a_line_for_each_head() -> None:
    item = self_map(WORDS, 3, 4)
    (view,) = views(attention_of(item))
    assert np.allclose(view.map.weights[0, 0], item.weights[2].mean(axis=0), atol=1e-6)
    assert view.caption == "sample · self · 3 layers × 4 heads · mean over the heads of layer 2"
    assert [line.head for line in view.heads] == ["0", "1", "2", "3"]
    assert view.strongest is not None
    assert view.strongest.weight == pytest.approx(
        np.where(np.eye(3, dtype=bool), 0, item.weights).max()
    )


def test_a_focus_is_shown_with_its_reason() -> None:
    item = self_map(WORDS, 3, 4)
    (view,) = views(attention_of(item, focus={"self": Focus("1", "2", "the alignment head")}))
    assert np.array_equal(view.map.weights[0, 0], item.weights[1, 2])
    assert view.caption.endswith("layer 1 head 2 (the alignment head)")
    assert len(view.heads) == 4


def test_a_focus_that_was_not_kept_is_forgotten() -> None:
    item = self_map(WORDS, 1, 2).with_weights(self_map(WORDS, 1, 2).weights, layers=("5",))
    (view,) = views(attention_of(item, focus={"self": Focus("1", "2", "why")}))
    assert "mean over the heads of layer 5" in view.caption


def test_chosen_layers_are_all_shown() -> None:
    found = views(attention_of(self_map(WORDS, 3, 2)), every_layer=True)
    assert [view.map.layers for view in found] == [("0",), ("1",), ("2",)]


def test_one_head_alone_needs_no_lines() -> None:
    (view,) = views(attention_of(self_map(WORDS)))
    assert view.caption == "sample · self · layer 0 head 0"
    assert (view.heads, view.strongest) == ((), None)


def test_reduced_axes_are_said_in_words() -> None:
    item = self_map(WORDS)
    item = item.with_weights(item.weights, layers=("mean",), heads=("max",))
    (view,) = views(attention_of(item))
    assert view.caption == "sample · self · mean over layers max over heads"


def test_the_run_says_whether_it_was_trained_and_the_rows_who_attends() -> None:
    item = self_map(WORDS)
    assert describe_run(attention_of(item, trained=False), item) == "sample (untrained) · self"
    assert orientation(item) == "rows attend to columns"
    cross = item.with_weights(item.weights, query_side="target", key_side="source")
    assert orientation(cross) == "rows (target) attend to columns (source)"
    signed = cross.with_weights(item.weights, values="signed")
    assert orientation(signed) == "rows (target) against columns (source)"
