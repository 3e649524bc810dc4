"""Maps to measure, and the even look, each written as a slow loop."""

import numpy as np
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
