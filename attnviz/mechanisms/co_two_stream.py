"""Two-stream co-attention (ViLBERT: Lu 2019, section 2.1)."""

from __future__ import annotations

from attnviz.mechanisms.arrays import Array, Dropout
from attnviz.mechanisms.cross import cross

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
