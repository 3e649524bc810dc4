"""What the page itself says about heads: the share of attention that goes to certain places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention_map import AttentionMap
from attnviz.measures import HeadMeasure

if TYPE_CHECKING:
    from numpy.typing import NDArray


def shares(item: AttentionMap) -> list[HeadMeasure]:
    """Mean shares on the previous, the next and the own token, on special tokens, on one key.

    The first three only where both axes are the same text; special tokens only where there are
    some; nothing for signed values.
    """
    if item.values != "share":
        return []
    weights = item.weights
    found = [
        _share("most looked-at key", _most_received(weights), "spread over the keys", "one key")
    ]
    queries, keys = weights.shape[2:]
    if queries == keys > 1 and item.query_side == item.key_side:
        for name, offset in (("previous token", -1), ("next token", 1), ("itself", 0)):
            values = np.diagonal(weights, offset, 2, 3).mean(axis=-1, dtype=np.float64)
            found.append(_share(name, values, "never", "always"))
    special = np.array([token.special for token in item.key_tokens])
    if special.any() and not special.all():
        values = weights[..., special].sum(axis=-1).mean(axis=-1, dtype=np.float64)
        found.append(_share("special tokens", values, "never", "always"))
    return found


def with_shares(item: AttentionMap, given: Sequence[HeadMeasure]) -> list[HeadMeasure]:
    """The given measures, then those shares of which none has the name."""
    names = {measure.name for measure in given}
    return [*given, *(measure for measure in shares(item) if measure.name not in names)]


def _most_received(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = weights.mean(axis=2, dtype=np.float64).max(axis=-1)
    return values


def _share(name: str, values: NDArray[np.float64], low: str, high: str) -> HeadMeasure:
    return HeadMeasure(name, "share", low, high, values)
