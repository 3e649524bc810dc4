"""Attention that other programs saved: what a file is, its content says.

Arrays by name are in dump_tensors. Text is either of these.

OpenNMT-py's tables (-attn_debug) have a row a target word and a column a source word; stars fill up
the largest weight of a row, and words are cut, source words to 7 letters, target words to 10:

                      la   voiture
           the *0.9000000  0.1000000
           car  0.2000000 *0.8000000

Alignments of translation tools, a sentence pair a line:

    0-0 1-2 2-1            Pharaoh: source-target from 0; i-j:0.9 carries a probability
    un chat ||| 0-0 1-1    Marian --alignment hard or a threshold, behind the translation
    0.9,0.1 0.2,0.8        Marian --alignment soft: a target word's weights over the source
    A-0<tab>0-0 1-1        fairseq-generate --print-alignment, hard or soft, among its other lines,
                           of which S- and H- name the tokens
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import InputError
from attnviz.storage.archive import DAMAGE, ZIP
from attnviz.storage.documents import parse_json
from attnviz.storage.dump_tensors import (
    NUMBERED,
    Dump,
    attention_of,
    file_provenance,
    holds_dump,
    numbered,
    token_of,
)
from attnviz.storage.matrices import Archive, read_safetensors

_ROW = re.compile(r"\s*\S+(?:\s+\**\d\.\d{7})+\s*")
_LOGGED = re.compile(r"^\[[^\]]*\]\s")
_PROBABILITY = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LINK = rf"\d{{1,18}}-\d{{1,18}}(?::{_PROBABILITY})?"
HARD = re.compile(rf"{_LINK}(?:\s+{_LINK})*")
SOFT = re.compile(rf"{_PROBABILITY}(?:,{_PROBABILITY})+(?:\s+{_PROBABILITY}(?:,{_PROBABILITY})+)*")
FAIRSEQ = re.compile(r"A-\d+\t.*")
END = "</s>"
LONGEST = 100_000
"""No sentence has more tokens; a larger number is no position."""


def read_dump(data: bytes, where: str) -> Iterator[Dump]:
    """Every text's attention in another program's file; an InputError where it is not known."""
    name = where.strip("'")
    if data.startswith(ZIP):
        yield attention_of(Archive(data, name), where)
    elif is_safetensors(data):
        yield attention_of(read_safetensors(data, name), where)
    elif data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        yield from _from_json(parse_json(data, where), where)
    else:
        yield from _from_text(data, where)


def is_safetensors(data: bytes) -> bool:
    """True for the format's own beginning: the length of a JSON header, then the header."""
    length = int.from_bytes(data[:8], "little")
    return len(data) > 9 and 2 <= length <= len(data) - 8 and data[8:9] == b"{"


def is_dump(data: bytes) -> bool:
    """True where arrays go by the names of attention, or where lines are alignments or tables."""
    try:
        names = _names(data)
        if names is not None:
            return holds_dump(names)
        lines = data.decode("utf-8-sig").splitlines()
    except (InputError, *DAMAGE):
        return False
    return is_tables(lines) or is_alignments(lines)


def is_foreign(data: bytes) -> bool:
    """True for a dump that is no file of matrices, whose names are weights, w_query and w_key."""
    try:
        names = _names(data) or []
    except (InputError, *DAMAGE):
        return False
    return is_dump(data) and not {"weights", "w_query"}.intersection(names)


def _names(data: bytes) -> list[str] | None:
    if data.startswith(ZIP):
        return [n.removesuffix(".npy") for n in zipfile.ZipFile(io.BytesIO(data)).namelist()]
    if is_safetensors(data):
        length = int.from_bytes(data[:8], "little")
        return list(parse_json(data[8 : 8 + length], "header"))
    if data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        return _json_names(parse_json(data, ""))
    return None


def _json_names(found: Any) -> list[str]:
    """Names in an object or in the first of several; nested lists alone are attention."""
    if isinstance(found, list) and found:
        return ["attention"] if isinstance(found[0], list) else _json_names(found[0])
    return list(found) if isinstance(found, Mapping) else []


def _is_json(data: bytes) -> bool:
    """False for a log whose lines begin with [a date]."""
    try:
        parse_json(data, "")
    except InputError:
        return not data.lstrip().startswith(b"[") or b"\n" not in data.strip()
    return True


def _from_json(found: Any, where: str) -> Iterator[Dump]:
    if isinstance(found, Mapping):
        yield attention_of(found, where)
    elif found and all(isinstance(item, Mapping) for item in found):
        for number, item in enumerate(found):
            place = f"text {number} of {where}"
            yield attention_of(item, place, str(item.get("id", number)))
    else:
        yield attention_of({"attention": found}, where)


def _from_text(data: bytes, where: str) -> Iterator[Dump]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is neither text in UTF-8 nor arrays") from error
    if is_tables(lines):
        yield from read_tables(lines, where)
    elif is_alignments(lines):
        yield from read_alignments(lines, where)
    else:
        raise InputError(f"{where} holds neither alignments nor a table of attention")


def is_tables(lines: Sequence[str]) -> bool:
    """True where a row of weights follows a line that can head it."""
    return any(
        _ROW.fullmatch(line) and not _ROW.fullmatch(above) and above.strip()
        for above, line in pairwise(lines)
    )


def read_tables(lines: Sequence[str], where: str) -> Iterator[Dump]:
    """An attention of one head for each table; other lines of the log are left."""
    kinds = groupby(range(1, len(lines)), lambda place: bool(_ROW.fullmatch(lines[place])))
    tables = (list(places) for is_row, places in kinds if is_row)
    for number, (first, *others) in enumerate(tables):
        rows = lines[first : first + 1 + len(others)]
        yield _table(lines[first - 1], rows, str(number), f"line {first} of {where}", where)


