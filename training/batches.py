"""Training texts out of sentence pairs: chains, unknown words, masked words, padded batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.models.pocket.text import END, LANGUAGE, MASK, PAD, SPECIALS, UNKNOWN
from training.corpus import Pair, Pieces, split_words, tokenize_natural, tokenize_spaced

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

IGNORED = -100
"""What a target position holds that no loss looks at."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How training texts are made; each value but the last is a chance from 0 to 1.

    Attributes:
        french_to_english: the source is French.
        language_model: the source is empty.
        chain: two to five pairs follow each other, so that longer texts work.
        joined: in a chain, a comma stands where one sentence ended.
        spaced: a text has spaces around punctuation.
        unknown_words: a text has words replaced by made-up ones.
        unknown_word: in such a text, a linked word is replaced.
        masked: a source has words masked.
        masked_piece: in such a source, a piece is masked.
        longest: no text has more pieces.
    """

    french_to_english: float = 0.45
    language_model: float = 0.08
    chain: float = 0.3
    joined: float = 0.5
    spaced: float = 0.3
    unknown_words: float = 0.35
    unknown_word: float = 0.15
    masked: float = 0.2
    masked_piece: float = 0.15
    longest: int = 120


@dataclass(frozen=True, slots=True)
class Example:
    """One training text.

    Attributes:
        source: piece ids, the last one <eos>.
        hidden: what was masked in the source, IGNORED elsewhere.
        target: what the decoder reads: the language's tag, then pieces.
        expected: what it should predict at each position, IGNORED where that cannot be known.
        guide: for each target position its share of each source position, rows summing to 1 or, for
            the tag and a language model, to 0.
        spelling: a number for each source piece that is the same where only capitals differ;
            IGNORED for special pieces and throughout a masked source.
    """

    source: NDArray[np.int32]
    hidden: NDArray[np.int32]
    target: NDArray[np.int32]
    expected: NDArray[np.int32]
    guide: NDArray[np.float32]
    spelling: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples of much the same length, padded: shapes (examples, positions)."""

    source: NDArray[np.int64]
    hidden: NDArray[np.int64]
    target: NDArray[np.int64]
    expected: NDArray[np.int64]
    guide: NDArray[np.float32]
    spelling: NDArray[np.int64]


