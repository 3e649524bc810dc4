"""Captured weights become maps with their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.attention_map import AttentionMap, Link, Projections, Token
from attnviz.hugging_face.blocks import whole
from attnviz.hugging_face.capture import Captured
from attnviz.hugging_face.exact_links import Hidden


def as_map(
    item: Captured, tokens: Mapping[str, tuple[Token, ...]], side: str, key_side: str
) -> AttentionMap:
    """Captured weights with their tokens.

    Whether it is causal is what the weights say, not the family: some decoders look ahead (prefix
    language models), and some encoders do not. Of one token only the family can tell.
    """
    stream = item.stream
    queries = item.queries or whole(len(tokens[side]))
    keys = item.keys or whole(len(tokens[key_side]))
    if stream in {"self", "causal"} and len(tokens[side]) > 1:
        first = (queries.start - keys.start) // keys.length
        ahead = any(np.triu(layer, 1 + first).any() for layer in item.weights)
        stream = "self" if ahead else "causal"
    return AttentionMap(
        stream,
        queries.tokens(tokens[side]),
        keys.tokens(tokens[key_side]),
        item.weights,
        layers=item.layers,
        query_side=side,
        key_side=key_side,
        blocks=(queries.length, keys.length),
        starts=(queries.start, keys.start),
        links=exact_links(item, tokens[side], tokens[key_side]),
    )


def projections_of(
    maps: Sequence[AttentionMap], captured: Sequence[Captured]
) -> dict[str, Projections]:
    """What was kept of queries and keys, by the streams of the maps that they stand behind."""
    return {
        item.stream: found.projections
        for item, found in zip(maps, captured, strict=True)
        if found.projections is not None
    }


def exact_links(
    item: Captured, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> tuple[Link, ...]:
    """The strongest links of each head of a pooled map, with their tokens."""
    return tuple(
        Link(
            queries[cell.query].text,
            keys[cell.key].text,
            cell.weight,
            layer,
            str(head),
            cell.query,
            cell.key,
        )
        for layer, heads in zip(item.layers, item.links, strict=False)
        for head, strongest in enumerate(heads)
        for cell in strongest
    )


def drowning(tokens: tuple[Token, ...], *, causal: bool) -> Hidden:
    """What would drown all other links: special tokens, oneself, and a decoder's first token."""
    special = tuple(place for place, token in enumerate(tokens) if token.special)
    keys = tuple(dict.fromkeys((*special, 0))) if causal else special
    return Hidden(special, keys, itself=True)
