"""What each part of a model writes into the residual stream, and what reads it: types of `why`.

A score is bilinear in what earlier parts wrote at its two positions once each norm's statistics
are held (Elhage 2021), and a logit is linear in what all parts wrote at its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from attnviz.core.effects import HeadAt
from attnviz.core.measures import Argument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Attention, Provenance
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.core.measures import Role

Side = Literal["query", "key", "value"]
SIDES: tuple[Side, ...] = ("query", "key", "value")
LISTED = 6
"""Writers of a side that are named."""
ALONE = 0.5
"""Position decides where other rows have this share of a link's weight, and the weight is at ..."""
LEAST = 0.1
"""... least this."""
WriterKind = Literal["embedding", "position", "head", "feed-forward", "bias"]


@dataclass(frozen=True, slots=True)
class Writer:
    """A part of a model that adds to the residual stream.

    Attributes:
        stream: of the attention maps; of a block that several streams share, its own.
        layer: its layer; empty for embeddings and biases.
        head: of a head.
    """

    kind: WriterKind
    stream: str
    layer: str = ""
    head: int | None = None

    @property
    def name(self) -> str:
        """Such as "1.1", "feed-forward 0" or "embedding"."""
        if self.head is not None:
            return f"{self.layer}.{self.head}"
        return f"{self.kind} {self.layer}".rstrip()


@dataclass(frozen=True, slots=True, eq=False)
class HeadSides:
    """What meets in one head.

    Attributes:
        query: shape (queries, head size); key: (keys, head size), as they meet; value: (keys, …).
        factor: of their products.
        position: what position adds to each score, (queries, keys), or None.
        cap: of scores, before the softmax; None: none.
        sink: logits that take a share of each row, (queries, sinks), or None.
        visible: True where a query sees a key, (queries, keys).
    """

    query: NDArray[np.floating]
    key: NDArray[np.floating]
    value: NDArray[np.floating]
    factor: float
    visible: NDArray[np.bool_]
    position: NDArray[np.floating] | None = None
    cap: float | None = None
    sink: NDArray[np.floating] | None = None


class WrittenText(Protocol):
    """A text that a model has read, with what each writer wrote.

    Attributes:
        attention: the raw maps of every layer.
        writers: all of them; every array over writers has their order.
    """

    attention: Attention
    writers: tuple[Writer, ...]

    def sides(self, at: HeadAt) -> HeadSides:
        """The queries, keys and values of a head."""
        ...

    def read(self, at: HeadAt, side: Side, direction: NDArray[np.floating]) -> NDArray[np.float64]:
        """The sum over positions of each writer's part of a side times a direction.

        The direction has the shape (positions, head size), the answer (writers,).
        """
        ...

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[NDArray[np.floating]]:
        """Each writer's part of a side of all heads, (heads, positions, head size)."""
        ...

    def without(self, at: HeadAt, side: Side, writer: int) -> NDArray[np.floating]:
        """A side if it cannot read a writer, every norm computed anew, (positions, head size)."""
        ...

    def predicts(self, stream: str, row: int) -> bool:
        """Whether the model reads logits off a row of a stream."""
        ...

    def spell(self, choice: int) -> str:
        """The name of a choice."""
        ...

    def argue(self, at: HeadAt, outputs: Mapping[int, NDArray[np.floating]]) -> NDArray[np.float64]:
        """What a head's outputs (head size,) at some rows add to the logits there, (choices,).

        The sum over the rows, above the mean of all choices.
        """
        ...

    def slopes(self, row: int, choice: int) -> Mapping[tuple[str, str], NDArray[np.float64]]:
        """By how much each head's output at a row raises a choice's logit over the mean of all.

        An array (heads, head size) for each stream and layer that reaches the logits.
        """
        ...

    def logits(self, row: int) -> NDArray[np.float64]:
        """The logits at a row, (choices,)."""
        ...

    def layer_logits(self, row: int) -> Sequence[NDArray[np.float64]]:
        """The logits at a row if the model ended after the embeddings, and after each layer."""
        ...

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        """What each writer adds to a choice's logit above the mean of all choices, (writers,)."""
        ...


@dataclass(frozen=True, slots=True)
class WriterPart:
    """What one writer adds to a sum.

    Attributes:
        role: of a head that has a clear one, such as "previous-token .98".
        interval: the 95 % interval of a mean over texts.
    """

    writer: str
    value: float
    role: str = ""
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Knockout:
    """A head's weight on a link if its query or key cannot read a writer.

    Attributes:
        expected: the weight at held norms; measured: with every norm computed anew.
    """

    side: Side
    writer: str
    expected: float
    measured: float


