"""Which heads look alike."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.analyses import entropy
from attnviz.analyses.entropy import jensen_shannon
from attnviz.core.attention_map import Attention, Provenance
from attnviz.features.heads.similarity import SimilarityStudy, head_divergences, plane
from attnviz.features.heads.table import similarity_table, similarity_tsv
from attnviz.renderers import Display
from tests.analyses.heads import fill_buffers, map_of, random_map


def loop_divergence(first: np.ndarray, second: np.ndarray) -> float:
    """Half of both Kullback–Leibler divergences to the middle, summed cell by cell."""
    rows = []
    for one, other in zip(first, second, strict=True):
        total = 0.0
        for p, q in zip(one, other, strict=True):
            middle = (p + q) / 2
            total += 0.5 * (p * math.log(p / middle) if p > 0 else 0)
            total += 0.5 * (q * math.log(q / middle) if q > 0 else 0)
        rows.append(total)
    return sum(rows) / len(rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("at_once", [1, 10, 1000])
def test_divergences_are_the_loop_over_all_pairs(causal, at_once, monkeypatch):
    monkeypatch.setattr(entropy, "AT_ONCE", at_once)
    monkeypatch.setattr(entropy, "FEW", 0)  # keys that no row sees are left out
    fill_buffers(monkeypatch)
    item = random_map(5, causal=causal)
    heads = item.weights.reshape(-1, 5, 5).astype(np.float64)
    expected = [[loop_divergence(one, other) for other in heads] for one in heads]
    np.testing.assert_allclose(head_divergences(item), expected, atol=1e-6)


def test_divergences_by_hand():
    first, second = np.eye(3), np.eye(3)[::-1]
    assert jensen_shannon(first, second).tolist() == pytest.approx([math.log(2), 0, math.log(2)])
    weights = np.array([[[0.1, 0.1], [0.5, 0]], [[0.4, 0.4], [0, 0.5]], [[0, 0.9], [0, 0]]])
    found = head_divergences(map_of(weights))
    assert found[0, 1] == pytest.approx(math.log(2) / 2, abs=1e-6)
    assert found[0, 2] == found[1, 2] == pytest.approx(0.2157615, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.booleans(), st.integers(0, 99))
def test_divergences_are_symmetric_and_between_0_and_ln_2(length, causal, seed):
    found = head_divergences(random_map(length, causal=causal, seed=seed))
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()
    assert found.min() >= 0
    assert found.max() <= math.log(2) + 1e-6


def test_a_plane_finds_places_again_and_points_one_way():
    places = np.random.default_rng(0).normal(size=(7, 2))
    squared = ((places[:, None] - places) ** 2).sum(axis=-1)
    found, shown = plane(squared)
    again = ((found[:, None] - found) ** 2).sum(axis=-1)
    np.testing.assert_allclose(again, squared, atol=1e-9)
    assert shown == pytest.approx(1)
    for seed in range(5):
        places, _ = plane(head_divergences(random_map(6, seed=seed)))
        assert (places[abs(places).argmax(axis=0), [0, 1]] > 0).all()
    alike, shown = plane(np.zeros((3, 3)))
    assert (alike == 0).all()
    assert shown == 1


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_heads_have_places_too(count):
    squared = np.ones((count, count)) - np.eye(count)
    found, shown = plane(squared)
    assert found.shape == (count, 2)
    assert np.isfinite(found).all()
    assert shown == pytest.approx(1)


def test_each_text_counts_the_same():
    one, two = random_map(4, seed=1), random_map(7, seed=2)
    study = SimilarityStudy()
    for item in (one, two):
        study.add(Attention((item,), Provenance("file", "made up"), "text"))
    expected = (head_divergences(one) + head_divergences(two)) / 2
    report = study.report()
    np.testing.assert_allclose(report.divergences, expected)
    assert report.heads[:2] == (("0", "0"), ("0", "1"))
    assert (report.texts, report.stream) == (2, one.stream)
    assert report.caption == "made up · self · 2 layers × 3 heads · mean over 2 texts"
    assert report.provenance == Provenance("file", "made up")


def test_heads_never_seen_together_have_no_divergence():
    item = map_of(np.stack([np.eye(2), np.zeros((2, 2)), np.eye(2)]))
    study = SimilarityStudy()
    study.add(Attention((item,), Provenance("file", "made up")))
    report = study.report()
    assert np.isnan(report.divergences).tolist() == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]
    assert np.isfinite(report.places).all()
    table = similarity_table(report, Display(width=80))
    assert "nan" not in table
    assert similarity_tsv(report).splitlines()[1].endswith("\t")
