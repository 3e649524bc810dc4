"""Parallel co-attention with learned parameters (Lu 2016, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnviz.mechanisms.co_parallel import co_parallel


class ParallelCoAttention(nn.Module):
    """Two sequences summarised at once through one affinity that both share.

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which the two are compared; None: the first size.
        dropout: share of the weights dropped in training, from 0 to 1.
    """

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        second_size = second_size or size
        hidden_size = hidden_size or size
        self.affinity = nn.Parameter(torch.empty(size, second_size))
        self.first = nn.Parameter(torch.empty(size, hidden_size))
        self.second = nn.Parameter(torch.empty(second_size, hidden_size))
        self.first_score = nn.Parameter(torch.empty(hidden_size))
        self.second_score = nn.Parameter(torch.empty(hidden_size))
        self.dropout = nn.Dropout(dropout)
        for matrix in (self.affinity, self.first, self.second):
            nn.init.xavier_uniform_(matrix)
        for score in (self.first_score, self.second_score):
            nn.init.normal_(score, std=hidden_size**-0.5)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
        """Both sequences' summaries.

        Args:
            first: shape (…, first positions, size).
            second: shape (…, second positions, second size).
            first_mask: boolean (…, first positions), False for padding.
            second_mask: boolean (…, second positions), False for padding.
            need_weights: give the affinity and the weights back too.

        Returns:
            summaries of shape (…, size) and (…, second size); and the affinity (…, first
            positions, second positions) from −1 to 1, the weights over the first positions and
            those over the second, or None.
        """
        parameters = {
            "affinity": self.affinity,
            "first": self.first,
            "second": self.second,
            "first_score": self.first_score,
            "second_score": self.second_score,
        }
        summaries, affinity, (over_first, over_second) = co_parallel(
            first, second, parameters, first_mask, second_mask, dropout=self.dropout
        )
        return summaries, (affinity, over_first, over_second) if need_weights else None
