"""The words of a corpus, their frequencies and their tokens.

A word is a run of letters, marks on letters and digits, cut where its script writes no spaces; any
other character stands for itself.
Words are compared without regard to case.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, within_one_text
from attnviz.analyses.words import cut_scripts, word_numbers
from attnviz.core.attention_map import Token
from attnviz.core.records import dataclass
from attnviz.features.measures.shares import is_mark

CLASSES = (
    *("special", "punctuation"),
    *("rank 1-10", "rank 11-100", "rank 101-1000", "rank 1001-10000", "rarer", "other"),
)
"""Classes of keys: special tokens, punctuation, words by their rank in the corpus (1: the most
frequent), and anything else (symbols, spaces)."""
PATCHES = ("special", "corner", "border", "inside")  # classes of keys in pictures
RANKED = 10_000  # rarer words are one class
PAIRED = 300  # most frequent words and marks whose pairs are counted, at most
_RANKS = (10, 100, 1_000, RANKED)
_FIRST_RANK = CLASSES.index("rank 1-10")
BUCKET = 1_000_000


@cache
def _pattern() -> re.Pattern[str]:
    points = (chr(code) for code in range(0x300, 0x1F000))
    marks = "".join(point for point in points if unicodedata.category(point)[0] == "M")
    return re.compile(rf"(?:[^\W_]|[{marks}])+|\S")


def split(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text and its punctuation marks, without spaces; where each starts and ends."""
    for match in _pattern().finditer(text):
        at = match.start()
        for piece, _ in [(match[0], False)] if match[0].isascii() else cut_scripts(match[0]):
            at = text.index(piece, at)
            yield piece, at, at + len(piece)
            at += len(piece)


