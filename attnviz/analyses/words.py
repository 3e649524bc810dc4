"""Tokens joined into words or other groups: sums over a group's keys, means over its queries.

That keeps every row's sum and leaves it a share: what the words of a group, on average, give to all
words of another. Words are found by the tokens' offsets, since tokenizers disagree on what a word
is: runs of characters between spaces, and in pictures the punctuation at their ends apart. Scripts
that write no spaces between words are cut by ICU where it is installed, else into characters.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Token, check_single_tokens
from attnviz.core.notices import notify
from attnviz.core.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Partition:
    """Positions of an axis in groups: a token for each group, and each position's group."""

    tokens: tuple[Token, ...]
    groups: tuple[int, ...]


def merge(item: AttentionMap, queries: Partition, keys: Partition) -> AttentionMap:
    """The map over groups; a group's row sums to the mean of its rows' sums."""
    check_single_tokens(item, "grouping")
    shape = (*item.weights.shape[:2], len(queries.tokens), len(keys.tokens))
    if shape == item.weights.shape:  # each position is a group, in the order of positions
        return item.with_weights(item.weights, query_tokens=queries.tokens, key_tokens=keys.tokens)
    means = np.empty(shape, dtype=np.float32)
    for layer, weights in enumerate(item.weights):
        there = ~np.isnan(weights)
        sums = _sums(_sums(np.where(there, weights, 0), keys, -1), queries, -2)
        counts = np.bincount(queries.groups)[:, None].astype(np.float64)
        if not there.all():  # rows without a value count in no mean
            counts = _sums(_sums(there, keys, -1) > 0, queries, -2)
        means[layer] = np.where(counts, sums / np.maximum(counts, 1), np.nan)
    return item.with_weights(
        means, query_tokens=queries.tokens, key_tokens=keys.tokens, starts=(0, 0)
    )


def partition_of(tokens: Sequence[Token], numbers: Sequence[int | None], text: str) -> Partition:
    """A partition from a number for each position, in the order in which groups first appear."""
    members = members_of(numbers)
    groups = [0] * len(tokens)
    for group, positions in enumerate(members):
        for position in positions:
            groups[position] = group
    joint = (_together([tokens[position] for position in positions], text) for positions in members)
    return Partition(tuple(joint), tuple(groups))


def members_of(numbers: Sequence[int | None]) -> list[list[int]]:
    """The positions of each group, in order of first appearance; a None is a group of its own."""
    members: dict[int | tuple[int], list[int]] = {}
    for position, number in enumerate(numbers):
        members.setdefault((position,) if number is None else number, []).append(position)
    return [*members.values()]


def _together(tokens: Sequence[Token], text: str) -> Token:
    """One token for several: the text from the first to the last, and their common label."""
    if len(tokens) == 1:
        return tokens[0]
    start, end = min(token.start for token in tokens), max(token.end for token in tokens)
    spelling = " ".join(text[start:end].split()) or " ".join(token.text for token in tokens)
    labels = {token.label for token in tokens}
    label = labels.pop() if len(labels) == 1 else None
    return Token(spelling, start, end, label=label, kind=tokens[0].kind)


def _sums(values: NDArray[Any], partition: Partition, axis: int) -> NDArray[np.float64]:
    """Sums over the positions of each group along an axis."""
    order = np.argsort(partition.groups, kind="stable")
    starts = np.flatnonzero(np.diff(np.take(partition.groups, order), prepend=-1))
    return np.add.reduceat(values.take(order, axis), starts, axis=axis, dtype=np.float64)


_WORD = re.compile(r"\S+")


def split_words(text: str) -> tuple[Token, ...]:
    """The runs of characters between spaces, each with its place in the text."""
    return tuple(Token(match[0], match.start(), match.end()) for match in _WORD.finditer(text))


