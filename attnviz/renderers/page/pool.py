"""Maps too large for a page: blocks of tokens in place of tokens, the strongest links exactly."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np

from attnviz.attention_map import AttentionMap, Link, Token

STRONGEST = 20
"""Links of each head that are kept exactly."""
_SMALLEST_AXIS = 64

Tokens = tuple[Token, ...]


def within(item: AttentionMap, room: int) -> AttentionMap:
    """The map itself where it has at most `room` weights, else in blocks so that it has.

    An axis of 64 tokens or fewer stays whole.
    """
    rows, columns = block_lengths(item, room)
    return item if rows == columns == 1 else pool(item, rows, columns)


def block_lengths(item: AttentionMap, room: int) -> tuple[int, int]:
    """How many rows and columns go into a block."""
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


def pool(item: AttentionMap, rows: int, columns: int) -> AttentionMap:
    """The map in blocks: means over their queries of sums over their keys.

    Rows sum to what they summed to before. The strongest links are those of the map's own cells,
    or, if these are blocks already, those that it brings along.
    """
    starts = np.arange(0, item.weights.shape[3], columns)
    pooled = np.add.reduceat(item.weights, starts, axis=3)
    starts = np.arange(0, item.weights.shape[2], rows)
    pooled = np.add.reduceat(pooled, starts, axis=2)
    pooled /= np.diff([*starts, item.weights.shape[2]])[:, None]
    if item.values == "share" and item.weights.max() <= 1:
        # Rounding may lift a sum of shares a little above 1.
        pooled = np.minimum(pooled, 1)
    return item.with_weights(
        pooled,
        query_tokens=joined(item.query_tokens, rows),
        key_tokens=joined(item.key_tokens, columns),
        blocks=(item.blocks[0] * rows, item.blocks[1] * columns),
        links=item.links if item.is_pooled else strongest_links(item),
    )


def joined(tokens: Tokens, length: int) -> Tokens:
    """A token for each block, reading as its first and last."""
    if length == 1:
        return tokens
    edges = [*range(0, len(tokens), length), len(tokens)]
    return tuple(_block(tokens[low:high]) for low, high in pairwise(edges))


def _block(tokens: Tokens) -> Token:
    first, last = tokens[0], tokens[-1]
    text = first.text if len(tokens) == 1 else f"{first.text} … {last.text}"
    return Token(text, first.start, last.end, all(token.special for token in tokens))


def strongest_links(item: AttentionMap, count: int = STRONGEST) -> tuple[Link, ...]:
    """The cells of largest size of each head, largest first."""
    keys = len(item.key_tokens)
    links = []
    for layer, head in product(range(len(item.layers)), range(len(item.heads))):
        weights = item.weights[layer, head].ravel()
        places = np.argpartition(np.abs(weights), -min(count, weights.size))[-count:]
        for place in places[np.argsort(-np.abs(weights[places]), kind="stable")].tolist():
            query, key = divmod(place, keys)
            links.append(
                Link(
                    item.query_tokens[query].text,
                    item.key_tokens[key].text,
                    float(weights[place]),
                    item.layers[layer],
                    item.heads[head],
                    query,
                    key,
                )
            )
    return tuple(links)
