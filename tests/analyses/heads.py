"""Maps to measure, the even look and the gains of links, each written as a slow loop."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Token


def tokens(words: str) -> tuple[Token, ...]:
    """Words as tokens; those in square brackets are special."""
    return tuple(Token(word, special=word.startswith("[")) for word in words.split())


def map_of(weights: object, words: str = "", stream: str = "self") -> AttentionMap:
    """A map of one layer and head, or more, over words (letters where none are given)."""
    array = np.asarray(weights, dtype=np.float32)
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    named = tokens(words or " ".join(f"w{place}" for place in range(array.shape[-1])))
    return AttentionMap(stream, named, named, array)


def random_map(
    length: int, *, layers: int = 2, heads: int = 3, causal: bool = False, seed: int = 0
) -> AttentionMap:
    """Softmax over random scores."""
    scores = np.random.default_rng(seed).normal(scale=2, size=(layers, heads, length, length))
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return map_of(weights, stream="causal" if causal else "self")


def even_rows(visible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """An even look at what is visible, row by row."""
    found = np.zeros(visible.shape)
    for row, seen in enumerate(visible):
        for key in range(len(seen)):
            if seen[key]:
                found[row, key] = 1 / sum(bool(other) for other in seen)
    return found


Apart = Callable[[int, int], object] | None
"""What distance a row and a key have; None: there is none between two texts."""


def gains(
    weights: NDArray[np.float64], visible: NDArray[np.bool_], words: list[str], apart: Apart
) -> dict[tuple[int, int], tuple[float, float]]:
    """The gain and the share of each link between words, cell by cell; [words] are special.

    Thirty times each distance, then each key is scaled to its sum, then each row to 1.
    """
    text = [place for place, word in enumerate(words) if not word.startswith("[")]
    cells = [
        (i, j)
        for i in range(len(weights))
        if i in text or apart is None
        for j in text
        if visible[i, j]
    ]
    mass = {i: sum(weights[i, j] for k, j in cells if k == i) for i, _ in cells}
    share = {(i, j): weights[i, j] / mass[i] for i, j in cells if mass[i] >= 0.05}
    table = dict.fromkeys(share, 1.0)
    sides = ([] if apart is None else [lambda cell: apart(*cell)]) + [lambda cell: cell[1]]

    def scale(side: Callable[[tuple[int, int]], object], more: float) -> None:
        wanted, sums = dict[object, float](), dict[object, float]()
        for cell in share:
            wanted[side(cell)] = wanted.get(side(cell), more) + share[cell]
            sums[side(cell)] = sums.get(side(cell), more) + table[cell]
        for cell in share:
            table[cell] *= wanted[side(cell)] / sums[side(cell)]

    scale(lambda cell: cell[0], 0)
    for _ in range(30):
        for side in sides:
            scale(side, 0.02)
        scale(lambda cell: cell[0], 0)
    named = [place for place in text if any(map(str.isalnum, words[place]))]
    return {
        (i, j): (share[i, j] * math.log((share[i, j] + 1e-6) / (table[i, j] + 1e-6)), share[i, j])
        for i, j in share
        if j in named and (apart is None or (i in named and i != j))
    }


def says(
    weights: NDArray[np.float64], visible: NDArray[np.bool_], words: list[str], apart: Apart
) -> float:
    """What a head says of a text: gains above .02 over its words."""
    named = [word for word in words if word[0] != "[" and any(map(str.isalnum, word))]
    found = (gain for gain, _ in gains(weights, visible, words, apart).values() if gain > 0.02)
    return sum(found) / (len(named) if apart else len(weights))


def fill_buffers(patch: pytest.MonkeyPatch) -> None:
    """Have numpy's new buffers hold NaN, so that a cell that nobody writes is seen."""
    empty = np.empty

    def nothing(*size: Any, **how: Any) -> NDArray[Any]:
        made = empty(*size, **how)
        if made.dtype.kind == "f":
            made.fill(np.nan)
        return made

    patch.setattr(np, "empty", nothing)
