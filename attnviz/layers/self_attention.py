"""Self-attention of one head (Vaswani 2017, section 3.2.1; unscaled: Luong 2015)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.masks import visible
from attnviz.mechanisms.scaled import scaled
from attnviz.mechanisms.single_head import single_head


class SelfAttention(nn.Module):
    """One head that looks over its own inputs, through learned projections.

    Args:
        size: features of a position.
        head_size: features of a query, key and value; None: the same.
        scaled: divide the scores by the root of the head size.
        bias: let the projections add a constant.
        dropout: share of the weights dropped in training, from 0 to 1.
    """

    def __init__(
        self,
        size: int,
        head_size: int | None = None,
        *,
        scaled: bool = True,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        head_size = head_size or size
        self.scaled = scaled
        self.query = nn.Linear(size, head_size, bias=bias)
        self.key = nn.Linear(size, head_size, bias=bias)
        self.value = nn.Linear(size, head_size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The inputs mixed by attention.

        Args:
            inputs: shape (…, positions, size).
            mask: boolean (…, queries, keys), True where a query may look.
            key_mask: boolean (…, keys), False for padding.
            need_weights: give the weights back too.

        Returns:
            output (…, positions, head size), and weights (…, positions, positions) or None.

        Raises:
            UsageError: a mask that is not boolean.
        """
        mechanism = scaled if self.scaled else single_head
        output, weights = mechanism(
            self.query(inputs),
            self.key(inputs),
            self.value(inputs),
            visible(mask, key_mask),
            dropout=self.dropout,
        )
        return output, weights if need_weights else None
