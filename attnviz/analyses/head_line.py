"""One head in a line: what its keys receive, what it does most, and how spread it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.entropy import entropy
from attnviz.analyses.links import sharpest
from attnviz.attention_map import AttentionMap
from attnviz.measures import HeadLine

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLEAR = 0.5
"""A pattern is named where it holds at least half of the attention of an average row."""


def head_lines(item: AttentionMap) -> tuple[HeadLine, ...]:
    """A line for each head of a map's first layer."""
    entropies = np.full(len(item.heads), np.nan) if item.is_pooled else entropy(item).values[0]
    lines = []
    for place, head in enumerate(item.heads):
        layer = item.layers[0]
        links = tuple(link for link in item.links if (link.layer, link.head) == (layer, head))
        one = item.with_weights(
            item.weights[:1, place : place + 1], layers=(layer,), heads=(head,), links=links
        )
        pattern, weight = describe(one)
        profile = one.weights[0, 0].mean(axis=0, dtype=np.float64)
        lines.append(HeadLine(head, profile, pattern, weight, float(entropies[place])))
    return tuple(lines)


def describe(item: AttentionMap) -> tuple[str, float]:
    """What one head does most, in words, and the share of attention that this holds.

    The previous and the next token, the token itself, or one key that most rows look at; where none
    of these is clear, the sharpest link.
    """
    weights = item.weights[0, 0]
    # Blocks next to each other say nothing of tokens next to each other.
    tokenwise = item.values == "share" and not item.is_pooled
    candidates = _patterns(weights, item) if tokenwise else []
    if candidates:
        pattern, share = max(candidates, key=lambda candidate: candidate[1])
        if share >= CLEAR:
            return pattern, share
    link = sharpest(item)
    return (f"{link.query} → {link.key}", link.weight) if link else ("", 0.0)


def _patterns(weights: NDArray[np.float32], item: AttentionMap) -> list[tuple[str, float]]:
    queries, keys = weights.shape
    found: list[tuple[str, float]] = []
    if queries > 2:
        received = weights.mean(axis=0)
        column = int(received.argmax())
        found.append((f"every token → {item.key_tokens[column].text}", float(received[column])))
    if queries == keys > 2 and item.query_side == item.key_side:
        # N - 1 rows have a token before them, N - 1 one after, N themselves.
        found.append(("each → the one before", float(np.diagonal(weights, -1).mean())))
        found.append(("each → the one after", float(np.diagonal(weights, 1).mean())))
        found.append(("each → itself", float(np.diagonal(weights).mean())))
    return found
