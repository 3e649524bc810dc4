"""Where attention rests whatever a text says: its special tokens, and a sink.

A sink is a key that takes much of the attention of most rows (Xiao et al. 2023, "Efficient
Streaming Language Models with Attention Sinks"); in a causal model it is the first token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap

SINK_SHARE, BEYOND_UNIFORM = 0.3, 1.5
"""The share of all attention that a sink holds at least, and how many times that of uniform
attention."""


def sink_place(item: AttentionMap) -> int | None:
    """The key of a text's attention to itself that is a sink; None where there is none.

    Uniform attention reaches every key, or where nothing lies above the diagonal those up to the
    query. Of one head alone only the first key can be a sink.
    """
    if item.values != "share" or item.is_pooled or item.query_side != item.key_side:
        return None
    weights = item.weights.sum(axis=(0, 1))
    if len(item.key_tokens) < 4 or not weights.any():  # of fewer one holds much by chance
        return None
    causal = not np.triu(weights, 1).any()
    seen = np.tri(*weights.shape) if causal else np.ones_like(weights)
    place = int(weights.sum(axis=0).argmax())
    # A word that takes the attention of one head alone may be what this head says of the text.
    if place and len(item.layers) == len(item.heads) == 1 and item.heads[0].isdigit():
        return None
    held = weights[:, place].sum() / weights.sum()
    uniform = (seen / seen.sum(axis=-1, keepdims=True))[:, place].mean()
    return place if held >= max(SINK_SHARE, BEYOND_UNIFORM * uniform) else None


def word_cells(item: AttentionMap) -> NDArray[np.bool_]:
    """True for cells from a word to a word, shape (queries, keys); all where there are none.

    Special tokens are no words, and a sink counts as one only where it attends.
    """
    words = [np.array([not token.special for token in tokens])
             for tokens in (item.query_tokens, item.key_tokens)]  # fmt: skip
    sink = sink_place(item)
    if sink is not None:
        words[1][sink] = False
    cells: NDArray[np.bool_] = words[0][:, None] & words[1]
    return cells if cells.any() else np.ones_like(cells)
