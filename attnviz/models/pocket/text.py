"""Which of its two languages the pocket model takes a text for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError
from attnviz.core.tokens import continues_word
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.models.pocket.network import Sizes, StoredWeights, decode, embed, encode, predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

OTHER = {"en": "fr", "fr": "en"}
NAMES = {"en": "English", "fr": "French"}
MARGIN = 0.3
"""Nats a piece by which one direction must win for the guess to go without a note."""


def languages_of(
    weights: StoredWeights,
    sizes: Sizes,
    texts: Sequence[EncodedText],
    translations: Sequence[EncodedText] | None = None,
) -> list[tuple[str, list[str]]]:
    """The language in which the model would rather have written each text by itself.

    Where its translation is known, that one has to be likely in the other language as well.

    Returns:
        for each text "en" or "fr", and a note where it was a close call.
    """
    empty, _ = encode(weights, sizes, embed_many(weights, sizes, [[END]])[0])
    sums = {name: losses(weights, sizes, texts, empty, name) for name in LANGUAGE}
    if translations is not None:
        for name in LANGUAGE:
            sums[name] = sums[name] + losses(weights, sizes, translations, empty, OTHER[name])
    return [
        _decide(text, {name: float(found[number]) for name, found in sums.items()})
        for number, text in enumerate(texts)
    ]


def losses(
    weights: StoredWeights,
    sizes: Sizes,
    targets: Sequence[EncodedText],
    memory: Array,
    language: str,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Nats a piece, <eos> included, of each target given an encoded source."""
    rows = [target.tagged(language)[0] for target in targets]
    states, _, _ = decode(weights, sizes, embed_many(weights, sizes, rows)[0], memory)
    scores = to_numpy(predict(weights, states))
    found = []
    for own, target in zip(scores, targets, strict=True):
        expected = np.array([*target.ids, END])
        own = own[: len(expected)]
        highest = own.max(axis=-1)
        totals = highest + np.log(np.exp(own - highest[:, None]).sum(axis=-1))
        found.append(float((totals - own[np.arange(len(expected)), expected]).mean()))
    return np.array(found)


def _decide(text: EncodedText, sums: dict[str, float]) -> tuple[str, list[str]]:
    language, other = sorted(sums, key=lambda name: sums[name])
    if sums[other] - sums[language] > MARGIN:
        return language, []
    note = f"'{shortened(text.text)}' was read as {NAMES[language]}, but could be {NAMES[other]}"
    return language, [f"{note}: --to names the target's language"]


