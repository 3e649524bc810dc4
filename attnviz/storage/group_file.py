"""A file that says which tokens go together: one group a line, in the order of the text.

    the professor who supervised the student
    published
    @7-8,10

A line is a piece of the text, found behind the one before it, or after @ the positions of tokens
from 0. What no line names stays as it is. For a pair the groups of the source come first, then
those of the target behind an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from attnviz.core.errors import InputError
from attnviz.storage.matrices import read_bytes

Group = str | tuple[int, ...]
"""A piece of the text, or positions of tokens."""

_POSITIONS = re.compile(r"@\s*\d+(-\d+)?(\s*[,\s]\s*\d+(-\d+)?)*\s*")


def read_groups(path: Path) -> list[list[Group]]:
    """The groups of each text: of one, or of a source and a target.

    Raises:
        InputError: the file cannot be read, holds no group, or more than two lists of them.
    """
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not valid UTF-8") from error
    texts: list[list[Group]] = [[]]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            if texts[-1]:
                texts.append([])
            continue
        texts[-1].append(_group(line.strip(), f"line {number} of '{path}'"))
    texts = [groups for groups in texts if groups]
    if not texts:
        raise InputError(f"'{path}' names no group: write one a line")
    if len(texts) > 2:
        raise InputError(
            f"'{path}' holds {len(texts)} lists of groups between empty lines: "
            "one for a text, two for a source and a target"
        )
    return texts


def _group(line: str, where: str) -> Group:
    if not line.startswith("@"):
        return line
    if not _POSITIONS.fullmatch(line):
        raise InputError(f"{where} is no list of positions: write @0-3,7")
    return tuple(_positions(re.findall(r"\d+(?:-\d+)?", line), where))


def _positions(parts: Sequence[str], where: str) -> list[int]:
    found: list[int] = []
    for part in parts:
        low, dash, high = part.partition("-")
        last = int(high) if dash else int(low)
        if last < int(low) or last > 10_000_000:
            raise InputError(f"{where} has the positions {part}, which run backwards or too far")
        found += range(int(low), last + 1)
    return found
