"""The texts in which a head attends most strongly.

Each text counts once, by the head's strongest link between two words. Of equal texts only the first
counts. Links are ordered by weight, then by the text's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.corpus.words import InWords
from attnviz.core.attention_map import Attention
from attnviz.core.corpus_report import SourceText

KEPT = 10


def source_text(attention: Attention, item: InWords) -> SourceText:
    """The words of a text, for an example."""
    texts = (attention.text, attention.source, attention.target)
    named = tuple(text for text in texts if text is not None)
    words = item.queries.words, item.keys.words
    if attention.seen is None:
        return SourceText(attention.id, named, *words)
    queries, keys = map(_intern_words, words)
    return SourceText(attention.id, (attention.id,), queries, keys, attention.seen)


@lru_cache(maxsize=8)
def _intern_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for all equal ones: most pictures have the same patches."""
    return words


class Strongest:
    """The strongest links of each head.

    Attributes:
        links: float64 of shape (heads, 10, 4): weight, number of the text in the corpus, query
            word, key word; the strongest first, weight -1 where there is none.
    """

    def __init__(self, heads: int) -> None:
        self.links = np.full((heads, KEPT, 4), -1.0)
        self.texts: dict[int, SourceText] = {}
        self._waiting: list[NDArray[np.float64]] = []

    def add(self, number: int, item: InWords, text: SourceText) -> NDArray[np.float64] | None:
        """Add one text; return its strongest link for each head, shape (heads, 4) as in `links`.

        The result is None if no word may attend to another word.
        """
        if not item.between.any():
            return None
        heads, _, keys = item.weights.shape
        shown = np.where(item.between, item.weights, np.float32(-1)).reshape(heads, -1)
        places = shown.argmax(axis=-1)
        found = np.empty((heads, 1, 4))
        found[:, 0, 0] = shown[np.arange(heads), places]
        found[:, 0, 1] = number
        found[:, 0, 2], found[:, 0, 3] = np.divmod(places, keys)
        self._waiting.append(found)
        self.texts[number] = text
        if len(self._waiting) >= 256:
            self.settle()
        return found[:, 0]

    def merge(self, links: NDArray[np.float64], texts: Mapping[int, SourceText]) -> None:
        """Add the strongest links of other texts."""
        self._waiting.append(links)
        self.texts.update(texts)
        self.settle()

    def settle(self) -> None:
        """Keep only the strongest links, and their texts."""
        if not self._waiting:
            return
        links = np.concatenate([self.links, *self._waiting], axis=1)
        self._waiting.clear()
        order = np.lexsort((links[..., 1], -links[..., 0]), axis=-1)
        self.links = np.full_like(self.links, -1.0)
        for head, places in enumerate(order):
            kept = self._first_ten(links[head], places.tolist())
            self.links[head, : len(kept)] = links[head, kept]
        used = {int(number) for number in self.links[..., 1].ravel() if number >= 0}
        self.texts = {number: self.texts[number] for number in sorted(used)}

    def _first_ten(self, links: NDArray[np.float64], order: list[int]) -> list[int]:
        kept: dict[tuple[str, ...], int] = {}
        for place in order:
            if len(kept) == KEPT or links[place, 0] < 0:
                break
            kept.setdefault(self.texts[int(links[place, 1])].texts, place)
        return list(kept.values())


def as_document(texts: Mapping[int, SourceText]) -> list[dict[str, Any]]:
    """Texts by number, for JSON."""
    return [{"number": number, **asdict(text)} for number, text in texts.items()]


def from_document(texts: list[dict[str, Any]]) -> dict[int, SourceText]:
    """Texts by number from `as_document`."""
    return {
        item["number"]: SourceText(
            item["id"],
            tuple(item["texts"]),
            _intern_words(tuple(item["queries"])),
            _intern_words(tuple(item["keys"])),
            tuple(item["seen"]),
        )
        for item in texts
    }
