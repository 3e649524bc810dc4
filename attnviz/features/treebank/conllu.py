"""Sentences with dependencies from CoNLL-U (universaldependencies.org/format.html).

Read are the text, the words with their places in it, heads and relations. Empty nodes (8.1) belong
to the enhanced graph and are left out.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError, is_number
from attnviz.core.records import dataclass

COLUMNS = 10  # ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
ROOT = -1  # the format's 0: words count from 0 here


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a treebank."""

    text: str
    # syntactic words with their places in the text; the place is empty where a word is not written
    # as such, as in French "du" = "de le"
    words: tuple[Token, ...]
    heads: tuple[int, ...]  # the index of the word that each word depends on, -1 for the root
    relations: tuple[str, ...]  # the relation of each word to its head ("nsubj")
    where: str


def read_sentences(lines: Iterable[bytes], name: str) -> Iterator[Sentence]:
    """The sentences in raw lines; an InputError names a line that is no CoNLL-U."""
    block: list[str] = []
    first = 1
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"line {number} of {name} is not valid UTF-8") from error
        if line.strip():
            first = first if block else number
            block.append(_check_columns(line, f"line {number} of {name}"))
        elif block:
            yield _sentence(block, f"line {first} of {name}")
            block = []
    if block:
        yield _sentence(block, f"line {first} of {name}")


def _check_columns(line: str, where: str) -> str:
    """A line, if it has ten columns between tabs; the library would accept any number."""
    if line.startswith("#"):
        return line
    count = line.count("\t") + 1
    if count != COLUMNS:
        raise InputError(f"{where} is no CoNLL-U: {count} columns between tabs, not {COLUMNS}")
    return re.sub(" {2,}", " ", line)  # which the library would take for a tab


def _sentence(block: list[str], where: str) -> Sentence:
    from conllu import parse_token_and_metadata
    from conllu.exceptions import ParseException

    try:
        rows = parse_token_and_metadata("\n".join(block), field_parsers={"head": _head})
    except ParseException as error:
        raise InputError(f"the sentence at {where} is no CoNLL-U: {error}") from error
    words = [row for row in rows if isinstance(row["id"], int)]
    if not words:
        raise InputError(f"the sentence at {where} has no words")
    if any(row["head"] is None for row in words):
        raise InputError(f"the sentence at {where} has a head that is no number")
    heads = tuple(row["head"] - 1 for row in words)
    if not all(ROOT <= head < len(words) for head in heads):
        raise InputError(f"the sentence at {where} has a head outside it")
    surface = list(_surface(rows))
    text = rows.metadata.get("text") or "".join(map(_surface_text, surface)).strip()
    relations = tuple(row["deprel"] for row in words)
    return Sentence(text, _place(surface, text), heads, relations, where)


def _head(fields: list[str], place: int) -> int | None:
    return int(fields[place]) if is_number(fields[place]) else None


Surface = tuple[Any, list[Any]]  # written characters, and their words


def _surface(rows: list[Any]) -> Iterator[Surface]:
    last = 0
    for row in rows:
        match row["id"]:
            case (first, "-", last):
                inside = range(first, last + 1)
                yield row, [word for word in rows if word["id"] in inside]
            case int(number) if number > last:
                yield row, [row]


def _surface_text(surface: Surface) -> str:
    row, _ = surface
    space = (row.get("misc") or {}).get("SpaceAfter") != "No"
    return f"{row['form']} " if space else str(row["form"])


def _place(surface: list[Surface], text: str) -> tuple[Token, ...]:
    """The words with their places, searched in the order of the text."""
    words: list[Token] = []
    end = 0
    for row, parts in surface:
        start_at = text.find(row["form"], end)
        start, end = (end, end) if start_at < 0 else (start_at, start_at + len(row["form"]))
        inner = start
        for part in parts:
            at = text.find(part["form"], inner, end)
            place = (inner, inner) if at < 0 else (at, at + len(part["form"]))
            inner = place[1]
            words.append(Token(part["form"], *place))
    return tuple(words)
