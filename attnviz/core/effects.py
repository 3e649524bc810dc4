"""Types for experiments that switch parts of a model off and measure its outputs.

The effect of a part is log p with it minus log p without it, in nats; above 0 the part supports the
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.records import dataclass

By = Literal["zero", "mean", "resample"]  # what replaces the output of a head that is off

HeadOutputs = Mapping[tuple[str, str], "NDArray[np.floating]"]
"""Each head's output before the output projection, by stream and layer: shape (heads, queries, head
size)."""

SinkShares = Mapping[tuple[str, str], "NDArray[np.floating]"]
"""The share of each row that sinks outside the keys take, by stream and layer: shape (heads,
queries)."""

SINK = 1e-3  # a row that sums to less than 1 − SINK has a sink; a smaller gap is rounding

HOW: Mapping[By, str] = {
    "zero": "zeros",
    "mean": "their mean over positions",
    "resample": "positions drawn by chance",
}
"""The output of heads that are off, in words."""


@dataclass(frozen=True, slots=True)
class HeadAt:
    """A head of a layer of a stream."""

    stream: str
    layer: str
    head: int

    @classmethod
    def parse(cls, text: str, stream: str = "") -> HeadAt:
        """The head that "2.3" names."""
        layer, _, head = text.rpartition(".")
        return cls(stream, layer, int(head))

    def __str__(self) -> str:
        return f"{self.layer}.{self.head}"

    def name(self, main: str) -> str:
        """Such as "2.3", or "encoder 2.3" where the stream is not the main one."""
        return str(self) if self.stream == main else f"{self.stream} {self}"


@dataclass(frozen=True, slots=True)
class LinkAt:
    """A key that is hidden from a query; None: in all layers, or in all heads."""

    stream: str
    query: int
    key: int
    layer: str | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class TokenAt:
    """A token that is a key for its own query only, in every head and layer."""

    side: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """A layer's weights as a run has them, before any of its keys is hidden.

    Attributes:
        weights: shape (heads, queries, keys); sinks: the share of sinks, (heads, queries).
        caches: number of heads with keys of their own; the others share these in equal groups.
    """

    weights: NDArray[np.floating]
    sinks: NDArray[np.floating]
    caches: int


class Eviction(Protocol):
    """Something that drops keys of a stream while a model runs."""

    stream: str

    @property
    def hidden_cells(self) -> Mapping[str, NDArray[np.bool_]]:
        """The cells that it hid in the last run, by layer."""
        ...

    def hide(self, layer: str, weights: LayerWeights) -> NDArray[np.bool_]:
        """The cells (heads, queries, keys) whose key is gone."""
        ...


@dataclass(frozen=True, slots=True)
class RowAt:
    """One query's output of a head of a layer of a stream."""

    stream: str
    layer: str
    head: int
    query: int


@dataclass(frozen=True, slots=True)
class Intervention:
    """All parts that are off in one run; empty: the unchanged model."""

    heads: tuple[HeadAt, ...] = ()
    links: tuple[LinkAt, ...] = ()
    tokens: tuple[TokenAt, ...] = ()
    rows: tuple[RowAt, ...] = ()
    evictions: tuple[Eviction, ...] = ()

    def outputs_off(self, stream: str, layer: str) -> list[tuple[int, int | None]]:
        """The heads of a layer that are off, each with a query; None: at every query."""
        place = stream, layer
        heads = [(at.head, None) for at in self.heads if (at.stream, at.layer) == place]
        rows = [(at.head, at.query) for at in self.rows if (at.stream, at.layer) == place]
        return [*heads, *rows]

    def changes(self, stream: str, layer: str, sides: tuple[str, str]) -> bool:
        """Whether it changes a layer whose queries and keys belong to these texts."""
        cuts = any(at.stream == stream and at.layer in (None, layer) for at in self.links)
        hides = any(at.side == sides[1] for at in self.tokens)
        evicts = any(one.stream == stream for one in self.evictions)
        return cuts or hides or evicts or bool(self.outputs_off(stream, layer))

    def hidden_cells(
        self,
        stream: str,
        layer: str,
        sides: tuple[str, str],
        shape: tuple[int, int, int],
        weigh: Callable[[], LayerWeights] | None = None,
    ) -> NDArray[np.bool_] | None:
        """The hidden cells of a layer, (heads, queries, keys), or None.

        `sides` are the texts of the layer's queries and keys; `weigh` gives its weights, after the
        run None. Positions beyond the shape are ignored: a text that the model is still writing
        does not have them yet.
        """
        dropping = [one for one in self.evictions if one.stream == stream]
        if not self.links and not self.tokens and not dropping:
            return None
        cells = np.zeros(shape, dtype=np.bool_)
        for one in dropping:
            cells |= one.hidden_cells[layer] if weigh is None else one.hide(layer, weigh())
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

    def apply_to(self, item: AttentionMap, sinks: SinkShares) -> AttentionMap:
        """The map without the hidden cells; the rest of each row and its sink grow instead.

        A row without any key left is 0.
        """
        weights, sides = item.weights.copy(), (item.query_side, item.key_side)
        for own, layer in zip(weights, item.layers, strict=True):
            cells = self.hidden_cells(item.stream, layer, sides, item.weights.shape[1:])
            if cells is None:
                continue
            whole = own.sum(-1, keepdims=True)
            own[cells] = 0
            rest = own.sum(-1, keepdims=True)
            share = sinks.get((item.stream, layer))
            loss = np.where(1 - whole > SINK, 1 - whole, 0)
            sink = loss if share is None else share[..., None]
            own *= np.divide(whole + sink, rest + sink, out=np.zeros_like(rest), where=rest > 0)
        return item.with_weights(weights)

    def __add__(self, other: Intervention) -> Intervention:
        return Intervention(
            *(self.heads + other.heads, self.links + other.links, self.tokens + other.tokens),
            *(self.rows + other.rows, self.evictions + other.evictions),
        )


