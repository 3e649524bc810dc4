"""The position-wise feed-forward network (Vaswani 2017, section 3.3), with a GELU."""

from __future__ import annotations

from torch import nn


class FeedForward(nn.Sequential):
    """Two linear maps with a GELU between them, the same for every position.

    Args:
        size: features of a position, in and out.
        hidden_size: features between the maps; None: four times as many.
        dropout: share dropped in training after each map, from 0 to 1.
    """

    def __init__(self, size: int, hidden_size: int | None = None, *, dropout: float = 0.0) -> None:
        hidden_size = hidden_size or 4 * size
        super().__init__(
            nn.Linear(size, hidden_size),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size, size),
            nn.Dropout(dropout),
        )
