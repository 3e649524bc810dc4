"""The strongest links of a map: single cells that a mean would hide."""

from __future__ import annotations

import numpy as np

from attnviz.attention_map import AttentionMap
from attnviz.measures import Link


def strongest_links(item: AttentionMap, count: int, between_words: bool = True) -> list[Link]:
    """The cells of largest size over all layers and heads, largest first, equal ones as they come.

    Args:
        item: any map.
        count: at most how many.
        between_words: leave out links from and to special tokens and from a token to itself, which
            would drown the others; where nothing else is left, they count after all.

    Returns:
        Links with their layer, head and weight; of a map of blocks the exact ones it brings along.
    """
    if item.is_pooled and item.links:
        return sorted(item.links, key=lambda link: -link.weight)[:count]
    size = np.abs(item.weights)
    if between_words:
        allowed = np.ones((len(item.query_tokens), len(item.key_tokens)), dtype=bool)
        allowed[[token.special for token in item.query_tokens]] = False
        allowed[:, [token.special for token in item.key_tokens]] = False
        if item.query_side == item.key_side and allowed.shape[0] == allowed.shape[1]:
            np.fill_diagonal(allowed, False)
        if allowed.any():
            size = np.where(allowed, size, -1.0)
    flat = size.ravel()
    count = min(count, flat.size)
    least = np.partition(flat, -count)[-count]
    larger, equal = np.flatnonzero(flat > least), np.flatnonzero(flat == least)
    found = np.concatenate([larger, equal[: count - len(larger)]])
    order = found[np.lexsort((found, -flat[found]))]
    return [_link(item, int(place)) for place in order if flat[place] >= 0]


def sharpest(item: AttentionMap) -> Link | None:
    """The single strongest link between different words, if there is any."""
    links = strongest_links(item, 1)
    return links[0] if links else None


def _link(item: AttentionMap, place: int) -> Link:
    layer, head, query, key = np.unravel_index(place, item.weights.shape)
    return Link(
        item.query_tokens[query].text,
        item.key_tokens[key].text,
        float(item.weights[layer, head, query, key]),
        item.layers[layer],
        item.heads[head],
        int(query),
        int(key),
    )
