"""Parallel co-attention (Lu 2016, "Hierarchical question-image co-attention", section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attnviz.mechanisms.arrays import Array, Dropout, namespace, softmax, transpose
from attnviz.mechanisms.dot_product import cross


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


# <co_alternating> Alternating co-attention (Lu 2016, "Hierarchical question-image co-attention",
# section 3.3).


def guided_summary(
    inputs: Array,
    guide: Array | None,
    parameters: Mapping[str, Array],
    mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """One turn: the inputs' sum weighted by how well they fit the guide.

    H = tanh(X W_x + g W_g), a = softmax(H w), summary = Σ a_i x_i.

    Args:
        inputs: shape (…, positions, size).
        guide: shape (…, guide size); None stands for zeros, as in the first turn.
        parameters: "inputs" (size, hidden size), "guide" (guide size, hidden size; not read in an
            unguided turn) and "score" (hidden size,).
        mask: boolean over the positions, True where it may be seen.
        dropout: applied to the weights before they meet the inputs; None: nothing is dropped.

    Returns:
        summary (…, size) and weights (…, positions) summing to 1.
    """
    xp = namespace(inputs)
    hidden = inputs @ parameters["inputs"]
    if guide is not None:
        hidden = hidden + (guide @ parameters["guide"])[..., None, :]
    weights = softmax(xp.tanh(hidden) @ parameters["score"], mask)
    if dropout is not None:
        weights = dropout(weights)
    return xp.sum(weights[..., None] * inputs, axis=-2), weights


def co_alternating(
    first: Array,
    second: Array,
    parameters: Mapping[str, Mapping[str, Array]],
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    dropout: Dropout | None = None,
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Co-attention in three turns: summarise one, let it guide the other, and back again.

    Args:
        first: shape (…, first positions, size).
        second: shape (…, second positions, size).
        parameters: for each turn "first", "second" and "first_again" what `guided_summary` takes.
        first_mask: boolean over the first positions, True where it may be seen.
        second_mask: the same for the second.
        dropout: applied to the weights before they meet the inputs; None: nothing is dropped.

    Returns:
        The final summaries of the first and the second, each (…, size), and the three turns'
        weights: over the first unguided, over the second, over the first guided; each sums to 1.
    """
    alone, over_first = guided_summary(
        first, None, parameters["first"], first_mask, dropout=dropout
    )
    summary_second, over_second = guided_summary(
        second, alone, parameters["second"], second_mask, dropout=dropout
    )
    summary_first, over_first_again = guided_summary(
        first, summary_second, parameters["first_again"], first_mask, dropout=dropout
    )
    return (summary_first, summary_second), (over_first, over_second, over_first_again)


# <co_two_stream> Two-stream co-attention (ViLBERT: Lu 2019, section 2.1).

Projected = tuple[Array, Array, Array]
"""query, key and value of one stream, each of shape (…, positions, size)."""


def co_two_stream(
    first: Projected,
    second: Projected,
    first_mask: Array | None = None,
    second_mask: Array | None = None,
    *,
    heads: int = 1,
    dropout: Dropout | None = None,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Co-attention of two streams, each one's queries over the other's keys and values.

    Args:
        first: query, key and value of the first stream, each (…, positions, size).
        second: the same for the second stream.
        first_mask: boolean, True for positions of the first stream that may be seen, (…, 1, keys).
        second_mask: the same for the second stream.
        heads: how many; must divide the sizes.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        (outputs, weights): the first stream's output (…, positions, size) and weights
        (…, heads, first positions, second positions) stand first in each pair, rows summing to 1.
    """
    first_output, first_weights = cross(
        first[0], second[1], second[2], second_mask, heads=heads, dropout=dropout
    )
    second_output, second_weights = cross(
        second[0], first[1], first[2], first_mask, heads=heads, dropout=dropout
    )
    return (first_output, second_output), (first_weights, second_weights)