def _table(head: str, lines: Sequence[str], identity: str, at: str, where: str) -> Dump:
    sources = _LOGGED.sub("", head).split()
    rows = [line.split() for line in lines]
    for row in rows:
        if len(row) - 1 != len(sources):
            raise InputError(
                f"{at} names {len(sources)} source words, but '{row[0]}' has {len(row) - 1} weights"
            )
    weights = np.array([[float(x.lstrip("*")) for x in row[1:]] for row in rows], dtype=np.float32)
    queries, keys = tuple(token_of(row[0]) for row in rows), tuple(map(token_of, sources))
    item = _cross_map(queries, keys, weights)
    cut = any(len(row[0]) == 10 for row in rows) or any(len(word) == 7 for word in sources)
    notes = ("OpenNMT cuts source words to 7 letters and target words to 10",) * cut
    return Dump((item,), file_provenance(where, notes), id=identity)


def is_alignments(lines: Sequence[str]) -> bool:
    """True where the first line that is not blank carries an alignment, or where fairseq's do."""
    if any(FAIRSEQ.fullmatch(line) for line in lines):
        return True
    first = next((line for line in lines if line.strip()), "")
    return _field(first) is not None


def read_alignments(lines: Sequence[str], where: str) -> Iterator[Dump]:
    """An attention of one head for each line with an alignment; blank lines have none."""
    if any(FAIRSEQ.fullmatch(line) for line in lines):
        return _fairseq(lines, where)
    return _plain(lines, where)


def _plain(lines: Sequence[str], where: str) -> Iterator[Dump]:
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
        yield _aligned(fields[chosen], (target, source), str(number), place, where)


def _field(line: str) -> int | None:
    """Which field of a line is its alignment, the last that can be; None where none can."""
    fields = [field.strip() for field in line.split("|||")]
    for place in range(len(fields) - 1, -1, -1):
        if HARD.fullmatch(fields[place]) or SOFT.fullmatch(fields[place]):
            return place
    return None


def _fairseq(lines: Sequence[str], where: str) -> Iterator[Dump]:
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
            name = identity if count == 1 else f"{identity}.{count}"
            both = (texts.get(f"H-{identity}"), texts.get(f"S-{identity}"))
            yield _aligned(rest.strip(), both, name, f"line {number} of {where}", where)


def _aligned(
    alignment: str, texts: tuple[str | None, str | None], identity: str, at: str, where: str
) -> Dump:
    """One alignment of a target and a source, with the texts that came with it."""
    sides = [None if text is None else text.split() for text in texts]
    hard = bool(HARD.fullmatch(alignment))
    if hard:
        weights = _hard(alignment, [None if words is None else len(words) for words in sides], at)
    elif SOFT.fullmatch(alignment):
        weights = _soft(alignment, at)
    else:
        raise InputError(f"{at} holds no alignment: '{alignment[:60]}'")
    found: list[str] = []
    queries, keys = (
        _tokens(words, count, what, at, found)
        for words, count, what in zip(sides, weights.shape, ("target", "source"), strict=True)
    )
    item = _cross_map(queries, keys, weights)
    notes = tuple(dict.fromkeys(found))
    return Dump(
        (replace(item, unit="strength of a link") if hard else item,),
        file_provenance(where, notes),
        target=texts[0],
        source=texts[1],
        id=identity,
        unnamed=notes,
        ends_early=hard,
    )


def _hard(alignment: str, lengths: Sequence[int | None], at: str) -> NDArray[np.float32]:
    """Links as a matrix with a row a target word, as long as the words or the largest position."""
    links: dict[tuple[int, int], float] = {}
    for part in alignment.split():
        pair, _, strength = part.partition(":")
        source, target = map(int, pair.split("-"))
        if max(source, target) >= LONGEST:
            raise InputError(f"{at} links {pair}, further than any text goes")
        if (target, source) in links:
            raise InputError(f"{at} has the link {pair} twice")
        links[target, source] = float(strength) if strength else 1.0
    shape = [max(place[axis] for place in links) + 1 for axis in (0, 1)]
    for axis, (length, what) in enumerate(zip(lengths, ("target", "source"), strict=True)):
        if length is not None:
            if shape[axis] > length + 1:  # one more is the end mark
                raise InputError(
                    f"{at} links {what} position {shape[axis] - 1}, "
                    f"but the {what} has {length} words"
                )
            shape[axis] = max(shape[axis], length)
    weights = np.zeros(shape, dtype=np.float32)
    for place, strength_of in links.items():
        weights[place] = strength_of
    return weights


def _soft(alignment: str, at: str) -> NDArray[np.float32]:
    rows = [list(map(float, row.split(","))) for row in alignment.split()]
    if len({len(row) for row in rows}) > 1:
        counts = ", ".join(str(len(row)) for row in rows[:6])
        raise InputError(f"{at} has rows with unlike numbers of weights: {counts}")
    weights = np.array(rows, dtype=np.float32)
    if float(weights.sum(axis=-1).max()) > 1 + 1e-2:
        raise InputError(f"{at} has weights that sum to more than 1 for a target word")
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


def _cross_map(
    queries: tuple[Token, ...], keys: tuple[Token, ...], weights: NDArray[np.float32]
) -> AttentionMap:
    four_axes = weights[None, None]
    return AttentionMap("cross", queries, keys, four_axes, query_side="target", key_side="source")