@dataclass(frozen=True, slots=True)
class PredictedToken:
    """One token or class that a model predicts."""

    row: int  # the position that is read; for the next token one before `position`
    number: int  # its number among the choices
    name: str
    position: int | None = None  # the place of the token in the text; None for a class
    without: tuple[int, ...] = ()  # choices that cannot come in its place, such as the text's end
    note: str = ""  # what a reader should know of how it was chosen


def leave_out(logits: Any, outputs: Sequence[PredictedToken]) -> Any:
    """The logits (…, choices), changed: −∞ for choices that the outputs leave out."""
    if left_out := [number for one in outputs for number in one.without]:
        logits[..., left_out] = -np.inf
    return logits


def note_outputs(attention: Attention, outputs: Sequence[PredictedToken]) -> Attention:
    """The attention with what a reader should know of its outputs."""
    notes = [one.note for one in outputs if one.note]
    return attention.with_maps(attention.maps, notes=notes) if notes else attention


def label_of(output: PredictedToken, tokens: Sequence[Token]) -> str:
    if output.position is None:
        return output.name
    place = f"token {output.position}" if output.position < len(tokens) else "next token"
    inside = output.name.endswith(")")  # "B-PER (Ann)"
    return f"{output.name[:-1]}, {place})" if inside else f"{output.name} ({place})"


class Experiment(Protocol):
    """A model with its text, to run with parts switched off."""

    attention: Attention  # the raw maps of every layer of the unchanged model
    outputs: tuple[PredictedToken, ...]  # the outputs to explain

    @property
    def sinks(self) -> SinkShares: ...

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities in nats, (outputs, choices), for each change.

        `instead`, of shape (heads, queries or 1, head size), replaces the output of heads that are
        off; None: zeros. A row without any key left makes the outputs NaN.
        """

    def changed_maps(self, change: Intervention) -> Attention:
        """The maps after a change; a head that is off keeps its weights."""

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """For each map, the gradient of the sum of the outputs' log-probabilities."""

    def head_outputs(self) -> HeadOutputs: ...

    def head_values(self) -> HeadOutputs:
        """The values that each head of the unchanged model weighs, (heads, keys, head size)."""

    def output_gradients(self) -> HeadOutputs:
        """The gradient of the sum of the outputs' log-probabilities by each head's output."""

    def explain_first(self) -> Any:
        """The `AttentionGradients` of one output, the first."""

    def spell(self, number: int) -> str: ...

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """The text that the model writes after a change; None for a model that does not write."""


def replacement_outputs(
    instead: HeadOutputs | None, place: tuple[str, str], shape: tuple[int, int, int], first: int
) -> NDArray[np.floating]:
    """What heads that are off put out, (heads, queries, head size), from a first query on."""
    if instead is None:
        return np.zeros(shape, dtype=np.float32)
    rows = instead[place]
    # Rows repeat: a mean is one row, and a text that the model is still writing may be longer.
    return rows[:, np.arange(first, first + shape[1]) % rows.shape[1]]


def log_probabilities(
    experiment: Experiment, changes: Sequence[Intervention], instead: HeadOutputs | None = None
) -> NDArray[np.float64]:
    """Log-probabilities of the outputs, (changes, outputs), in nats."""
    numbers = [output.number for output in experiment.outputs]
    places = np.arange(len(numbers))
    values = [row[places, numbers] for row in experiment.run(changes, instead)]
    return np.array(values, dtype=np.float64).reshape(len(changes), len(numbers))


def effects_of(
    experiment: Experiment, changes: Sequence[Intervention], instead: HeadOutputs | None = None
) -> NDArray[np.float64]:
    """The loss of each output's log p by each change, in nats, shape (changes, outputs).

    Above 0: the parts that are off support the output. NaN: a row has no key left.
    """
    plain, *others = log_probabilities(experiment, [Intervention(), *changes], instead)
    return np.reshape(plain - np.array(others), (len(changes), len(plain)))


def every_head(attention: Attention) -> list[HeadAt]:
    """Every head in the order of the maps."""
    return [
        HeadAt(item.stream, layer, head)
        for item in attention.maps
        for layer in item.layers
        for head in range(len(item.heads))
    ]


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one part on log p, in nats, summed over all outputs."""

    label: str  # "layer 2 head 0", "rouge → red"
    kind: str  # "head", "layer", "link", "token" or "together"
    place: Mapping[str, str | int]  # stream, layer and head; or side and position; …
    effect: float  # the mean over texts; NaN: a row had no key left
    interval: tuple[float, float] | None = None  # the 95 % interval of the mean; None for one text
    texts: int = 1  # number of texts
    of_outputs: tuple[float, ...] = ()  # for one text, the effect on each output


def instead_in_words(by: By, reference: int, effects: Sequence[Effect]) -> str:
    """The output of heads that are off, in words; empty if none is off."""
    if all(one.kind not in ("head", "layer") for one in effects):
        return ""
    texts = "the text"
    if reference:
        texts = "1 reference text" if reference == 1 else f"{reference} reference texts"
    return f"heads that are off put out {HOW[by]}" + (f" of {texts}" if by != "zero" else "")


@dataclass(frozen=True, slots=True)
class SavedEffects:
    """The effects in a saved ablation, of each part and of all together."""

    caption: str
    instead: str
    effects: tuple[Effect, ...]
    provenance: Provenance
