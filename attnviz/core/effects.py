"""What is switched off in a model, a run each, and what its outputs become: the words for it.

The effect of something is log p with it minus log p without it, in nats; above 0 it supports the
output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token

By = Literal["zero", "mean", "resample"]
"""What takes the place of a head's output: nothing, its mean over positions, or what it put out at
positions drawn by chance."""

HeadOutputs = Mapping[tuple[str, str], "NDArray[np.floating]"]
"""For a stream and a layer what each head put out, before the output projection: shape (heads,
queries, head size)."""

SinkShares = Mapping[tuple[str, str], "NDArray[np.floating]"]
"""For a stream and a layer that has sinks, which are no keys, what they take of each row: shape
(heads, queries)."""

SINK = 1e-3
"""Where no sink is known, what rows lack of 1 is a sink's above this, and rounding below."""

HOW: Mapping[By, str] = {
    "zero": "zeros",
    "mean": "their mean over positions",
    "resample": "positions drawn by chance",
}
"""What heads that are off put out, in words."""


@dataclass(frozen=True, slots=True)
class HeadAt:
    """A head of a layer of a stream."""

    stream: str
    layer: str
    head: int


@dataclass(frozen=True, slots=True, eq=False)
class PruneCurve:
    """The loss of a model while its heads are switched off one after another.

    Attributes:
        names: what each order goes by: "effect" and "confidence", the lowest first, or "chance".
        orders: all heads of all streams, each in the order in which they are switched off.
        off: how many heads are off at each point, from none to all.
        losses: nats per output at each point, shape (orders, points).
        texts: which texts gave the orders and which the losses, in words.
        about: what effects are of, in words.
    """

    caption: str
    names: tuple[str, ...]
    orders: tuple[tuple[HeadAt, ...], ...]
    off: tuple[int, ...]
    losses: NDArray[np.float64]
    texts: str
    about: str

    def losses_by(self, name: str) -> NDArray[np.float64]:
        """Those of the orders of that name."""
        return self.losses[[place for place, given in enumerate(self.names) if given == name]]


@dataclass(frozen=True, slots=True)
class LinkAt:
    """A key that is hidden from a query, in one head of a layer or, with None, in all of them."""

    stream: str
    query: int
    key: int
    layer: str | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class TokenAt:
    """A token that is hidden as a key from all queries but its own, in every head and layer."""

    side: str
    position: int


@dataclass(frozen=True, slots=True)
class Intervention:
    """Everything that is switched off in one run; nothing: the model as it is."""

    heads: tuple[HeadAt, ...] = ()
    links: tuple[LinkAt, ...] = ()
    tokens: tuple[TokenAt, ...] = ()

    def heads_of(self, stream: str, layer: str) -> list[int]:
        """The heads of a layer that are switched off."""
        return [at.head for at in self.heads if (at.stream, at.layer) == (stream, layer)]

    def hidden(
        self, stream: str, layer: str, sides: tuple[str, str], shape: tuple[int, int, int]
    ) -> NDArray[np.bool_] | None:
        """The cells of a layer that are hidden, (heads, queries, keys); None: there are none.

        The sides are the texts of the layer's queries and keys. What lies beyond the shape is left
        out: a text that is being written does not have it yet.
        """
        if not self.links and not self.tokens:
            return None
        cells = np.zeros(shape, dtype=np.bool_)
        for link in self.links:
            inside = link.query < shape[1] and link.key < shape[2]
            if link.stream == stream and link.layer in (None, layer) and inside:
                heads = slice(None) if link.head is None else link.head
                cells[heads, link.query, link.key] = True
        for token in self.tokens:
            if token.side == sides[1] and token.position < shape[2]:
                others = np.arange(shape[1]) != (token.position if sides[0] == sides[1] else -1)
                cells[:, others, token.position] = True
        return cells if cells.any() else None

    def seen_in(self, item: AttentionMap, sinks: SinkShares) -> AttentionMap:
        """A map without what is hidden in it: the rest of a row takes over its weight.

        A row that loses all its keys is 0. The share of a sink is no key's weight and stays.
        """
        weights, sides = item.weights.copy(), (item.query_side, item.key_side)
        for own, layer in zip(weights, item.layers, strict=True):
            cells = self.hidden(item.stream, layer, sides, item.weights.shape[1:])
            if cells is None:
                continue
            whole = own.sum(-1, keepdims=True)
            own[cells] = 0
            left = own.sum(-1, keepdims=True)
            known = sinks.get((item.stream, layer))
            lost = np.where(1 - whole > SINK, 1 - whole, 0)
            sink = lost if known is None else known[..., None]
            own *= np.divide(whole + sink, left + sink, out=np.zeros_like(left), where=left > 0)
        return item.with_weights(weights)

    def __add__(self, other: Intervention) -> Intervention:
        return Intervention(
            self.heads + other.heads, self.links + other.links, self.tokens + other.tokens
        )


