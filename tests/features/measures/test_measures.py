"""Every measure against a slow loop over its definition, by hand, and by properties."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.analyses.heads import measure_heads
from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.sinks import sinks_of
from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import Role
from attnviz.features.heads.probes import WORDS as WORDS_TO_REPEAT
from attnviz.features.heads.probes import repeated_words
from attnviz.features.measures.shares import repetition
from tests.analyses.heads import even_rows, map_of, random_map, says, tokens

WORDS = "[CLS] the cat , the dog ran [SEP]"
SCORED = (
    *("score-max", "score-mean", "score-std", "saturated", "log-sum-exp", "query-norm"),
    *("key-norm", "value-norm", "sink-value", "massive"),
)
BY_HAND = (
    *("induction", "duplicate", "patch-distance", "distant", "receiver", "lookback", "same-group"),
    "kv-likeness",
    *SCORED,
)
"""Measures without a loop in `definitions`: of repeated and long texts below, of pictures in
test_patch_distance.py, of sentences and of what a model wrote in test_roles.py, of named groups in
test_group.py, of heads that share keys in test_projections.py, and of scores in test_scores.py here
and of models."""


SUMS = {"mass", "empty"}
"""Measures that say something only where rows do not sum to 1."""


def value(item: AttentionMap, name: str) -> float:
    return float(measure_heads(item)[name].values[0, 0])


def even(item: AttentionMap, name: str) -> float:
    uniform = measure_heads(item)[name].uniform
    assert uniform is not None
    return float(uniform[0, 0])


def mean_over(rows: list[float]) -> float:
    return sum(rows) / len(rows)


def loop_shares(weights: np.ndarray, visible: np.ndarray, target: Callable[[int, int], bool]):
    """Mean, over the rows that can see a target, of what they give to targets."""
    found = []
    for query in range(len(weights)):
        hits = [key for key in range(len(weights)) if target(query, key)]
        if any(visible[query, key] for key in hits):
            found.append(sum(float(weights[query, key]) for key in hits))
    return mean_over(found)


def definitions(words: list[str]) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
    """Each measure as its defining loop over one head's weights and what is visible."""
    special = [word.startswith("[") for word in words]
    length = len(words)

    def entropies(weights: np.ndarray) -> list[float]:
        return [-sum(a * math.log(a) for a in row if a > 0) for row in shares(weights) if row]

    def shares(weights: np.ndarray) -> list[list[float]]:
        """Rows made to sum to 1; none of a row of zeros."""
        return [[a / sum(row) for a in row] if sum(row) else [] for row in weights.tolist()]

    def sinks(weights: np.ndarray, visible: np.ndarray) -> float:
        scores = [
            weights[visible[:, key], key].sum() / visible[:, key].sum()
            for key in range(length)
            if 2 * visible[:, key].sum() >= length
        ]
        return float(max(scores))

    def share(target: Callable[[int, int], bool]):
        return lambda weights, visible: loop_shares(weights, visible, target)

    return {
        "entropy": lambda weights, _: mean_over(entropies(weights)),
        "relative-entropy": lambda weights, visible: mean_over(
            [
                entropies(weights[row : row + 1])[0] / math.log(visible[row].sum())
                for row in range(length)
                if visible[row].sum() > 1 and weights[row].any()
            ]
        ),
        "span": lambda weights, _: mean_over([math.exp(x) for x in entropies(weights)]),
        "confidence": lambda weights, _: mean_over([max(row[:-1]) for row in weights.tolist()]),
        "distance": lambda weights, _: mean_over(
            [
                sum(a * abs(i - j) for j, a in enumerate(row))
                for i, row in enumerate(shares(weights))
                if row
            ]
        ),
        "offset": lambda weights, _: mean_over(
            [
                sum(a * (j - i) for j, a in enumerate(row))
                for i, row in enumerate(shares(weights))
                if row
            ]
        ),
        "previous-token": lambda weights, _: (
            sum(weights[i, i - 1] for i in range(1, length)) / (length - 1)
        ),
        "next-token": lambda weights, _: (
            sum(weights[i, i + 1] for i in range(length - 1)) / (length - 1)
        ),
        "self": lambda weights, _: sum(weights[i, i] for i in range(length)) / length,
        "same-token": share(
            lambda i, j: i != j and words[i] == words[j] and not special[i] and not special[j]
        ),
        "first-token": lambda weights, _: mean_over([weights[i, 0] for i in range(1, length)]),
        "special-token": share(lambda _, j: special[j]),
        "punctuation": share(lambda _, j: words[j] in ",."),
        "sink": sinks,
        "informative": lambda weights, visible: says(weights, visible, words, lambda i, j: j - i),
        "mass": lambda weights, _: mean_over([sum(row) for row in weights.tolist()]),
        "empty": lambda weights, _: float(sum(not sum(row) for row in weights.tolist())),
    }


