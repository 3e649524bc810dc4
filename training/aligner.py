"""Which words translate each other: two hidden Markov models that agree (Vogel 1996, Liang 2006).

Each model explains one language's words by the other's: a word's translation depends on the word
alone (IBM Model 1, Brown 1993), and where the next word's partner stands depends on the jump from
this one's (Vogel 1996); a word may also come from nothing (Och & Ney 2003, section 2.1.2). The two
directions are trained together: what is counted is the product of both posteriors, so each learns
only from links that the other believes too (Liang, Taskar & Klein 2006). Words are cut to their
first letters, which joins the forms of a verb (Och & Ney 2003, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEM = 5
"""Letters of a word that are kept."""
FROM_NOTHING = 0.2
"""Chance that a word has no partner."""
FURTHEST = 6
"""The longest jump with a count of its own; beyond it the chance falls by 0.7 a word."""


def first_jumps() -> NDArray[np.float64]:
    """Jumps from −FURTHEST to FURTHEST before anything is counted: one word on is likeliest."""
    steps = np.arange(-FURTHEST, FURTHEST + 1)
    chances: NDArray[np.float64] = np.exp(-0.5 * np.abs(steps - 1.0))
    return chances


@dataclass
class Direction:
    """What one direction has learned.

    Attributes:
        chances: of each linked pair of words (given its first word); the last one, 0, is padding's.
        nothing: of each word, given that it comes from nothing.
        jumps: of each distance from −FURTHEST to FURTHEST.
    """

    chances: NDArray[np.float64]
    nothing: NDArray[np.float64]
    jumps: NDArray[np.float64] = field(default_factory=first_jumps)


@dataclass(frozen=True, slots=True)
class Block:
    """Pairs of much the same length.

    Attributes:
        members: which pairs, shape (pairs,).
        first: the first language's word numbers, −1 for padding, shape (pairs, first words).
        second: the second language's, shape (pairs, second words).
        links: for each two words the number of their pair of types, shape (pairs, first, second).
    """

    members: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    links: NDArray[np.int64]


class Aligner:
    """Aligns the words of sentence pairs; learns from those pairs alone."""

    def __init__(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Number the words of the pairs.

        Args:
            pairs: the words of both sentences, none of them empty.
        """
        first_numbers: dict[str, int] = {}
        second_numbers: dict[str, int] = {}
        numbered = [
            (_numbers(first, first_numbers), _numbers(second, second_numbers))
            for first, second in pairs
        ]
        self.blocks = list(_blocks(numbered))
        width = len(second_numbers)
        codes = np.concatenate([(b.links[b.links >= 0]) for b in self.blocks])
        types = np.unique(codes)
        for block in self.blocks:
            inside = block.links >= 0
            block.links[inside] = np.searchsorted(types, block.links[inside])
            block.links[~inside] = len(types)
        self.first_of, self.second_of = types // width, types % width
        self.forward = self._start(self.first_of, len(second_numbers))
        self.backward = self._start(self.second_of, len(first_numbers))

    def _start(self, given: NDArray[np.int64], words: int) -> Direction:
        even = 1 / np.bincount(given)[given]
        return Direction(np.append(even, 0.0), np.full(words, 1 / words))

    def train(self, without_jumps: int = 3, with_jumps: int = 4) -> None:
        """Count and divide, first by the words alone, then with jumps (about 2 s a round)."""
        for number in range(without_jumps + with_jumps):
            self._round(jumps=number >= without_jumps, agree=number > 0)

    def _round(self, *, jumps: bool, agree: bool) -> None:
        forward, backward = Counts(self.forward), Counts(self.backward)
        for block in self.blocks:
            there, there_nothing = forward.expect(
                block.links.transpose(0, 2, 1), block.first, block.second, jumps
            )
            back, back_nothing = backward.expect(block.links, block.second, block.first, jumps)
            there = there.transpose(0, 2, 1)
            both = there * back
            forward.add(block.links, both if agree else there, block.second, there_nothing)
            backward.add(block.links, both if agree else back, block.first, back_nothing)
        self.forward = forward.learn(self.first_of, jumps)
        self.backward = backward.learn(self.second_of, jumps)

    def links(self) -> list[NDArray[np.float16]]:
        """How sure both directions are of each link: the root of their posteriors' product.

        Returns:
            For each pair an array of shape (first words, second words), each value from 0 to 1.
        """
        found: list[NDArray[np.float16]] = [np.zeros((0, 0), np.float16)] * sum(
            len(block.members) for block in self.blocks
        )
        forward, backward = Counts(self.forward), Counts(self.backward)
        for block in self.blocks:
            there, _ = forward.expect(
                block.links.transpose(0, 2, 1), block.first, block.second, True
            )
            back, _ = backward.expect(block.links, block.second, block.first, True)
            sure = np.sqrt(there.transpose(0, 2, 1) * back).astype(np.float16)
            first_lengths, second_lengths = (block.first >= 0).sum(1), (block.second >= 0).sum(1)
            for row, member in enumerate(block.members):
                found[member] = sure[row, : first_lengths[row], : second_lengths[row]].copy()
        return found


