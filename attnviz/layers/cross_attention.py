"""Cross-attention (Vaswani 2017, section 3.2.3: encoder–decoder attention)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.masks import visible_to_heads
from attnviz.mechanisms.cross import cross
from attnviz.mechanisms.multi_head import size_of_head


class CrossAttention(nn.Module):
    """One sequence's queries over another's keys and values, without an output projection.

    Args:
        size: features of a position of the sequence that attends.
        source_size: features of a position of the sequence attended to; None: the same.
        joined_size: features of a query, key and value over all heads; None: the first size.
        heads: how many; must divide the joined size.
        bias: let the projections add a constant.
        dropout: share of the weights dropped in training, from 0 to 1.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        size: int,
        source_size: int | None = None,
        joined_size: int | None = None,
        *,
        heads: int = 1,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        source_size = source_size or size
        joined_size = joined_size or size
        size_of_head(joined_size, heads)
        self.heads = heads
        self.query = nn.Linear(size, joined_size, bias=bias)
        self.key = nn.Linear(source_size, joined_size, bias=bias)
        self.value = nn.Linear(source_size, joined_size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        target: Tensor,
        source: Tensor,
        mask: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The source mixed for each position of the target.

        Args:
            target: who attends, shape (…, queries, size).
            source: who is attended to, shape (…, keys, source size).
            mask: boolean (…, queries, keys), or with an axis of heads before the queries; True
                where a query may look.
            key_mask: boolean (…, keys), False for padding in the source.
            need_weights: give the weights back too.

        Returns:
            output (…, queries, joined size), and weights (…, heads, queries, keys) or None.

        Raises:
            UsageError: a mask that is not boolean.
        """
        output, weights = cross(
            self.query(target),
            self.key(source),
            self.value(source),
            visible_to_heads(target, mask, key_mask),
            heads=self.heads,
            dropout=self.dropout,
        )
        return output, weights if need_weights else None
