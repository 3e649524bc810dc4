"""Attention with learned projections: one head or several, causal, cross and linear.

`attnviz.layers` describes the arguments and results that every layer shares.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnviz.core.errors import InputError, UsageError
from attnviz.mechanisms.dot_product import (
    causal,
    causal_mask,
    cross,
    join_heads,
    multi_head,
    scaled,
    single_head,
    size_of_head,
    split_heads,
)
from attnviz.mechanisms.linear import causal_linear, linear

Mask = Tensor | None  # boolean, True where a query may look; None: everywhere
Attended = tuple[Tensor, Tensor | None]  # the output, and the weights where they were asked for


class ProjectedAttention(nn.Module):
    """The learned maps to queries, keys and values that every attention layer starts with."""

    def __init__(
        self,
        query_size: int,
        key_size: int,
        value_size: int,
        joined_size: int,
        *,
        bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, joined_size, bias=bias)
        self.key = nn.Linear(key_size, joined_size, bias=bias)
        self.value = nn.Linear(value_size, joined_size, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of shape (…, positions, joined size)."""
        return self.query(query), self.key(key), self.value(value)


class SelfAttention(ProjectedAttention):
    """One head over its own inputs (Vaswani 2017, section 3.2.1; unscaled: Luong 2015).

    Args:
        head_size: features of a query, key and value; None: the same.
        scaled: divide the scores by the root of the head size.
    """

    context_length: int | None = None

    def __init__(
        self,
        size: int,
        head_size: int | None = None,
        *,
        scaled: bool = True,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(size, size, size, head_size or size, bias=bias, dropout=dropout)
        self.scaled = scaled

    def forward(
        self,
        inputs: Tensor,
        mask: Mask = None,
        *,
        key_mask: Mask = None,
        need_weights: bool = False,
    ) -> Attended:
        """The inputs (…, positions, size) mixed by attention, (…, positions, head size).

        Raises:
            InputError: more positions than the context length, if there is one.
        """
        check_context(inputs.shape[-2], self.context_length)
        sides = self.project(inputs, inputs, inputs)
        output, weights = self.mechanism()(*sides, join_masks(mask, key_mask), dropout=self.dropout)
        return output, weights if need_weights else None

    def mechanism(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The formula between the projections."""
        return scaled if self.scaled else single_head


class CausalAttention(SelfAttention):
    """One head in which each position sees itself and those before (Vaswani 2017, section 3.2.3).

    Args:
        head_size: features of a query, key and value; None: the same.
        context_length: the most positions it takes; None: any number.
    """

    def __init__(
        self,
        size: int,
        head_size: int | None = None,
        *,
        context_length: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(size, head_size, bias=bias, dropout=dropout)
        self.context_length = context_length

    def mechanism(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Scaled attention; no weights above the diagonal."""
        return causal


class CrossAttention(ProjectedAttention):
    """One sequence's queries over another's keys, not projected again (Vaswani 2017, 3.2.3).

    Args:
        size: features of a position of the sequence that attends.
        source_size: features of a position of the sequence attended to; None: the same.
        joined_size: features of a query, key and value over all heads; None: the first size.
        heads: how many; must divide the joined size.
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
        source_size = source_size or size
        joined_size = joined_size or size
        size_of_head(joined_size, heads)
        super().__init__(size, source_size, source_size, joined_size, bias=bias, dropout=dropout)
        self.heads = heads

    def forward(
        self,
        target: Tensor,
        source: Tensor,
        mask: Mask = None,
        *,
        key_mask: Mask = None,
        need_weights: bool = False,
    ) -> Attended:
        """Mixes the source (…, keys, source size) for each query into (…, queries, joined size)."""
        output, weights = cross(
            *self.project(target, source, source),
            join_head_masks(target, mask, key_mask),
            heads=self.heads,
            dropout=self.dropout,
        )
        return output, weights if need_weights else None


class MultiHeadAttention(ProjectedAttention):
    """Several heads side by side, joined and projected (Vaswani 2017, section 3.2.2).

    Args:
        key_size: features of a key position where they differ; None: the same.
        value_size: features of a value position where they differ; None: those of a key.
        causal: let no query see a later key. With more keys than queries, as with a cache, the
            queries are the last positions.
        context_length: the most keys it takes; None: any number.
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
        size_of_head(size, heads)
        key_size = key_size or size
        super().__init__(size, key_size, value_size or key_size, size, bias=bias, dropout=dropout)
        self.output = nn.Linear(size, size, bias=bias)
        self.heads = heads
        self.causal = causal
        self.context_length = context_length

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Mask = None,
        *,
        key_mask: Mask = None,
        need_weights: bool = False,
    ) -> Attended:
        """The values (…, keys, value size) mixed for each query (…, queries, size), and projected.

        Keys (…, keys, key size) default to the queries, and values to the keys. A query that may
        look nowhere has the output projection's bias as its output.

        Raises:
            InputError: more keys than the context length.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_context(key.shape[-2], self.context_length)
        visible = join_head_masks(query, mask, key_mask)
        if self.causal:
            triangle = causal_mask(query, query.shape[-2], key.shape[-2])
            visible = triangle if visible is None else visible & triangle
        mixture, weights = multi_head(
            *self.project(query, key, value), visible, heads=self.heads, dropout=self.dropout
        )
        return self.output(mixture), weights if need_weights else None


class LinearAttention(ProjectedAttention):
    """Attention at a cost linear in length, plain or causal (Katharopoulos 2020).

    Only `need_weights` forms weights, at a cost of queries × keys; so dropout applies to the joined
    heads instead.
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
        size_of_head(size, heads)
        super().__init__(size, size, size, size, bias=bias, dropout=dropout)
        self.output = nn.Linear(size, size, bias=bias)
        self.heads = heads
        self.causal = causal

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_mask: Mask = None,
        need_weights: bool = False,
    ) -> Attended:
        """The values (…, keys, size) mixed for each query (…, queries, size) through shared sums.

        Keys default to the queries, and values to the keys. There is no mask for single queries:
        they could not share the sums.

        Raises:
            ValueError: causal, with queries and keys of different length.
        """
        key = query if key is None else key
        value = key if value is None else value
        visible = join_head_masks(query, None, key_mask)
        query, key, value = (
            split_heads(inputs, self.heads) for inputs in self.project(query, key, value)
        )
        mechanism = causal_linear if self.causal else linear
        output, weights = mechanism(query, key, value, visible, need_weights=need_weights)
        return self.output(self.dropout(join_heads(output))), weights


def check_context(positions: int, context_length: int | None) -> None:
    """Refuse more positions than a layer was built for."""
    if context_length is not None and positions > context_length:
        raise InputError(
            f"the inputs have {positions} positions, but the context length is {context_length}: "
            "shorten them, or build the layer with a longer context"
        )


def join_masks(mask: Mask, key_mask: Mask) -> Tensor | None:
    """Both masks as one, broadcastable to (…, queries, keys); None: everything is visible."""
    for one in (mask, key_mask):
        if one is not None and one.dtype != torch.bool:
            raise UsageError(
                f"a mask must be boolean, True where a query may look, but is {one.dtype}: "
                "compare it first, as in mask == 1, or mask == 0 where it is added to scores"
            )
    if key_mask is None:
        return mask
    keys = key_mask[..., None, :]
    return keys if mask is None else mask & keys


def join_head_masks(query: Tensor, mask: Mask, key_mask: Mask) -> Tensor | None:
    """The same with an axis for heads, broadcastable to (…, heads, queries, keys)."""
    # The number of axes shows whether the mask is one for each item or one for each head.
    if mask is not None and mask.ndim <= query.ndim:
        mask = mask[..., None, :, :]
    return join_masks(mask, None if key_mask is None else key_mask[..., None, :])
