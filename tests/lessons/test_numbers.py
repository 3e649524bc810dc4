"""What each lesson claims, against loops and numbers worked out apart from the package."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from attnviz.core.errors import InputError, UsageError
from attnviz.teach.lessons.distance import positions
from attnviz.teach.lessons.linear import linear, peak
from attnviz.teach.lessons.masks import masking
from attnviz.teach.lessons.softmax import scaling


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_wave_lengths_are_those_of_the_paper(size: int) -> None:
    expected = [2 * math.pi * 10000 ** (2 * pair / size) for pair in range((size + 1) // 2)]
    assert positions(10, size).column("wave_length") == pytest.approx(expected, rel=1e-5)


def test_turns_are_what_the_last_position_has_turned() -> None:
    lesson = positions(101, 4)
    assert lesson.column("turns") == pytest.approx([100 / (2 * math.pi), 1 / (2 * math.pi)])
    assert lesson.column("columns") == ("0 1", "2 3")
    assert lesson.rows[0][-1] == f"{math.sin(100):+.2f} {math.cos(100):+.2f}"


def test_the_dot_product_by_distance_is_a_sum_of_cosines() -> None:
    gap_two = sum(math.cos(2 / 10000 ** (2 * pair / 8)) for pair in range(4))
    assert f"{gap_two:.2f} at 2" in positions(16, 8).explanation[2]


def test_an_odd_size_ends_on_a_lone_sine() -> None:
    lesson = positions(4, 5)
    assert lesson.column("columns") == ("0 1", "2 3", "4")
    assert "the lone last column left out" in lesson.explanation[2]


@pytest.mark.parametrize(("length", "size"), [(1, 4), (4, 0), (4096, 4)])
def test_positions_that_cannot_be_told_apart_or_drawn_are_refused(length: int, size: int) -> None:
    with pytest.raises(UsageError, match="is outside"):
        positions(length, size)


def test_scaling_keeps_the_entropy_while_without_it_one_key_takes_all() -> None:
    lesson = scaling()
    flat = lesson.column("scaled_entropy")[1:]
    falling = lesson.column("unscaled_entropy")
    assert max(flat) - min(flat) < 0.1
    assert all(later < earlier for earlier, later in itertools.pairwise(falling))
    assert falling[-1] < 0.05 * math.log(64)
    assert lesson.column("unscaled_largest")[-1] > 0.9 > 0.2 > lesson.column("scaled_largest")[-1]


def test_a_score_spreads_as_the_root_of_the_head_size() -> None:
    lesson = scaling(seed=3)
    for size, spread in zip(lesson.column("head_size"), lesson.column("score_spread"), strict=True):
        assert spread == pytest.approx(math.sqrt(size), rel=0.2)


def test_a_head_of_one_feature_is_the_same_scaled_or_not() -> None:
    _, _, *measured = scaling().rows[0]
    assert measured[0] == measured[1]
    assert measured[2] == measured[3]


def test_one_row_of_scaling_agrees_with_a_loop() -> None:
    random = np.random.default_rng(0)
    queries, keys = random.standard_normal((512, 1)), random.standard_normal((64, 1))
    entropies, largest = [], []
    for query in queries:
        exponentials = [math.exp(float(query @ key)) for key in keys]
        weights = [value / sum(exponentials) for value in exponentials]
        entropies.append(-sum(weight * math.log(weight) for weight in weights))
        largest.append(max(weights))
    row = scaling(seed=0).rows[0]
    assert row[2] == pytest.approx(np.mean(entropies))
    assert row[4] == pytest.approx(np.mean(largest))


def test_masking_leaves_the_last_query_alone_and_the_first_with_itself() -> None:
    lesson = masking("one two three four")
    assert lesson.column("query") == ("one", "two", "three", "four")
    assert lesson.rows[0][2] == 0
    assert lesson.rows[0][4] == "one"
    assert lesson.rows[-1][1] == pytest.approx(lesson.rows[-1][2])
    assert lesson.rows[-1][-1] == pytest.approx(1)


def test_the_share_not_hidden_stretches_the_full_row_into_the_causal_one() -> None:
    from attnviz.models.own import SeededEmbedding, split_words

    embedding = SeededEmbedding(5, 8)
    inputs = embedding.embed(split_words("a b c"))
    query, key = (inputs @ embedding.projection(name) for name in ("query", "key"))
    exponentials = [math.exp(float(query[1] @ key[k]) / math.sqrt(8)) for k in range(3)]
    left = (exponentials[0] + exponentials[1]) / sum(exponentials)
    shares = [value / sum(exponentials[:2]) for value in exponentials[:2]]
    row = masking("a b c", size=8, seed=5).rows[1]
    assert row[-1] == pytest.approx(left)
    assert row[2] == pytest.approx(-sum(share * math.log(share) for share in shares))


def test_masking_of_nothing_is_refused() -> None:
    with pytest.raises(InputError):
        masking("  ")


def test_linear_measures_every_doubling_up_to_the_length() -> None:
    lesson = linear(length=300, size=8)
    assert lesson.column("length") == (75, 150, 300)
    assert all(value > 0 for row in lesson.rows for value in row)


def test_standard_memory_grows_with_the_square_and_linear_memory_with_the_length() -> None:
    lesson = linear(length=1024, size=32)
    standard, short = (lesson.column(f"{kind}_memory_bytes") for kind in ("standard", "linear"))
    assert standard[-1] / standard[-2] == pytest.approx(4, rel=0.1)
    assert short[-1] / short[-2] == pytest.approx(2, rel=0.1)
    assert standard[-1] >= 1024 * 1024 * 4


def test_peak_memory_counts_what_is_held_at_once() -> None:
    def run() -> None:
        for _ in range(3):
            np.ones(100_000)

    assert 800_000 <= peak(run) < 900_000


@pytest.mark.parametrize("length", [1, 63, 10**6])
def test_a_length_that_cannot_be_measured_is_refused(length: int) -> None:
    with pytest.raises(UsageError, match="--length"):
        linear(length)
