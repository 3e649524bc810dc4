"""Sentences with dependencies out of CoNLL-U (universaldependencies.org/format.html).

Only what is needed here is read: the text, the words with their places in it, heads and relations.
Empty nodes (8.1) belong to the enhanced graph and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError

FORM, HEAD, RELATION, MISC, COLUMNS = 1, 6, 7, 9, 10
ROOT = -1


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a treebank.

    Attributes:
        text: as it is written.
        words: syntactic words with their places in the text; one that is not written as such, as
            in French "du" = "de le", has an empty place.
        heads: for each word the index of the word it depends on, -1 for the root.
        relations: for each word what it is to its head ("nsubj").
        where: for messages.
    """

    text: str
    words: tuple[Token, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    where: str


def read_sentences(lines: Iterable[bytes], name: str) -> Iterator[Sentence]:
    """The sentences of a file as they come.

    Args:
        lines: raw lines.
        name: the file's, for messages.

    Raises:
        InputError: a line that is no CoNLL-U; the message says which.
    """
    block: list[tuple[int, str]] = []
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"line {number} of {name} is not valid UTF-8") from error
        if line.strip():
            block.append((number, line))
        elif block:
            yield _sentence(block, name)
            block = []
    if block:
        yield _sentence(block, name)


def _sentence(block: list[tuple[int, str]], name: str) -> Sentence:
    where = f"line {block[0][0]} of {name}"
    given = next((line[8:].strip() for _, line in block if line.startswith("# text =")), None)
    rows = [_row(number, line, name) for number, line in block if not line.startswith("#")]
    if not any(row[0].isdecimal() for row in rows):
        raise InputError(f"the sentence at {where} has no words")
    text = _written(rows) if given is None else given
    words = [row for row in rows if row[0].isdecimal()]
    try:
        heads = tuple(int(row[HEAD]) - 1 for row in words)
    except ValueError as error:
        raise InputError(f"the sentence at {where} has a head that is no number") from error
    if not all(ROOT <= head < len(words) for head in heads):
        raise InputError(f"the sentence at {where} has a head outside it")
    relations = tuple(row[RELATION] for row in words)
    return Sentence(text, _place(rows, text), heads, relations, where)


def _row(number: int, line: str, name: str) -> list[str]:
    fields = line.split("\t")
    if len(fields) != COLUMNS:
        raise InputError(
            f"line {number} of {name} is no CoNLL-U: {len(fields)} columns between tabs, not 10"
        )
    return fields


def _surface(rows: list[list[str]]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Each row that stands for written characters, and the words it is made of."""
    inside = 0
    for place, row in enumerate(rows):
        first, dash, last = row[0].partition("-")
        if dash:
            inside = int(last) - int(first) + 1
            yield row, [word for word in rows[place + 1 : place + 1 + inside] if "." not in word[0]]
        elif inside:
            inside -= row[0].isdecimal()
        elif row[0].isdecimal():
            yield row, [row]


def _written(rows: list[list[str]]) -> str:
    """The text where no comment gives it."""
    parts = (row[FORM] + ("" if "SpaceAfter=No" in row[MISC] else " ") for row, _ in _surface(rows))
    return "".join(parts).strip()


def _place(rows: list[list[str]], text: str) -> tuple[Token, ...]:
    """The words with their places, found in order of the text."""
    words: list[Token] = []
    end = 0
    for row, parts in _surface(rows):
        found = text.find(row[FORM], end)
        start, end = (end, end) if found < 0 else (found, found + len(row[FORM]))
        inner = start
        for part in parts:
            at = text.find(part[FORM], inner, end)
            place = (inner, inner) if at < 0 else (at, at + len(part[FORM]))
            inner = place[1]
            words.append(Token(part[FORM], *place))
    return tuple(words)