def is_word(text: str) -> bool:
    return bool(text) and (text[0].isalnum() or unicodedata.category(text[0])[0] == "M")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The most frequent words of a corpus, and the classes of its keys."""

    ranks: Mapping[str, int]
    pair_words: tuple[str, ...]
    classes: tuple[str, ...] = CLASSES

    @property
    def pictures(self) -> bool:
        """Whether this is a corpus of pictures, which have no words."""
        return self.classes == PATCHES

    def class_of(self, word: str) -> int:
        """The class of a word or mark, as its place in `CLASSES`."""
        if is_word(word):
            rank = self.ranks.get(word, RANKED)
            return _FIRST_RANK + sum(rank >= limit for limit in _RANKS)
        return CLASSES.index("punctuation" if is_mark(Token(word)) else "other")


class WordCounts:
    """Word counts in bounded memory, by lossy counting.

    Rare words are dropped after every million words (Manku and Motwani 2002, Approximate frequency
    counts over data streams, section 4.2). A count is too high by at most one in a million words;
    up to a million words, counts are exact.
    """

    def __init__(self, bucket: int = BUCKET) -> None:
        self.words, self.bucket = 0, bucket
        self._counts: dict[str, int] = {}
        self._new: Counter[str] = Counter()
        self._in_bucket = self._buckets = 0

    def add(self, text: str) -> None:
        """Count the words of one text."""
        words = [word.lower() for word, *_ in split(text)]
        self._new.update(words)
        self.words += len(words)
        self._in_bucket += len(words)
        if self._in_bucket >= self.bucket:
            self._close_bucket()

    def _close_bucket(self) -> None:
        """Add the words of the bucket; drop those that occurred at most once in each bucket."""
        for word, count in self._new.items():
            # A dropped word may have occurred once in each earlier bucket.
            self._counts[word] = self._counts.get(word, self._buckets) + count
        self._buckets += self._in_bucket // self.bucket
        self._in_bucket = 0
        self._new.clear()
        self._counts = {word: n for word, n in self._counts.items() if n > self._buckets}

    def vocabulary(self) -> Vocabulary:
        """The most frequent words so far."""
        counts = {word: self._counts.get(word, self._buckets) + n for word, n in self._new.items()}
        return vocabulary_of({**self._counts, **counts}.items())


def vocabulary_of(counts: Iterable[tuple[str, int]]) -> Vocabulary:
    """The most frequent words and marks; equally frequent ones are sorted by spelling."""
    order = [word for word, _ in sorted(counts, key=lambda item: (-item[1], item[0]))]
    words = [word for word in order if is_word(word)]
    pair_words = [word for word in order if is_word(word) or is_mark(Token(word))]
    ranks = {word: rank for rank, word in enumerate(words[:RANKED])}
    return Vocabulary(ranks, tuple(pair_words[:PAIRED]))


@dataclass(frozen=True, slots=True, eq=False)
class WordAxis:
    """The words of one axis of a map; a special token is a word of its own."""

    words: tuple[str, ...]
    starts: NDArray[np.intp]
    special: NDArray[np.bool_]
    groups: NDArray[np.intp]


def read_axis(tokens: Sequence[Token], text: str) -> WordAxis:
    """Group tokens into the words of their text; without a text each token is a word."""
    if text:
        units = tuple(Token(*one) for one in split(text))
        numbers = word_numbers(tokens, text, units)
    else:
        units = tuple(tokens)
        numbers = [None if item.special else place for place, item in enumerate(tokens)]
    words, starts, special, groups = [], [], [], []
    before: int | None = None
    for place, (token, number) in enumerate(zip(tokens, numbers, strict=True)):
        if number is None or number != before:
            word = token.text.strip() if number is None else units[number].text.strip().lower()
            words.append(word)
            starts.append(place)
            special.append(token.special)
        before = number
        groups.append(len(words) - 1)
    return WordAxis(tuple(words), np.array(starts), np.array(special), np.array(groups))


def classes_of(axis: WordAxis, vocabulary: Vocabulary) -> NDArray[np.intp]:
    """The class of each token, as its place in `vocabulary.classes`."""
    class_of = vocabulary.class_of
    if vocabulary.pictures:
        patches = {
            word: tuple(map(int, word.split(",")))
            for word, special in zip(axis.words, axis.special.tolist(), strict=True)
            if not special
        }
        last = max(patches.values())

        def class_of(word: str) -> int:
            edges = (at in (0, end) for at, end in zip(patches[word], last, strict=True))
            return len(PATCHES) - 1 - sum(edges)

    of_words = [
        CLASSES.index("special") if special else class_of(word)
        for word, special in zip(axis.words, axis.special.tolist(), strict=True)
    ]
    return np.array(of_words)[axis.groups]


@dataclass(frozen=True, slots=True, eq=False)
class InWords:
    """A map over the words of its two axes."""

    queries: WordAxis
    keys: WordAxis
    weights: NDArray[np.floating]  # shape (layers · heads, query words, key words)
    # True if a query word can attend to a key word other than itself, (query words, key words)
    between: NDArray[np.bool_]


def in_words(subject: MeasuredMap, queries: WordAxis, keys: WordAxis) -> InWords:
    """A map summed over the tokens of each key word, and averaged over those of each query word."""
    item = subject.item
    weights: NDArray[np.floating] = item.weights.reshape(-1, *item.weights.shape[2:])
    visible = subject.visible.any(axis=0)
    if len(keys.starts) < len(item.key_tokens):
        weights = np.add.reduceat(weights, keys.starts, axis=-1)
        visible = np.logical_or.reduceat(visible, keys.starts, axis=-1)
    if len(queries.starts) < len(item.query_tokens):
        sizes = np.diff([*queries.starts, len(item.query_tokens)]).astype(np.float32)
        weights = np.add.reduceat(weights, queries.starts, axis=-2) / sizes[:, None]
        visible = np.logical_or.reduceat(visible, queries.starts, axis=-2)
    between = visible & ~queries.special[:, None] & ~keys.special
    if within_one_text(item):
        np.fill_diagonal(between, val=False)
    return InWords(queries, keys, weights, between)
