"""Alignments in text as translation tools write them, a sentence pair a line.

0-0 1-2 2-1                       Pharaoh: source-target from 0; i-j:0.9 carries a probability
un chat ||| 0-0 1-1               Marian --alignment hard or a threshold, behind the translation
0.9,0.1 0.2,0.8                   Marian --alignment soft: a target word's weights over the source
A-0<tab>0-0 1-1                   fairseq-generate --print-alignment hard or soft, among its
other lines, of which S- and H- name the tokens
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.errors import InputError
from attnviz.storage.dump_tensors import NUMBERED, numbered, token_of

_PROBABILITY = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
HARD = re.compile(rf"\d+-\d+(?::{_PROBABILITY})?(?:\s+\d+-\d+(?::{_PROBABILITY})?)*")
SOFT = re.compile(rf"{_PROBABILITY}(?:,{_PROBABILITY})+(?:\s+{_PROBABILITY}(?:,{_PROBABILITY})+)*")
FAIRSEQ = re.compile(r"A-\d+\t.*")
END = "</s>"
LINKS = "strength of a link"
"""The unit of maps that hold links rather than shares."""
LONGEST = 100_000
"""No sentence has more tokens; a larger number is no position."""


@dataclass(frozen=True, slots=True)
class Line:
    """One alignment, the texts that came with it, and how to name it in a message."""

    identity: str
    alignment: str
    source: str | None
    target: str | None
    where: str


def is_alignments(lines: Sequence[str]) -> bool:
    """True where the first line that is not blank carries an alignment, or where fairseq's do."""
    if any(FAIRSEQ.fullmatch(line) for line in lines):
        return True
    first = next((line for line in lines if line.strip()), "")
    return _field(first) is not None


def read_alignments(lines: Sequence[str], where: str) -> Iterator[Attention]:
    """An attention of one head for each line with an alignment; blank lines have none.

    Raises:
        InputError: an alignment that is none, or that does not fit the words beside it.
    """
    if any(FAIRSEQ.fullmatch(line) for line in lines):
        found = _fairseq(lines, where)
    else:
        found = _plain(lines, where)
    for line in found:
        yield _attention(line, where)


def _plain(lines: Sequence[str], where: str) -> Iterator[Line]:
    for number, line in enumerate(lines):
        place = f"line {number + 1} of {where}"
        fields = [field.strip() for field in line.split("|||")]
        chosen = _field(line)
        if not line.strip():
            continue
        if chosen is None:
            raise InputError(f"{place} holds no alignment, as other lines do: '{line[:60]}'")
        before = fields[:chosen]
        if before and before[0].isdecimal() and len(before) > 1:
            before = before[1:]  # an n-best list begins with the sentence's number
        target = before[-1] if before else None
        source = before[-2] if len(before) > 1 else None
        yield Line(str(number), fields[chosen], source, target, place)


def _field(line: str) -> int | None:
    """Which field of a line is its alignment, the last that can be; None where none can."""
    fields = [field.strip() for field in line.split("|||")]
    for place in range(len(fields) - 1, -1, -1):
        if HARD.fullmatch(fields[place]) or SOFT.fullmatch(fields[place]):
            return place
    return None


def _fairseq(lines: Sequence[str], where: str) -> Iterator[Line]:
    """Alignments with the latest source and hypothesis of the same number."""
    texts: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name, _, rest = line.partition("\t")
        kind, _, identity = name.partition("-")
        if not identity.isdecimal():
            continue
        if kind == "S":
            texts[name] = rest
        elif kind == "H":
            texts[name] = rest.partition("\t")[2]
        elif kind == "A" and rest.strip():
            count = seen[identity] = seen.get(identity, 0) + 1
            yield Line(
                identity if count == 1 else f"{identity}.{count}",
                rest.strip(),
                texts.get(f"S-{identity}"),
                texts.get(f"H-{identity}"),
                f"line {number} of {where}",
            )


def _attention(line: Line, where: str) -> Attention:
    sides = [None if text is None else text.split() for text in (line.target, line.source)]
    if HARD.fullmatch(line.alignment):
        lengths = [None if words is None else len(words) for words in sides]
        weights, unit = _hard(line, lengths), LINKS
    elif SOFT.fullmatch(line.alignment):
        weights, unit = _soft(line), "share of a row's attention"
    else:
        raise InputError(f"{line.where} holds no alignment: '{line.alignment[:60]}'")
    notes: list[str] = []
    queries, keys = (
        _tokens(words, count, what, line.where, notes)
        for words, count, what in zip(sides, weights.shape, ("target", "source"), strict=True)
    )
    item = AttentionMap(
        "cross",
        queries,
        keys,
        weights[None, None],
        unit=unit,
        query_side="target",
        key_side="source",
    )
    provenance = Provenance(
        "file", where.strip("'").rpartition("/")[2], notes=tuple(dict.fromkeys(notes))
    )
    return Attention((item,), provenance, source=line.source, target=line.target, id=line.identity)


def _hard(line: Line, lengths: Sequence[int | None]) -> NDArray[np.float32]:
    """Links as a matrix with a row a target word, as long as the words or the largest position."""
    links: dict[tuple[int, int], float] = {}
    for part in line.alignment.split():
        pair, _, strength = part.partition(":")
        source, target = map(int, pair.split("-"))
        if max(source, target) >= LONGEST:
            raise InputError(f"{line.where} links {pair}, further than any text goes")
        if (target, source) in links:
            raise InputError(f"{line.where} has the link {pair} twice")
        links[target, source] = float(strength) if strength else 1.0
    shape = [max(place[axis] for place in links) + 1 for axis in (0, 1)]
    for axis, (length, what) in enumerate(zip(lengths, ("target", "source"), strict=True)):
        if length is not None:
            if shape[axis] > length + 1:  # one more is the end mark
                raise InputError(
                    f"{line.where} links {what} position {shape[axis] - 1}, "
                    f"but the {what} has {length} words"
                )
            shape[axis] = max(shape[axis], length)
    weights = np.zeros(shape, dtype=np.float32)
    for place, strength_of in links.items():
        weights[place] = strength_of
    return weights


def _soft(line: Line) -> NDArray[np.float32]:
    rows = [list(map(float, row.split(","))) for row in line.alignment.split()]
    if len({len(row) for row in rows}) > 1:
        counts = ", ".join(str(len(row)) for row in rows[:6])
        raise InputError(f"{line.where} has rows with unlike numbers of weights: {counts}")
    weights = np.array(rows, dtype=np.float32)
    if float(weights.sum(axis=-1).max()) > 1 + 1e-2:
        raise InputError(f"{line.where} has weights that sum to more than 1 for a target word")
    return weights


def _tokens(
    words: Sequence[str] | None, count: int, what: str, where: str, notes: list[str]
) -> tuple[Token, ...]:
    """Words, with the end mark where there is one more weight; positions where they do not fit."""
    if words is not None and count - len(words) in (0, 1):
        return tuple(map(token_of, [*words, END][:count] if count > len(words) else words))
    if words is None:
        notes.append(f"the file names no {what} tokens: {NUMBERED}")
    else:
        notes.append(f"{where} has {count} positions for {len(words)} {what} words: {NUMBERED}")
    return numbered(count)
