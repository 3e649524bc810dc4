"""Sentence pairs from a tab-separated file, cleaned, without those kept for measuring."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnviz.core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

ODD_CHARACTERS = str.maketrans(
    {"\u202f": " ", "\u00a0": " ", "\u2009": " ", "\u2019": "'", "\u200b": None, "\u00ad": None}
)
WORDS = {"en": re.compile(r"'\w+|\w+|[^\w\s]"), "fr": re.compile(r"\w+'|\w+|[^\w\s]")}
"""What counts as a word: English clitics begin with the apostrophe, French ones end on it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An English sentence and a French one that means the same."""

    en: str
    fr: str


def clean(text: str) -> str:
    """The text with plain spaces and apostrophes and without invisible characters."""
    return " ".join(text.translate(ODD_CHARACTERS).split())


def read_sentences(path: Path) -> list[str]:
    """The cleaned lines of a text file.

    Raises:
        InputError: there is no such file.
    """
    try:
        return [clean(line) for line in path.read_text(encoding="utf-8").split("\n") if clean(line)]
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file of `English<TAB>French` lines; further columns are left out.

    Raises:
        InputError: there is no such file, or a line has no tab.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        english, tab, rest = line.partition("\t")
        if not tab:
            raise InputError(f"line {number} of '{path}' has no tab between English and French")
        pair = Pair(clean(english), clean(rest.partition("\t")[0]))
        if pair.en and pair.fr:
            pairs.append(pair)
    return pairs


def leave_out(pairs: list[Pair], sentences: list[str]) -> list[Pair]:
    """The pairs whose English is none of the sentences: one English has many a French."""
    unseen = set(sentences)
    return [pair for pair in pairs if pair.en not in unseen]


def checksum(path: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Pieces:
    """One text as the model reads it.

    Attributes:
        ids: piece ids, shape (pieces,).
        words: for each piece the number of the word it belongs to, shape (pieces,).
    """

    ids: NDArray[np.int32]
    words: NDArray[np.int32]


def split_words(text: str, language: str) -> list[str]:
    """The words and punctuation marks of a text, for aligning."""
    return WORDS[language].findall(text)


def tokenize_natural(tokenizer: Tokenizer, texts: list[str], language: str) -> list[Pieces]:
    """Texts as they are written; a piece that is only a space goes to the word after it."""
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [_by_offsets(*both, language) for both in zip(encodings, texts, strict=True)]


def _by_offsets(encoding: Encoding, text: str, language: str) -> Pieces:
    ends = [match.end() for match in WORDS[language].finditer(text)]
    last = np.array([end - 1 for _, end in encoding.offsets], dtype=np.int32)
    words = np.searchsorted(np.array(ends), last, side="right").astype(np.int32)
    return Pieces(np.array(encoding.ids, dtype=np.int32), np.minimum(words, len(ends) - 1))


def tokenize_spaced(tokenizer: Tokenizer, texts: list[str], language: str) -> list[Pieces]:
    """Texts with a space between all their words, as aligned text is often stored."""
    split = [split_words(text, language) for text in texts]
    encodings = tokenizer.encode_batch(split, is_pretokenized=True, add_special_tokens=False)
    return [
        Pieces(np.array(one.ids, dtype=np.int32), np.array(one.word_ids, dtype=np.int32))
        for one in encodings
    ]
