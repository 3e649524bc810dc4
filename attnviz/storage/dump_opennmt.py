"""Tables that OpenNMT-py writes with -attn_debug: a row a target word, a column a source word.

                      la   voiture
           the *0.9000000  0.1000000
           car  0.2000000 *0.8000000

The largest weight of a row is filled up with stars. Source words are cut to 7 letters there, target
words to 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from attnviz.attention_map import Attention, AttentionMap, Provenance
from attnviz.errors import InputError
from attnviz.storage.dump_tensors import token_of

_ROW = re.compile(r"\s*\S+(?:\s+\**\d\.\d{7})+\s*")
_LOGGED = re.compile(r"^\[[^\]]*\]\s")
CUT = "OpenNMT cuts source words to 7 letters and target words to 10"


def is_tables(lines: Sequence[str]) -> bool:
    """True where a row of weights follows a line that can head it."""
    return any(
        _ROW.fullmatch(line) and not _ROW.fullmatch(above) and above.strip()
        for above, line in pairwise(lines)
    )


def read_tables(lines: Sequence[str], where: str) -> Iterator[Attention]:
    """An attention of one head for each table; other lines of the log are left.

    Raises:
        InputError: a table whose rows do not fit its head.
    """
    number = 0
    place = 1
    while place < len(lines):
        if not _ROW.fullmatch(lines[place]):
            place += 1
            continue
        first = place
        while place < len(lines) and _ROW.fullmatch(lines[place]):
            place += 1
        at = f"line {first} of {where}"
        yield _table(lines[first - 1], lines[first:place], str(number), at, where)
        number += 1


def _table(head: str, lines: Sequence[str], identity: str, at: str, where: str) -> Attention:
    sources = _LOGGED.sub("", head).split()
    rows = [line.split() for line in lines]
    for row in rows:
        if len(row) - 1 != len(sources):
            raise InputError(
                f"{at} names {len(sources)} source words, but '{row[0]}' has {len(row) - 1} weights"
            )
    weights = np.array([[float(x.lstrip("*")) for x in row[1:]] for row in rows], dtype=np.float32)
    item = AttentionMap(
        "cross",
        tuple(token_of(row[0]) for row in rows),
        tuple(map(token_of, sources)),
        weights[None, None],
        query_side="target",
        key_side="source",
    )
    cut = any(len(row[0]) == 10 for row in rows) or any(len(word) == 7 for word in sources)
    provenance = Provenance(
        "file", where.strip("'").rpartition("/")[2], notes=(CUT,) if cut else ()
    )
    return Attention((item,), provenance, id=identity)
