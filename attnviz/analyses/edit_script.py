"""Tokens of two texts paired by an edit script (Ratcliff and Obershelp's, as in difflib)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

Pair = tuple[int | None, int | None]
"""Positions in the first and in the second text; None where a token has no partner."""


def pair_tokens(first: Sequence[str], second: Sequence[str]) -> list[Pair]:
    """Each token of both texts once, in order, with its partner if it has one.

    Runs of equal tokens are paired, and what stands between two such runs where it is as long in
    both texts; other tokens stay alone. Exchanging the texts exchanges the sides of every pair.
    """
    if list(second) < list(first):
        return [(left, right) for right, left in pair_tokens(second, first)]
    pairs: list[Pair] = []
    matcher = SequenceMatcher(None, list(first), list(second), autojunk=False)
    for _, low, high, other_low, other_high in matcher.get_opcodes():
        if high - low == other_high - other_low:
            pairs += zip(range(low, high), range(other_low, other_high), strict=True)
            continue
        pairs += ((position, None) for position in range(low, high))
        pairs += ((None, position) for position in range(other_low, other_high))
    return pairs
