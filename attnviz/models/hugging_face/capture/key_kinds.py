"""Keys that are no tokens: which kinds a softmax runs over, and what they stand for.

A layer declares its keys (`KEY_LAYOUTS`), by what its modules are and not by the name of a family.
The shape test compares the last axis with these kinds and refuses what they cannot name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import BETWEEN_SIDES, AttentionMap, Token
from attnviz.core.errors import AttentionError
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import KEY_LAYOUTS
from attnviz.core.tokens import kinds_in_words
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, each_token

Sides = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Neighbouring keys of one kind."""

    kind: str  # a name in `KINDS`
    count: int
    spans: tuple[tuple[int, int], ...] = ()  # first and last of what each was made of


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The kinds of a softmax's keys in their order, as its layer declares them.

    Attributes:
        stream: the stream of its map.
        covers: the streams of tokens in whose place it stands.
        by_position: True where a call has an axis of positions in the place of heads, and keys of
            its own at each of them.
    """

    stream: str
    runs: tuple[KeyRun, ...]
    covers: tuple[str, ...] = ()
    by_position: bool = False

    @property
    def counts(self) -> dict[str, int]:
        return {run.kind: run.count for run in self.runs if run.count}

    @property
    def keys(self) -> int:
        return sum(run.count for run in self.runs)

    @property
    def only_tokens(self) -> bool:
        """Whether every key is a token of the text whose queries look at it."""
        return list(self.counts) == ["token"]

    def grid(self, base: PooledGrid) -> PooledGrid:
        """Every key by itself, of the queries of a grid of tokens."""
        if self.only_tokens:
            return base
        queries = base.queries
        if self.by_position:
            queries = TokenBlocks(queries.start, queries.stop)
        return PooledGrid(queries, each_token(self.keys))

    def tokens(
        self, own: Sequence[Token], source: Sequence[Token], shift: int
    ) -> tuple[Token, ...]:
        """The keys by name; source tokens lie `shift` characters behind the text's own."""
        keys: list[Token] = []
        for run in self.runs:
            if run.kind == "token":
                keys += own
            elif run.kind == "source":
                keys += (_move(token, shift) for token in source)
            elif run.kind == "compressed":
                keys += (_name_entry(own, span) for span in run.spans)
            else:
                keys += (_name_layers(span) for span in run.spans)
        return tuple(keys)


def _move(token: Token, shift: int) -> Token:
    places = (token.start + shift, token.end + shift) if token.end > token.start else (0, 0)
    return replace(token, start=places[0], end=places[1], kind="source")


def _name_entry(tokens: Sequence[Token], span: tuple[int, int]) -> Token:
    """A compressed token by the places and the ends of what it was made of.

    It covers no characters of its own: these are those of the tokens before it.
    """
    first, last = (tokens[place].text for place in span)
    return Token(
        f"{span[0]}–{span[1]} {first} … {last}", special=True, kind="compressed", span=span
    )


def _name_layers(span: tuple[int, int]) -> Token:
    first, last = span
    if last < first:
        return Token("embeddings", special=True, kind="layer")
    name = f"layer {first}" if first == last else f"layers {first}–{last}"
    return Token(name, special=True, kind="layer", span=span)


def layout_of(call: AttentionCall, stream: str, sides: Sides) -> KeyLayout | None:
    """What the layer of a call declares of its keys; None: nothing, they are tokens."""
    rows = (row.load()(call, stream, sides) for row in KEY_LAYOUTS.values())
    return next((layout for layout in rows if layout is not None), None)


def check_layout(
    path: str, call: AttentionCall, layout: KeyLayout, kind: str, size: tuple[int, int]
) -> None:
    """The shape test of keys of several kinds.

    Args:
        kind: the architecture.
        size: how many texts, and how many queries of each.

    Raises:
        AttentionError: the keys are not those that the layer declares; both numbers are named.
    """
    texts, heads, queries, _ = call.query.shape
    positions, keys = (heads if layout.by_position else queries), call.key.shape[2]
    if (texts, positions, keys) != (*size, layout.keys):
        kinds = f"{layout.keys:,} keys ({kinds_in_words(layout.counts)})"
        raise AttentionError(
            f"layer {path} of architecture '{kind}' gives out attention of {texts:,} texts × "
            f"{positions:,} queries over {keys:,} keys, and its kinds of keys make "
            f"{size[0]:,} × {size[1]:,} over {kinds}"
        )


def check_whole(path: str, layout: KeyLayout, grid: PooledGrid, *, in_blocks: bool) -> None:
    """Refuse blocks of keys of several kinds, and a part of them.

    Raises:
        AttentionError: blocks, or keys left out.
    """
    if layout.only_tokens or layout.by_position:
        return
    kinds = kinds_in_words(layout.counts)
    tokens = layout.counts.get("token", 0)
    if in_blocks:
        raise AttentionError(
            f"layer {path} has keys of several kinds ({kinds}), which are not read in blocks of "
            "rows: give a text of at most 1,024 tokens"
        )
    if grid.is_pooled or grid.keys.blocks < tokens:
        raise AttentionError(
            f"layer {path} has keys of several kinds ({kinds}), which are neither pooled nor cut: "
            f"give --rows A-B, or a --max-size of at least {tokens}, and no --window"
        )


def check_tokens_only(path: str, layout: KeyLayout, kind: str) -> None:
    """Refuse keys that are no tokens, for what follows tokens only, with an AttentionError."""
    if not layout.only_tokens:
        raise AttentionError(
            f"layer {path} of architecture '{kind}' has {layout.keys:,} keys of several kinds "
            f"({kinds_in_words(layout.counts)}), and this reads keys that are tokens: "
            "use 'attnviz self' or 'cross' with --lens raw"
        )


def map_with_kinds(
    layout: KeyLayout,
    weights: NDArray[np.float32],
    tokens: Mapping[str, tuple[Token, ...]],
    sides: tuple[str, str],
    queries: TokenBlocks,
    length: int,
    **facts: Any,
) -> AttentionMap:
    """The map of keys of several kinds.

    Args:
        sides: the names of the text of the queries, and of a source beside it.
        queries: those that were read.
        length: of the queries' text, in characters; a source follows it after a line's end.
    """
    side, source = sides
    own = tokens[side]
    return AttentionMap(
        layout.stream,
        queries.tokens(own),
        layout.tokens(own, tokens[source], length + 1 if length else 0),
        weights,
        query_side=side,
        key_side=_key_side(layout, side, source),
        starts=(queries.start, 0),
        **facts,
    )


def _key_side(layout: KeyLayout, side: str, source: str) -> str:
    names = {"token": side, "source": source, "layer": "layers"}
    return BETWEEN_SIDES.join(names.get(kind, kind) for kind in layout.counts)
