"""Texts of two parts: a sentence pair cut into its four quarters, and where an output begins.

The provenance of such a text says at which character its second part begins, so that a saved map
can be cut as well as a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.attention_map import (
    PARTS,
    SECOND_PART,
    Attention,
    AttentionMap,
    Token,
    check_single_tokens,
)

PAIR_STREAMS = ("a-to-a", "a-to-b", "b-to-a", "b-to-b")
"""Which text of a pair attends to which."""


def second_part(attention: Attention, tokens: Sequence[Token], side: str) -> int | None:
    """The first token of the second part of a text; None where the text is in one piece.

    Special tokens between the parts belong to the first.

    Args:
        attention: whose provenance says where the second part begins.
        tokens: the tokens of one axis.
        side: the text that their offsets refer to.
    """
    start = attention.provenance.settings.get(SECOND_PART)
    if start is None or side != "text":
        return None
    places = (place for place, token in enumerate(tokens) if _covers(token, int(start)))
    return next(places, None)


def divisions(attention: Attention, item: AttentionMap) -> tuple[int | None, int | None]:
    """The first row and the first column of the second part, None where there is none."""
    return (
        second_part(attention, item.query_tokens, item.query_side),
        second_part(attention, item.key_tokens, item.key_side),
    )


def is_pair(attention: Attention) -> bool:
    """True for two texts that were read as one sequence."""
    return attention.provenance.settings.get(PARTS) == "pair"


def pair_stream(attention: Attention, stream: str) -> Attention:
    """One quarter of a sentence pair's attention, with offsets into the text it is of.

    Rows sum to what they give to that text.

    Args:
        attention: of a pair read as one sequence.
        stream: "a-to-a", "a-to-b", "b-to-a" or "b-to-b".

    """
    settings, text = attention.provenance.settings, attention.text or ""
    start = int(settings[SECOND_PART])
    sides = {"a": "source", "b": "target"}
    maps = []
    for item in attention.maps:
        check_single_tokens(item, f"--stream {stream}")
        rows, queries = _part(item.query_tokens, start, stream[0])
        columns, keys = _part(item.key_tokens, start, stream[-1])
        maps.append(
            item.with_weights(
                item.weights[:, :, rows, columns],
                stream=stream,
                query_tokens=queries,
                key_tokens=keys,
                query_side=sides[stream[0]],
                key_side=sides[stream[-1]],
            )
        )
    kept = {name: value for name, value in settings.items() if name not in (SECOND_PART, PARTS)}
    return replace(
        attention,
        maps=tuple(maps),
        provenance=replace(attention.provenance, settings=kept),
        text=None,
        source=text[: start - 1],
        target=text[start:],
    )


def _part(tokens: Sequence[Token], start: int, which: str) -> tuple[slice, tuple[Token, ...]]:
    """Where one part's tokens stand, and the tokens with offsets into its own text."""
    first = next(place for place, token in enumerate(tokens) if _covers(token, start))
    if which == "a":
        return slice(0, first), tuple(tokens[:first])
    moved = (replace(t, start=max(t.start - start, 0), end=max(t.end - start, 0)) for t in tokens)
    return slice(first, None), tuple(moved)[first:]


def _covers(token: Token, start: int) -> bool:
    return not token.special and token.end > token.start >= start
