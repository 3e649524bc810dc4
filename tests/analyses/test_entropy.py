import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.analyses.entropy import row_entropy
from attnviz.core.attention_map import known_mean
from tests.analyses.heads import fill_buffers
from tests.samples import checked, weights_of


def test_a_row_and_a_head_by_hand():
    assert row_entropy(np.eye(3, dtype=np.float32)).tolist() == [0, 0, 0]
    assert row_entropy(np.full((2, 8), 1 / 8)) == pytest.approx([math.log(8)] * 2)
    rows = np.array([[[[0.5, 0.5], [0, 0]], [[0, 0], [0, 0]]]], np.float32)
    assert known_mean(row_entropy(rows)) == pytest.approx(
        np.array([[math.log(2), math.nan]]), nan_ok=True
    )


@checked
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 99))
def test_entropy_is_the_sum_within_its_bounds(queries, keys, seed):
    weights = weights_of((1, 2, queries, keys), seed)
    found = row_entropy(weights)
    for place in np.ndindex(1, 2, queries):
        expected = -sum(float(a) * math.log(a) for a in weights[place] if a > 0)
        assert found[place] == pytest.approx(expected, abs=1e-6)
    assert (found >= 0).all()
    assert (found <= math.log(keys) + 1e-5).all()


def test_a_large_map_is_read_in_parts(monkeypatch):
    fill_buffers(monkeypatch)
    scores = np.random.default_rng(0).normal(size=(400, 200))
    weights = np.exp(scores) * (np.arange(200) <= np.arange(400)[:, None] // 2)
    weights[[0, 327, 399]] = 0  # the last row of a part says nothing of the others
    weights[:300] /= np.maximum(weights[:300].sum(axis=-1, keepdims=True), 1e-9)
    shares = weights / np.where(weights.any(axis=-1), weights.sum(axis=-1), np.nan)[:, None]
    terms = shares * np.log(np.where(shares > 0, shares, 1))
    np.testing.assert_allclose(row_entropy(weights), -terms.sum(axis=-1), atol=1e-9)