@dataclass(frozen=True, slots=True)
class PredictedToken:
    """One thing that a model predicts.

    Attributes:
        row: the position that it is read from; of a model that predicts the next token the one
            before `position`.
        number: its number among the choices.
        name: what it is called: a token or a class.
        position: the place of the token in the text; None of a class.
    """

    row: int
    number: int
    name: str
    position: int | None = None


def label_of(output: PredictedToken, tokens: Sequence[Token]) -> str:
    """What an output is called with its place among the tokens: "dogs (token 3)"."""
    if output.position is None:
        return output.name
    place = f"token {output.position}" if output.position < len(tokens) else "next token"
    inside = output.name.endswith(")")  # "B-PER (Ann)"
    return f"{output.name[:-1]}, {place})" if inside else f"{output.name} ({place})"


class Experiment(Protocol):
    """A model with a text before it, to be run again and again with something switched off.

    Attributes:
        attention: the raw maps of every layer, of the model as it is.
        outputs: what is explained.
    """

    attention: Attention
    outputs: tuple[PredictedToken, ...]

    @property
    def sinks(self) -> SinkShares:
        """What sinks take of each row, of layers that have some."""
        ...

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities in nats of each output's choices, (outputs, choices), for each change.

        A head that is switched off puts out what stands `instead`, of shape (heads, queries or 1,
        head size), or zeros. A row from which everything was hidden makes the outputs NaN.
        """
        ...

    def changed_maps(self, change: Intervention) -> Attention:
        """The maps with something switched off; a head that is off still weighs its keys."""
        ...

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map."""
        ...

    def head_outputs(self) -> HeadOutputs:
        """What each head puts out as the model is."""
        ...

    def spell(self, number: int) -> str:
        """What a choice is called."""
        ...

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """What the model writes with something switched off; None: it writes nothing."""
        ...


def put_out(
    instead: HeadOutputs | None, place: tuple[str, str], head: int, queries: int
) -> NDArray[np.floating] | float:
    """What a head that is off puts out, (queries, head size), or 0.

    Rows are given over again: one for all queries, all to a text that is being written.
    """
    if instead is None:
        return 0.0
    rows = instead[place][head]
    return np.resize(rows, (queries, rows.shape[1]))


def log_probabilities(
    experiment: Experiment, changes: Sequence[Intervention], instead: HeadOutputs | None = None
) -> NDArray[np.float64]:
    """Of each change the log-probability of each output, (changes, outputs), in nats."""
    numbers = [output.number for output in experiment.outputs]
    places = np.arange(len(numbers))
    found = [row[places, numbers] for row in experiment.run(changes, instead)]
    return np.array(found, dtype=np.float64).reshape(len(changes), len(numbers))