_UNSPACED = (
    "\u3005-\u3007\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u0e01-\u0e3a\u0e40-\u0e5b\u0e81-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"  # Burmese, Khmer
)
_JOINERS = "\u0300-\u036f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_WIDE = "\u3001-\u3003\u3008-\u301f\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff3d\uff5b-\uff65"
# A zero-width space (\u200b) is where Khmer, Thai and Lao may break: it belongs to no word.
_SCRIPTS = re.compile(rf"((?:[{_UNSPACED}][{_JOINERS}]*)+)|[{_WIDE}]+|[^{_UNSPACED}{_WIDE}\u200b]+")
_AFTER = {"\u0e33", "\u0eb3", "\u200c", "\u200d", "\uff9e", "\uff9f"}
"""Letters that are a part of the one before them, beside combining marks."""
BY_CHARACTER = (
    "each character counts as a word in Chinese, Japanese, Thai, Lao, Khmer and Burmese: "
    "pip install 'attnviz[words]' cuts them into words"
)


def cut_scripts(text: str) -> Iterator[tuple[str, bool]]:
    """A run without spaces in parts, and whether each is a word of a script that has no spaces."""
    for match in _SCRIPTS.finditer(text):
        if match[1]:
            yield from ((piece, True) for piece in _cut_unspaced(match[1]))
        else:
            yield match[0], False


@cache
def _icu() -> Callable[[str, str], Iterable[str]] | None:
    try:
        from icu4py.breakers import WordBreaker
    except ImportError:
        return None
    breaker: Callable[[str, str], Iterable[str]] = WordBreaker
    return breaker


def _cut_unspaced(run: str) -> list[str]:
    breaker = _icu()
    if breaker is not None:
        return [*breaker(run, "en")]  # its dictionaries go by script, not by language
    notify(BY_CHARACTER)
    pieces = [""]
    for letter in run:
        number = letter.isdecimal() and pieces[-1][-1:].isdecimal()
        if number or letter in _AFTER or category(letter)[0] == "M":
            pieces[-1] += letter
        else:
            pieces.append(letter)
    return [piece for piece in pieces if piece]


def split_marks(text: str) -> tuple[Token, ...]:
    """Words, with punctuation at their ends as separate words: "fast." becomes two."""
    parts: list[Token] = []
    for word in split_words(text):
        at = word.start
        for piece, whole in cut_scripts(word.text):
            at = text.index(piece, at)
            kinds = "".join("m" if category(letter)[0] == "P" else "w" for letter in piece)
            inner = {kinds.find("w"), kinds.rfind("w") + 1} if "w" in kinds else set()
            edges = {0, len(kinds)} if whole else {0, *inner, len(kinds)}
            parts += (
                Token(piece[start:end], at + start, at + end)
                for start, end in pairwise(sorted(edges))
            )
            at += len(piece)
    return tuple(parts)


def words_of(
    tokens: Sequence[Token], text: str, words: Sequence[Token] | None = None
) -> tuple[Token, ...]:
    """The words of a text, or its sentences: of those that share a token one is made.

    None holds a special token.
    """
    words = split_marks(text) if words is None else words
    pieces = [(first_character(one, text), one.end) for one in tokens if not one.special]
    spans = [(start, start + len(text[start:end].rstrip())) for start, end in pieces]
    firsts, lasts = np.array(spans, dtype=int).reshape(-1, 2).T
    first = np.searchsorted([word.end for word in words], firsts, side="right")
    last = np.searchsorted([word.start for word in words], lasts)
    continues = np.zeros(len(words), dtype=bool)  # to the word before
    for number in np.flatnonzero(last - first > 1):
        continues[first[number] + 1 : last[number]] = True
    groups = np.split(np.arange(len(words)), np.flatnonzero(~continues)[1:])
    spans = [(words[one[0]].start, words[one[-1]].end) for one in groups if one.size]
    return cut_at_special([Token(text[start:end], start, end) for start, end in spans], tokens)


