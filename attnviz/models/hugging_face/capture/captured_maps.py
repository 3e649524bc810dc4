"""Captured weights become maps with their tokens, and notes on what is pooled or left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.core.attention_map import IMPLIED, AttentionMap, Link, Projections, Provenance, Token
from attnviz.models.hugging_face.capture.capture import EAGER_ROUTE, Captured
from attnviz.models.hugging_face.capture.exact_links import IgnoredPositions, links_note
from attnviz.models.hugging_face.capture.implied import UNIT
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token, region_note

SECOND_PASS = "this family calls no attention kernel: its weights are those of a second, eager pass"


def as_map(
    item: Captured, tokens: Mapping[str, tuple[Token, ...]], side: str, key_side: str
) -> AttentionMap:
    """Captured weights with their tokens.

    Whether it is causal is what the weights say, not the family: some decoders look ahead (prefix
    language models), and some encoders do not. Of one token only the family can tell.
    """
    stream = item.stream
    lengths = len(tokens[side]), len(tokens[key_side])
    grid = item.grid or PooledGrid(*map(each_token, lengths))
    queries, keys = grid.queries, grid.keys
    if stream in {"self", "causal"} and len(tokens[side]) > 1:
        first = (queries.start - keys.start) // keys.length
        ahead = any(np.triu(layer, 1 + first).any() for layer in item.weights)
        stream = "self" if ahead else "causal"
    signed: dict[str, Any] = {"values": "signed", "unit": UNIT} if stream == IMPLIED else {}
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
        links=_exact_links(item, tokens[side], tokens[key_side]),
        heads=item.heads,
        **signed,
    )


def _exact_links(
    item: Captured, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> tuple[Link, ...]:
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


def projections_of(
    maps: Sequence[AttentionMap], captured: Sequence[Captured]
) -> dict[str, Projections]:
    """The queries and keys that were kept, by the streams of their maps."""
    return {
        item.stream: found.projections
        for item, found in zip(maps, captured, strict=True)
        if found.projections is not None
    }


def ignored_positions(tokens: tuple[Token, ...], *, causal: bool) -> IgnoredPositions:
    """What would fill the strongest links: special tokens, oneself, a decoder's first token."""
    special = tuple(place for place, token in enumerate(tokens) if token.special)
    keys = tuple(dict.fromkeys((*special, 0))) if causal else special
    return IgnoredPositions(special, keys, itself=True)


def with_routes(provenance: Provenance, routes: Iterable[str]) -> Provenance:
    """The provenance with how the weights were read, in place of the kernel that was loaded."""
    named = ", ".join(dict.fromkeys(routes))
    return replace(provenance, settings={**provenance.settings, "attention": named})


def capture_notes(
    captured: Sequence[Captured], sides: Mapping[str, tuple[int, int]]
) -> tuple[str, ...]:
    """What a reader must know of maps that are pooled, of a part, or from a second pass."""
    notes = dict[str, None]()
    if any(item.route == EAGER_ROUTE for item in captured):
        notes[SECOND_PASS] = None
    for item in captured:
        if item.grid is not None:
            side = sides.get(item.stream) or next(iter(sides.values()))
            notes[region_note(item.grid, side)] = None
        notes[item.note] = None
        most = max((len(head) for layer in item.links for head in layer), default=0)
        notes[links_note(most, item.ignored) if most else ""] = None
    return tuple(note for note in notes if note)
