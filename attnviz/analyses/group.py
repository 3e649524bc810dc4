"""Tokens in groups: words, sentences by a plain rule, or the groups that a file names.

A file of groups holds one a line, in the order of the text:

    the professor who supervised the student
    published
    @7-8,10

A line is a piece of the text that follows the piece before it, or @ with positions of tokens from
0. Other tokens stay single. For a pair, the groups of the source come first, then an empty line,
then those of the target. A name may stand before positions (camera: @0-15) or before a piece
(subject: the professor), unless the text holds the whole line. --group and --labels read the
same file: the one merges each group's tokens, the other writes its name beside them.

Of a part of a text (--rows, --window), positions still count from the text's first token, and
groups that lie elsewhere are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from attnviz.analyses import words
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import InputError, UsageError, did_you_mean
from attnviz.core.tokens import split_sentences

Group = str | tuple[int, ...]  # a piece of the text, or positions of tokens
NamedGroup = tuple[str, Group]

_POSITIONS = re.compile(r"@\s*\d{1,18}(-\d{1,18})?(\s*[,\s]\s*\d{1,18}(-\d{1,18})?)*\s*")
_NAME = re.compile(r"^[^@:]+:\s*(?=@)")
WAYS = ("words", "sentences")


class Axis(NamedTuple):
    """Tokens of a side, the number of the first in its text, and how many of it each stands for."""

    tokens: tuple[Token, ...]
    first: int = 0
    block: int = 1


WHOLE = Axis(())


def check_group(how: str | None) -> None:
    """Refuse a value of --group that is neither a way of grouping nor a file of groups."""
    if how is None or how in WAYS:
        return
    if not Path(how).exists():
        raise UsageError(
            f"unknown group '{how}': choose words, sentences or a file of groups."
            f"{did_you_mean(how, WAYS)}"
        )
    read_groups(Path(how))


def group_attention(attention: Attention, how: str) -> Attention:
    """Every map over groups; special tokens stay single, and rows keep their sums.

    The groups are "words", "sentences" or those in a file.

    Raises:
        InputError: the groups do not fit the text, or rows sum to more than 1.
    """
    lists = None if how in WAYS else read_groups(Path(how))

    def numbers(tokens: Sequence[Token], text: str, side: str) -> list[int | None]:
        if lists is None:
            spans = split_sentences(text) if how == "sentences" else None
            return words.word_numbers(tokens, text, words.words_of(tokens, text, spans))
        if len(lists) == 2 and side == "text":
            raise InputError(f"'{how}' groups a source and a target, but this is one text")
        if side == "target" and len(lists) == 1:
            return [None] * len(tokens)
        groups = [group for _, group in lists[side == "target"]]
        return group_numbers(tokens, text, groups, whole_axis(attention, side))

    def partition(item: AttentionMap, axis: int) -> words.Partition:
        side, tokens = _axis(item, axis)
        whole = whole_axis(attention, side)
        at_places, text = place_tokens(whole.tokens, attention.text_of(side))
        every = numbers(at_places, text, side)
        first = item.starts[axis] - whole.first
        own = every if len(every) == len(tokens) else every[first : first + len(tokens)]
        return words.partition_of(tokens, own, text)

    for item in attention.maps:
        if item.values == "share" and float(item.weights.sum(axis=-1).max()) > 1 + 1e-3:
            raise InputError(
                f"rows of stream '{item.stream}' sum to more than 1, as of a maximum or of a "
                "mechanism without a softmax: their tokens cannot be grouped"
            )
    maps = tuple(
        words.merge(
            item,
            partition(item, 0),
            partition(item, 1),
        )
        for item in attention.maps
    )
    # Effects were measured on links of single tokens, not of groups: leave them out.
    step = f"grouped by {how if how in WAYS else Path(how).name}"
    return attention.with_maps(maps, step).with_links(lambda _: None)


def name_tokens(attention: Attention, path: Path) -> Attention:
    """The tokens labelled with the names of their groups in a file; others keep their labels.

    A group without a name is named by its line.

    Raises:
        InputError: the groups do not fit the text.
    """
    lists = read_groups(path)
    by_side = dict[str, tuple[Token, ...]]()
    for side in {
        side: None for item in attention.maps for side in (item.query_side, item.key_side)
    }:
        if side == "target" and len(lists) == 1:
            continue
        rows, whole = lists[side == "target" and len(lists) == 2], whole_axis(attention, side)
        at_places, text = place_tokens(whole.tokens, attention.text_of(side))
        numbers = group_numbers(at_places, text, [group for _, group in rows], whole)
        by_side[side] = tuple(
            token if number is None else replace(token, label=rows[number][0])
            for token, number in zip(whole.tokens, numbers, strict=True)
        )
    return words.with_tokens(attention, by_side)


def whole_axis(attention: Attention, side: str) -> Axis:
    """The longest axis of a side: rows may be a part of it."""
    axes = (
        Axis(tokens, item.starts[axis], item.blocks[axis])
        for item in attention.maps
        for axis in (0, 1)
        for own, tokens in [_axis(item, axis)]
        if own == side
    )
    return max(axes, key=lambda one: len(one.tokens))


def _axis(item: AttentionMap, axis: int) -> tuple[str, tuple[Token, ...]]:
    pairs = (item.query_side, item.query_tokens), (item.key_side, item.key_tokens)
    return pairs[axis]


def place_tokens(tokens: tuple[Token, ...], text: str) -> tuple[tuple[Token, ...], str]:
    """The tokens with places in a text: the given one, or else their texts joined by spaces."""
    if text and any(token.end > token.start for token in tokens if not token.special):
        return tokens, text
    at_places, all_texts = [], ""
    for token in tokens:
        start = len(all_texts) + bool(all_texts)
        if not token.special:
            all_texts += f" {token.text}" if all_texts else token.text
        at_places.append(replace(token, start=start, end=len(all_texts)))
    return tuple(at_places), all_texts


def group_numbers(
    tokens: Sequence[Token], text: str, groups: Sequence[Group], axis: Axis = WHOLE
) -> list[int | None]:
    """The group of each token; None: it stays single. The axis says where the tokens begin."""
    numbers: list[int | None] = [None] * len(tokens)
    cursor = 0
    for number, group in enumerate(groups):
        if isinstance(group, str):
            members, cursor = _find(tokens, text, group, cursor, axis)
            if members is None and ":" in group:  # a name before the piece, no part of it
                members, cursor = _find(tokens, text, group.partition(":")[2], cursor, axis)
            if members is None:
                raise InputError(
                    f"group {number + 1}, '{group}', is not found in order in the text, "
                    "from the start of a token to the end of one"
                )
        else:
            members = [(position - axis.first) // axis.block for position in group]
            if axis.first:
                members = [place for place in members if 0 <= place < len(tokens)]
            for place in members:
                if place < len(tokens) and tokens[place].special:
                    raise InputError(
                        f"group {number + 1} names position {place + axis.first}, the special "
                        f"token '{tokens[place].text}', which stays on its own"
                    )
        if axis.block > 1:  # a block belongs to the first group that has a part in it
            members = [x for x in dict.fromkeys(members) if x >= len(tokens) or numbers[x] is None]
        spelt = group if isinstance(group, str) else "@" + ",".join(map(str, group))
        _claim(numbers, members, number, f"group {number + 1}, '{spelt}',")
    return numbers


def _find(
    tokens: Sequence[Token], text: str, piece: str, cursor: int, axis: Axis
) -> tuple[list[int] | None, int]:
    """The tokens of the next occurrence of a piece, and its end; None: there is none.

    Among blocks of tokens, and of a part of a text, those that lie in the piece are enough.
    """
    pattern = re.compile(r"\s+".join(map(re.escape, piece.split())))
    for match in pattern.finditer(text, cursor):
        start, end = match.span()
        inside = [
            position
            for position, token in enumerate(tokens)
            if not token.special and start <= words.first_character(token, text) < end
        ]
        if axis.first or axis.block > 1:
            return inside, end
        starts = inside and words.first_character(tokens[inside[0]], text) == start
        if starts and tokens[inside[-1]].end <= end:
            return inside, end
    return None, cursor


def _claim(numbers: list[int | None], members: Sequence[int], number: int, name: str) -> None:
    for position in members:
        if position >= len(numbers):
            raise InputError(
                f"{name} names position {position}, but there are {len(numbers)} tokens"
            )
        if numbers[position] is not None:
            raise InputError(f"{name} shares the token at position {position} with another group")
        numbers[position] = number


def read_groups(path: Path) -> list[list[NamedGroup]]:
    """The groups of one text, or of a source and a target, each with its name or its line."""
    from attnviz.storage.matrices import read_text

    lines = read_text(path).splitlines()
    texts = [
        [_named_group(line.strip(), f"line {number} of '{path}'") for number, line in rows]
        for has_text, rows in groupby(enumerate(lines, 1), lambda item: bool(item[1].strip()))
        if has_text
    ]
    if not texts:
        raise InputError(f"'{path}' names no group: write one a line")
    if len(texts) > 2:
        raise InputError(
            f"'{path}' holds {len(texts)} lists of groups between empty lines: "
            "one for a text, two for a source and a target"
        )
    return texts


def _named_group(line: str, where: str) -> NamedGroup:
    name, colon, piece = (part.strip() for part in line.partition(":"))
    if colon and not piece:
        raise InputError(f"{where} names no tokens: write camera: @0-15, or subject: the professor")
    return name.removeprefix("@") or line, _group(line, where)


def _group(line: str, where: str) -> Group:
    line = _NAME.sub("", line)
    if not line.startswith("@"):
        return line
    if not _POSITIONS.fullmatch(line):
        raise InputError(f"{where} is no list of positions: write @0-3,7")
    positions: list[int] = []
    for part in re.findall(r"\d+(?:-\d+)?", line):
        low, _, high = part.partition("-")
        last = int(high or low)
        if last < int(low) or last > 10_000_000:
            raise InputError(f"{where} has the positions {part}, which run backwards or too far")
        positions += range(int(low), last + 1)
    return tuple(positions)