@pytest.mark.parametrize("causal", [False, True])
def test_every_measure_is_its_defining_loop(causal):
    words = WORDS.split()
    drawn = random_map(len(words), causal=causal)
    item = map_of(drawn.weights, WORDS, drawn.stream)
    measures = measure_heads(item, repeated=False)
    visible = np.tri(len(words), dtype=bool) if causal else np.ones((len(words),) * 2, dtype=bool)
    loops = definitions(words)
    assert set(measures) == set(loops) - ({"next-token"} if causal else set()) - SUMS
    for name, measure in measures.items():
        for layer, heads in enumerate(item.weights.astype(np.float64)):
            for head, weights in enumerate(heads):
                expected = loops[name](weights, visible)
                assert measure.values[layer, head] == pytest.approx(expected, abs=1e-6), name
        assert measure.uniform is not None
        assert measure.uniform[0, 0] == pytest.approx(loops[name](even_rows(visible), visible))
    weights = drawn.weights * np.random.default_rng(1).uniform(0.05, 0.9, (2, 3, 8, 1))
    weights[1, 2, [4, 6]] = 0
    item = map_of(weights, WORDS, drawn.stream)
    measures = measure_heads(item, repeated=False)
    for name, measure in measures.items():
        for layer, head in np.ndindex(2, 3):
            expected = loops[name](item.weights[layer, head].astype(np.float64), visible)
            assert measure.values[layer, head] == pytest.approx(expected, abs=1e-6), name
    assert measures["empty"].values.tolist() == [[0, 0, 0], [0, 0, 2]]
    assert (measures["mass"].values < 0.8).all()
    assert set(measures) >= SUMS
    plain = measure_heads(drawn)
    for name in ("entropy", "relative-entropy", "span", "distance", "offset"):
        of_head, before = measures[name].values[0, 0], plain[name].values[0, 0]
        assert of_head == pytest.approx(before, abs=1e-5), name


def test_rows_that_attend_to_little_or_nothing():
    item = map_of(np.full((12, 12), 0.1 / 12))
    assert value(item, "entropy") == pytest.approx(math.log(12))
    assert value(item, "relative-entropy") == pytest.approx(1)
    assert value(item, "span") == pytest.approx(12)
    assert value(item, "mass") == pytest.approx(0.1)
    assert even(item, "mass") == 1
    assert "empty" not in measure_heads(item)
    weights = np.stack([np.eye(3), np.zeros((3, 3))])
    measures = measure_heads(map_of(weights))
    assert measures["empty"].values.tolist() == [[0, 3]]
    assert measures["mass"].values.tolist() == [[1, 0]]
    for name in ("entropy", "relative-entropy", "span", "distance", "offset"):
        assert np.isnan(measures[name].values).tolist() == [[False, True]], name


def test_every_measure_stays_between_its_ends():
    item = map_of(random_map(9).weights, "a b c d [x] a b c d")
    for name, measure in measure_heads(item).items():
        assert measure.name == name
        assert measure.low
        assert measure.high
        lowest = -measure.top if name == "offset" else 0
        assert (measure.values >= lowest).all()
        assert (measure.values <= measure.top + 1e-6).all()
        assert measure.uniform is not None
        assert measure.values.shape == measure.uniform.shape == (2, 3)


