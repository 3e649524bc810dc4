"""How often each word of a corpus occurs, in bounded memory.

Lossy counting (Manku and Motwani 2002, Approximate frequency counts over data streams, section
4.2): words that cannot have occurred often are forgotten after every million words. A count is then
at most one in a million of all words too high, and a corpus of up to a million words is counted
exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attnviz.analyses.corpus.words import PAIRED, RANKED, Vocabulary, is_word, split
from attnviz.analyses.punctuation import is_mark
from attnviz.attention_map import Token

BUCKET = 1_000_000


class WordCounts:
    """Words counted text by text.

    Attributes:
        words: how many came by.
        bucket: after how many of them rare ones are forgotten.
    """

    def __init__(self, bucket: int = BUCKET) -> None:
        self.words, self.bucket = 0, bucket
        self._kept: dict[str, int] = {}
        self._new: Counter[str] = Counter()
        self._in_bucket = self._buckets = 0

    def add(self, text: str) -> None:
        """Count the words of one more text."""
        before = self.words
        found = [match[0].lower() for match in split(text)]
        self._new.update(found)
        self.words += len(found)
        self._in_bucket += self.words - before
        if self._in_bucket >= self.bucket:
            self._close_bucket()

    def _close_bucket(self) -> None:
        """Add the bucket's words, and forget those that so far came at most once a bucket."""
        for word, count in self._new.items():
            # What was forgotten may have occurred once in each bucket before.
            self._kept[word] = self._kept.get(word, self._buckets) + count
        self._buckets += self._in_bucket // self.bucket
        self._in_bucket = 0
        self._new.clear()
        self._kept = {word: count for word, count in self._kept.items() if count > self._buckets}

    def vocabulary(self) -> Vocabulary:
        """The most frequent words; equally frequent ones in the order of their spelling."""
        counts = {word: self._kept.get(word, self._buckets) + n for word, n in self._new.items()}
        return vocabulary_of({**self._kept, **counts}.items())


def vocabulary_of(counts: Iterable[tuple[str, int]]) -> Vocabulary:
    """The most frequent of counted words and marks; equally frequent ones by their spelling."""
    order = [word for word, _ in sorted(counts, key=lambda item: (-item[1], item[0]))]
    words = [word for word in order if is_word(word)]
    paired = [word for word in order if is_word(word) or is_mark(Token(word))]
    ranks = {word: rank for rank, word in enumerate(words[:RANKED])}
    return Vocabulary(ranks, tuple(paired[:PAIRED]))
