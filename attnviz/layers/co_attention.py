"""Co-attention in any of its variants, chosen by name."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from attnviz.errors import UsageError, choose
from attnviz.layers.co_attention_alternating import AlternatingCoAttention
from attnviz.layers.co_attention_parallel import ParallelCoAttention
from attnviz.layers.co_attention_two_stream import TwoStreamCoAttention

VARIANTS: dict[str, type[nn.Module]] = {
    "parallel": ParallelCoAttention,
    "alternating": AlternatingCoAttention,
    "two-stream": TwoStreamCoAttention,
}


class CoAttention(nn.Module):
    """Two sequences that attend to each other, in one of three ways.

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which the two meet; None: the first size.
        variant: "parallel" and "alternating" sum each sequence up in one vector; "two-stream" keeps
            every position.
        heads: how many; more than one only in two streams.
        dropout: share of the weights dropped in training, from 0 to 1.

    Raises:
        UsageError: an unknown variant, or heads where there is only one.
    """

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        variant: str = "parallel",
        heads: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.variant = choose(variant, VARIANTS, "co-attention variant")
        options: dict[str, Any] = {"dropout": dropout}
        if variant == "two-stream":
            options["heads"] = heads
        elif heads != 1:
            raise UsageError(
                f"{heads} heads in {variant} co-attention, which has one: choose 'two-stream'"
            )
        self.attention = VARIANTS[variant](size, second_size, hidden_size, **options)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...] | None]:
        """What the variant makes of the two.

        Args:
            first: shape (…, first positions, size).
            second: shape (…, second positions, second size).
            first_mask: boolean (…, first positions), False for padding.
            second_mask: boolean (…, second positions), False for padding.
            need_weights: give the weights back too.

        Returns:
            One output for each sequence: a summary (…, size), or in two streams (…, positions,
            size). And the variant's weights, or None: affinity, over the first, over the second
            ("parallel"); over the first unguided, over the second, over the first guided
            ("alternating"); the first's queries over the second, and back ("two-stream").
        """
        outputs, weights = self.attention(
            first,
            second,
            first_mask=first_mask,
            second_mask=second_mask,
            need_weights=need_weights,
        )
        return outputs, weights
