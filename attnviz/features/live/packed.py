"""The pocket model as bytes that a page carries: weights of few bits, pieces, merges, Unicode.

A weight is a whole number of 10 to 12 bits times the scale of its row. Matrices that change the
output most have the most bits (measured, part by part); vectors (biases, norms) stay as they are.
Facts of Unicode come from the tokenizer's own tables where it has any: Python and each browser have
other versions.
"""

import json
import unicodedata
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import FOLDER, read_model_file, tokenizer_of
from attnviz.models.pocket.text import SPECIALS

FREQUENT = 2000  # pieces that merge first, so that they are the most frequent
BITS: tuple[tuple[str, int], ...] = (
    ("encoder.*.query.*", 10),
    ("encoder.*.key.*", 10),
    ("*.cross_attention.value.*", 12),
    ("*.cross_attention.output.*", 12),
    ("*", 11),
)
"""Bits of a weight, by the first pattern that fits its matrix. The embedding has 12 and 10."""
LAST = 0x110000  # one past the last code point of Unicode
PLANE = 0x10000
NO_LETTERS = (*range(4, 14), 15, 16)  # planes that are empty or private
SWAPPED = "\u0334", "\u0315"  # marks of the combining classes 1 and 232


def pack_model(folder: Path = FOLDER) -> bytes:
    """All that the page's engine reads: a length, facts as JSON, float32 numbers, then weights.

    Numbers begin at a multiple of 4 bytes, in the order of the facts' `tensors`: the scale of each
    row of a matrix, or a whole vector. Then come the high bytes of all matrices, then the planes of
    their low bits, the lowest first, eight weights in a byte.
    """
    weights = StoredWeights(folder / "weights.safetensors")
    tensors, numbers, high, low = [], [], [], []
    for name in weights:
        array = weights.raw(name).astype(np.float32)
        if array.ndim == 1:
            tensors.append([name, len(array)])
            numbers.append(array)
            continue
        for part, bits in split_by_bits(name, array):
            scales, codes = quantise(part, bits)
            tensors.append([name, *part.shape, bits])
            numbers.append(scales)
            high.append((codes >> (bits - 8)).astype(np.int8).tobytes())
            planes = (codes.ravel() >> np.arange(bits - 8)[:, None]) & 1
            low.append(np.packbits(planes.astype(np.uint8), axis=1, bitorder="little").tobytes())
    config = read_model_file(folder / "config.json")
    facts = {
        "tensors": tensors,
        **{name: config[name] for name in ("sizes", "guided", "revision")},
        **_tokenizer_facts(tokenizer_of(folder)),
    }
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    floats = np.concatenate(numbers).astype("<f4").tobytes()
    return b"".join((len(text).to_bytes(4, "little"), text, floats, *high, *low))


def split_by_bits(name: str, array: NDArray[Any]) -> list[tuple[NDArray[Any], int]]:
    """A matrix in runs of rows with one number of bits, and that number."""
    if name == "embedding.weight":
        return [(array[:FREQUENT], 12), (array[FREQUENT:], 10)]
    return [(array, next(bits for pattern, bits in BITS if fnmatch(name, pattern)))]


def quantise(
    array: NDArray[np.float32], bits: int
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """The scale of each row (rows,), and integers of that many bits (rows, columns)."""
    top = (1 << (bits - 1)) - 1
    scales = np.abs(array).max(axis=1) / np.float32(top)
    divisors = np.where(scales > 0, scales, np.float32(1))
    return scales, np.rint(array / divisors[:, None]).astype(np.int16)


def _tokenizer_facts(path: Path) -> dict[str, Any]:
    """Pieces in the order of their ids, merges as pairs of ids, and what normalises a text.

    The steps themselves (NFKC, a mark before every word, punctuation apart) are written in
    tokenize.js.
    """
    facts = json.loads(path.read_text(encoding="utf-8"))
    ids = facts["model"]["vocab"]
    steps = facts["normalizer"]["normalizers"]
    return {
        "vocabulary": sorted(ids, key=ids.__getitem__),
        "merges": [[ids[first], ids[second]] for first, second in facts["model"]["merges"]],
        "specials": SPECIALS,
        "replaced": [[step["pattern"]["String"], step["content"]] for step in steps[:-1]],
        "unicode": _unicode_facts(),
    }


def _unicode_facts() -> dict[str, list[int | str]]:
    """Runs [first, value, first, value, …] over all code points, by name.

    category: as in Unicode; wide: 1 for wide letters; combining: the class of a mark;
    decomposes: 1 where NFKD changes it; punctuation: 1 for what stands alone.
    """
    from tokenizers import normalizers, pre_tokenizers

    categories = _of_all(unicodedata.category)
    some = np.flatnonzero(~np.isin(categories, ("Cn", "Co", "Cs")))
    letters = [chr(point) for point in some if point != ord("\n")]
    plain = normalizers.NFKD().normalize_str("\n".join(letters)).split("\n")
    unstable = {old for old, new in zip(letters, plain, strict=True) if old != new}
    # Letters are left out: there are many, and none is a word of its own.
    signs = "".join(one for one in letters if unicodedata.category(one) not in ("Lo", "Lu", "Ll"))
    pieces = pre_tokenizers.Punctuation("isolated").pre_tokenize_str(signs)
    alone = {piece for piece, _ in pieces if len(piece) == 1}
    order = normalizers.NFD().normalize_str

    def in_order(one: str) -> bool:
        """Whether the tokenizer puts a mark in order, as Python does."""
        lower, higher = SWAPPED
        pair = one + lower if unicodedata.combining(one) > 1 else higher + one
        return one in unstable or order(pair) != pair

    def facts_of(some: Mapping[str, int]) -> list[int | str]:
        values = np.zeros(LAST, int)
        values[[*map(ord, some)]] = [*some.values()]
        return _runs(values)

    widths = _of_all(unicodedata.east_asian_width)
    return {
        "category": _runs(categories),
        "wide": _runs(np.isin(widths, ("W", "F")).astype(int)),
        "combining": facts_of(
            {one: kind for one in letters if (kind := unicodedata.combining(one)) and in_order(one)}
        ),
        "decomposes": facts_of(dict.fromkeys(unstable, 1)),
        "punctuation": facts_of(dict.fromkeys(alone, 1)),
    }


def _of_all(fact: Callable[[str], str]) -> NDArray[np.str_]:
    """A fact of every code point, in order; in a plane without letters the last two are apart."""
    planes = []
    for first in range(0, LAST, PLANE):
        if first // PLANE in NO_LETTERS:
            plane = np.full(PLANE, fact(chr(first)), "<U2")
            plane[-2:] = fact(chr(first + PLANE - 1))
        else:
            plane = np.array([*map(fact, map(chr, range(first, first + PLANE)))], "<U2")
        planes.append(plane)
    return np.concatenate(planes)


def _runs(array: NDArray[Any]) -> list[int | str]:
    starts = np.flatnonzero(np.append(True, array[1:] != array[:-1]))
    return [one for at in starts for one in (int(at), array[at].item())]