class Examples:
    """Makes training texts out of pairs and the links between their words."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        pairs: list[Pair],
        links: list[NDArray[np.float16]],
        recipe: Recipe,
    ) -> None:
        self.recipe, self.links = recipe, links
        texts = {"en": [pair.en for pair in pairs], "fr": [pair.fr for pair in pairs]}
        self.natural = {name: tokenize_natural(tokenizer, texts[name], name) for name in texts}
        self.spaced = {name: tokenize_spaced(tokenizer, texts[name], name) for name in texts}
        self.readable = {
            name: [
                np.array([word[-1].isalpha() for word in split_words(text, name)])
                for text in texts[name]
            ]
            for name in texts
        }
        self.starts, self.rests = made_up_pieces(tokenizer)
        self.spellings = spellings(tokenizer)
        vocabulary = tokenizer.get_vocab()
        self.stop, self.comma = vocabulary["."], vocabulary[","]

    def draw(self, random: Generator) -> Example:
        """One training text, the same for the same state of the generator."""
        recipe = self.recipe
        languages = ("fr", "en") if random.random() < recipe.french_to_english else ("en", "fr")
        count = int(random.integers(2, 6)) if random.random() < recipe.chain else 1
        chosen = random.integers(0, len(self.links), count)
        alike = random.random() < 0.5
        style = random.random() < recipe.spaced
        other = style if alike else random.random() < recipe.spaced
        source = self._text(chosen, languages[0], style)
        target = self._text(chosen, languages[1], other)
        links = self._chain_links([self._links(number, languages) for number in chosen])
        if random.random() < recipe.joined:
            source, target = self._join(source), self._join(target)
        known = [np.ones(len(target.ids), bool)]
        if random.random() < recipe.unknown_words:
            readable = [
                np.concatenate([self.readable[language][number] for number in chosen])
                for language in languages
            ]
            source, target = self._make_up_words(source, target, links, readable, known, random)
        return self._example(source, target, links, known[0], LANGUAGE[languages[1]], random)

    def _text(self, chosen: NDArray[np.int64], language: str, with_spaces: bool) -> Pieces:
        texts = (self.spaced if with_spaces else self.natural)[language]
        ids, words, before = [], [], 0
        for number in chosen:
            ids.append(texts[number].ids)
            words.append(texts[number].words + before)
            before += len(self.readable[language][number])
        return Pieces(np.concatenate(ids), np.concatenate(words))

    def _links(self, number: int, languages: tuple[str, str]) -> NDArray[np.float16]:
        links = self.links[number]
        return links if languages[0] == "en" else links.T

    def _chain_links(self, parts: list[NDArray[np.float16]]) -> NDArray[np.float32]:
        whole = np.zeros(np.sum([part.shape for part in parts], axis=0), np.float32)
        row = column = 0
        for part in parts:
            whole[row : row + part.shape[0], column : column + part.shape[1]] = part
            row, column = row + part.shape[0], column + part.shape[1]
        return whole

    def _join(self, text: Pieces) -> Pieces:
        inner = (text.ids == self.stop) & (np.arange(len(text.ids)) < len(text.ids) - 1)
        return Pieces(np.where(inner, self.comma, text.ids).astype(np.int32), text.words)

    def _make_up_words(
        self,
        source: Pieces,
        target: Pieces,
        links: NDArray[np.float32],
        readable: list[NDArray[np.bool_]],
        known: list[NDArray[np.bool_]],
        random: Generator,
    ) -> tuple[Pieces, Pieces]:
        """Replace linked words, on both sides or on one, by pieces that mean nothing.

        What is learned is to find a word's partner by its place and its neighbours, and that equal
        spellings are partners.
        """
        sure = (links > 0.7) & readable[0][:, None] & readable[1][None, :]
        for first, second in np.argwhere(sure):
            if random.random() >= self.recipe.unknown_word:
                continue
            kind = random.random()
            new = self._new_word(random)
            if kind < 0.8:
                source = replace_word(source, first, new)
            if kind < 0.6 or kind >= 0.8:
                again = new if kind < 0.25 else self._new_word(random)
                target, known[0] = replace_word(target, second, again, known[0], kind < 0.25)
        return source, target

    def _new_word(self, random: Generator) -> NDArray[np.int32]:
        if random.random() < 0.05:
            return np.array([UNKNOWN], dtype=np.int32)
        rest = random.choice(self.rests, random.choice(4, p=[0.15, 0.4, 0.3, 0.15]))
        return np.concatenate([random.choice(self.starts, 1), rest]).astype(np.int32)

    def _example(
        self,
        source: Pieces,
        target: Pieces,
        links: NDArray[np.float32],
        known: NDArray[np.bool_],
        tag: int,
        random: Generator,
    ) -> Example:
        longest = self.recipe.longest
        source = Pieces(source.ids[:longest], source.words[:longest])
        target = Pieces(target.ids[:longest], target.words[:longest])
        whole = len(known) <= longest
        last = END if whole else IGNORED
        expected = np.append(np.where(known[:longest], target.ids, IGNORED), last)
        read = np.concatenate([[tag], target.ids]).astype(np.int32)
        if random.random() < self.recipe.language_model:
            nothing = np.array([END], dtype=np.int32)
            guide = np.zeros((len(read), 1), np.float32)
            none = np.full(1, IGNORED)
            return Example(nothing, none, read, expected.astype(np.int32), guide, none)
        ids, hidden = np.append(source.ids, END), np.full(len(source.ids) + 1, IGNORED)
        spelling = self.spellings[ids]
        if random.random() < self.recipe.masked:
            covered = random.random(len(source.ids)) < self.recipe.masked_piece
            covered = np.append(covered, False)
            hidden = np.where(covered, ids, IGNORED)
            ids = np.where(covered, MASK, ids)
            spelling = np.full(len(ids), IGNORED)
        guide = guide_rows(source, target, links)
        return Example(ids, hidden, read, expected.astype(np.int32), guide, spelling)


def guide_rows(source: Pieces, target: Pieces, links: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where the guided head should look: from the row that has just read a piece to its partner.

    What no word takes goes to <eos>: the row's own way of saying that it has no partner.

    Returns:
        Shape (target pieces + 1, source pieces + 1); row 0, of the tag, is all 0.
    """
    pieces = np.maximum(np.bincount(source.words, minlength=len(links)), 1)
    shares = (links / pieces[:, None])[source.words][:, target.words].T
    total = shares.sum(-1, keepdims=True)
    shares = shares / np.maximum(total, 1)
    rows = np.zeros((len(target.ids) + 1, len(source.ids) + 1), np.float32)
    rows[1:, :-1] = shares
    rows[1:, -1] = 1 - shares.sum(-1)
    return rows


