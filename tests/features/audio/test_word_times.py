"""Times of words: dynamic time warping against a slow recursion, errors by hand."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import UsageError
from attnviz.features.audio.timed_words import TimedWord
from attnviz.features.audio.word_times import WordClock, first_frames, smooth_weights, timing_errors

TEXT = "red car"


def best_sum(scores: Any) -> float:
    """What the best path gathers, tried out from its end."""

    @cache
    def upto(row: int, frame: int) -> float:
        if row < 0 or frame < 0:
            return 0.0 if row == frame == -1 else -np.inf
        before = max(upto(row - 1, frame - 1), upto(row - 1, frame), upto(row, frame - 1))
        return before + float(scores[row, frame])

    return upto(scores.shape[0] - 1, scores.shape[1] - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 999))
def test_the_path_gathers_as_much_as_any_can(rows, frames, seed):
    scores = np.random.default_rng(seed).normal(size=(2, rows, frames))
    for one, first in zip(scores, first_frames(scores).tolist(), strict=True):
        assert first[0] == 0
        assert first == sorted(first)
        # Between two beginnings a row has every frame, or all but the one the next begins in.
        gathered = [
            max(row[a : b + 1].sum(), row[a:b].sum() if b > a else -np.inf)
            for row, (a, b) in zip(one, pairwise(first), strict=False)
        ]
        assert sum(gathered) + one[-1, first[-1] :].sum() == pytest.approx(best_sum(one))


def test_many_paths_are_what_each_is_by_itself():
    scores = np.random.default_rng(1).normal(size=(5, 4, 7))
    alone = [first_frames(one[None])[0] for one in scores]
    np.testing.assert_array_equal(first_frames(scores), alone)


def test_weights_are_standardised_then_smoothed():
    weights = np.random.default_rng(2).random((3, 12))
    weights[:, 4] = 0.5
    with np.errstate(invalid="ignore"):
        plain = (weights - weights.mean(0)) / weights.std(0)
    plain[:, 4] = 0  # every token looks at this frame alike
    mirrored = np.concatenate([plain[:, 3:0:-1], plain, plain[:, -2:-5:-1]], axis=1)
    slow = [[sorted(row[place : place + 7])[3] for place in range(12)] for row in mirrored]
    np.testing.assert_allclose(smooth_weights(weights, 7), slow, atol=1e-6)
    np.testing.assert_allclose(smooth_weights(weights[:, :3], 7), plain[:, :3], atol=1e-6)


def clock(against: str = "output", start: float = 0.0) -> WordClock:
    """Two words of three tokens over six frames; of two heads the second looks where it should."""
    queries = [Token("<s>", special=True), Token("red", 0, 3), Token("c", 4, 5), Token("ar", 5, 7)]
    weights = np.full((1, 2, 4, 6), 0.01)
    for row, frames in enumerate(([0, 1], [2, 3], [4], [5])):
        weights[0, 1, row, frames] = 0.9
    weights[0, 0, 0, 5] = 0.9
    keys = tuple(Token(f"{n}") for n in range(6))
    item = AttentionMap("cross", tuple(queries), keys, weights, key_side="recording")
    return WordClock(item, TEXT, 0.5, start, width=1, against=against)


def test_words_last_from_their_first_token():
    assert clock().word_times([(0, 1)]) == [TimedWord("red", 0, 1), TimedWord("car", 1, 2.5)]
    spoken = clock(start=3).word_times([(0, 1)])
    assert [(word.start, word.end) for word in spoken] == [(3, 4), (4, 5.5)]
    spoken = clock("input").word_times([(0, 1)])
    assert spoken == [TimedWord("red", 0, 2), TimedWord("car", 2, 3)]


def test_a_words_time_is_without_its_marks():
    pieces = [("'", 0, 1), ("no", 1, 3), ("!'", 3, 5), ("-", 6, 7), ("ice", 8, 11), ("'s", 11, 13)]
    tokens = (Token("<s>", special=True), *(Token(*piece) for piece in pieces))
    weights = np.full((1, 1, 7, 7), 0.01)
    weights[0, 0, range(7), range(7)] = 0.9
    keys = tuple(Token(f"{n}") for n in range(7))
    item = AttentionMap("cross", tokens, keys, weights, key_side="recording")
    spoken = WordClock(item, "'no!' - ice's", 1, width=1).word_times([(0, 0)])
    assert spoken == [TimedWord("'no!'", 1, 2), TimedWord("-", 3, 4), TimedWord("ice's", 4, 6)]


def test_weights_are_softmaxed_over_what_is_heard():
    rng = np.random.default_rng(3)
    item = clock().item
    logits = rng.normal(size=(1, 2, 5, 9))  # the last three frames are of padding
    all_frames = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    ended = (*item.query_tokens, Token("</s>", special=True))
    item = item.with_weights(all_frames[..., :6].astype("f4"), query_tokens=ended)
    heard = np.exp(logits[0, :, :, :6]) / np.exp(logits[0, :, :, :6]).sum(-1, keepdims=True)
    plain = (heard - heard.mean(1, keepdims=True)) / heard.std(1, keepdims=True)
    found = WordClock(item, TEXT, 0.5, width=1).scores([(0, 0), (0, 1)])
    np.testing.assert_allclose(found, plain[:, :4], atol=1e-5)


def test_few_words_choose_no_set_and_others_are_refused():
    true = [TimedWord("red", 0, 1), TimedWord("car", 1, 2.3)]
    asked, best, every = timing_errors(clock(), [(0, 1)], true)
    assert asked == every[0]
    assert best is None
    assert (asked.error, asked.start, asked.end) == pytest.approx((0.05, 0, 0.1))
    assert every[1].heads == [(0, 0)]
    assert every[1].error > asked.error
    with pytest.raises(UsageError, match="must have the same words"):
        timing_errors(clock(), [(0, 0)], [TimedWord("red", 0, 1)])
    late = [TimedWord("red", 0, 1), TimedWord("car", 1, 4)]
    with pytest.raises(UsageError, match="run from 0 to 4 s, and 0 to 3 s are heard"):
        timing_errors(clock(), [(0, 0)], late)


def many_words(count: int, good: int) -> tuple[WordClock, list[TimedWord]]:
    """Words of two frames each, under heads of which the first few look there, each with noise."""
    rng = np.random.default_rng(count)
    weights = 0.6 * rng.random((2, 6, count + 1, 2 * count), dtype="f4")
    rows, frames = np.arange(count), np.arange(2 * count).reshape(count, 2)
    weights.reshape(12, count + 1, -1)[:good, rows[:, None], frames] += 0.4
    text = " ".join("abcdefgh"[n % 8] * 2 for n in range(count))
    tokens = tuple(Token(text[n : n + 2], n, n + 2) for n in range(0, 3 * count, 3))
    keys = tuple(Token(f"{n}") for n in range(2 * count))
    marked = (Token("<s>", special=True), *tokens)
    item = AttentionMap("cross", marked, keys, weights, key_side="recording")
    true = [TimedWord(word, 2.0 * n, 2.0 * n + 2) for n, word in enumerate(text.split())]
    return WordClock(item, text, 1.0, width=1), true


def test_the_best_set_is_chosen_by_one_half_of_the_words():
    timer, true = many_words(40, good=3)
    asked, best, every = timing_errors(timer, [(0, 0), (1, 5)], true)
    assert best is not None
    assert 1 <= len(best.heads) <= 3
    assert {*best.heads} <= {(0, 0), (0, 1), (0, 2)}  # not one that is right by chance
    for one in (asked, best, *every):
        spoken = timer.word_times(one.heads)[20:]
        pairs = zip(spoken, true[20:], strict=True)
        off = [(abs(word.start - own.start), abs(word.end - own.end)) for word, own in pairs]
        assert (one.start, one.end) == pytest.approx(tuple(np.mean(off, axis=0)))
    timer, true = many_words(30, good=1)
    best = timing_errors(timer, [(0, 0)], true)[1]
    assert best is not None
    errors = []
    for head in best.heads:
        pairs = zip(timer.word_times([head])[:15], true[:15], strict=True)
        errors.append(sum(abs(a.start - b.start) + abs(a.end - b.end) for a, b in pairs))
    assert errors[0] == min(errors)
    assert max(errors) <= 2 * errors[0]