def test_the_token_before_and_after():
    weights = np.eye(5, k=-1)
    weights[0, 0] = 1
    item = map_of(weights)
    assert value(item, "previous-token") == 1
    assert value(item, "next-token") == 0
    assert even(item, "previous-token") == pytest.approx(0.2)
    assert "next-token" not in measure_heads(random_map(5, causal=True))


def test_rows_and_ends_that_count_in_no_mean():
    bare = random_map(4, layers=1, heads=1)
    padded = np.zeros((1, 1, 6, 6))
    padded[..., :4, :4] = bare.weights
    without = measure_heads(bare)
    for name, measure in measure_heads(map_of(padded)).items():
        assert measure.values == pytest.approx(without[name].values, abs=1e-6), name
        assert measure.uniform == pytest.approx(without[name].uniform), name
    weights = [[0.1, 0.2, 0.7]] * 3
    assert value(map_of(weights, "a b [end]"), "confidence") == pytest.approx(0.2)
    assert value(map_of(weights, "a b c"), "confidence") == pytest.approx(0.7)
    assert value(map_of([[1.0]], "[end]"), "confidence") == 1


def test_the_first_row_of_a_causal_map():
    lower = np.tri(3) / np.tri(3).sum(axis=1, keepdims=True)
    item = map_of(lower, stream="causal")
    assert value(item, "entropy") == pytest.approx((math.log(2) + math.log(3)) / 3)
    assert even(item, "entropy") == pytest.approx((math.log(2) + math.log(3)) / 3)
    assert value(item, "relative-entropy") == pytest.approx(1)
    weights = [[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.4, 0.4]]
    assert value(map_of(weights, stream="causal"), "first-token") == pytest.approx(0.35)


