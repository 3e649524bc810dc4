"""Intervals of means against scipy, and by simulation."""

import numpy as np
import pytest

from attnviz.features.measures.intervals import intervals, student

stats = pytest.importorskip("scipy.stats", reason="pip install -e '.[dev]'")
pytestmark = pytest.mark.slow


def ends_of(values: np.ndarray) -> np.ndarray:
    """The ends of the interval of each row of values, shape (rows, 2)."""
    mean = values.mean(axis=1)
    apart = values - mean[:, None]
    count = np.full(len(values), values.shape[1])
    found = intervals(count, mean, (apart**2).sum(axis=1), (apart**3).sum(axis=1))
    return np.stack(found, axis=-1)


def test_quantiles_and_intervals_without_skew_are_students():
    freedom = np.arange(1, 300)
    expected = stats.t.ppf(0.975, freedom)
    assert student(freedom) == pytest.approx(expected, rel=1.5e-4)
    for size in (2, 3, 4, 40):
        half = np.random.default_rng(size).normal(size=size // 2)
        values = np.concatenate([half, -half, np.zeros(size % 2)]) + 3
        expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert ends_of(values[None])[0] == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("draw", ["exponential", "standard_gamma", "random"])
def test_the_interval_is_that_of_scipys_bootstrap(draw):
    generator = np.random.default_rng(0)
    shape = (0.4,) if draw == "standard_gamma" else ()
    values = getattr(generator, draw)(*shape, size=400)
    found = ends_of(values[None])[0]
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=9999, method="BCa", random_state=generator, batch=500
    ).confidence_interval
    width = expected.high - expected.low
    assert found == pytest.approx((expected.low, expected.high), abs=0.04 * width)
    # A percentile less than this far from the middle would be Student's, which leans to no side.
    middle = (found.sum() / 2 - values.mean()) / width
    assert middle > 0.02 or draw == "random"


def test_intervals_cover_what_they_promise():
    values = np.random.default_rng(1).beta(8, 1, size=(6000, 30))
    low, high = ends_of(values).T
    assert 0.935 <= ((low <= 8 / 9) & (high >= 8 / 9)).mean() <= 0.965
    mirrored = ends_of(1 - values)
    assert mirrored == pytest.approx(1 - np.stack([high, low], axis=-1))
    assert np.isnan(ends_of(np.array([[0.5]]))).all()
    assert ends_of(np.full((1, 5), 0.25)).tolist() == [[0.25, 0.25]]
    assert np.isfinite(ends_of(np.array([[0.0, 0, 0, 1], [1e-9, 0, 0, 0]]))).all()