@dataclass(frozen=True, slots=True)
class Effect:
    """What one thing that was switched off takes from log p, in nats, over all outputs together.

    Attributes:
        label: "layer 2 head 0", "rouge → red".
        kind: "head", "layer", "link", "token" or "together".
        place: where it is: stream, layer and head of a head; side and position of a token; …
        effect: log p with it minus log p without it; of several texts the mean; NaN: nothing was
            left to see.
        interval: of the mean over texts, 95 %; None of one text.
        texts: how many texts it was measured on.
        of_outputs: of one text the effect on each output.
    """

    label: str
    kind: str
    place: Mapping[str, str | int]
    effect: float
    interval: tuple[float, float] | None = None
    texts: int = 1
    of_outputs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """An output before and after a change: log p in nats, and the likeliest choices with p."""

    name: str
    position: int | None
    before: float
    after: float
    likeliest_before: tuple[tuple[str, float], ...]
    likeliest_after: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class AblationReport:
    """What changes when parts of a model are switched off.

    Attributes:
        by: what took the place of a head's output.
        effects: of each part by itself.
        together: of all parts at once; None where each was measured by itself.
        predictions: of one text every output before and after all parts are off.
        wrote: of one text what the model writes before and after; None: it writes nothing.
        texts: how many texts were read.
        maps: of one text the raw maps of every layer.
        explained: of one text what each output is called, as in `Effect.of_outputs`.
        reference: how many other texts what took the place of heads came from; 0: this one.
    """

    caption: str
    by: By
    effects: tuple[Effect, ...]
    together: Effect | None
    predictions: tuple[Prediction, ...]
    wrote: tuple[str, str] | None
    texts: int
    notes: tuple[str, ...]
    maps: Attention
    explained: tuple[str, ...] = ()
    reference: int = 0

    @property
    def every(self) -> tuple[Effect, ...]:
        """The effect of each part, and of all together where that was measured."""
        return self.effects if self.together is None else (*self.effects, self.together)

    @property
    def summed(self) -> tuple[Effect, ...]:
        """What several parts would change together if their effects added up."""
        if self.together is None or len(self.effects) == 1:
            return ()
        total = sum(one.effect for one in self.effects)
        label = f"sum of the {len(self.effects)} by themselves"
        return (Effect(label, "sum", {}, total, texts=self.texts),)

    @property
    def instead(self) -> str:
        """What heads that are off put out, in words; empty where none is off."""
        return instead_in_words(self.by, self.reference, self.effects)


def instead_in_words(by: By, reference: int, effects: Sequence[Effect]) -> str:
    """What heads that are off put out, in words; empty where none is off."""
    if all(one.kind not in ("head", "layer") for one in effects):
        return ""
    texts = f"{reference} reference text{'s' * (reference != 1)}" if reference else "the text"
    return f"heads that are off put out {HOW[by]}" + (f" of {texts}" if by != "zero" else "")


@dataclass(frozen=True, slots=True)
class SavedEffects:
    """What is read of a saved ablation: the effects of its parts, and of all together."""

    caption: str
    instead: str
    effects: tuple[Effect, ...]
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class EffectComparison:
    """Two ablations side by side.

    Attributes:
        pairs: each part's effect in A and in B; None where it is not in one of them.
        correlation: Spearman's over the parts that both have; NaN: fewer than three.
    """

    sides: tuple[SavedEffects, SavedEffects]
    pairs: tuple[tuple[Effect | None, Effect | None], ...]
    correlation: float


RANDOM = "random"
"""The name under which random scores stand beside the lenses."""
LENS_SHARES = (10, 20, 50)
"""Per cent of a side's tokens that are hidden, or kept."""
LENS_MEASURES = (
    "rank_correlation",
    *(f"comprehensiveness_{share}" for share in LENS_SHARES),
    *(f"sufficiency_{share}" for share in LENS_SHARES),
)
"""What says how faithful a lens is: a correlation, then nats."""


@dataclass(frozen=True, slots=True)
class LensRow:
    """How faithful a lens is: the mean of each of `LENS_MEASURES` over texts, NaN where unknown.

    Attributes:
        low: the lower ends of the means' 95 % intervals, NaN of one text; so `high` the upper ones.
        texts: how many texts have a rank correlation.
        left_out: why it does not apply, in all texts or in some; empty: it does.
    """

    lens: str
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    texts: int
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class LensReport:
    """How faithful each lens is for a model and texts.

    Attributes:
        rows: a lens each, and random scores last.
        conclusion: which lenses can be trusted, which follows from the rows by the `rule`.
        tokens: of one text each token with what hiding it changes and what each lens says of it.
        provenance: that of the first text, with the notes of all.
    """

    caption: str
    rows: tuple[LensRow, ...]
    conclusion: str
    rule: str
    texts: int
    tokens: tuple[Mapping[str, str | int | float], ...]
    provenance: Provenance
