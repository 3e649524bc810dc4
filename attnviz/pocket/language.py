"""Which of its two languages the pocket model takes a text for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnviz.mechanisms.arrays import Array
from attnviz.pocket.batch import embed_many, to_numpy
from attnviz.pocket.model import Sizes, decode, encode, predict
from attnviz.pocket.text import Reading
from attnviz.pocket.tokenizer import END, LANGUAGE
from attnviz.pocket.weights import StoredWeights

OTHER = {"en": "fr", "fr": "en"}
NAMES = {"en": "English", "fr": "French"}
MARGIN = 0.3
"""Nats a piece by which one direction must win for the guess to go without a note."""


def languages_of(
    weights: StoredWeights,
    sizes: Sizes,
    texts: Sequence[Reading],
    translations: Sequence[Reading] | None = None,
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
    weights: StoredWeights, sizes: Sizes, targets: Sequence[Reading], memory: Array, language: str
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


def _decide(text: Reading, sums: dict[str, float]) -> tuple[str, list[str]]:
    language, other = sorted(sums, key=lambda name: sums[name])
    if sums[other] - sums[language] > MARGIN:
        return language, []
    note = f"'{shortened(text.text)}' was read as {NAMES[language]}, but could be {NAMES[other]}"
    return language, [f"{note}: --to names the target's language"]


def shortened(text: str, longest: int = 40) -> str:
    """The text, cut with an ellipsis where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
