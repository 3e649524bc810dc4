"""Co-attention with learned parameters (Lu 2016, section 3.3; two streams: Lu 2019, section 2.1).

`first_mask` and `second_mask` are boolean (…, positions), False for padding. What else the layers
share is described once, in `attnviz.layers`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.errors import UsageError, choose
from attnviz.core.registry import MECHANISMS, Entry
from attnviz.layers.attention import Projected, visible_to_heads
from attnviz.mechanisms.co_attention import co_alternating, co_parallel, co_two_stream
from attnviz.mechanisms.dot_product import size_of_head


class CoAttention(nn.Module):
    """Two sequences that attend to each other, in a variant chosen by name.

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which the two meet; None: the first size.
        variant: "parallel" and "alternating" sum each sequence up in one vector; "two-stream" keeps
            every position.
        heads: how many; more than one only in two streams.

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
        rows = {name.removeprefix("co-"): row for name, row in MECHANISMS.items() if row.module}
        self.variant = choose(variant, rows, "co-attention variant")
        options: dict[str, Any] = {"dropout": dropout}
        row = rows[variant]
        if row.many_heads:
            options["heads"] = heads
        elif heads != 1:
            raise UsageError(
                f"{heads} heads in {variant} co-attention, which has one: choose 'two-stream'"
            )
        module = Entry(row.summary, row.module).load()
        self.attention: nn.Module = module(size, second_size, hidden_size, **options)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...] | None]:
        """What the variant makes of the first (…, positions, size) and the second sequence.

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


class ParallelCoAttention(nn.Module):
    """Two sequences summarised at once through one affinity that both share (Lu 2016).

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which the two are compared; None: the first size.
    """

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        second_size = second_size or size
        hidden_size = hidden_size or size
        self.affinity = nn.Parameter(torch.empty(size, second_size))
        self.first = nn.Parameter(torch.empty(size, hidden_size))
        self.second = nn.Parameter(torch.empty(second_size, hidden_size))
        self.first_score = nn.Parameter(torch.empty(hidden_size))
        self.second_score = nn.Parameter(torch.empty(hidden_size))
        self.dropout = nn.Dropout(dropout)
        for matrix in (self.affinity, self.first, self.second):
            nn.init.xavier_uniform_(matrix)
        for score in (self.first_score, self.second_score):
            nn.init.normal_(score, std=hidden_size**-0.5)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
        """Summaries of the first (…, positions, size) and the second sequence.

        Returns:
            summaries of shape (…, size) and (…, second size); and the affinity (…, first
            positions, second positions) from −1 to 1, the weights over the first positions and
            those over the second, or None.
        """
        parameters = dict(self.named_parameters())
        summaries, affinity, (over_first, over_second) = co_parallel(
            first, second, parameters, first_mask, second_mask, dropout=self.dropout
        )
        return summaries, (affinity, over_first, over_second) if need_weights else None


class AlternatingCoAttention(nn.Module):
    """Two sequences summarised in three turns, each summary guiding the next (Lu 2016).

    Args:
        size: features of a position of the first sequence.
        second_size: the same for the second; None: the same number.
        hidden_size: features in which inputs meet their guide; None: the first size.
    """

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        second_size = second_size or size
        hidden_size = hidden_size or size
        self.turns = nn.ModuleDict(
            {
                "first": _turn(size, None, hidden_size),
                "second": _turn(second_size, size, hidden_size),
                "first_again": _turn(size, second_size, hidden_size),
            }
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Tensor | None = None,
        second_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor] | None]:
        """Summaries of the first (…, positions, size) and the second sequence.

        Returns:
            summaries of shape (…, size) and (…, second size); and the three turns' weights (over
            the first unguided, over the second, over the first guided) or None.
        """
        parameters = {name: dict(given.named_parameters()) for name, given in self.turns.items()}
        summaries, weights = co_alternating(
            first, second, parameters, first_mask, second_mask, dropout=self.dropout
        )
        return summaries, weights if need_weights else None


def _turn(size: int, guide_size: int | None, hidden_size: int) -> nn.ParameterDict:
    parameters = nn.ParameterDict()
    parameters["inputs"] = nn.init.xavier_uniform_(torch.empty(size, hidden_size))
    if guide_size is not None:
        parameters["guide"] = nn.init.xavier_uniform_(torch.empty(guide_size, hidden_size))
    parameters["score"] = nn.init.normal_(torch.empty(hidden_size), std=hidden_size**-0.5)
    return parameters


class Stream(Projected):
    """The four projections of one stream: query, key, value, and output back to its size."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__(size, size, size, hidden_size, bias=True, dropout=0.0)
        self.output = nn.Linear(hidden_size, size)


class TwoStreamCoAttention(nn.Module):
    """Two streams, each one's queries over the other's keys and values (ViLBERT: Lu 2019).

    Args:
        size: features of a position of the first stream.
        second_size: the same for the second; None: the same number.
        hidden_size: features of queries, keys and values over all heads; None: the first size.
        heads: how many; must divide the hidden size.
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
        """The first (…, positions, size) and the second stream, each informed by the other.

        Returns:
            outputs of the inputs' shapes; and the weights of the first stream's queries (…, heads,
            first positions, second positions) and of the second's, the other way round, or None.
        """
        outputs, weights = co_two_stream(
            self.first.project(first, first, first),
            self.second.project(second, second, second),
            visible_to_heads(first, None, first_mask),
            visible_to_heads(second, None, second_mask),
            heads=self.heads,
            dropout=self.dropout,
        )
        given_back = (self.first.output(outputs[0]), self.second.output(outputs[1]))
        return given_back, weights if need_weights else None
