"""Multi-head attention with all four projections (Vaswani 2017, section 3.2.2)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.causal_attention import check_context
from attnviz.layers.masks import visible_to_heads
from attnviz.mechanisms.causal import causal_mask
from attnviz.mechanisms.multi_head import multi_head, size_of_head


class MultiHeadAttention(nn.Module):
    """Several heads side by side, joined and projected; over itself or over another sequence.

    Args:
        size: features of a query position and of the output.
        heads: how many; must divide the size.
        key_size: features of a key position where they differ; None: the same.
        value_size: features of a value position where they differ; None: those of a key.
        causal: let no query see a later key; with more keys than queries, as when going on from a
            cache, the queries are the last positions.
        context_length: the most keys it takes; None: any number.
        bias: let the projections add a constant.
        dropout: share of the weights dropped in training, from 0 to 1.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        key_size: int | None = None,
        value_size: int | None = None,
        causal: bool = False,
        context_length: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        size_of_head(size, heads)
        key_size = key_size or size
        self.heads = heads
        self.causal = causal
        self.context_length = context_length
        self.query = nn.Linear(size, size, bias=bias)
        self.key = nn.Linear(key_size, size, bias=bias)
        self.value = nn.Linear(value_size or key_size, size, bias=bias)
        self.output = nn.Linear(size, size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The values mixed for each query, head by head, and projected.

        Args:
            query: shape (…, queries, size).
            key: shape (…, keys, key size); None: the queries, so that it is self-attention.
            value: shape (…, keys, value size); None: the keys.
            mask: boolean (…, queries, keys), or with an axis of heads before the queries; True
                where a query may look.
            key_mask: boolean (…, keys), False for padding.
            need_weights: give the weights back too, one matrix for each head.

        Returns:
            output (…, queries, size), and weights (…, heads, queries, keys) or None. A query that
            may look nowhere has zero weights, and the output projection's bias as its output.

        Raises:
            InputError: more keys than the context length.
            UsageError: a mask that is not boolean.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_context(key.shape[-2], self.context_length)
        seen = visible_to_heads(query, mask, key_mask)
        if self.causal:
            triangle = causal_mask(query, query.shape[-2], key.shape[-2])
            seen = triangle if seen is None else seen & triangle
        joined, weights = multi_head(
            self.query(query),
            self.key(key),
            self.value(value),
            seen,
            heads=self.heads,
            dropout=self.dropout,
        )
        return self.output(joined), weights if need_weights else None
