"""Alternating co-attention with learned parameters (Lu 2016, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnviz.mechanisms.co_alternating import co_alternating


def turn(size: int, guide_size: int | None, hidden_size: int) -> nn.ParameterDict:
    """Fresh parameters of one turn; without a guide where none speaks in it."""
    parameters = nn.ParameterDict()
    parameters["inputs"] = nn.init.xavier_uniform_(torch.empty(size, hidden_size))
    if guide_size is not None:
        parameters["guide"] = nn.init.xavier_uniform_(torch.empty(guide_size, hidden_size))
    parameters["score"] = nn.init.normal_(torch.empty(hidden_size), std=hidden_size**-0.5)
    return parameters


class AlternatingCoAttention(nn.Module):
    """Two sequences summarised in three turns, each summary guiding the next.

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which inputs meet their guide; None: the first size.
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
        self.turns = nn.ModuleDict(
            {
                "first": turn(size, None, hidden_size),
                "second": turn(second_size, size, hidden_size),
                "first_again": turn(size, second_size, hidden_size),
            }
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
        """Both sequences' summaries after the last turn.

        Args:
            first: shape (…, first positions, size).
            second: shape (…, second positions, second size).
            first_mask: boolean (…, first positions), False for padding.
            second_mask: boolean (…, second positions), False for padding.
            need_weights: give the weights back too.

        Returns:
            summaries of shape (…, size) and (…, second size); and the three turns' weights (over
            the first unguided, over the second, over the first guided) or None.
        """
        parameters = {name: dict(given.named_parameters()) for name, given in self.turns.items()}
        summaries, weights = co_alternating(
            first, second, parameters, first_mask, second_mask, dropout=self.dropout
        )
        return summaries, weights if need_weights else None
