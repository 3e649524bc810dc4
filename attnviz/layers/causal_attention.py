"""Causal self-attention of one head (Vaswani 2017, section 3.2.3: masking in the decoder)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.errors import InputError
from attnviz.layers.masks import visible
from attnviz.mechanisms.causal import causal


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