@dataclass(frozen=True, slots=True)
class LinkReport:
    """Why a head looks where it looks, and what it brings back.

    Attributes:
        caption: the model, the head and the link, in words.
        links: number of links that numbers are means of, weighted by attention; 1: one link.
        weight: of the link; score: before the softmax, of one link.
        contrast: the score above `against`.
        against: what the score is compared with, in words.
        query: each writer's part of the contrast by what the query read; key: by what the key did.
        pairs: writer of the query, writer of the key and their part, the largest first.
        position: what position itself adds to the contrast: ALiBi or a relative bias; else None.
        at_distance: the weight at the link's distance that three quarters of the head's other rows
            exceed; None: there are too few.
        arguments: the choices with the largest logits by size, largest first; empty: no logits.
        predicted: what the model predicts at the query's row, with its p; argument: the link's
            logit for it above the mean of all choices; rank: its place among the link's arguments;
            logit: the model's own.
        value: each writer's part of the argument for the first choice, by what the value read.
        checks: the largest writers taken away.
        effect: of the link on log p of `output`, nats; None: nothing is predicted from there.
        logits: what the links add to the logit of each choice above the mean; None: no logits.
    """

    caption: str
    head: HeadAt
    link: tuple[int, int] | None
    ends: tuple[str, str]
    links: int
    texts: int
    weight: float
    score: float
    contrast: float
    against: str
    query: tuple[WriterPart, ...]
    key: tuple[WriterPart, ...]
    pairs: tuple[tuple[str, str, float], ...]
    position: float | None
    at_distance: float | None
    arguments: tuple[Argument, ...]
    predicted: tuple[str, float] | None
    argument: float | None
    rank: int | None
    logit: float | None
    value: tuple[WriterPart, ...]
    value_of: str
    checks: tuple[Knockout, ...]
    effect: float | None
    output: str
    notes: tuple[str, ...]
    provenance: Provenance
    logits: NDArray[np.float64] | None = None

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

    def shown_parts(self, parts: Sequence[WriterPart]) -> list[WriterPart]:
        """The largest parts of a side, then all others as one, so that they add up."""
        position = [] if self.position is None else [WriterPart("position", self.position)]
        whole = sorted([*parts, *position], key=lambda one: -abs(one.value))
        found, rest = whole[:LISTED], whole[LISTED:]
        if rest:
            found.append(WriterPart(f"the other {len(rest)}", sum(one.value for one in rest)))
        return found


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
    """What one layer adds to a logit, and what could be predicted after it (the logit lens).

    Attributes:
        layer: its name; empty: the embeddings.
        attention: what its heads add to the logit above the mean of all choices; feed_forward: its
            feed-forward part; both with the last norm's statistics held.
        log_p: of the choice, nats, if the stream went through the last norm here; rank: its place.
        likeliest: the choice that would be predicted here.
    """

    layer: str
    attention: float
    feed_forward: float
    log_p: float
    rank: int
    likeliest: str


@dataclass(frozen=True, slots=True)
class LayersReport:
    """Where along the layers an answer appears (nostalgebraist 2020).

    Attributes:
        choice: what is predicted, or asked for, from a position.
        other: what embeddings, positions and biases add to its logit.
        logit: of the choice above the mean of all; what all rows and `other` sum to.
        heads: the heads that add most to it, by name.
    """

    caption: str
    choice: str
    position: str
    rows: tuple[LayerRow, ...]
    other: float
    logit: float
    heads: tuple[WriterPart, ...]
    notes: tuple[str, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Wire:
    """How far a head moves if one side of it cannot read what an earlier head wrote.

    Attributes:
        moved: the share of attention that moves, ½ Σ |a − a′| as a mean over rows, where the side
            is the query or the key; of a value, the size of the lost part over that of the output.
    """

    head: HeadAt
    side: Side
    writer: HeadAt
    moved: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """The maps of one head, with the norms' scales before them (Elhage 2021).

    Attributes:
        query, key, value: shape (head size, size); output: (size, head size).
        after: the places of the heads that wrote before its queries are read; memory: of those
            that wrote what its keys and values are read from, None: the same.
        embedded: for tokens (size, size): what unembedding and embedding make of a vector, or None.
    """

    at: HeadAt
    query: NDArray[np.floating]
    key: NDArray[np.floating]
    value: NDArray[np.floating]
    output: NDArray[np.floating]
    after: tuple[HeadAt, ...]
    memory: tuple[HeadAt, ...] | None = None
    embedded: NDArray[np.floating] | None = None


@dataclass(frozen=True, slots=True)
class HeadCircuit:
    """What the weights of a head alone say.

    Attributes:
        copying: the sum of the eigenvalues of its circuit from token to logit over the sum of their
            sizes, −1 to 1: at 1 it raises the tokens that it looks at; None: no tokens meet it.
        scores, outputs: the singular values of its W_QᵀW_K and of its W_O W_V, largest first.
    """

    head: HeadAt
    copying: float | None
    scores: tuple[float, ...]
    outputs: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WiringReport:
    """Which heads read which heads.

    Attributes:
        wires: all of them, the strongest first.
        heads: every head, in the model's order; roles: the clear roles, by head.
        circuits: of a report on weights alone, whose wires are compositions, each head's own;
            chance: the composition of random matrices of the same shapes.
    """

    caption: str
    wires: tuple[Wire, ...]
    heads: tuple[HeadAt, ...]
    roles: Mapping[HeadAt, Role]
    texts: int
    notes: tuple[str, ...]
    provenance: Provenance
    circuits: tuple[HeadCircuit, ...] = ()
    chance: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class AskedLogits:
    """A text with what each part wrote, and the choice whose logit is asked for at some rows."""

    attention: Attention
    text: WrittenText
    choices: Mapping[int, int]


LensInputs: TypeAlias = "AttentionGradients | ValueVectors | AskedLogits"
"""What a lens may need besides weights."""
