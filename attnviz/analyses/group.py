"""Tokens in groups: words, sentences by a plain rule, or the groups that a file names.

A file of groups holds one a line, in the order of the text:

    the professor who supervised the student
    published
    @7-8,10

A line is a piece of the text that follows the piece before it, or @ with positions of tokens from
0. Other tokens stay single. For a pair, the groups of the source come first, then an empty line,
then those of the target. A name may stand before positions (camera: @0-15) or before a piece
(subject: the professor), unless the text holds the whole line. In a file of named groups
(`name_tokens`) it stands before every line.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from attnviz.analyses import words
from attnviz.core.attention_map import Attention, Token
from attnviz.core.errors import InputError, UsageError, did_you_mean
from attnviz.core.tokens import split_sentences

Group = str | tuple[int, ...]  # a piece of the text, or positions of tokens

_POSITIONS = re.compile(r"@\s*\d{1,18}(-\d{1,18})?(\s*[,\s]\s*\d{1,18}(-\d{1,18})?)*\s*")
_NAME = re.compile(r"^[^@:]+:\s*(?=@)")
Read = TypeVar("Read")
WAYS = ("words", "sentences")


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
        return group_numbers(tokens, text, lists[side == "target"])

    def partition(tokens: tuple[Token, ...], side: str) -> words.Partition:
        at_places, text = place_tokens(tokens, attention.text_of(side))
        return words.partition_of(tokens, numbers(at_places, text, side), text)

    for item in attention.maps:
        if item.values == "share" and float(item.weights.sum(axis=-1).max()) > 1 + 1e-3:
            raise InputError(
                f"rows of stream '{item.stream}' sum to more than 1, as of a maximum or of a "
                "mechanism without a softmax: their tokens cannot be grouped"
            )
    maps = tuple(
        words.merge(
            item,
            partition(item.query_tokens, item.query_side),
            partition(item.key_tokens, item.key_side),
        )
        for item in attention.maps
    )
    # Effects were measured on links of single tokens, not of groups: leave them out.
    step = f"grouped by {how if how in WAYS else Path(how).name}"
    return attention.with_maps(maps, step).with_links(lambda _: None)


def name_tokens(attention: Attention, path: Path) -> Attention:
    """The tokens labelled with the names of their groups in a file; others keep their labels.

    Raises:
        InputError: the groups do not fit the text, or have no name.
    """
    lists = _read_lines(path, _named_group)
    by_side = dict[str, tuple[Token, ...]]()
    for item in attention.maps:
        for side, tokens in (
            (item.query_side, item.query_tokens),
            (item.key_side, item.key_tokens),
        ):
            if side in by_side or (side == "target" and len(lists) == 1):
                continue
            groups = lists[side == "target" and len(lists) == 2]
            at_places, text = place_tokens(tokens, attention.text_of(side))
            numbers = group_numbers(at_places, text, [group for _, group in groups])
            by_side[side] = tuple(
                token if number is None else replace(token, label=groups[number][0])
                for token, number in zip(tokens, numbers, strict=True)
            )
    return words.with_tokens(attention, by_side)


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


def group_numbers(tokens: Sequence[Token], text: str, groups: Sequence[Group]) -> list[int | None]:
    numbers: list[int | None] = [None] * len(tokens)
    cursor = 0
    for number, group in enumerate(groups):
        if isinstance(group, str):
            members, cursor = _find(tokens, text, group, cursor)
            if not members and ":" in group:  # a name before the piece, which is no part of it
                members, cursor = _find(tokens, text, group.partition(":")[2], cursor)
            if not members:
                raise InputError(
                    f"group {number + 1}, '{group}', is not found in order in the text, "
                    "from the start of a token to the end of one"
                )
        else:
            members = list(group)
            for position in members:
                if position < len(tokens) and tokens[position].special:
                    raise InputError(
                        f"group {number + 1} names position {position}, the special token "
                        f"'{tokens[position].text}', which stays on its own"
                    )
        spelt = group if isinstance(group, str) else "@" + ",".join(map(str, group))
        _claim(numbers, members, number, f"group {number + 1}, '{spelt}',")
    return numbers


def _find(tokens: Sequence[Token], text: str, piece: str, cursor: int) -> tuple[list[int], int]:
    """The tokens of the next occurrence of a piece, and its end."""
    pattern = re.compile(r"\s+".join(map(re.escape, piece.split())))
    for match in pattern.finditer(text, cursor):
        start, end = match.span()
        inside = [
            position
            for position, token in enumerate(tokens)
            if not token.special and start <= words.first_character(token, text) < end
        ]
        starts = inside and words.first_character(tokens[inside[0]], text) == start
        if starts and tokens[inside[-1]].end <= end:
            return inside, end
    return [], cursor


def _claim(numbers: list[int | None], members: Sequence[int], number: int, name: str) -> None:
    for position in members:
        if position >= len(numbers):
            raise InputError(
                f"{name} names position {position}, but there are {len(numbers)} tokens"
            )
        if numbers[position] is not None:
            raise InputError(f"{name} shares the token at position {position} with another group")
        numbers[position] = number


def read_groups(path: Path) -> list[list[Group]]:
    """The groups of one text, or of a source and a target."""
    return _read_lines(path, _group)


def _read_lines(path: Path, read: Callable[[str, str], Read]) -> list[list[Read]]:
    from attnviz.storage.matrices import read_text

    lines = read_text(path).splitlines()
    texts = [
        [read(line.strip(), f"line {number} of '{path}'") for number, line in rows]
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


def _named_group(line: str, where: str) -> tuple[str, Group]:
    name, colon, group = (part.strip() for part in line.partition(":"))
    if not (name and colon and group):
        raise InputError(f"{where} has no name: write camera: @0-15, or subject: the professor")
    return name, _group(group, where)


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
