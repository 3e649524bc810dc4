"""What each rule for a cache prefers: a function of the weights so far to a score of each key.

The keys with the highest scores stay. Sinks and recent: Xiao 2024 (StreamingLLM, ICLR). h2o: Zhang
2023 (NeurIPS), half of the budget each for recent and for heavy tokens. tova: Oren 2024 (EMNLP),
the mean over heads. snapkv: Li 2024 (NeurIPS), means over the last queries of a prompt, pooled.
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.core.cache import CacheState

Scores = NDArray[np.float64]
OBSERVED, POOLED = 32, 5
"""Queries at the end of a prompt that snapkv averages over, and keys that it averages together."""


def sinks(cache: CacheState) -> Scores:
    """The first tokens."""
    return -recent(cache)


def recent(cache: CacheState) -> Scores:
    """The last tokens."""
    return np.broadcast_to(np.arange(cache.held.shape[1], dtype=np.float64), cache.held.shape)


def h2o(cache: CacheState) -> Scores:
    """Half the last tokens, half those that received most attention."""
    return _last(cache, cache.room // 2, cache.received)


def heavy(cache: CacheState) -> Scores:
    """The tokens that received most attention, and the last."""
    return _last(cache, 1, cache.received)


def tova(cache: CacheState) -> Scores:
    """The tokens that the last query attends to most."""
    return np.broadcast_to(cache.weights[:, -1].mean(axis=0), cache.held.shape)


def snapkv(cache: CacheState) -> Scores:
    """Of a prompt the tokens that its last queries attend to most."""
    window = min(OBSERVED, max(cache.room // 2, 1))
    seen = cache.weights[:, -window:].mean(axis=1)
    if cache.grows:  # the window's own keys stay in any case
        seen = seen[:, :-window]
    padded = np.pad(seen, ((0, 0), (POOLED // 2, POOLED // 2)))
    means = np.lib.stride_tricks.sliding_window_view(padded, POOLED, axis=1).mean(axis=-1)
    if not cache.grows:
        return np.asarray(means)
    return np.pad(means, ((0, 0), (0, window)), constant_values=np.inf)


def random(cache: CacheState) -> Scores:
    """Tokens drawn by chance."""
    return cache.drawn


def best(cache: CacheState) -> Scores:
    """The tokens whose loss costs later predictions most, each measured."""
    return cache.worth


def _last(cache: CacheState, count: int, others: Scores) -> Scores:
    """The last tokens above all others."""
    places = np.arange(cache.held.shape[1])
    return np.where(places > places[-1] - count, np.inf, others)
