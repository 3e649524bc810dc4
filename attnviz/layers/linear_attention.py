"""Linear attention with learned projections (Katharopoulos 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.masks import visible_to_heads
from attnviz.mechanisms.causal_linear import causal_linear
from attnviz.mechanisms.linear import linear
from attnviz.mechanisms.multi_head import join_heads, size_of_head, split_heads


class LinearAttention(nn.Module):
    """Attention at a cost linear in length, plain or causal, in one head or several.

    Weights are never formed unless asked for, which costs queries × keys; so dropout cannot fall on
    them and falls on the joined heads instead.

    Args:
        size: features of a position.
        heads: how many; must divide the size.
        causal: let no position see a later one.
        bias: let the projections add a constant.
        dropout: share of the joined heads' features dropped in training, from 0 to 1.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        size: int,
        heads: int = 1,
        *,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        size_of_head(size, heads)
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(size, size, bias=bias)
        self.key = nn.Linear(size, size, bias=bias)
        self.value = nn.Linear(size, size, bias=bias)
        self.output = nn.Linear(size, size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The values mixed for each query through sums that all queries share.

        Args:
            query: shape (…, queries, size).
            key: shape (…, keys, size); None: the queries, so that it is self-attention.
            value: shape (…, keys, size); None: the keys.
            key_mask: boolean (…, keys), False for padding. There is no mask for single queries:
                the sums could not be shared.
            need_weights: give the implied weights back too, one matrix for each head.

        Returns:
            output (…, queries, size), and weights (…, heads, queries, keys) or None.

        Raises:
            ValueError: causal, with queries and keys of different length.
            UsageError: a mask that is not boolean.
        """
        key = query if key is None else key
        value = key if value is None else value
        projected = (self.query(query), self.key(key), self.value(value))
        asked, seen, mixed = (split_heads(inputs, self.heads) for inputs in projected)
        mechanism = causal_linear if self.causal else linear
        output, weights = mechanism(
            asked, seen, mixed, visible_to_heads(query, None, key_mask), need_weights=need_weights
        )
        return self.output(self.dropout(join_heads(output))), weights
