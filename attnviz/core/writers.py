"""What each part of a model writes into the residual stream, and what reads it: types of `why`.

A score is bilinear in what earlier parts wrote at its two positions once each norm's statistics
are held (Elhage 2021), and a logit is linear in what all parts wrote at its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.effects import HeadAt
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.records import dataclass

Side = Literal["query", "key", "value"]
SIDES: tuple[Side, ...] = ("query", "key", "value")
WriterKind = Literal["embedding", "position", "head", "feed-forward", "bias"]


@dataclass(frozen=True, slots=True)
class Writer:
    """A part of a model that adds to the residual stream."""

    kind: WriterKind
    stream: str  # as in the maps; a block that several streams share has one of its own
    layer: str = ""  # its layer; empty for embeddings and biases
    head: int | None = None

    @property
    def name(self) -> str:
        """The writer's name, such as "1.1", "feed-forward 0" or "embedding"."""
        if self.head is not None:
            return f"{self.layer}.{self.head}"
        return f"{self.kind} {self.layer}".rstrip()


class WrittenText(Protocol):
    """A text that a model has read, with what each writer wrote."""

    attention: Attention  # the raw maps of every layer
    writers: tuple[Writer, ...]  # all of them; every array over writers has their order

    def sides(self, at: HeadAt) -> AttentionCall:
        """The queries, keys and values of a head."""

    def read(self, at: HeadAt, side: Side, direction: NDArray[np.floating]) -> NDArray[np.float64]:
        """The sum of each writer's part (writers,) times a direction (positions, head size)."""

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[NDArray[np.floating]]:
        """Each writer's part of a side of all heads, (heads, positions, head size)."""

    def without(self, at: HeadAt, side: Side, writer: int) -> NDArray[np.floating]:
        """A side recomputed with new norms, if it cannot read a writer, (positions, head size)."""

    def predicts(self, stream: str, row: int) -> bool:
        """Whether the model reads logits off a row of a stream."""

    def spell(self, choice: int) -> str:
        """The name of a choice."""

    def argue(self, at: HeadAt, outputs: Mapping[int, NDArray[np.floating]]) -> NDArray[np.float64]:
        """What a head's outputs at rows add to the logits (choices,), above the mean of choices."""

    def slopes(self, row: int, choice: int) -> Mapping[tuple[str, str], NDArray[np.float64]]:
        """By how much each head's output at a row raises a choice's logit over the mean of all.

        An array (heads, head size) for each stream and layer that reaches the logits.
        """

    def logits(self, row: int) -> NDArray[np.float64]:
        """The logits at a row, (choices,)."""

    def layer_logits(self, row: int) -> Sequence[NDArray[np.float64]]:
        """The logits at a row if the model ended after the embeddings, and after each layer."""

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        """What each writer adds to a choice's logit above the mean of all choices, (writers,)."""


NORMALISES_SUMS = (
    "{} normalises the sum of a layer's input and what its heads write: no stream holds heads' "
    "outputs alone"
)


@dataclass(frozen=True, slots=True, eq=False)
class ResidualStream:
    """The residual stream of a text at some positions, and what the model's head makes of it."""

    tokens: Sequence[Token]  # of every position that predicts
    rows: tuple[int, ...]  # the positions that were kept
    # after the embeddings and after each layer; of attention alone, then the model's own last one
    states: Sequence[Any]
    predict: Callable[[Any, slice], NDArray[np.float64]]  # logits of a state's rows (rows, choices)
    spell: Callable[[int], str]
    provenance: Provenance


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """The weight matrices of one head, multiplied by the scales of the norms before them."""

    at: HeadAt
    # query, key, value: shape (head size, size)
    query: NDArray[np.floating]
    key: NDArray[np.floating]
    value: NDArray[np.floating]
    output: NDArray[np.floating]  # (size, head size)
    after: tuple[HeadAt, ...]  # the places of the heads that wrote before its queries are read
    memory: tuple[HeadAt, ...] | None = None  # heads before its keys and values; None: the same
    embedded: NDArray[np.floating] | None = None  # W_U W_E, (size, size), if it reads tokens


@dataclass(frozen=True, slots=True, eq=False)
class AskedLogits:
    """A recorded text, and the choice whose logit is explained at some rows."""

    attention: Attention
    text: WrittenText
    choices: Mapping[int, int]


LensInputs: TypeAlias = "AttentionGradients | ValueVectors | AskedLogits"
"""What a lens may need besides weights."""