def shortened(text: str, longest: int = 40) -> str:
    """The text, cut with an ellipsis where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


# <tokenizer> Text into pieces and back, with character offsets into the text as it was given.

PAD, UNKNOWN, END, ENGLISH, FRENCH, MASK = range(6)
"""The ids of the pieces that stand for no text."""

SPECIALS = ("<pad>", "<unk>", "<eos>", "<en>", "<fr>", "<mask>")
LANGUAGE = {"en": ENGLISH, "fr": FRENCH}

REWRITES = (("\u2019", "'"), ("\u00ad", ""), ("\u200b", ""))
"""What the training text writes one way only; NFKC turns its odd spaces into plain ones."""


@cache
def load_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` that a JSON file describes."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def with_rewrites(document: str) -> str:
    """A tokenizer's JSON with the rewrites put before its normaliser, as small as it gets."""
    content = json.loads(document)
    steps = [
        {"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in REWRITES
    ]
    content["normalizer"] = {"type": "Sequence", "normalizers": [*steps, {"type": "NFKC"}]}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


# <text> A text as the pocket model reads it: piece ids, and tokens with their places in the text.

LONGEST = 4096
"""Pieces of the longest text that is read: its maps hold 24 × 4096² weights."""
USUAL = 120
"""Pieces of the longest text in training."""
FRAGMENTED = 1.75
"""Pieces a word or sign above which a text is hardly English or French: 99 % of training sentences
have fewer, and the mean is 1.1."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text in pieces.

    Attributes:
        text: as it was given.
        ids: of its pieces, without special ones.
        tokens: one for each piece.
    """

    text: str
    ids: list[int]
    tokens: tuple[Token, ...]

    def ended(self) -> tuple[list[int], tuple[Token, ...]]:
        """What the encoder reads: the pieces, then <eos>."""
        return [*self.ids, END], (*self.tokens, special(END, len(self.text)))

    def tagged(self, language: str) -> tuple[list[int], tuple[Token, ...]]:
        """What the decoder reads: the language's tag, then the pieces."""
        return [LANGUAGE[language], *self.ids], (special(LANGUAGE[language], 0), *self.tokens)

    def notes(self, name: str) -> list[str]:
        """What a reader must know where the text is unlike the training text."""
        found = []
        unknown, words = self.ids.count(UNKNOWN), len(_WORD.findall(self.text))
        pieces = sum(token.text != "▁" for token in self.tokens)
        if unknown:
            found.append(f"{unknown} of {len(self.ids)} pieces are unknown to it")
        if words > 2 and pieces / words > FRAGMENTED:
            found.append(f"{pieces / words:.1f} pieces a word, where English and French have 1.1")
        if len(self.ids) > USUAL:
            found.append(f"{len(self.ids)} pieces, where it was trained on up to {USUAL}")
        if not found:
            return []
        return [f"{name} lies outside what the pocket model was trained for: {'; '.join(found)}"]


def special(number: int, place: int) -> Token:
    """A special piece as a token that covers no text."""
    return Token(SPECIALS[number], place, place, special=True)


def read_text(text: str, path: Path, what: str = "text") -> EncodedText:
    """The text in pieces.

    Args:
        text: any.
        path: of the tokenizer.
        what: the text's name in messages.

    Raises:
        InputError: the text is blank, or longer than can be shown.
    """
    encoding = load_tokenizer(path).encode(text, add_special_tokens=False)
    if not text.strip() or not encoding.ids:
        raise InputError(f"the {what} is empty: give at least one word")
    if len(encoding.ids) > LONGEST:
        raise InputError(
            f"the {what} has {len(encoding.ids)} pieces: the pocket model reads up to {LONGEST}; "
            "cut it, or use --model"
        )
    spans = encoding.offsets
    shared = {span for before, span in pairwise(spans) if before == span}
    tokens = tuple(
        token(text, piece, span, alone=span not in shared)
        for piece, span in zip(encoding.tokens, spans, strict=True)
    )
    return EncodedText(text, list(encoding.ids), tokens)


def token(text: str, piece: str, span: tuple[int, int], *, alone: bool = True) -> Token:
    """A piece as a token: what it covers without the space before it, ## where it goes on a word.

    Args:
        text: the whole text.
        piece: the tokenizer's spelling.
        span: what the piece covers.
        alone: False where one character became several pieces, which then show their own spelling.
    """
    start, end = span
    covered = text[start:end].strip()
    if covered:
        start += text[start:end].index(covered)
        end = start + len(covered)
    shown = covered if alone else piece.lstrip("▁")
    mark = "##" if shown and continues_word(text, start) else ""
    return Token(f"{mark}{shown}" or piece, start, end)


# <batch> Several texts as one batch for the pocket model, and each text's own part of what it
# gives.


def embed_many(
    weights: StoredWeights, sizes: Sizes, rows: Sequence[Sequence[int]]
) -> tuple[Array, Array | None]:
    """Texts by their pieces' numbers as what the model's layers take, padded behind.

    Returns:
        shape (texts, positions, size); and True where there is no padding, shape (texts, 1, 1,
        positions), None where there is none anywhere.
    """
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), PAD)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    waves = weights.convert(sinusoidal_positions(ids.shape[1], sizes.size))
    inputs = embed(weights.rows("embedding.weight", ids), waves)
    if lengths.min() == lengths.max():
        return inputs, None
    mask = np.arange(ids.shape[1]) < lengths[:, None, None, None]
    return inputs, weights.place(mask)


def own_shares(
    shares: Sequence[Array], sides: Sequence[tuple[int, int]]
) -> list[NDArray[np.float32]]:
    """Each text's weights of shape (layers, heads, queries, keys), from those of each layer.

    Args:
        shares: for each layer shape (texts, heads, queries, keys).
        sides: each text's queries and keys.
    """
    layers = [to_numpy(share) for share in shares]
    return [
        np.stack([layer[number, :, :queries, :keys] for layer in layers])
        for number, (queries, keys) in enumerate(sides)
    ]


def to_numpy(array: Array) -> Any:
    """The numbers as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32, copy=False)
    return array.detach().float().cpu().numpy()
