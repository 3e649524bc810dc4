"""Alternating co-attention (Lu 2016, "Hierarchical question-image co-attention", section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.mechanisms.arrays import Array, Dropout, namespace
from attnviz.mechanisms.softmax import softmax


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
