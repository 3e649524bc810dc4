"""What each part of a model writes into the residual stream, and what reads it: types of `why`.

A score is bilinear in what earlier parts wrote at its two positions once each norm's statistics
are held (Elhage 2021), and a logit is linear in what all parts wrote at its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from attnviz.core.attention_call import AttentionCall
from attnviz.core.effects import HeadAt
from attnviz.core.measures import Argument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Attention, Provenance, Token
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.core.measures import Role

Side = Literal["query", "key", "value"]
SIDES: tuple[Side, ...] = ("query", "key", "value")
LISTED = 6  # writers of a side that are named
# Position decides a link of weight LEAST or more if other rows have the share ALONE of its weight.
ALONE, LEAST = 0.5, 0.1
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


@dataclass(frozen=True, slots=True)
class WriterPart:
    """What one writer adds to a sum."""

    writer: str
    value: float
    role: str = ""  # of a head that has a clear one, such as "previous-token .98"
    interval: tuple[float, float] | None = None  # the 95 % interval of a mean over texts


@dataclass(frozen=True, slots=True)
class Knockout:
    """A head's weight on a link if its query or key cannot read one writer."""

    side: Side
    writer: str
    expected: float  # the weight at held norms
    measured: float  # with every norm computed anew


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """Why a head looks at a key, and what that adds to the logits."""

    caption: str  # the model, the head and the link, in words
    head: HeadAt
    link: tuple[int, int] | None = None
    ends: tuple[str, str] = ("", "")
    links: int  # number of links that numbers are means of, weighted by attention; 1: one link
    texts: int = 1
    weight: float  # of the link
    score: float = nan  # before the softmax, of one link
    contrast: float  # the score above `against`
    against: str  # what the score is compared with, in words
    query: tuple[WriterPart, ...]  # each writer's part of the contrast through the query
    key: tuple[WriterPart, ...]  # and through the key
    # writer of the query, writer of the key and their part, the largest first
    pairs: tuple[tuple[str, str, float], ...]
    position: float | None  # what ALiBi or a relative bias adds to the contrast
    at_distance: float | None = None  # lower quartile of its weights in other rows at this distance
    arguments: tuple[Argument, ...] = ()  # the choices that it raises most, then lowers most
    predicted: tuple[str, float] | None = (
        None  # what the model predicts at the query's row, with its p
    )
    argument: float | None = None  # the link's logit for it above the mean of all choices
    rank: int | None = None  # its place among the link's arguments
    logit: float | None = None  # the whole logit of the prediction
    value: tuple[WriterPart, ...] = ()  # each writer's part of the first argument
    value_of: str = ""
    checks: tuple[Knockout, ...] = ()  # the largest writers taken away
    effect: float | None = None  # of the link on log p of `output`, nats; None: not known
    output: str = ""
    notes: tuple[str, ...]
    provenance: Provenance
    logits: NDArray[np.float64] | None = None  # of all choices, above the mean

    @property
    def position_reason(self) -> str:
        """Why position alone decides the link, or an empty text."""
        usual = self.at_distance
        if usual is None or usual < ALONE * self.weight or self.weight < LEAST:
            return ""
        return (
            "position decides, whatever the words are: at this distance three quarters of the "
            f"head's other rows have more than {usual:.2f}"
        )

    def document(self) -> dict[str, Any]:
        """The report as JSON has it."""
        document = {name: value for name, value in asdict(self).items() if name != "logits"}
        names = "query", "key", "value"
        document["pairs"] = [dict(zip(names, one, strict=True)) for one in self.pairs]
        return document

    def shown_parts(self, parts: Sequence[WriterPart]) -> list[WriterPart]:
        """The largest parts of a side, then the sum of all others."""
        position = [] if self.position is None else [WriterPart("position", self.position)]
        whole = sorted([*parts, *position], key=lambda one: -abs(one.value))
        largest, rest = whole[:LISTED], whole[LISTED:]
        if rest:
            largest.append(WriterPart(f"the other {len(rest)}", sum(one.value for one in rest)))
        return largest