def test_a_sink_by_hand():
    weights = [[1.0, 0, 0, 0], [0.1, 0.9, 0, 0], [0.1, 0.8, 0.1, 0], [0.0, 0.7, 0.2, 0.1]]
    item = map_of(weights, stream="causal")
    assert value(item, "sink") == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert value(map_of([[1.0, 0], [0.25, 0.75]], stream="causal"), "sink") == 0.75
    weights = np.eye(6)
    weights[3, [0, 3]] = 0.75, 0.25
    weights[4:, 3:] = 0.5, 0.5, 0
    # Of six rows three see the fourth key; two see the fifth, and each gives it half.
    assert value(map_of(weights, stream="causal"), "sink") == pytest.approx(5 / 12)
    length = 10
    to_first = np.zeros((length, length))
    to_first[:, 0] = 1
    spread = np.full((length, length), 0.1)
    found = sinks_of(MeasuredMap(map_of(np.stack([to_first, spread])[None]))).mean(axis=(0, 1))
    assert found.tolist() == [0.5] + [0.0] * 9
    assert not sinks_of(MeasuredMap(map_of(np.eye(2)))).any()
    near = np.tri(6) - np.tri(6, k=-3)
    weights = np.stack([near / near.sum(1, keepdims=True), np.tri(6) / np.tri(6).sum(1)[:, None]])
    found = measure_heads(map_of(weights[:, None], stream="causal"))["sink"].values
    # Of a window of three keys the first is seen by three rows, and gets 1, a half and a third.
    first = (1 + 1 / 2 + 1 / 3) / 3
    assert found.ravel() == pytest.approx([first, (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 6])


@pytest.mark.parametrize("start", ["", "[bos] "])
def test_induction_shifts_with_a_start_token(start):
    length, shift = 5, 1 if start else 0
    words = start + "a b c d e a b c d e"
    size = 2 * length + shift
    weights = np.eye(size)
    for row in range(length, 2 * length):
        weights[row + shift] = 0
        weights[row + shift, row + shift - length + 1] = 0.8
        weights[row + shift, row + shift - length] = 0.2
    # The last token of the first copy lies on the same diagonal and repeats nothing.
    weights[length - 1 + shift, [shift, length - 1 + shift]] = 0.1, 0.9
    item = map_of(weights, words, stream="causal")
    assert value(item, "induction") == pytest.approx(0.8)
    assert value(item, "duplicate") == pytest.approx(0.2)
    chance = mean_over([1 / (row + shift + 1) for row in range(length, 2 * length)])
    assert even(item, "induction") == pytest.approx(chance)


@pytest.mark.parametrize("words", ["a b c d e f g h", "a b a b", "the cat sat the mat"])
def test_without_a_long_repetition_there_is_no_induction(words):
    assert repetition(tokens(words)) == ([], [])
    item = map_of(np.eye(len(words.split())), words)
    assert "induction" not in measure_heads(item)


def test_a_single_token_and_two_texts():
    queries, keys = tokens("a b"), tokens("b c [end]")
    weights = np.array([[[[0.5, 0.3, 0.2], [0.6, 0.2, 0.2]]]])
    item = AttentionMap("cross", queries, keys, weights, query_side="target", key_side="source")
    measures = measure_heads(item)
    assert not {"previous-token", "next-token", "self", "distance", "induction"} & set(measures)
    assert float(measures["same-token"].values[0, 0]) == pytest.approx(0.6)
    assert float(measures["first-token"].values[0, 0]) == pytest.approx(0.55)
    measures = measure_heads(map_of([[1.0]]))
    assert float(measures["entropy"].values[0, 0]) == 0
    assert "previous-token" not in measures


def test_what_cannot_be_measured_is_refused():
    signed = AttentionMap("self", tokens("a"), tokens("a"), np.zeros((1, 1, 1, 1)), values="signed")
    with pytest.raises(UsageError, match="can be negative"):
        measure_heads(signed)
    blocks = replace(random_map(4), blocks=(3, 3))
    with pytest.raises(InputError, match="blocks of 3 × 3 tokens"):
        measure_heads(blocks)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.booleans(), st.integers(0, 99))
def test_measuring_an_even_look_gives_its_own_baseline(length, causal, seed):
    item = random_map(length, causal=causal, seed=seed)
    flat = MeasuredMap(item).uniform[0, 0]
    for name, measure in measure_heads(map_of(flat, stream=item.stream)).items():
        assert measure.uniform is not None
        np.testing.assert_allclose(measure.values, measure.uniform, atol=1e-6, err_msg=name)


def test_repeated_words_are_the_same_for_a_seed():
    words = repeated_words(5).split()
    assert words[:5] == words[5:]
    assert len(set(words)) == 5
    assert repeated_words(5) == repeated_words(5, 0) != repeated_words(5, 1)
    assert len(repeated_words().split()) == 48
    assert set(repeated_words().split()) <= set(WORDS_TO_REPEAT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c d a b c d", ([4, 5, 6, 7], [0, 1, 2, 3])),
        ("a b c a b c", ([], [])),
        # One token of the first copy may differ, for it has no space before it, but not two.
        ("A b c d e a b c d e", ([6, 7, 8, 9], [1, 2, 3, 4])),
        ("x y b c d e ab b c d e", ([7, 8, 9, 10], [2, 3, 4, 5])),
        ("A B c d e f a b c d e f", ([], [])),
        ("a b c d e a b c d x", ([], [])),
    ],
)
def test_a_repetition_is_found_from_four_tokens_on(text, expected):
    assert repetition(tuple(map(Token, text.split()))) == expected


def test_copying_is_read_between_never_and_only():
    measures = measure_heads(map_of(np.tri(8), "a b c d a b c d", "causal"), repeated=True)
    ends = {name: (found.unit, found.low, found.high) for name, found in measures.items()}
    after, copy = "the token after the earlier copy", "the earlier copy of the token"
    assert ends == {
        "induction": ("share", f"never {after}", f"only {after}"),
        "duplicate": ("share", f"never {copy}", f"only {copy}"),
    }


