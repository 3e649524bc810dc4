"""Co-attention with learned parameters (Lu 2016, section 3.3; two streams: Lu 2019, section 2.1).

`size` and `second_size` are the features of a position of the first and the second sequence (None:
the same), `hidden_size` those in which the two meet (None: the first size); `first_mask` and
`second_mask` are boolean (…, positions), False for padding. `attnviz.layers` describes the rest.
"""

from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.errors import UsageError, choose
from attnviz.core.registry import MECHANISMS
from attnviz.features.layers.attention import Mask, ProjectedAttention
from attnviz.mechanisms.co_attention import co_alternating, co_parallel, co_two_stream
from attnviz.mechanisms.dot_product import size_of_head

_Attended = tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]  # both outputs, and the weights


class _CoLayer(nn.Module):
    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        first_mask: Mask = None,
        second_mask: Mask = None,
        need_weights: bool = False,
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...] | None]:
        """Both sequences (…, positions, size), attended to; the layer describes its weights."""
        outputs, weights = self._attend(first, second, first_mask, second_mask)
        return outputs, weights if need_weights else None

    def _attend(self, first: Tensor, second: Tensor, *masks: Tensor | None) -> _Attended:
        raise NotImplementedError


class CoAttention(_CoLayer):
    """Two sequences that attend to each other, in a variant chosen by name.

    Outputs and weights are those of the variant's own layer.

    Args:
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
        layer = globals()[row.module]
        self.attention: nn.Module = layer(size, second_size, hidden_size, **options)

    def _attend(self, first: Tensor, second: Tensor, *masks: Tensor | None) -> _Attended:
        by_name = dict(zip(("first_mask", "second_mask"), masks, strict=True))
        result: _Attended = self.attention(first, second, **by_name, need_weights=True)
        return result


class _Summaries(_CoLayer):
    """A layer that sums each sequence up in one vector."""

    def __init__(
        self,
        size: int,
        second_size: int | None = None,
        hidden_size: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self._learn(size, second_size or size, hidden_size or size)

    def _learn(self, size: int, second_size: int, hidden_size: int) -> None:
        """Make what is learned."""
        raise NotImplementedError


class ParallelCoAttention(_Summaries):
    """Two sequences summarised at once through one affinity that both share (Lu 2016).

    The outputs are summaries (…, size) and (…, second size); the weights are the affinity (…, first
    positions, second positions) from −1 to 1, those over the first positions, and over the second.
    """

    def _learn(self, size: int, second_size: int, hidden_size: int) -> None:
        self.affinity = nn.Parameter(torch.empty(size, second_size))
        self.first = nn.Parameter(torch.empty(size, hidden_size))
        self.second = nn.Parameter(torch.empty(second_size, hidden_size))
        self.first_score = nn.Parameter(torch.empty(hidden_size))
        self.second_score = nn.Parameter(torch.empty(hidden_size))
        for matrix in (self.affinity, self.first, self.second):
            nn.init.xavier_uniform_(matrix)
        for score in (self.first_score, self.second_score):
            nn.init.normal_(score, std=hidden_size**-0.5)

    def _attend(self, first: Tensor, second: Tensor, *masks: Tensor | None) -> _Attended:
        parameters = {
            name if name.endswith("score") else f"w_{name}": parameter
            for name, parameter in self.named_parameters()
        }
        return co_parallel(first, second, *masks, dropout=self.dropout, **parameters)


class AlternatingCoAttention(_Summaries):
    """Two sequences summarised in three turns, each summary guiding the next (Lu 2016).

    The outputs are summaries (…, size) and (…, second size); the weights are those of the turns:
    over the first unguided, over the second, over the first guided.
    """

    def _learn(self, size: int, second_size: int, hidden_size: int) -> None:
        self.turns = nn.ModuleDict(
            {
                "first": _turn(size, None, hidden_size),
                "second": _turn(second_size, size, hidden_size),
                "first_again": _turn(size, second_size, hidden_size),
            }
        )

    def _attend(self, first: Tensor, second: Tensor, *masks: Tensor | None) -> _Attended:
        parameters = {
            f"w_{turn}_{name}": parameter
            for turn, of_turn in self.turns.items()
            for name, parameter in of_turn.named_parameters()
        }
        return co_alternating(first, second, *masks, dropout=self.dropout, **parameters)


def _turn(size: int, guide_size: int | None, hidden_size: int) -> nn.ParameterDict:
    parameters = nn.ParameterDict()
    parameters["inputs"] = nn.init.xavier_uniform_(torch.empty(size, hidden_size))
    if guide_size is not None:
        parameters["guide"] = nn.init.xavier_uniform_(torch.empty(guide_size, hidden_size))
    parameters["score"] = nn.init.normal_(torch.empty(hidden_size), std=hidden_size**-0.5)
    return parameters


class Stream(ProjectedAttention):
    """The four projections of one stream: query, key, value, and output back to its size."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__(size, size, size, hidden_size, bias=True, dropout=0.0)
        self.output = nn.Linear(hidden_size, size)


class TwoStreamCoAttention(_CoLayer):
    """Two streams, each one's queries over the other's keys and values (ViLBERT: Lu 2019).

    The outputs have the inputs' shapes; the weights are those of the first stream's queries
    (…, heads, first positions, second positions) and of the second's, the other way round. Heads
    must divide the hidden size.
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

    def _attend(self, first: Tensor, second: Tensor, *masks: Tensor | None) -> _Attended:
        outputs, weights = co_two_stream(
            self.first.project(first, first, first),
            self.second.project(second, second, second),
            *masks,
            heads=self.heads,
            dropout=self.dropout,
        )
        results = (self.first.output(outputs[0]), self.second.output(outputs[1]))
        return results, weights
