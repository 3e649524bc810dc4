"""Parallel co-attention (Lu 2016, "Hierarchical question-image co-attention", section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attnviz.mechanisms.arrays import Array, Dropout, namespace, transpose
from attnviz.mechanisms.softmax import softmax


class CoAttended(NamedTuple):
    """What parallel co-attention gives.

    Attributes:
        summaries: of the first and the second sequence, each (…, size).
        affinity: shape (…, first positions, second positions), from −1 to 1.
        weights: over the positions of the first and of the second, each summing to 1.
    """

    summaries: tuple[Array, Array]
    affinity: Array
    weights: tuple[Array, Array]


def co_parallel(
    first: Array,
    second: Array,
    parameters: Mapping[str, Array],
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> CoAttended:
    """Co-attention of two sequences through one shared affinity, both summarised at once.

    C = tanh(Q W_b Vᵀ), H_q = tanh(Q W_q + C (V W_v)), H_v = tanh(V W_v + Cᵀ (Q W_q)),
    a = softmax(H w); Q is the first sequence and V the second.

    Args:
        first: shape (…, first positions, first size).
        second: shape (…, second positions, second size).
        parameters: "affinity" (first size, second size), "first" (first size, hidden size),
            "second" (second size, hidden size), "first_score" and "second_score" (hidden size,).
        first_mask: boolean over the first positions, True where it may be seen.
        second_mask: the same for the second.
        dropout: applied to the weights before they meet the inputs; None: nothing is dropped.

    Returns:
        Summaries, affinity (masked pairs are 0) and both weights.
    """
    xp = namespace(first)
    affinity = xp.tanh(first @ parameters["affinity"] @ transpose(second))
    for mask, axis in ((first_mask, -1), (second_mask, -2)):
        if mask is not None:
            affinity = xp.where(xp.expand_dims(mask, axis=axis), affinity, 0 * affinity)
    hidden_first = first @ parameters["first"]
    hidden_second = second @ parameters["second"]
    seen_first = xp.tanh(hidden_first + affinity @ hidden_second)
    seen_second = xp.tanh(hidden_second + transpose(affinity) @ hidden_first)
    over_first = softmax(seen_first @ parameters["first_score"], first_mask)
    over_second = softmax(seen_second @ parameters["second_score"], second_mask)
    if dropout is not None:
        over_first, over_second = dropout(over_first), dropout(over_second)
    summaries = (
        xp.sum(over_first[..., None] * first, axis=-2),
        xp.sum(over_second[..., None] * second, axis=-2),
    )
    return CoAttended(summaries, affinity, (over_first, over_second))
