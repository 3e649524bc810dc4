"""One mask out of those that a layer was given; True always means that a query may look."""

from __future__ import annotations

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


def visible(mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """What both masks leave to see, broadcastable to (…, queries, keys); None: everything.

    Args:
        mask: boolean of shape (queries, keys) or (…, queries, keys), or None.
        key_mask: boolean of shape (…, keys), False for padding, or None.

    Raises:
        UsageError: a mask that is not boolean; numbers to add to scores are a different thing.
    """
    for given in (mask, key_mask):
        if given is not None and given.dtype != torch.bool:
            raise UsageError(
                f"a mask must be boolean, True where a query may look, but is {given.dtype}: "
                "compare it first, as in mask == 1, or mask == 0 where it is added to scores"
            )
    if key_mask is None:
        return mask
    keys = key_mask[..., None, :]
    return keys if mask is None else mask & keys


def visible_to_heads(query: Tensor, mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """The same with an axis for heads, broadcastable to (…, heads, queries, keys).

    Args:
        query: shape (…, queries, size); tells a mask for each item from one for each head.
        mask: boolean of shape (queries, keys), (…, queries, keys) or (…, heads, queries, keys).
        key_mask: boolean of shape (…, keys), False for padding.

    Raises:
        UsageError: a mask that is not boolean.
    """
    if mask is not None and mask.ndim <= query.ndim:
        mask = mask[..., None, :, :]
    return visible(mask, None if key_mask is None else key_mask[..., None, :])


# <self_attention> Self-attention of one head (Vaswani 2017, section 3.2.1; unscaled: Luong 2015).


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


# <multi_head_attention> Multi-head attention with all four projections (Vaswani 2017, section
# 3.2.2).


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


# <causal_attention> Causal self-attention of one head (Vaswani 2017, section 3.2.3: masking in
# the decoder).


def check_context(positions: int, context_length: int | None) -> None:
    """Refuse more positions than a layer was built for.

    Raises:
        InputError: the inputs are longer than the context.
    """
    if context_length is not None and positions > context_length:
        raise InputError(
            f"the inputs have {positions} positions, but the context length is {context_length}: "
            "shorten them, or build the layer with a longer context"
        )


class CausalAttention(nn.Module):
    """One head in which each position sees itself and what came before.

    Args:
        size: features of a position.
        head_size: features of a query, key and value; None: the same.
        context_length: the most positions it takes; None: any number.
        bias: let the projections add a constant.
        dropout: share of the weights dropped in training, from 0 to 1.
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
        super().__init__()
        head_size = head_size or size
        self.context_length = context_length
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
        """The inputs mixed by attention that never looks ahead.

        Args:
            inputs: shape (…, positions, size).
            mask: boolean (…, queries, keys), True where a query may look, on top of the causal one.
            key_mask: boolean (…, keys), False for padding.
            need_weights: give the weights back too.

        Returns:
            output (…, positions, head size), and weights (…, positions, positions), zero above the
            diagonal, or None.

        Raises:
            InputError: more positions than the context length.
            UsageError: a mask that is not boolean.
        """
        check_context(inputs.shape[-2], self.context_length)
        output, weights = causal(
            self.query(inputs),
            self.key(inputs),
            self.value(inputs),
            visible(mask, key_mask),
            dropout=self.dropout,
        )
        return output, weights if need_weights else None


# <cross_attention> Cross-attention (Vaswani 2017, section 3.2.3: encoder–decoder attention).


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


# <linear_attention> Linear attention with learned projections (Katharopoulos 2020).


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