@dataclass(frozen=True, slots=True)
class LinkSteps:
    """One weight of a head, step by step: from query and key to what its link changes.

    Attributes:
        query, key, value: of the link's two positions, (head size,), as they meet.
        factor: of the product of query and key; position: what position adds to it, or None.
        cap: of the scores, before the softmax, or None.
        scores: of the row before the cap; None: the key is hidden.
        weights: of the row, which sum to 1 but for a sink.
        changes: each output, and by how much its log p changes if the link is cut, nats; None: the
            model predicts nothing.
    """

    query: tuple[float, ...]
    key: tuple[float, ...]
    value: tuple[float, ...]
    factor: float
    position: float | None
    cap: float | None
    scores: tuple[float | None, ...]
    weights: tuple[float, ...]
    changes: tuple[tuple[str, float], ...] | None


@dataclass(frozen=True, slots=True)
class LayerRow:
    """What one layer adds to a logit, and what could be predicted after it (the logit lens)."""

    layer: str  # its name; empty: the embeddings
    attention: float  # what its heads add to the logit above the mean of all choices
    feed_forward: float  # its feed-forward part; both with the last norm's statistics held
    log_p: float  # of the choice, nats, if the stream went through the last norm here
    rank: int  # its place
    likeliest: str  # the choice that would be predicted here


LAYERS_READING = (
    "attention and feed-forward: what a layer adds to its logit above the mean of all choices, the "
    "last norm's statistics held"
)


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


@dataclass(frozen=True, slots=True)
class LensCell:
    """What would be predicted at a position after one layer (the logit lens)."""

    layer: str  # empty: after the embeddings; "model": what it does predict
    top: tuple[tuple[str, float], ...]  # the likeliest choices with their p, the largest first
    log_p: float  # of the column's choice, nats
    rank: int  # of it


@dataclass(frozen=True, slots=True)
class LensColumn:
    """A position along the layers."""

    position: int
    token: str  # that stands there
    choice: str  # what the model predicts from it, or what was asked for
    # the first layer from which the choice stays on top, empty: the embeddings; None: it does not
    settled: str | None
    cells: tuple[LensCell, ...]


LENS_READING = (
    "what the model would predict if its last norm and output layer read the stream after each "
    "layer (the logit lens; early layers are not trained for it: nostalgebraist 2020, Belrose 2023)"
)


@dataclass(frozen=True, slots=True)
class LayersReport:
    """Where along the layers an answer appears (nostalgebraist 2020).

    What layers add to the logit of one choice is not known of attention alone, nor of a long text:
    then `rows` and `heads` are empty.
    """

    caption: str
    choice: str  # what is predicted, or asked for, from a position
    position: str
    columns: tuple[LensColumn, ...]
    tokens: int  # positions that predict; columns are of some
    attention_only: bool  # whether the lens reads embeddings and what heads wrote alone
    rows: tuple[LayerRow, ...]
    other: float | None  # what embeddings, positions and biases add to its logit
    logit: float | None  # of the choice above the mean; what all rows and `other` sum to
    heads: tuple[WriterPart, ...]  # the heads that add most to it, by name
    notes: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Wire:
    """How far a head moves if its query, key or value cannot read an earlier head."""

    head: HeadAt
    side: Side
    writer: HeadAt
    # the share of attention that moves, ½ Σ |a − a′| as a mean over rows, where the side is the
    # query or the key; of a value, the size of the lost part over that of the output
    moved: float
    interval: tuple[float, float] | None = None


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


@dataclass(frozen=True, slots=True)
class HeadCircuit:
    """What the weights of a head say by themselves."""

    head: HeadAt
    # the sum of the eigenvalues of its circuit from token to logit over the sum of their sizes, −1
    # to 1: at 1 it raises the tokens that it looks at; None: no tokens meet it
    copying: float | None
    # scores, outputs: the singular values of its W_QᵀW_K and of its W_O W_V, largest first
    scores: tuple[float, ...]
    outputs: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WiringReport:
    """Which heads read which heads."""

    caption: str
    wires: tuple[Wire, ...]  # all of them, the strongest first
    heads: tuple[HeadAt, ...]  # every head, in the model's order
    roles: Mapping[HeadAt, Role]  # the clear roles, by head
    texts: int
    notes: tuple[str, ...]
    provenance: Provenance
    circuits: tuple[HeadCircuit, ...] = ()  # each head's own, if weights alone are compared
    chance: float = 0.0  # the composition of random matrices of the same shapes


@dataclass(frozen=True, slots=True, eq=False)
class AskedLogits:
    """A recorded text, and the choice whose logit is explained at some rows."""

    attention: Attention
    text: WrittenText
    choices: Mapping[int, int]


LensInputs: TypeAlias = "AttentionGradients | ValueVectors | AskedLogits"
"""What a lens may need besides weights."""