def replace_word(
    text: Pieces,
    word: int,
    pieces: NDArray[np.int32],
    known: NDArray[np.bool_] | None = None,
    new_known: bool = False,
) -> Any:
    """The text with one word's pieces exchanged; with `known`, that too, as a second value."""
    inside = np.flatnonzero(text.words == word)
    if not len(inside):
        return text if known is None else (text, known)
    start, end = inside[0], inside[-1] + 1

    def splice(old: Any, new: Any) -> Any:
        return np.concatenate([old[:start], new, old[end:]])

    numbers = np.full(len(pieces), word, dtype=np.int32)
    changed = Pieces(splice(text.ids, pieces), splice(text.words, numbers))
    if known is None:
        return changed
    return changed, splice(known, np.full(len(pieces), new_known))


def made_up_pieces(tokenizer: Tokenizer) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pieces that can begin a made-up word, and pieces that can go on with it."""
    starts: list[int] = []
    rests: list[int] = []
    for piece, number in sorted(tokenizer.get_vocab().items()):
        letters = piece.removeprefix("▁")
        if letters.isalpha() and len(letters) <= 5:
            (starts if piece.startswith("▁") else rests).append(number)
    return np.array(starts, dtype=np.int32), np.array(rests, dtype=np.int32)


def spellings(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """A number for each piece, the same for "The" and "the"; IGNORED for special pieces."""
    numbers: dict[str, int] = {}
    found = np.full(tokenizer.get_vocab_size(), IGNORED, dtype=np.int32)
    for piece, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        if number >= len(SPECIALS):
            found[number] = numbers.setdefault(piece.lower(), len(numbers))
    return found


def batches(
    examples: Examples, seed: int, start: int, pieces: int, bands: int = 7
) -> Iterator[Batch]:
    """Batches without end, the same ones for the same seed, wherever the run starts anew.

    Args:
        examples: what makes the texts.
        seed: of every draw.
        start: how many batches to pass over.
        pieces: about how many pieces of the longer side are in a batch, without padding.
        bands: bands² batches are drawn together and cut by source length, then by target length.
    """
    pool = bands * bands
    number = start // pool
    while True:
        random = np.random.default_rng([seed, number])
        drawn: list[Example] = []
        size = 0
        while size < pieces * pool:
            drawn.append(examples.draw(random))
            size += max(len(drawn[-1].source), len(drawn[-1].target))
        drawn.sort(key=lambda one: len(one.source))
        groups = []
        for band in equal_parts(drawn, bands):
            band.sort(key=lambda one: len(one.target))
            groups += equal_parts(band, bands)
        for place in random.permutation(pool)[max(start - number * pool, 0) :]:
            yield pad_batch(groups[place])
        number += 1


def equal_parts(drawn: list[Example], parts: int) -> list[list[Example]]:
    """The examples, in their order, in parts of about as many pieces each."""
    sums = np.cumsum([max(len(one.source), len(one.target)) for one in drawn])
    inner = np.searchsorted(sums, sums[-1] * np.arange(1, parts) / parts)
    cuts = [0, *(int(place) for place in inner), len(drawn)]
    return [drawn[start:end] for start, end in pairwise(cuts)]


def pad_batch(drawn: list[Example]) -> Batch:
    """Examples side by side, filled up to the longest of them."""
    rows = len(drawn)
    keys = max(len(one.source) for one in drawn)
    queries = max(len(one.target) for one in drawn)
    source, hidden = np.full((rows, keys), PAD), np.full((rows, keys), IGNORED)
    target, expected = np.full((rows, queries), PAD), np.full((rows, queries), IGNORED)
    guide = np.zeros((rows, queries, keys), np.float32)
    spelling = np.full((rows, keys), IGNORED)
    for row, one in enumerate(drawn):
        source[row, : len(one.source)] = one.source
        hidden[row, : len(one.hidden)] = one.hidden
        target[row, : len(one.target)] = one.target
        expected[row, : len(one.expected)] = one.expected
        guide[row, : one.guide.shape[0], : one.guide.shape[1]] = one.guide
        spelling[row, : len(one.spelling)] = one.spelling
    return Batch(source, hidden, target, expected, guide, spelling)
