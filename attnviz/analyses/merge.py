"""Tokens taken together: sums over the keys of a group, means over its queries.

Sums over keys and means over queries keep every row's sum, and leave it a share: what the words of
the group, on average, give to all words of the other group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention_map import AttentionMap, Token, check_single_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Partition:
    """Positions of an axis in groups; each position is in one.

    Attributes:
        tokens: one for each group.
        groups: the group of each position, numbered as the tokens are.
    """

    tokens: tuple[Token, ...]
    groups: tuple[int, ...]


def merge(item: AttentionMap, queries: Partition, keys: Partition) -> AttentionMap:
    """The map over groups: weights summed over the keys of a group, averaged over its queries.

    Args:
        item: any map.
        queries: of its query positions.
        keys: of its key positions.

    Returns:
        Weights of shape (layers, heads, query groups, key groups); a group's row sums to the mean
        of its rows' sums.
    """
    check_single_tokens(item, "grouping")
    key_members = _membership(keys)
    query_members = _membership(queries)
    query_shares = (query_members / query_members.sum(axis=0)).T
    shape = (*item.weights.shape[:2], len(queries.tokens), len(keys.tokens))
    merged = np.empty(shape, dtype=np.float32)
    for layer, weights in enumerate(item.weights):
        merged[layer] = query_shares @ (weights.astype(np.float64) @ key_members)
    return item.with_weights(
        merged, query_tokens=queries.tokens, key_tokens=keys.tokens, starts=(0, 0)
    )


def partition_of(tokens: Sequence[Token], numbers: Sequence[int | None], text: str) -> Partition:
    """A partition from a number for each position, in the order in which groups first appear.

    Args:
        tokens: of the axis.
        numbers: equal for positions that go together; None stays on its own.
        text: what the tokens' offsets refer to; a group reads as the part of it that it covers.
    """
    places: dict[int, int] = {}
    members: list[list[int]] = []
    for position, number in enumerate(numbers):
        if number is None or number not in places:
            if number is not None:
                places[number] = len(members)
            members.append([position])
        else:
            members[places[number]].append(position)
    groups = [0] * len(tokens)
    for group, positions in enumerate(members):
        for position in positions:
            groups[position] = group
    named = (_together([tokens[position] for position in positions], text) for positions in members)
    return Partition(tuple(named), tuple(groups))


def _together(tokens: Sequence[Token], text: str) -> Token:
    """One token for several: the text from the first to the last, and the label they share."""
    if len(tokens) == 1:
        return tokens[0]
    start, end = min(token.start for token in tokens), max(token.end for token in tokens)
    covered = " ".join(text[start:end].split()) or " ".join(token.text for token in tokens)
    labels = {token.label for token in tokens}
    return Token(covered, start, end, label=labels.pop() if len(labels) == 1 else None)


def _membership(partition: Partition) -> NDArray[np.float64]:
    members = np.zeros((len(partition.groups), len(partition.tokens)))
    members[np.arange(len(partition.groups)), partition.groups] = 1
    return members
