"""Maps too large for a page: blocks of tokens in place of tokens, the strongest links exactly."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention_map import AttentionMap, Token

if TYPE_CHECKING:
    from numpy.typing import NDArray

STRONGEST = 20
_SMALLEST_AXIS = 64

Tokens = tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A map in blocks.

    Attributes:
        map: mean over the queries and sum over the keys of each block, so that rows sum to what
            they summed to before; its tokens stand for blocks.
        rows: queries to a block.
        columns: keys to a block.
        links: for each layer and head, the strongest cells of the whole map as (query, key,
            weight), strongest first.
    """

    map: AttentionMap
    rows: int
    columns: int
    links: tuple[tuple[tuple[tuple[int, int, float], ...], ...], ...]


def block_length(item: AttentionMap, room: int) -> tuple[int, int]:
    """Queries and keys to a block, so that at most `room` weights remain; 1 and 1 where all fit.

    An axis of 64 tokens or fewer stays whole.
    """
    layers, heads, queries, keys = item.weights.shape
    room = max(room // (layers * heads), 1)
    if queries * keys <= room:
        return 1, 1
    if queries <= _SMALLEST_AXIS or keys <= _SMALLEST_AXIS:
        length = -(-queries * keys // room)
        return (1, length) if queries <= _SMALLEST_AXIS else (length, 1)
    length = 2
    while -(-queries // length) * -(-keys // length) > room and length < max(queries, keys):
        length += 1
    return length, length


def pool(item: AttentionMap, rows: int, columns: int) -> Pooled:
    """The map in blocks of so many queries and keys."""
    weights = item.weights
    starts = np.arange(0, weights.shape[3], columns)
    pooled = np.add.reduceat(weights, starts, axis=3)
    starts = np.arange(0, weights.shape[2], rows)
    pooled = np.add.reduceat(pooled, starts, axis=2)
    pooled /= np.diff([*starts, weights.shape[2]])[:, None]
    small = AttentionMap(
        item.stream,
        blocks(item.query_tokens, rows),
        blocks(item.key_tokens, columns),
        # Rounding may lift a sum of shares a little above 1.
        np.minimum(pooled, 1) if item.values == "share" and weights.max() <= 1 else pooled,
        layers=item.layers,
        heads=item.heads,
        values=item.values,
        unit=item.unit,
        query_side=item.query_side,
        key_side=item.key_side,
    )
    links = tuple(tuple(strongest_cells(head) for head in layer) for layer in weights)
    return Pooled(small, rows, columns, links)


def blocks(tokens: Tokens, length: int) -> Tokens:
    """A token for each block, reading as its first and last."""
    if length == 1:
        return tokens
    edges = [*range(0, len(tokens), length), len(tokens)]
    return tuple(_block(tokens[low:high]) for low, high in pairwise(edges))


def _block(tokens: Tokens) -> Token:
    first, last = tokens[0], tokens[-1]
    text = first.text if len(tokens) == 1 else f"{first.text} … {last.text}"
    return Token(text, first.start, last.end, all(token.special for token in tokens))


def strongest_cells(
    weights: NDArray[np.float32], count: int = STRONGEST
) -> tuple[tuple[int, int, float], ...]:
    """The cells of largest size of one head, shape (queries, keys), largest first."""
    size = np.abs(weights).ravel()
    count = min(count, size.size)
    places = np.argpartition(size, -count)[-count:]
    places = places[np.argsort(-size[places], kind="stable")]
    keys = weights.shape[1]
    return tuple(
        (int(place) // keys, int(place) % keys, float(weights.flat[place])) for place in places
    )
