"""Attention that other programs saved, recognised by the content of a file.

dump_tensors reads arrays by name. Text is read as Pharaoh lines, one alignment on each:

    0-0 1-2 2-1    source-target, counted from 0; i-j:0.9 carries a probability
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attnviz.core.attention_map import AttentionMap
from attnviz.core.errors import InputError
from attnviz.storage.archive import DAMAGE, ZIP
from attnviz.storage.documents import parse_json
from attnviz.storage.dump_tensors import (
    NUMBERED,
    Dump,
    file_provenance,
    holds_dump,
    number_tokens,
    read_arrays,
)
from attnviz.storage.matrices import Archive, read_safetensors

_PROBABILITY = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LINK = rf"\d{{1,18}}-\d{{1,18}}(?::{_PROBABILITY})?"
PHARAOH = re.compile(rf"\s*{_LINK}(?:\s+{_LINK})*\s*")
END = "</s>"
LONGEST = 100_000
"""Tokens of a sentence at most: a larger number is no position."""


def read_dump(data: bytes, where: str) -> Iterator[Dump]:
    """Every text's attention in another program's file; an InputError where it is unknown."""
    name = where.strip("'")
    if data.startswith(ZIP):
        yield read_arrays(Archive(data, name), where)
    elif is_safetensors(data):
        yield read_arrays(read_safetensors(data, name), where)
    elif data.lstrip().startswith((b"{", b"[")) and _is_json(data):
        yield from _from_json(parse_json(data, where), where)
    else:
        yield from _from_text(data, where)


def is_safetensors(data: bytes) -> bool:
    """Whether the data begin like the format: the length of a JSON header, then the header."""
    length = int.from_bytes(data[:8], "little")
    return len(data) > 9 and 2 <= length <= len(data) - 8 and data[8:9] == b"{"


def is_dump(data: bytes) -> bool:
    """Whether arrays have names of attention, or lines are alignments."""
    try:
        names = _names(data)
        if names is not None:
            return holds_dump(names)
        lines = data.decode("utf-8-sig").splitlines()
    except (InputError, *DAMAGE):
        return False
    return _is_pharaoh(lines)


def is_foreign(data: bytes) -> bool:
    """Whether it is a dump, and no file of matrices (named weights, w_query and w_key)."""
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
    """The names in an object or in the first of several; bare nested lists are attention."""
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
        yield read_arrays(found, where)
    elif found and all(isinstance(item, Mapping) for item in found):
        for number, item in enumerate(found):
            place = f"text {number} of {where}"
            yield read_arrays(item, place, str(item.get("id", number)))
    else:
        yield read_arrays({"attention": found}, where)


def _from_text(data: bytes, where: str) -> Iterator[Dump]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is neither text in UTF-8 nor arrays") from error
    if not _is_pharaoh(lines):
        raise InputError(f"{where} holds neither arrays of attention nor lines of alignments")
    for number, line in enumerate(lines):
        place = f"line {number + 1} of {where}"
        if not line.strip():
            continue
        if not PHARAOH.fullmatch(line):
            raise InputError(f"{place} holds no alignment, as other lines do: '{line[:60]}'")
        yield _read_alignment(line, str(number), place, where)


def _is_pharaoh(lines: Sequence[str]) -> bool:
    """Whether the first line that is not blank is an alignment."""
    return bool(PHARAOH.fullmatch(next((line for line in lines if line.strip()), "")))


def _read_alignment(line: str, identity: str, at: str, where: str) -> Dump:
    """The links of a line as one head: a row for each target word up to the largest position."""
    links: dict[tuple[int, int], float] = {}
    for part in line.split():
        pair, _, strength = part.partition(":")
        source, target = map(int, pair.split("-"))
        if max(source, target) >= LONGEST:
            raise InputError(f"{at} links {pair}, further than any text goes")
        if (target, source) in links:
            raise InputError(f"{at} has the link {pair} twice")
        links[target, source] = float(strength) if strength else 1.0
    weights = np.zeros([max(axis) + 1 for axis in zip(*links, strict=True)], dtype=np.float32)
    for place, strength_of in links.items():
        weights[place] = strength_of
    item = AttentionMap(
        "cross",
        number_tokens(weights.shape[0]),
        number_tokens(weights.shape[1]),
        weights[None, None],
        query_side="target",
        key_side="source",
        unit="strength of a link",
    )
    notes = (f"the file names no tokens: {NUMBERED}",)
    provenance = file_provenance(where, notes)
    return Dump((item,), provenance, id=identity, unnamed=notes, ends_early=True)
