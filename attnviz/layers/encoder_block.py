"""A transformer encoder block, normalised before each part (Vaswani 2017; Xiong 2020: pre-norm)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.feed_forward import FeedForward
from attnviz.layers.multi_head_attention import MultiHeadAttention


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward network, each added to what came in.

    Args:
        size: features of a position.
        heads: how many; must divide the size.
        hidden_size: features inside the feed-forward network; None: four times the size.
        dropout: share dropped in training, of weights and of what each part adds, from 0 to 1.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self, size: int, heads: int, hidden_size: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size)
        self.attention = MultiHeadAttention(size, heads, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, hidden_size, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The inputs after attention and feed-forward.

        Args:
            inputs: shape (…, positions, size).
            mask: boolean (…, queries, keys), True where a query may look.
            key_mask: boolean (…, keys), False for padding.
            need_weights: give the weights back too.

        Returns:
            output of the inputs' shape, and weights (…, heads, positions, positions) or None.
        """
        attended, weights = self.attention(
            self.attention_norm(inputs), mask=mask, key_mask=key_mask, need_weights=need_weights
        )
        inputs = inputs + self.dropout(attended)
        return inputs + self.feed_forward(self.feed_forward_norm(inputs)), weights