def word_numbers(
    tokens: Sequence[Token], text: str, words: Sequence[Token] | None = None
) -> list[int | None]:
    """For each token the number of the word it belongs to; None for a special token.

    A piece that is only a space, or covers nothing, belongs to the word after it (after the last
    word, or before a special token: to the word before); a piece that runs over several words
    belongs to the first. A piece without a word between two special tokens has none, and so has a
    mask where nothing is written. Words are the
    runs between spaces unless others are given, in the order of the text.
    """
    words = split_words(text) if words is None else words
    starts, ends = (np.array([getattr(word, end) for word in words]) for end in ("start", "end"))
    next_special = [len(text) + 1] * len(tokens)
    for place in reversed(range(len(tokens) - 1)):
        after = tokens[place + 1]
        is_mark = after.special and after.end > after.start
        next_special[place] = after.start if is_mark else next_special[place + 1]
    numbers: list[int | None] = []
    begin = 0  # where the last special token in the text ends
    for token, stop in zip(tokens, next_special, strict=True):
        if token.special or token.is_unwritten or not len(ends):
            begin = max(begin, token.end if token.special else 0)
            numbers.append(None)
            continue
        number = int(np.searchsorted(ends, first_character(token, text), side="right"))
        number = min(number, int(np.searchsorted(starts, stop)) - 1, len(ends) - 1)
        numbers.append(number if number >= 0 and ends[number] > begin else None)
    return numbers


def cut_at_special(words: Sequence[Token], tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Words or sentences, cut where special tokens stand in the text, which are part of none."""
    marks = sorted({(one.start, one.end) for one in tokens if one.special and one.end > one.start})
    if not marks:
        return tuple(words)
    parts: list[Token] = []
    for word in words:
        inside = [(first, last) for first, last in marks if first < word.end and last > word.start]
        edges = [word.start, *(edge for mark in inside for edge in mark), word.end]
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            piece = word.text[max(first - word.start, 0) : max(last - word.start, 0)]
            if piece.strip():
                start = first + len(piece) - len(piece.lstrip())
                parts.append(Token(piece.strip(), start, start + len(piece.strip())))
    return tuple(parts)


def first_character(token: Token, text: str) -> int:
    """The place of the token's first character that is no space."""
    piece = text[token.start : token.end]
    return token.start + len(piece) - len(piece.lstrip())


def with_tokens(attention: Attention, by_side: Mapping[str, tuple[Token, ...]]) -> Attention:
    """The attention with other tokens on some sides; rows may be a part of a side's tokens."""

    def tokens_of(item: AttentionMap, axis: int, side: str, own: tuple[Token, ...]) -> Any:
        tokens = by_side.get(side, own)
        if len(tokens) == len(own):
            return tokens
        return tokens[item.starts[axis] : item.starts[axis] + len(own)]

    maps = (
        replace(
            item,
            query_tokens=tokens_of(item, 0, item.query_side, item.query_tokens),
            key_tokens=tokens_of(item, 1, item.key_side, item.key_tokens),
        )
        for item in attention.maps
    )
    return replace(attention, maps=tuple(maps))


def merge_words(
    item: AttentionMap, query_text: str, key_text: str, words: Sequence[Token] | None = None
) -> AttentionMap:
    """The map over words; special tokens stay, rows keep their sums, punctuation is a word."""
    sides = (item.query_tokens, query_text), (item.key_tokens, key_text)
    queries = word_partition(*sides[0], words)
    keys = queries if sides[0] == sides[1] else word_partition(*sides[1], words)
    return merge(item, queries, keys)


def merge_attention(attention: Attention) -> Attention:
    """Every map of an attention over runs between spaces, which is what a corpus numbers."""
    maps = []
    for item in attention.maps:
        sides = zip((item.query_tokens, item.key_tokens), attention.texts_of(item), strict=True)
        maps.append(merge(item, *(word_partition(*side, split_words(side[1])) for side in sides)))
    return attention.with_maps(tuple(maps), "pieces joined into words")


def word_partition(
    tokens: Sequence[Token], text: str, words: Sequence[Token] | None = None
) -> Partition:
    """The tokens of a text in words; special tokens stay, punctuation is a word."""
    words = words_of(tokens, text) if words is None else cut_at_special(words, tokens)
    has_places = any(token.end for token in tokens)  # else each token is a word
    numbers = word_numbers(tokens, text, words) if has_places else [None] * len(tokens)
    runs = partition_of(tokens, numbers, text)
    first = (numbers[run[0]] for run in members_of(numbers))
    pairs = zip(runs.tokens, first, strict=True)
    names = (t if at is None else replace(words[at], label=t.label, kind=t.kind) for t, at in pairs)
    return Partition(tuple(names), runs.groups)