class Counts:
    """What one direction expects of the pairs it has been shown in this round."""

    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self.links = np.zeros_like(direction.chances)
        self.nothing = np.full_like(direction.nothing, 0.1)
        self.jumps = np.zeros_like(direction.jumps)

    def expect(
        self,
        links: NDArray[np.int64],
        given: NDArray[np.int64],
        explained: NDArray[np.int64],
        jumps: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Posteriors that explained words come from given ones, and that they come from nothing.

        Args:
            links: numbers of the pairs of types, shape (pairs, explained, given).
            given: word numbers, −1 for padding, shape (pairs, given).
            explained: likewise, shape (pairs, explained).
            jumps: whether the partner's place counts.

        Returns:
            Shapes (pairs, explained, given) and (pairs, explained), together 1 for each word.
        """
        chances = self.direction.chances[links]
        nothing = np.where(explained >= 0, self.direction.nothing[explained], 0.0)
        if jumps:
            posterior, rest, seen = forward_backward(
                chances, nothing, given >= 0, explained >= 0, self.direction.jumps
            )
            self.jumps += seen
            return posterior, rest
        places = (given >= 0).sum(1)[:, None, None]
        posterior, rest = chances * (1 - FROM_NOTHING) / places, nothing * FROM_NOTHING
        total = posterior.sum(-1) + rest
        total[total == 0] = 1
        return posterior / total[..., None], rest / total

    def add(
        self,
        links: NDArray[np.int64],
        believed: NDArray[np.float64],
        explained: NDArray[np.int64],
        rest: NDArray[np.float64],
    ) -> None:
        """Count links by how much they are believed."""
        self.links += np.bincount(links.ravel(), believed.ravel(), len(self.links))
        inside = explained >= 0
        self.nothing += np.bincount(explained[inside], rest[inside], len(self.nothing))

    def learn(self, given: NDArray[np.int64], jumps: bool) -> Direction:
        """Counts divided by their sums: the next round's chances."""
        counts = self.links[:-1]
        sums = np.maximum(np.bincount(given, counts), 1e-12)[given]
        places = self.jumps / self.jumps.sum() if jumps else self.direction.jumps
        return Direction(np.append(counts / sums, 0.0), self.nothing / self.nothing.sum(), places)


def transitions(jumps: NDArray[np.float64], places: int) -> NDArray[np.float64]:
    """Unnormalised chances (places + 1, places) to go from a place to a place; row 0: the start."""
    distance = np.arange(places)[None, :] - np.arange(-1, places)[:, None]
    beyond = np.maximum(np.abs(distance) - FURTHEST, 0)
    counted: NDArray[np.float64] = jumps[np.clip(distance, -FURTHEST, FURTHEST) + FURTHEST]
    chances: NDArray[np.float64] = counted * 0.7**beyond
    return chances


def forward_backward(
    chances: NDArray[np.float64],
    nothing: NDArray[np.float64],
    given: NDArray[np.bool_],
    explained: NDArray[np.bool_],
    jumps: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of a hidden Markov model whose places are given words.

    A word from nothing leaves the place where it was; before the first partner that is the first
    place.

    Args:
        chances: of an explained word at a place, shape (pairs, explained, places).
        nothing: of an explained word from nothing, shape (pairs, explained).
        given: False for padded places, shape (pairs, places).
        explained: False for padded words, shape (pairs, explained).
        jumps: of each distance, shape (2 × FURTHEST + 1,).

    Returns:
        Posteriors of places (pairs, explained, places) and of nothing (pairs, explained), and how
        often each jump is expected.
    """
    _, length, places = chances.shape
    moves = transitions(jumps, places)[None] * given[:, None, :]
    moves = (1 - FROM_NOTHING) * moves / np.maximum(moves.sum(-1, keepdims=True), 1e-30)
    start, moves = moves[:, 0], moves[:, 1:]
    linked, rest = np.zeros_like(chances), np.zeros_like(chances)
    scale = np.ones(chances.shape[:2])
    for word in range(length):
        if word:
            before = linked[:, word - 1] + rest[:, word - 1]
            on = np.einsum("bi,bik->bk", before, moves) * chances[:, word]
            stay = FROM_NOTHING * before * nothing[:, word, None]
        else:
            on = start * chances[:, 0]
            stay = np.zeros_like(on)
            stay[:, 0] = FROM_NOTHING * nothing[:, 0]
        here = explained[:, word]
        total = np.where(here, on.sum(-1) + stay.sum(-1), 1.0)
        total[total == 0] = 1
        scale[:, word] = total
        linked[:, word] = np.where(here[:, None], on / total[:, None], 0)
        rest[:, word] = np.where(here[:, None], stay / total[:, None], 0)
    after = np.ones((len(chances), places))
    counted = np.zeros((places, places))
    for word in range(length - 1, -1, -1):
        here = explained[:, word][:, None]
        if word:
            ahead = chances[:, word] * after / scale[:, word, None]
            before = (linked[:, word - 1] + rest[:, word - 1]) * here
            counted += np.einsum("bi,bik,bk->ik", before, moves, ahead)
            earlier = np.einsum("bik,bk->bi", moves, ahead)
            earlier += FROM_NOTHING * nothing[:, word, None] * after / scale[:, word, None]
        linked[:, word] *= after
        rest[:, word] *= after
        if word:
            after = np.where(here, earlier, after)
    distance = np.arange(places)[None, :] - np.arange(places)[:, None]
    kind = np.clip(distance, -FURTHEST, FURTHEST) + FURTHEST
    seen = np.zeros(len(jumps))
    np.add.at(seen, kind, counted)
    return linked, rest.sum(axis=-1), seen


def _numbers(words: Sequence[str], known: dict[str, int]) -> NDArray[np.int64]:
    stems = [word.lower()[:STEM] for word in words]
    return np.array([known.setdefault(stem, len(known)) for stem in stems], dtype=np.int64)


def _blocks(
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]], cells: int = 60_000
) -> Iterator[Block]:
    width = 1 + max(int(second.max()) for _, second in pairs)
    order = sorted(range(len(pairs)), key=lambda number: [len(side) for side in pairs[number]])
    members: list[int] = []
    rows = columns = 0
    for number in [*order, None]:
        if number is not None:
            rows = max(rows, len(pairs[number][0]))
            columns = max(columns, len(pairs[number][1]))
            if (len(members) + 1) * rows * columns <= cells or not members:
                members.append(number)
                continue
        first = _pad_rows([pairs[member][0] for member in members])
        second = _pad_rows([pairs[member][1] for member in members])
        inside = (first >= 0)[:, :, None] & (second >= 0)[:, None, :]
        links = np.where(inside, first[:, :, None] * width + second[:, None, :], -1)
        yield Block(np.array(members), first, second, links)
        if number is not None:
            members, rows, columns = [number], len(pairs[number][0]), len(pairs[number][1])


def _pad_rows(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    table = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
