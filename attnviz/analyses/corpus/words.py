"""The words of a corpus: what counts as one, what tokens belong to it, how frequent it is.

A word is a run of letters, marks on letters and digits; any other character stands for itself.
Words are compared without regard to case.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.punctuation import is_mark
from attnviz.analyses.words import word_numbers
from attnviz.attention_map import Token

CLASSES = (
    *("special", "punctuation"),
    *("rank 1-10", "rank 11-100", "rank 101-1000", "rank 1001-10000", "rarer", "other"),
)
"""What a key can be: a special token, a punctuation mark, a word by how frequent it is in the
corpus (rank 1: the most frequent), or anything else (symbols, spaces)."""
RANKED = 10_000
PAIRED = 300
"""Pairs are counted between this many of the most frequent words and marks at most."""
_RANKS = (10, 100, 1_000, RANKED)
_FIRST_RANK = CLASSES.index("rank 1-10")


@cache
def _pattern() -> re.Pattern[str]:
    """A word, or a character that is neither of a word nor a space."""
    points = (chr(code) for code in range(0x300, 0x1F000))
    marks = "".join(point for point in points if unicodedata.category(point)[0] == "M")
    return re.compile(rf"(?:[^\W_]|[{marks}])+|\S")


def split(text: str) -> Iterator[re.Match[str]]:
    """The words and single other characters of a text, spaces aside."""
    return _pattern().finditer(text)


def is_word(text: str) -> bool:
    """True for a word, False for any other character."""
    return bool(text) and (text[0].isalnum() or unicodedata.category(text[0])[0] == "M")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The most frequent words of a corpus.

    Attributes:
        ranks: of the 10,000 most frequent words, from 0.
        paired: the 300 most frequent words and punctuation marks, the most frequent first.
    """

    ranks: Mapping[str, int]
    paired: tuple[str, ...]

    def class_of(self, word: str) -> int:
        """The class of what is no special token, as its place in `CLASSES`."""
        if is_word(word):
            rank = self.ranks.get(word, RANKED)
            return _FIRST_RANK + sum(rank >= bound for bound in _RANKS)
        return CLASSES.index("punctuation" if is_mark(Token(word)) else "other")


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of a map read in words; a special token is a word of its own.

    Attributes:
        words: what stands there, in order, in lower case.
        starts: the first token of each word.
        special: True for special tokens, one for each word.
        groups: the word of each token.
    """

    words: tuple[str, ...]
    starts: NDArray[np.intp]
    special: NDArray[np.bool_]
    groups: NDArray[np.intp]


def read_axis(tokens: Sequence[Token], text: str) -> Axis:
    """The words that tokens belong to.

    Args:
        tokens: of one axis.
        text: what their offsets refer to; of an empty one each token is a word of its own.
    """
    if text:
        units = tuple(Token(found[0], found.start(), found.end()) for found in split(text))
        numbers = word_numbers(tokens, text, units)
    else:
        units = tuple(tokens)
        numbers = [None if item.special else place for place, item in enumerate(tokens)]
    words, starts, special, groups = [], [], [], []
    before: int | None = None
    for place, (token, number) in enumerate(zip(tokens, numbers, strict=True)):
        if number is None or number != before:
            words.append((token if number is None else units[number]).text.strip().lower())
            starts.append(place)
            special.append(token.special)
        before = number
        groups.append(len(words) - 1)
    return Axis(tuple(words), np.array(starts), np.array(special), np.array(groups))


def classes_of(axis: Axis, vocabulary: Vocabulary) -> NDArray[np.intp]:
    """The class of each token, as its place in `CLASSES`."""
    of_words = [
        CLASSES.index("special") if special else vocabulary.class_of(word)
        for word, special in zip(axis.words, axis.special.tolist(), strict=True)
    ]
    return np.array(of_words)[axis.groups]