@pytest.mark.parametrize("causal", [False, True])
def test_distant_is_the_share_beyond_64_tokens(causal):
    length = 70
    words = " ".join(["<s>", *(f"w{n}" for n in range(length - 1))])
    drawn = random_map(length, causal=causal)
    item = map_of(drawn.weights, words, drawn.stream)
    visible = np.tri(length, dtype=bool) if causal else np.ones((length, length), dtype=bool)

    def loop(weights):
        found = []
        for i in range(length):
            far = [j for j in range(1, length) if abs(i - j) > 64 and visible[i, j]]
            if far:
                found.append(sum(weights[i, j] for j in far))
        return mean_over(found)

    measure = measure_heads(item)["distant"]
    for layer, head in np.ndindex(*item.weights.shape[:2]):
        expected = loop(item.weights[layer, head].astype(np.float64))
        assert measure.values[layer, head] == pytest.approx(expected, abs=1e-6)
    assert measure.uniform[0, 0] == pytest.approx(loop(even_rows(visible)))
    assert "distant" not in measure_heads(map_of(random_map(8).weights, WORDS))


def test_each_measure_is_read_between_its_ends():
    item = map_of(random_map(8).weights, WORDS)
    found = {name: (m.unit, m.low, m.high, m.top) for name, m in measure_heads(item).items()}
    attends = "every query attends to one key"
    assert found == {
        "entropy": ("nats", attends, "uniform attention over all keys", math.log(8)),
        "relative-entropy": ("share", attends, "uniform attention over all keys", 1),
        "span": ("keys", attends, "uniform attention over as many keys", 8),
        "confidence": ("share", "no key stands out", "one key a row", 1),
        "informative": (
            "nats",
            "distance and popular keys explain all",
            "neither of them explains any word's look",
            math.log(8) + 1,
        ),
        "distance": ("tokens", "only itself", "only the far end", 7),
        "offset": ("tokens", "only the past", "only what follows", 7),
        "previous-token": ("share", "never the token before", "only the token before", 1),
        "next-token": ("share", "never the token after", "only the token after", 1),
        "self": ("share", "never itself", "only itself", 1),
        "same-token": ("share", "never the same token", "only other places of the same token", 1),
        "first-token": ("share", "never the first token", "only the first", 1),
        "special-token": ("share", "only text", "only special tokens", 1),
        "punctuation": ("share", "only words", "only punctuation", 1),
        "sink": ("share", "no key stands out", "one key gets all", 1),
    }


@pytest.mark.parametrize(("second", "top"), [([0.6, 0.9], 1.5), ([0.0, 0.0], 1.0)])
def test_the_mass_of_rows_and_empty_ones_by_hand(second, top):
    found = measure_heads(map_of([[[0.5, 0.25], [0.5, 0.5]], [[0.5, 0.5], second]]))
    mass = found["mass"]
    assert mass.values[0] == pytest.approx([0.875, (1 + sum(second)) / 2])
    assert (mass.unit, mass.low, mass.high) == (
        "share", "all attention is elsewhere", "none is elsewhere"
    )  # fmt: skip
    assert mass.top == pytest.approx(top)
    assert ("empty" in found) == (top == 1)
    if "empty" in found:
        empty = found["empty"]
        assert empty.values.tolist() == [[0.0, 1.0]]
        assert empty.uniform is not None
        assert empty.uniform.tolist() == [[0.0, 0.0]]
        assert (empty.unit, empty.low, empty.high, empty.top) == (
            "rows", "every row attends to something", "no row does", 2
        )  # fmt: skip


def test_a_role_is_told_by_how_far_its_share_lies_above_uniform_attention():
    assert [Role("self", share, 0.25).lift for share in (0.25, 0.625, 1.0)] == [0.0, 0.5, 1.0]
    assert Role("self", 1.0, 1.0).lift == 0.0
