"""The pocket model as bytes that a page carries: weights of few bits, pieces, merges, Unicode.

A weight is a whole number of 9 to 12 bits times the scale of its row, the more bits the more of the
output hangs on it (measured, part by part); vectors (biases, norms) stay as they are. What Unicode
says is taken from the tokenizer's own tables where it has any: they are of another version than
Python's, and than each browser's.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.models.pocket.card import FOLDER, read_config
from attnviz.models.pocket.network import StoredWeights
from attnviz.models.pocket.text import SPECIALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

FREQUENT = 2000
"""Pieces that merge first, so that they are the most frequent."""
BITS: tuple[tuple[str, int], ...] = (
    ("encoder.*.query.*", 9),
    ("encoder.*.key.*", 9),
    ("encoder.*", 10),
    ("decoder.*.self_attention.query.*", 10),
    ("decoder.*.self_attention.key.*", 10),
    ("decoder.*", 11),
)
"""Bits of a weight by its matrix, the first that fits; of the embedding 12 and 9."""
LAST = 0x110000
SWAPPED = "\u0334", "\u0315"
"""Marks of the combining classes 1 and 232."""


def packed(folder: Path = FOLDER) -> bytes:
    """All that the page's engine reads: a length, facts as JSON, float32 numbers, then weights.

    Numbers begin at a multiple of 4 bytes, in the order of the facts' `tensors`: of a matrix the
    scale of each row, of a vector itself. The high bytes of all matrices follow, then the planes of
    their low bits, the lowest first, eight weights to a byte.
    """
    weights = StoredWeights(folder / "weights.safetensors")
    tensors, numbers, high, low = [], [], [], []
    for name in weights:
        array = weights.raw(name).astype(np.float32)
        if array.ndim == 1:
            tensors.append([name, len(array)])
            numbers.append(array)
            continue
        for part, bits in parts_of(name, array):
            scales, codes = quantised(part, bits)
            tensors.append([name, *part.shape, bits])
            numbers.append(scales)
            high.append((codes >> (bits - 8)).astype(np.int8).tobytes())
            planes = (codes.ravel() >> np.arange(bits - 8)[:, None]) & 1
            low.append(np.packbits(planes.astype(np.uint8), axis=1, bitorder="little").tobytes())
    config = read_config(folder)
    facts = {
        "tensors": tensors,
        **{name: config[name] for name in ("sizes", "guided", "revision")},
        **_tokenizer_facts(folder / "tokenizer.json"),
    }
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    floats = np.concatenate(numbers).astype("<f4").tobytes()
    return b"".join((len(text).to_bytes(4, "little"), text, floats, *high, *low))


def parts_of(name: str, array: NDArray[Any]) -> list[tuple[NDArray[Any], int]]:
    """Rows of a matrix that have as many bits a weight, and how many."""
    if name == "embedding.weight":
        return [(array[:FREQUENT], 12), (array[FREQUENT:], 9)]
    return [(array, next(bits for pattern, bits in BITS if fnmatch(name, pattern)))]


def quantised(
    array: NDArray[np.float32], bits: int
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """The scale of each row, (rows,), and whole numbers of so many bits, (rows, columns)."""
    top = (1 << (bits - 1)) - 1
    scales = np.abs(array).max(axis=1) / np.float32(top)
    divisors = np.where(scales > 0, scales, np.float32(1))
    return scales, np.rint(array / divisors[:, None]).astype(np.int16)


def _tokenizer_facts(path: Path) -> dict[str, Any]:
    """Pieces in the order of their ids, merges as pairs of ids, and what normalises a text.

    The steps themselves (NFKC, a mark before every word, punctuation apart) are written in
    tokenize.js.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    ids = stored["model"]["vocab"]
    steps = stored["normalizer"]["normalizers"]
    return {
        "vocabulary": sorted(ids, key=ids.__getitem__),
        "merges": [[ids[first], ids[second]] for first, second in stored["model"]["merges"]],
        "specials": SPECIALS,
        "replaced": [[step["pattern"]["String"], step["content"]] for step in steps[:-1]],
        "unicode": _unicode_facts(),
    }


def _unicode_facts() -> dict[str, list[int | str]]:
    """Runs [first, value, first, value, …] over all code points, by what they tell.

    category: as in Unicode; wide: 1 for wide letters; combining: the class of a mark;
    decomposes: 1 where NFKD changes it; punctuation: 1 for what stands alone.
    """
    from tokenizers import normalizers, pre_tokenizers

    categories = [unicodedata.category(chr(point)) for point in range(LAST)]
    known = [
        chr(point)
        for point, category in enumerate(categories)
        if category not in ("Cn", "Co", "Cs") and point != ord("\n")
    ]
    plain = normalizers.NFKD().normalize_str("\n".join(known)).split("\n")
    changed = {old for old, new in zip(known, plain, strict=True) if old != new}
    # Letters are many and none stands alone, so they are not asked about.
    signs = "".join(one for one in known if categories[ord(one)] not in ("Lo", "Lu", "Ll"))
    pieces = pre_tokenizers.Punctuation("isolated").pre_tokenize_str(signs)
    alone = {piece for piece, _ in pieces if len(piece) == 1}
    order = normalizers.NFD().normalize_str

    def combining(one: str) -> int:
        """The class of a mark; 0 where the tokenizer does not put it in order."""
        found = unicodedata.combining(one)
        if found == 0 or one in changed:
            return found
        lower, higher = SWAPPED
        pair = one + lower if found > 1 else higher + one
        return found if order(pair) != pair else 0

    return {
        "category": _runs(categories.__getitem__),
        "wide": _runs(lambda point: int(unicodedata.east_asian_width(chr(point)) in "WF")),
        "combining": _runs(lambda point: combining(chr(point))),
        "decomposes": _runs(lambda point: int(chr(point) in changed)),
        "punctuation": _runs(lambda point: int(chr(point) in alone)),
    }


def _runs(value: Callable[[int], Any]) -> list[Any]:
    def changes() -> Iterator[Any]:
        before = None
        for point in range(LAST):
            now = value(point)
            if now != before:
                yield from (point, now)
                before = now

    return list(changes())
