"""Two-stream co-attention with learned projections (ViLBERT: Lu 2019, section 2.1)."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.layers.masks import visible_to_heads
from attnviz.mechanisms.co_two_stream import Projected, co_two_stream
from attnviz.mechanisms.multi_head import size_of_head


class Stream(nn.Module):
    """The four projections of one stream: query, key, value, and output back to its size."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, hidden_size)
        self.key = nn.Linear(size, hidden_size)
        self.value = nn.Linear(size, hidden_size)
        self.output = nn.Linear(hidden_size, size)

    def project(self, inputs: Tensor) -> Projected:
        """Query, key and value of the inputs, each (…, positions, hidden size)."""
        return self.query(inputs), self.key(inputs), self.value(inputs)


class TwoStreamCoAttention(nn.Module):
    """Two streams side by side, each one's queries over the other's keys and values.

    Args:
        size: features of a position of the first stream.
        second_size: the same for the second; None: the same number.
        hidden_size: features of queries, keys and values over all heads; None: the first size.
        heads: how many; must divide the hidden size.
        dropout: share of the weights dropped in training, from 0 to 1.

    Raises:
        UsageError: a size that the heads do not divide.
    """

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        heads: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden_size = hidden_size or size
        size_of_head(hidden_size, heads)
        self.heads = heads
        self.first = Stream(size, hidden_size)
        self.second = Stream(second_size or size, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """Each stream's positions, told about the other stream.

        Args:
            first: shape (…, first positions, size).
            second: shape (…, second positions, second size).
            first_mask: boolean (…, first positions), False for padding.
            second_mask: boolean (…, second positions), False for padding.
            need_weights: give the weights back too.

        Returns:
            outputs of the inputs' shapes; and the weights of the first stream's queries (…, heads,
            first positions, second positions) and of the second's, the other way round, or None.

        Raises:
            UsageError: a mask that is not boolean.
        """
        outputs, weights = co_two_stream(
            self.first.project(first),
            self.second.project(second),
            visible_to_heads(first, None, first_mask),
            visible_to_heads(second, None, second_mask),
            heads=self.heads,
            dropout=self.dropout,
        )
        given_back = (self.first.output(outputs[0]), self.second.output(outputs[1]))
        return given_back, weights if need_weights else None
