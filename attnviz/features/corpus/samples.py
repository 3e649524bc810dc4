"""Example texts for each head, the strongest and from weak to strong, drawn as a corpus is read.

A head's strongest link between two words puts the text in a bucket by weight. Each bucket keeps the
texts with the lowest hash of (seed, head, text) (bottom-k sampling; Cohen and Kaplan 2007,
Summarizing data using bottom-k sketches). So every text has the same chance, and the result does
not depend on the order of texts or on the workers. Equal texts have one hash and are kept once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.features.corpus.results import Atlas, SourceText, StreamReport
from attnviz.features.corpus.words import InWords, split

SEED = 0
BUCKETS = 10  # buckets of weights: up to .1, up to .2, …, from .9 on
KEPT = 4  # texts in each bucket, and strongest texts
SHOWN_KEYS = 6  # keys to keep for the link's query: the link's own, then the strongest others
NUMBERS = 3 + 2 * SHOWN_KEYS
NEIGHBOURS = 6
RULE = (
    f"Every text is counted in the bucket of each head's strongest link between two words; shown "
    f"are the {KEPT} strongest texts and, of each bucket, {KEPT} drawn by the lowest hash of "
    f"(seed {SEED}, head, text)"
)
DISTANCE = (
    "0: the same, 1: nothing in common. Mean of two total variation distances: between their "
    "shares of attention by relative position (special tokens apart), and by class of the key"
)
WAITING = 256  # texts, since sorting each text alone would cost a pass over all that is kept
_LAST = np.uint64(2**64 - 1)


class Samples:
    """Example texts of one stream, and the words that their strongest links join.

    Attributes:
        counts, ends: as in `Atlas`; examples: what it calls `drawn`.
    """

    def __init__(self, words: Sequence[str], heads: int) -> None:
        self.words = tuple(words)
        self._places = {word: place for place, word in enumerate(words)}
        self.counts = np.zeros((heads, BUCKETS + 1), dtype=np.int64)
        self.ends = np.zeros((heads, 2, len(words) + 1), dtype=np.int64)
        self.examples = np.full((heads, BUCKETS + 1, KEPT, NUMBERS), -1.0)
        self.texts: dict[int, SourceText] = {}
        self._waiting: list[NDArray[np.float64]] = []

    def add(self, links: NDArray[np.float64] | None, item: InWords, text: SourceText) -> None:
        """Add one text by its strongest links from `Strongest.add`."""
        if links is None:
            self.counts[:, -1] += 1
            return
        heads = np.arange(len(links))
        queries, keys = links[:, 2].astype(int), links[:, 3].astype(int)
        self.counts[heads, _buckets(links[:, 0])] += 1
        for side, axis, places in ((0, item.queries, queries), (1, item.keys, keys)):
            of_words = [self._places.get(word, -1) for word in axis.words]
            self.ends[heads, side, np.array(of_words)[places]] += 1
        rows = item.weights[heads, queries].astype(np.float64)
        rows[heads, keys] = np.inf
        order = np.argsort(-rows, axis=-1, kind="stable")[:, :SHOWN_KEYS]
        rows[heads, keys] = links[:, 0]
        cells = np.stack([order, np.take_along_axis(rows, order, axis=-1)], axis=-1)
        samples = np.full((len(links), 1, NUMBERS), -1.0)
        samples[:, 0, :3] = links[:, :3]
        samples[:, 0, 3 : 3 + cells[0].size] = cells.reshape(len(links), -1)
        self._waiting.append(samples)
        self.texts[int(links[0, 1])] = text
        if len(self._waiting) >= WAITING:
            self.settle()

    def merge(self, others: Mapping[str, NDArray[Any]], texts: Mapping[int, SourceText]) -> None:
        self.counts += others["drawn counts"]
        self.ends += others["drawn ends"]
        examples = others["drawn"]
        self._waiting.append(examples.reshape(len(examples), -1, NUMBERS))
        self.texts.update(texts)
        self.settle()

    def settle(self) -> None:
        """Draw a sample of the texts that were added since the last draw."""
        if not self._waiting:
            return
        mine = self.examples.reshape(len(self.examples), -1, NUMBERS)
        links = np.concatenate([mine, *self._waiting], axis=1)
        self._waiting.clear()
        hashes = self._hashes_of(links[..., 1].astype(np.int64))
        self.examples = np.full_like(self.examples, -1.0)
        slots = np.where(links[..., 1] < 0, BUCKETS, _buckets(links[..., 0]))
        # Equal texts have equal hashes, so they stand side by side: keep the strongest.
        order = np.lexsort((links[..., 1], -links[..., 0], hashes), axis=-1)
        in_order = np.take_along_axis(hashes, order, axis=-1)
        again = np.zeros(slots.shape, dtype=bool)
        np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=-1)
        slots[again] = BUCKETS
        self._keep(links, np.lexsort((hashes, slots), axis=-1), slots, BUCKETS)
        slots = np.where(slots < BUCKETS, BUCKETS, BUCKETS + 1)
        order = np.lexsort((links[..., 1], -links[..., 0], slots), axis=-1)
        self._keep(links, order, slots, BUCKETS + 1)
        numbers = np.unique(self.examples[..., 1]).astype(int).tolist()
        self.texts = {number: self.texts[number] for number in numbers if number >= 0}

    def _keep(
        self,
        links: NDArray[np.float64],
        order: NDArray[np.intp],
        slots: NDArray[np.intp],
        none: int,
    ) -> None:
        """Keep the first links of each slot below `none`; `order` sorts links by slot."""
        slots = np.take_along_axis(slots, order, axis=-1)
        places = np.broadcast_to(np.arange(order.shape[-1]), order.shape)
        starts = np.diff(slots, axis=-1, prepend=-1) != 0
        ranks = places - np.maximum.accumulate(np.where(starts, places, 0), axis=-1)
        heads, at = np.nonzero((slots < none) & (ranks < KEPT))
        self.examples[heads, slots[heads, at], ranks[heads, at]] = links[heads, order[heads, at]]

    def _hashes_of(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The hash of each head and text, shape (heads, texts); the highest one for no text."""
        each, places = np.unique(numbers, return_inverse=True)
        texts = ("\0".join(self.texts[n].texts) if n >= 0 else "" for n in each.tolist())
        data = (text.encode("utf-8", "backslashreplace") for text in texts)
        digests = b"".join(blake2b(text, digest_size=8).digest() for text in data)
        of_texts = np.frombuffer(digests, "<u8").astype(np.uint64)
        heads = _mix(np.arange(len(numbers), dtype=np.uint64) + np.uint64(SEED << 32))
        hashes = _mix(of_texts[places.reshape(numbers.shape)] ^ heads[:, None])
        return np.where(numbers >= 0, hashes, _LAST)

    def document(self) -> dict[str, Any]:
        self.settle()
        return {"drawn texts": as_document(self.texts)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        self.settle()
        return {"drawn": self.examples, "drawn counts": self.counts, "drawn ends": self.ends}


def _buckets(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.clip((weights * BUCKETS).astype(np.intp), 0, BUCKETS - 1)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014, figure 15)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def atlas_of(samples: Samples, report: StreamReport, *, pictures: bool = False) -> Atlas:
    """The examples and the nearest heads of the stream that the report describes."""
    samples.settle()
    nearest, distances = nearest_heads(report)
    return Atlas(
        counts=samples.counts,
        drawn=samples.examples,
        words=samples.words,
        ends=samples.ends,
        nearest=nearest,
        distances=distances,
        texts={n: text if text.seen else _spell_words(text) for n, text in samples.texts.items()},
        rule=RULE.replace("text", "picture").replace("words", "patches") if pictures else RULE,
        distance=DISTANCE.replace("relative position", "distance") if pictures else DISTANCE,
    )


def _spell_words(text: SourceText) -> SourceText:
    """The text with its words spelt as in it, each after a space, a tab or nothing (`Atlas`)."""

    def best(words: Sequence[str]) -> tuple[str, ...]:
        spellings = (_in_text(words, one) for one in text.texts or ("",))
        return min(spellings, key=lambda one: sum(word[0] == "\t" for word in one))

    return replace(text, queries=best(text.queries), keys=best(text.keys))


def _in_text(words: Sequence[str], text: str) -> tuple[str, ...]:
    units = [(word, word.lower(), start, end) for word, start, end in split(text)]
    spellings, place, end = [], 0, 0
    for word in words:
        there = (at for at in range(place, min(place + 8, len(units))) if units[at][1] == word)
        at = next(there, None)
        if at is None:
            spellings.append(f"\t{word}")
            continue
        spelling, _, start, stop = units[at]
        spellings.append(f" {spelling}" if start > end else spelling)
        place, end = at + 1, stop
    return tuple(spellings)


def nearest_heads(report: StreamReport) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The most similar heads of each head, and their `DISTANCE`."""
    positions = report.offset_shares.reshape(len(report.offset_shares), -1)
    positions = np.concatenate([positions, 1 - positions.sum(axis=0, keepdims=True)]).T
    classes = report.class_shares.reshape(len(report.classes), -1).T
    heads = len(classes)
    count = min(NEIGHBOURS, heads - 1)
    nearest, distances = np.zeros((heads, count), dtype=np.intp), np.zeros((heads, count))
    for head in range(heads):
        apart = np.abs(positions - positions[head]).sum(axis=-1) / 4
        apart += np.abs(classes - classes[head]).sum(axis=-1) / 4
        apart[head] = np.inf
        nearest[head] = np.argsort(apart, kind="stable")[:count]
        distances[head] = np.clip(apart[nearest[head]], 0, 1)
    return nearest, distances


STRONGEST = 10  # texts of each head in which it attends most strongly


def source_text(attention: Attention, item: InWords) -> SourceText:
    """The words of a text, for an example."""
    texts = (attention.text, attention.source, attention.target)
    own = tuple(text for text in texts if text is not None)
    words = item.queries.words, item.keys.words
    if attention.seen is None:
        return SourceText(attention.id, own, *words)
    queries, keys = map(_intern_words, words)
    return SourceText(attention.id, (attention.id,), queries, keys, attention.seen)


@lru_cache(maxsize=8)
def _intern_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for all equal ones: most pictures have the same patches."""
    return words


class Strongest:
    """The strongest links of each head.

    Each text counts once, by the head's strongest link between two words. Of equal texts only the
    first counts. Links are ordered by weight, then by the text's number.

    Attributes:
        links: float64 of shape (heads, 10, 4): weight, number of the text in the corpus, query
            word, key word; the strongest first, weight -1 where there is none.
    """

    def __init__(self, heads: int) -> None:
        self.links = np.full((heads, STRONGEST, 4), -1.0)
        self.texts: dict[int, SourceText] = {}
        self._waiting: list[NDArray[np.float64]] = []

    def add(self, number: int, item: InWords, text: SourceText) -> NDArray[np.float64] | None:
        """Add one text; return its strongest link for each head, shape (heads, 4) as in `links`.

        The result is None if no word may attend to another word.
        """
        if not item.between.any():
            return None
        heads, _, keys = item.weights.shape
        weights = np.where(item.between, item.weights, np.float32(-1)).reshape(heads, -1)
        places = weights.argmax(axis=-1)
        strongest = np.empty((heads, 1, 4))
        strongest[:, 0, 0] = weights[np.arange(heads), places]
        strongest[:, 0, 1] = number
        strongest[:, 0, 2], strongest[:, 0, 3] = np.divmod(places, keys)
        self._waiting.append(strongest)
        self.texts[number] = text
        if len(self._waiting) >= WAITING:
            self.settle()
        return strongest[:, 0]

    def merge(self, links: NDArray[np.float64], texts: Mapping[int, SourceText]) -> None:
        self._waiting.append(links)
        self.texts.update(texts)
        self.settle()

    def settle(self) -> None:
        """Keep only the strongest links, and the texts that they are in."""
        if not self._waiting:
            return
        links = np.concatenate([self.links, *self._waiting], axis=1)
        self._waiting.clear()
        order = np.lexsort((links[..., 1], -links[..., 0]), axis=-1)
        self.links = np.full_like(self.links, -1.0)
        for head, places in enumerate(order):
            first = self._first_ten(links[head], places.tolist())
            self.links[head, : len(first)] = links[head, first]
        numbers = {int(number) for number in self.links[..., 1].ravel() if number >= 0}
        self.texts = {number: self.texts[number] for number in sorted(numbers)}

    def _first_ten(self, links: NDArray[np.float64], order: list[int]) -> list[int]:
        places: dict[tuple[str, ...], int] = {}
        for place in order:
            if len(places) == STRONGEST or links[place, 0] < 0:
                break
            places.setdefault(self.texts[int(links[place, 1])].texts, place)
        return list(places.values())


def as_document(texts: Mapping[int, SourceText]) -> list[dict[str, Any]]:
    """Texts by number, for JSON."""
    return [{"number": number, **asdict(text)} for number, text in texts.items()]


def from_document(texts: list[dict[str, Any]]) -> dict[int, SourceText]:
    """Texts by number from `as_document`."""
    sources = dict[int, SourceText]()
    for item in texts:
        words, keys = (_intern_words(tuple(item[side])) for side in ("queries", "keys"))
        own, pictures = tuple(item["texts"]), tuple(item["seen"])
        sources[item["number"]] = SourceText(item["id"], own, words, keys, pictures)
    return sources
