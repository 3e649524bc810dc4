"""What each row may see, inferred from a map, and the even look under that mask to compare with.

Chance is not the same for all maps: in a causal one the second token looks at the first with a half
of its attention without meaning anything by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention_map import AttentionMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAUSAL_STREAMS = ("causal", "decoder")
NARROWEST_WINDOW = 3
"""Narrower bands are what sharp heads look like, not what models are built with."""


def within_one_text(item: AttentionMap) -> bool:
    """True where queries and keys are the same tokens, so that a diagonal means something."""
    return item.query_side == item.key_side and len(item.query_tokens) == len(item.key_tokens)


def visible_keys(item: AttentionMap) -> NDArray[np.bool_]:
    """True where a query may see a key.

    Within one text a map is causal where nothing lies above the diagonal and either its stream says
    so or everything below it is seen: a sharp head of an encoder is not taken for a mask. Padded
    positions, whose rows and columns are empty in every head, are hidden. A layer whose heads all
    see everything up to the same distance, and nothing beyond, has a sliding window.

    Returns:
        Shape (layers, queries, keys), or (1, queries, keys) where the layers agree.
    """
    seen: NDArray[np.bool_] = item.weights.max(axis=1) > 0
    visible = np.ones_like(seen)
    if within_one_text(item):
        visible &= _triangle(item, np.any(seen, axis=0))
        for layer, of_layer in enumerate(seen):
            visible[layer] &= _window(of_layer, visible[layer])
        empty = ~(np.any(seen, axis=(0, 1)) | np.any(seen, axis=(0, 2)))
        visible &= ~empty
    # A row that attends to nothing in any head has nothing to see.
    visible &= seen.any(axis=-1, keepdims=True)
    return visible[:1] if (visible == visible[:1]).all() else visible


def evenly(visible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Uniform attention over the visible keys; a row that sees none stays 0.

    Args:
        visible: shape (…, queries, keys).

    Returns:
        The same shape; rows sum to 1 or 0.
    """
    weights: NDArray[np.float64] = visible / np.maximum(visible.sum(axis=-1, keepdims=True), 1)
    return weights


def _triangle(item: AttentionMap, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    lower = np.tri(len(seen), dtype=bool)
    rows = seen.any(axis=-1)
    said = item.stream in CAUSAL_STREAMS
    causal = not (seen & ~lower).any() and (said or (seen | ~lower)[rows][:, rows].all())
    return lower if causal else np.ones_like(seen)


def _window(seen: NDArray[np.bool_], visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A band around the diagonal where one is seen from end to end, else everything."""
    positions = np.arange(len(seen))
    apart = np.abs(np.subtract.outer(positions, positions))
    band = apart <= apart[seen].max(initial=0)
    whole = bool((seen == (band & visible)).all())
    return band if whole and band[0].sum() >= NARROWEST_WINDOW else np.ones_like(seen)
