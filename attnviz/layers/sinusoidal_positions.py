"""Sinusoidal positions added to embeddings (Vaswani 2017, section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnviz.mechanisms.positions import sinusoidal_positions


class SinusoidalPositions(nn.Module):
    """The inputs with waves added that tell positions apart; nothing is learned.

    Args:
        size: features of a position.
        length: how many positions are made ready; longer inputs make more when they come.
        dropout: share of the sums dropped in training, from 0 to 1.
    """

    table: Tensor

    def __init__(self, size: int, length: int = 512, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size
        self.dropout = nn.Dropout(dropout)
        table = torch.from_numpy(sinusoidal_positions(length, size))
        self.register_buffer("table", table, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs plus their positions' waves.

        Args:
            inputs: shape (…, positions, size).

        Returns:
            The inputs' shape.
        """
        positions = inputs.shape[-2]
        if positions > len(self.table):
            longer = torch.from_numpy(sinusoidal_positions(positions, self.size))
            self.table = longer.to(self.table)
        told: Tensor = self.dropout(inputs + self.table[:positions].to(inputs))
        return told
