"""Pieces joined into words: a word's share is the sum over its pieces, its row their mean.

Sums over the keys and means over the queries keep every row's sum. A word is a run of characters
between spaces, found by the pieces' offsets; no tokenizer's own idea of a word is asked, since they
disagree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.analyses.merge import Partition, merge
from attnviz.attention_map import Attention, AttentionMap, Token

_WORD = re.compile(r"\S+")


def split_words(text: str) -> tuple[Token, ...]:
    """The runs of characters between spaces, each with its place in the text."""
    return tuple(Token(found[0], found.start(), found.end()) for found in _WORD.finditer(text))


def word_numbers(
    tokens: Sequence[Token], text: str, words: Sequence[Token] | None = None
) -> list[int | None]:
    """For each token the number of the word it belongs to; None for a special token.

    A piece that is only a space, or covers nothing, belongs to the word after it (after the last
    word: to that one); a piece that runs over several words belongs to the first.

    Args:
        tokens: in the order of the text.
        text: what their offsets refer to.
        words: what counts as a word, in the order of the text; None: the runs between spaces.
    """
    ends = np.array([word.end for word in (split_words(text) if words is None else words)])
    numbers: list[int | None] = []
    for token in tokens:
        if token.special or not len(ends):
            numbers.append(None)
            continue
        covered = text[token.start : token.end]
        start = token.start + len(covered) - len(covered.lstrip())
        number = int(np.searchsorted(ends, start, side="right"))
        numbers.append(min(number, len(ends) - 1))
    return numbers


def merge_words(
    item: AttentionMap, query_text: str, key_text: str, words: Sequence[Token] | None = None
) -> AttentionMap:
    """The map over words; special tokens stay as they are, and rows keep their sums.

    Args:
        item: a map over pieces.
        query_text: what the query tokens' offsets refer to.
        key_text: what the key tokens' offsets refer to.
        words: what counts as a word of both texts; None: the runs between spaces.
    """
    queries = _partition(item.query_tokens, query_text, words)
    return merge(item, queries, _partition(item.key_tokens, key_text, words))


def merge_attention(attention: Attention) -> Attention:
    """Every map of an attention over words instead of pieces; what has no text stays."""
    texts = {"text": attention.text, "source": attention.source, "target": attention.target}
    maps = tuple(
        merge_words(item, texts.get(item.query_side) or "", texts.get(item.key_side) or "")
        for item in attention.maps
    )
    provenance = replace(
        attention.provenance, steps=(*attention.provenance.steps, "pieces joined into words")
    )
    return replace(attention, maps=maps, provenance=provenance)


def _partition(tokens: Sequence[Token], text: str, words: Sequence[Token] | None) -> Partition:
    words = split_words(text) if words is None else words
    merged: list[Token] = []
    groups: list[int] = []
    before: int | None = None
    for token, number in zip(tokens, word_numbers(tokens, text, words), strict=True):
        if number is None:
            merged.append(token)
        elif number != before or not merged:
            merged.append(words[number])
        before = number
        groups.append(len(merged) - 1)
    return Partition(tuple(merged), tuple(groups))
