"""What counts as a word, and how frequent it is."""

from collections import Counter

import numpy as np
import pytest

from attnviz.core.attention_map import Token
from attnviz.features.corpus.words import (
    CLASSES,
    RANKED,
    Vocabulary,
    WordCounts,
    classes_of,
    read_axis,
    split,
    vocabulary_of,
)


def words(text: str) -> list[str]:
    return [found[0] for found in split(text)]


def test_what_is_a_word_in_any_script(monkeypatch):
    assert words("Don't pay €5!") == ["Don", "'", "t", "pay", "€", "5", "!"]
    assert words("snake_case") == ["snake", "_", "case"]
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words("cafe\u0301 au lait") == ["cafe\u0301", "au", "lait"]
    monkeypatch.setattr("attnviz.analyses.words._icu", lambda: None)
    text = "我读书。 It's ไทย 42"
    assert words(text) == ["我", "读", "书", "。", "It", "'", "s", "ไ", "ท", "ย", "42"]
    assert all(text[start:end] == word for word, start, end in split(text))


def test_pieces_belong_to_the_word_that_they_lie_in():
    text = "Running, dogs"
    pieces = [("[CLS]", 0, 0), ("Run", 0, 3), ("##ning", 3, 7), (",", 7, 8), (" dogs", 8, 13)]
    tokens = [Token(*piece, special=piece[0][0] == "[") for piece in pieces]
    axis = read_axis(tokens, text)
    assert axis.words == ("[CLS]", "running", ",", "dogs")
    assert axis.groups.tolist() == [0, 1, 1, 2, 3]
    assert axis.starts.tolist() == [0, 1, 3, 4]
    assert axis.special.tolist() == [True, False, False, False]
    axis = read_axis([Token("A"), Token("A")], "")
    assert axis.words == ("a", "a")


def test_classes_go_by_rank_but_for_special_tokens():
    vocabulary = Vocabulary({f"w{rank}": rank for rank in range(RANKED)}, ())
    found = {
        word: CLASSES[vocabulary.class_of(word)]
        for word in ("w0", "w9", "w10", "w99", "w100", "w999", "w1000", "w9999", "new", ",", "€")
    }
    assert found == {
        "w0": "rank 1-10",
        "w9": "rank 1-10",
        "w10": "rank 11-100",
        "w99": "rank 11-100",
        "w100": "rank 101-1000",
        "w999": "rank 101-1000",
        "w1000": "rank 1001-10000",
        "w9999": "rank 1001-10000",
        "new": "rarer",
        ",": "punctuation",
        "€": "other",
    }
    axis = read_axis([Token("the", special=True), Token("the", 0, 3)], "the")
    found = classes_of(axis, Vocabulary({"the": 0}, ("the",)))
    assert [CLASSES[place] for place in found] == ["special", "rank 1-10"]


def test_counting_ignores_case_and_ranks_words():
    counts = WordCounts()
    for text in ("The cat.", "the dog, the end."):
        counts.add(text)
    vocabulary = counts.vocabulary()
    assert counts.words == 9
    assert list(vocabulary.ranks) == ["the", "cat", "dog", "end"]
    assert vocabulary.pair_words == ("the", ".", ",", "cat", "dog", "end")
    assert list(vocabulary_of([("b", 1), ("a", 1), ("c", 2)]).ranks) == ["c", "a", "b"]


@pytest.mark.parametrize("bucket", [50, 200])
def test_forgetting_rare_words_keeps_frequent_ones(bucket):
    drawn = np.random.default_rng(0).zipf(1.3, size=4000).clip(max=10**6)
    true = Counter(f"w{number}" for number in drawn.tolist())
    counts = WordCounts(bucket)
    for start in range(0, 4000, 7):
        counts.add(" ".join(f"w{number}" for number in drawn[start : start + 7]))
    counts._close_bucket()
    most = 4000 // bucket + 1
    for word, count in true.most_common(10):
        assert count <= counts._counts[word] <= count + most
    assert len(counts._counts) < len(true)


@pytest.mark.parametrize(("bucket", "kept"), [(4, []), (5, ["a", "b", "c", "d"])])
def test_a_full_bucket_forgets_what_came_once(bucket, kept):
    counts = WordCounts(bucket)
    counts.add("a b c d")
    assert list(counts.vocabulary().ranks) == kept
