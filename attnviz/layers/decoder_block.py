"""A transformer decoder block, normalised before each part (Vaswani 2017; Xiong 2020: pre-norm)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.feed_forward import FeedForward
from attnviz.layers.multi_head_attention import MultiHeadAttention


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention and a feed-forward network, each added in turn.

    Args:
        size: features of a position, in target and source.
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
        self.attention = MultiHeadAttention(size, heads, causal=True, dropout=dropout)
        self.cross_norm = nn.LayerNorm(size)
        self.cross = MultiHeadAttention(size, heads, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, hidden_size, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        target: Tensor,
        source: Tensor,
        *,
        target_mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """The target after looking back over itself and over the source.

        Args:
            target: shape (…, target positions, size).
            source: what an encoder made of the source, shape (…, source positions, size).
            target_mask: boolean (…, target positions), False for padding.
            source_mask: boolean (…, source positions), False for padding.
            need_weights: give the weights back too.

        Returns:
            output of the target's shape; and the weights over the target (…, heads, targets,
            targets), zero above the diagonal, and over the source (…, heads, targets, sources), or
            None.
        """
        attended, over_target = self.attention(
            self.attention_norm(target), key_mask=target_mask, need_weights=need_weights
        )
        target = target + self.dropout(attended)
        attended, over_source = self.cross(
            self.cross_norm(target), source, key_mask=source_mask, need_weights=need_weights
        )
        target = target + self.dropout(attended)
        output = target + self.feed_forward(self.feed_forward_norm(target))
        return output, (over_target, over_source) if need_weights else None
