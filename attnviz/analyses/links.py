"""The strongest links of a map: a mean hides a strong link of two tokens, so search all cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap, Link
from attnviz.core.tokens import word_cells


def strongest_links(item: AttentionMap, count: int, *, between_words: bool = True) -> list[Link]:
    """The cells of largest size over all layers and heads, largest first; ties in map order."""
    # A map of blocks has the strongest links of its single cells beside it.
    if item.is_pooled and item.links:
        return sorted(item.links, key=lambda link: -abs(link.weight))[:count]
    mask = cells_between_words(item) if between_words else None
    queries, keys = item.weights.shape[2:]
    largest = np.stack([_sizes(layer, mask).max(axis=-1) for layer in item.weights])
    # The strongest cells lie in the rows with the largest maxima: sort these rows only.
    rows = np.argsort(-largest, axis=None, kind="stable")[:count]
    strong_rows = item.weights.reshape(-1, keys)[rows]
    size = _sizes(strong_rows, None if mask is None else mask[rows % queries]).ravel()
    flat = (rows[:, None] * keys + np.arange(keys)).ravel()
    order = np.lexsort((flat, -size))[:count]
    shape = item.weights.shape
    places = [flat[place] for place in order if size[place] >= 0]
    return [link_at(item, np.unravel_index(place, shape)) for place in places]


def cells_between_words(item: AttentionMap) -> NDArray[np.bool_] | None:
    """True for links between different words, (queries, keys); None if the map has none."""
    cells = word_cells(item)
    if item.query_side == item.key_side and cells.shape[0] == cells.shape[1]:
        cells = cells & ~np.eye(len(cells), dtype=bool)
    return cells if cells.any() else None


def _sizes(weights: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Absolute weights; -1 for cells that are not allowed or NaN."""
    sizes: NDArray[np.float32] = np.nan_to_num(np.abs(weights), nan=-1)
    return sizes if mask is None else np.where(mask, sizes, np.float32(-1))


def sharpest(item: AttentionMap) -> Link | None:
    """The strongest link between different words, if any."""
    links = strongest_links(item, 1)
    return links[0] if links else None


def link_at(item: AttentionMap, cell: Sequence[Any], weight: float | None = None) -> Link:
    """The link at (layer, head, query, key), with the map's weight or another."""
    layer, head, query, key = map(int, cell)
    ends = item.query_tokens[query].text, item.key_tokens[key].text
    weight = float(item.weights[layer, head, query, key]) if weight is None else weight
    return Link(*ends, weight, item.layers[layer], item.heads[head], query, key)
