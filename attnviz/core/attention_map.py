"""What flows through the program: weights with their tokens and where they came from.

Everything here is numpy and text. torch, batches, padding and the glyphs of tokenizers end before a
map is made, so that renderers and analyses need none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError, NotFiniteError, choose
from attnviz.core.records import dataclass, field, fields, replace

Values = Literal["share", "signed"]
"""What a cell may hold: a "share" of a row's attention from 0 to 1 (rows may sum to less, or after
a maximum over heads to more), or a "signed" number around 0, NaN where it has no value."""

IMPLIED, MEAN_CHANNEL = "implied", "mean over channels"
"""The stream of layers that have no attention but amount to a signed matrix, and the one head of
those that mix channel by channel."""
SIMILARITY = "similarity"
"""The stream of late interaction: cosines of a query's and a document's tokens, no attention."""

_CALL = re.compile(r"(call \d+|step \d+ of \d+) · (.+)")
_LAYER_OF_CALL = re.compile(r"(?:(.+) · )?(call(?= \d+$)|step(?= \d+ of \d+$)) .+")


def stream_of_call(stream: str) -> tuple[str, str]:
    """The call that a stream is of ("call 3 · self"), and the stream without it.

    A call may be a step of several ("step 3 of 8 · self"); "" is no call.
    """
    match = _CALL.fullmatch(stream)
    return (match[1], match[2]) if match else ("", stream)


def layer_of_call(name: str) -> tuple[str, str] | None:
    """Of a layer in a map of every call its own name, and "call" or "step"; None: of any other."""
    match = _LAYER_OF_CALL.fullmatch(name)
    return (match[1] or "", match[2]) if match else None


SECOND_PART, PARTS = "second part from character", "parts"
LEARNED_SINK = "learned sink"
DECISION, PROBABILITIES = "decision", "probabilities"
"""The settings of a provenance that say where the second part of a text begins, counted from 0,
what the parts are ("pair", "prompt and output"), and what a model with a head decided."""


@dataclass(frozen=True, slots=True)
class Token:
    """One position on an axis, and the characters of the text that it covers, if any.

    Attributes:
        special: True for marks that stand for no text ([CLS], <eos>, a summary).
        label: what a person or a model calls it ("B-PER"), if anything.
        piece: its number in the model's vocabulary and how it is spelt there, where that is known.
        kind: what a key is, a name in `KINDS`; what is no token of a text is special as well.
        span: the first and the last of what it was made of, counted from 0: tokens of the text for
            a compressed one, layers for a block of them.
    """

    text: str
    start: int = 0
    end: int = 0
    special: bool = False
    label: str | None = None
    piece: tuple[int, str] | None = field(default=None, compare=False, repr=False)
    kind: str = "token"
    span: tuple[int, int] | None = None

    @property
    def is_unwritten(self) -> bool:
        """Whether it stands in a text where nothing is written yet: a mask without characters."""
        spelt = any(map(str.isalnum, self.text))  # a mark of a space covers nothing either
        return spelt and not self.special and self.start == self.end > 0


KINDS = {
    "token": "tokens",
    "source": "source tokens",
    "compressed": "compressed tokens",
    "layer": "blocks of layers",
    "register": "registers",
}
"""What a key may be, and the word for several of them."""
SPECIAL = "special"
"""What marks among tokens are called beside these kinds."""
TEXTUAL = ("token", "source", "register")
"""Kinds that stand in the sequence: for words of a text, unless they are special."""
BETWEEN_SIDES = " and "
"""Joins the names of what the keys of several kinds belong to: "target and source"."""


@dataclass(frozen=True, slots=True)
class Link:
    """One cell of a map: who attends to whom, how much, in which head, and which cell it is.

    Positions are the cell's row and column; of the exact links beside a map of blocks they are the
    tokens' numbers in the text.
    """

    query: str
    key: str
    weight: float
    layer: str
    head: str
    query_position: int
    key_position: int


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """A link with its weight and its effect in nats: as estimated, and as cutting it showed.

    An effect is log p of the output with the link minus log p without it; None: it was not cut.
    """

    stream: str
    link: Link
    estimated: float
    measured: float | None = None


AGREEMENT = "rank correlation with the token knockout"
"""The setting of a provenance that says it of each lens: how well it ranks the tokens by size."""
MUCH_WEIGHT, LITTLE_WEIGHT, LITTLE_EFFECT = 0.5, 0.1, 0.05
LINK_LISTS = {
    "measured": "measured: the largest effects, each link cut by itself",
    "idle": f"strong but idle: weight above {MUCH_WEIGHT}, |effect| below {LITTLE_EFFECT} nats",
    "decisive": f"weak but decisive: weight below {LITTLE_WEIGHT}, |effect| above {LITTLE_EFFECT}",
}
"""The fields of an `Attention` that hold links with their effects, and what these are."""


def _alike(one: Any, other: Any, kind: Any) -> bool:
    """Whether two have equal fields, arrays by their numbers (NaN is equal to NaN)."""
    pairs = ((getattr(one, item.name), getattr(other, item.name)) for item in fields(kind))
    return all(
        np.array_equal(first, second, equal_nan=True)
        if isinstance(first, np.ndarray)
        else first == second
        for first, second in pairs
    )


SEVERAL = "several"
"""The layer of heads that stand side by side though their layers differ: "5.4", "1.3"."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMap:
    """The attention of one stream.

    Attributes:
        stream: which attention this is: "self", "causal", "encoder", "decoder", "cross", ….
        query_tokens: who attends, one a row.
        key_tokens: who is attended to, one a column.
        weights: float32 of shape (layers, heads, queries, keys).
        layers: a name for each, its number in the model unless reduced ("mean"); so of heads.
        unit: the words under a colour bar.
        query_side: which text a query token's offsets refer to ("text", "source" or "target").
        blocks: how many tokens a row and a column stand for; of a long text's map more than one.
            A cell is then the sum over its keys and the mean over its queries.
        starts: the numbers of the first row's and column's token in its text; above 0 where only a
            part of the text is shown.
        begins: False where tokens before the first are gone, as a special one that was dropped:
            then the first is no sink for being first.
        links: beside a map of blocks, the strongest single cells of each head, with the positions
            of their tokens in the text.

    Raises:
        InputError: shapes, ranges or names that do not fit together.
    """

    stream: str
    query_tokens: tuple[Token, ...]
    key_tokens: tuple[Token, ...]
    weights: NDArray[np.float32]
    layers: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    values: Values = "share"
    unit: str = "share of a row's attention"
    query_side: str = "text"
    key_side: str = "text"
    blocks: tuple[int, int] = (1, 1)
    starts: tuple[int, int] = (0, 0)
    links: tuple[Link, ...] = ()
    begins: bool = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttentionMap) and _alike(self, other, AttentionMap)

    __hash__ = object.__hash__

    def place(self, layer: int, head: int) -> tuple[str, str]:
        """The names of a layer and of its head; of heads of several layers, those of its own."""
        names = self.layers[layer], self.heads[head]
        if names[0] == SEVERAL and "." in names[1]:
            return names[1].rpartition(".")[0], names[1].rpartition(".")[2]
        return names

    def position(self, axis: int, place: int) -> int:
        """The number in the text of the first token of a row (axis 0) or column (axis 1)."""
        return self.starts[axis] + place * self.blocks[axis]

    @property
    def is_pooled(self) -> bool:
        """True where a row or a column stands for several tokens."""
        return self.blocks != (1, 1)

    @property
    def unpooled_size(self) -> int:
        """A size at which each row and column would stand for one token."""
        sides = zip(self.weights.shape[2:], self.blocks, strict=True)
        return int(max(count * length for count, length in sides))

    def __post_init__(self) -> None:
        weights = np.ascontiguousarray(self.weights, dtype=np.float32)
        object.__setattr__(self, "weights", weights)
        if weights.ndim != 4:
            raise InputError(
                f"weights of stream '{self.stream}' have {weights.ndim} axes, "
                "not 4 (layers, heads, queries, keys)"
            )
        if not self.layers:
            object.__setattr__(self, "layers", tuple(map(str, range(weights.shape[0]))))
        if not self.heads:
            object.__setattr__(self, "heads", tuple(map(str, range(weights.shape[1]))))
        sizes = (len(self.layers), len(self.heads), len(self.query_tokens), len(self.key_tokens))
        if weights.shape != sizes:
            raise InputError(
                f"weights of stream '{self.stream}' have the shape {weights.shape}, but there are "
                f"{sizes[0]} layers, {sizes[1]} heads, {sizes[2]} query and {sizes[3]} key tokens"
            )
        if weights.size == 0:
            raise InputError(f"weights of stream '{self.stream}' are empty: shape {weights.shape}")
        # A signed value may be NaN: it has no value. Infinite it may not be.
        finite = np.where(np.isnan(weights), 0, weights) if self.values == "signed" else weights
        check_finite(finite, self.stream, self.layers, self.heads)
        check_values(weights, self.values, self.stream)

    def with_weights(self, weights: NDArray[np.float32], **changes: Any) -> AttentionMap:
        """The map with other weights and fields; links go with the old weights unless given."""
        return replace(self, **{"links": (), **changes, "weights": weights})

    def part(
        self, layers: Sequence[str] | None = None, heads: Sequence[str] | None = None
    ) -> AttentionMap:
        """The chosen layers and heads, with their exact links; None: all."""
        layers, heads = tuple(layers or self.layers), tuple(heads or self.heads)
        cells = np.ix_([*map(self.layers.index, layers)], [*map(self.heads.index, heads)])
        links = tuple(link for link in self.links if link.layer in layers and link.head in heads)
        return self.with_weights(self.weights[cells], layers=layers, heads=heads, links=links)


Float = TypeVar("Float", bound=np.floating)


def known_mean(
    values: NDArray[Float], axis: int | tuple[int, ...] = -1, *, keepdims: bool = False
) -> NDArray[Float]:
    """The mean of all values but NaN; NaN if all are."""
    there = ~np.isnan(values)
    counts = there.sum(axis=axis, keepdims=keepdims)
    sums = np.where(there, values, 0).sum(axis=axis, keepdims=keepdims)
    means: NDArray[Float] = np.full_like(sums, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def check_single_tokens(item: AttentionMap, what: str) -> None:
    """Refuse a map of blocks for `what`, in words that begin a sentence, with an InputError."""
    if item.is_pooled:
        raise InputError(
            f"{what} needs single tokens, and a row and a column of stream '{item.stream}' stand "
            f"for {item.blocks[0]} and {item.blocks[1]}: --max-size {item.unpooled_size} would do, "
            "or give a --window A-B or a shorter text"
        )


def check_finite(
    weights: NDArray[np.floating],
    stream: str,
    layers: Sequence[str],
    heads: Sequence[str] = (),
    dtype: str = "",
    what: str = "attention",
) -> None:
    """Refuse weights (layers, heads, queries, keys) that are NaN or infinite; NotFiniteError.

    `dtype` is the precision that they were computed in, where it is known; `what` what they are.
    """
    if not np.isfinite(float(weights.min()) + float(weights.max())):
        layer, head = np.argwhere(~np.isfinite(weights).all(axis=(2, 3)))[0].tolist()
        raise not_finite(stream, layers[layer], heads[head] if heads else str(head), dtype, what)


def not_finite(
    stream: str, layer: str, head: str, dtype: str = "", what: str = "attention"
) -> NotFiniteError:
    """The error where a head's attention is NaN or infinite, or `what` is."""
    hint = ": numbers above 65,504 overflow in float16, --dtype float32 has room for them"
    return NotFiniteError(
        f"{what} of layer {layer} head {head} (stream '{stream}') is NaN or infinite"
        + (hint if dtype == "float16" else "")
    )


def check_values(weights: NDArray[np.float32], values: Values, stream: str) -> None:
    """Refuse shares outside 0 to 1 with an InputError."""
    lowest, highest = float(weights.min()), float(weights.max())
    if values == "share" and (lowest < -1e-3 or highest > 1 + 1e-3):
        raise InputError(
            f"weights of stream '{stream}' run from {lowest:.4g} to {highest:.4g}, outside 0 to 1: "
            "these are scores, not weights after a softmax"
        )


@dataclass(frozen=True, slots=True)
class TextParts:
    """A text of two parts that was read as one sequence, and where the second begins."""

    kind: Literal["pair", "prompt and output"]
    start: int
    counts: tuple[int, int] | None = None  # the tokens of each part, where they were counted


@dataclass(frozen=True, slots=True)
class FoundObject:
    """What a query for objects finds: a class, how sure it is, and where, in pixels."""

    query: int
    label: str
    score: float  # 0 to 1
    box: tuple[float, float, float, float] | None = None  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Focus:
    """The head of a stream that a reader should see first, and why."""

    layer: str
    head: str
    why: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where weights came from and what was done to them; it travels into every artefact.

    Attributes:
        source: "pocket", "own layer", "hugging face", "watched" or "file".
        model: a name, id or path; for an own layer its mechanism.
        trained: False where the weights mean nothing because nothing was learned; None: unknown.
        settings: further facts by name (seed, size, revision, …).
        steps: what was done to the map since, in order ("heads 2,5", "mean over heads").
        notes: what a reader must know (pooled, truncated, outside the domain).
    """

    source: str
    model: str
    trained: bool | None = None
    device: str = "cpu"
    dtype: str = "float32"
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The model as a title names it: a folder by its own name, and whether it is untrained."""
        adapter = self.settings.get("adapter")
        name = " + ".join(map(_short, [self.model, *([str(adapter)] if adapter else [])]))
        return name + (" (untrained)" if self.trained is False else "")


def _short(model: str) -> str:
    is_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    return model.rstrip("/").rpartition("/")[2] if is_path else model


def typed_facts(provenance: Provenance) -> dict[str, Any]:
    settings = provenance.settings
    facts: dict[str, Any] = {"decision": str(settings.get(DECISION, ""))}
    facts["two_way"] = (provenance.source, provenance.model) == ("pocket", "pocket")
    lenses = [step.removeprefix("lens ") for step in provenance.steps if step.startswith("lens ")]
    facts["lens_name"] = lenses[-1] if lenses else "raw"
    facts["learned_sink"] = bool(settings.get(LEARNED_SINK)) or settings.get("sinks") == "given"
    if settings.get(PARTS) in ("pair", "prompt and output") and SECOND_PART in settings:
        prompt, output = (settings.get(f"{part} tokens") for part in ("prompt", "output"))
        counts = None if prompt is None or output is None else (int(prompt), int(output))
        facts["parts"] = TextParts(settings[PARTS], int(settings[SECOND_PART]), counts)
    return facts


@dataclass(frozen=True, slots=True, eq=False)
class Projections:
    """What the scores of a map are products of, kept on request."""

    query: NDArray[np.float32]  # float of shape (layers, heads, queries, head size)
    key: NDArray[np.float32]  # float of shape (layers, heads, keys, head size)
    scale: float  # what a product of the two is multiplied by to make the score
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    besides: str = ""  # terms of the weights beside scores, softmax and mask ("a position bias")
    value: NDArray[np.float32] | None = None  # where known, (layers, heads, keys, value size)
    # Where known, each layer's largest coordinate of the residual stream against the median.
    peaks: tuple[float, ...] = ()
    # What each link adds to the logit of what its query predicts, and its first-order effect on
    # log p, in nats, both in the shape of the weights; None: not known.
    writes: NDArray[np.float32] | None = None
    effects: NDArray[np.float32] | None = None
    predicted: Mapping[int, str] = field(default_factory=dict)  # by row, what the model predicts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projections) and _alike(self, other, Projections)

    __hash__ = object.__hash__

    def of(self, item: AttentionMap) -> Projections | None:
        """Those of a map's layers and heads; None where its rows and columns are others by now."""
        if not {*item.layers} <= {*self.layers} or not {*item.heads} <= {*self.heads}:
            return None
        if item.weights.shape[2:] != (self.query.shape[2], self.key.shape[2]):
            return None
        layers = [self.layers.index(name) for name in item.layers]
        heads = [self.heads.index(name) for name in item.heads]
        names = ("query", "key", "value", "writes", "effects")
        arrays: dict[str, Any] = {name: getattr(self, name) for name in names}
        arrays = {n: one if one is None else one[layers][:, heads] for n, one in arrays.items()}
        peaks = tuple(self.peaks[place] for place in layers) if self.peaks else ()
        return replace(self, **arrays, peaks=peaks, layers=item.layers, heads=item.heads)


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Every map of one text, or of one pair of texts; the first map is the one to show.

    Attributes:
        maps: one for each stream.
        text: what was read; for a pair, None.
        source: of a pair, the text whose tokens are keys.
        target: of a pair, the text whose tokens are queries.
        id: the record's own name, or its number in the input.
        projections: for a stream, its queries and keys, if they were kept.
        decision: what a model with a head decided about the text, in words.
        lens_name: what the maps were seen through, "all" for every lens; "raw": they are weights.
        measured: of a lens that estimates effects, the links that were measured, largest first.
        idle: likewise links between words of much weight and little effect, the heaviest first.
        decisive: links between words of little weight and much effect, the largest effect first.
        two_way: True of a model that also reads the target as the source, to translate it back.
        focus: for a stream, the head that the source says to show first.
        outside: True where a model says that the text lies outside what it was trained for.
        effects: what the output loses without each head (stream, layer, head), in nats.
        scores: of each head (stream, layer, head), measures of its scores before the softmax.
        group_sizes: for a stream, by layer, how many query heads share each head of keys and
            values (head h has those of h // size); 1: each has its own.
        learned_sink: True where a sink that is no token (gpt-oss: a column of the softmax alone)
            takes what rows lack to 1.
        in_blocks: of a text too long for whole maps, the measures of its heads, if asked for; its
            maps are then a single block.
        seen: of a picture, the part that its patches cover: left, top, right and bottom in pixels.
        sheets: of pictures read with a text, for a stream the number of the picture that its
            patches lie over, and the part of it that they cover.
        found: of a picture, what each query for objects finds, the surest first.
    """

    maps: tuple[AttentionMap, ...]
    provenance: Provenance
    text: str | None = None
    source: str | None = None
    target: str | None = None
    id: str = "0"
    projections: Mapping[str, Projections] = field(default_factory=dict)
    parts: TextParts | None = None
    decision: str = ""
    lens_name: str = "raw"
    two_way: bool = False
    outside: bool = False
    measured: tuple[MeasuredLink, ...] = ()
    idle: tuple[MeasuredLink, ...] = ()
    decisive: tuple[MeasuredLink, ...] = ()
    focus: Mapping[str, Focus] = field(default_factory=dict)
    effects: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    scores: Mapping[tuple[str, str, str], Mapping[str, float]] = field(default_factory=dict)
    group_sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    learned_sink: bool = False
    in_blocks: tuple[Any, ...] = ()  # of `core.measures.BlockMeasures`
    seen: tuple[float, float, float, float] | None = None
    sheets: Mapping[str, tuple[int, tuple[float, float, float, float]]] = field(
        default_factory=dict
    )
    found: tuple[FoundObject, ...] = ()

    @property
    def main(self) -> AttentionMap:
        """The map to show if only one can be shown."""
        return self.maps[0]

    def calls_of(self, item: AttentionMap) -> tuple[AttentionMap, ...]:
        """The maps of every call of a map's module; only the map itself if there was one call."""
        call, stream = stream_of_call(item.stream)
        alike = (one for one in self.maps if stream_of_call(one.stream)[1] == stream)
        same = tuple(one for one in alike if one.weights.shape[1:] == item.weights.shape[1:])
        return same if call else (item,)

    def every_call(self, item: AttentionMap) -> AttentionMap:
        """All calls of the modules that a map is of in one map: a layer for each of their calls."""
        calls = self.calls_of(item)
        if len(calls) == 1:
            return item
        names = dict.fromkeys(name for one in calls for name in one.layers)
        rows = {
            f"{name} · {call}" if len(names) > 1 else call: (one, name)
            for name in names
            for one in calls
            if name in one.layers
            for call, _ in [stream_of_call(one.stream)]
        }
        weights = np.stack([one.weights[one.layers.index(name)] for one, name in rows.values()])
        stream = stream_of_call(item.stream)[1]
        return item.with_weights(weights, stream=stream, layers=tuple(rows))

    @property
    def weights(self) -> NDArray[np.float32]:
        """Weights of the main map, shape (layers, heads, queries, keys)."""
        return self.main.weights

    @property
    def tokens(self) -> tuple[str, ...]:
        """The texts of the query tokens of the main map."""
        return tuple(token.text for token in self.main.query_tokens)

    def text_of(self, side: str) -> str:
        """The text of a side's tokens; empty if it is not known."""
        texts = {"text": self.text, "source": self.source, "target": self.target}
        texts["written"] = self.text  # what a model wrote about a picture, behind its prompt
        return "\n".join(text for one in side.split(BETWEEN_SIDES) if (text := texts.get(one)))

    def texts_of(self, item: AttentionMap) -> tuple[str, str]:
        """The texts of a map's rows and of its columns; empty if they are not known."""
        return self.text_of(item.query_side), self.text_of(item.key_side)

    def with_maps(
        self,
        maps: tuple[AttentionMap, ...],
        *steps: str,
        notes: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Attention:
        """This attention with other maps; its provenance says how they were made."""
        before, settings = self.provenance, {**self.provenance.settings, **(settings or {})}
        steps, notes = (*before.steps, *steps), (*before.notes, *notes)
        provenance = replace(before, steps=steps, notes=notes, settings=settings)
        return replace(self, maps=maps, provenance=provenance)

    def with_links(self, change: Callable[[MeasuredLink], MeasuredLink | None]) -> Attention:
        """The same with the links that have effects beside them as `change` gives them, or without.

        Their positions are those of the maps' tokens: whoever changes these changes the links.
        """

        def those(links: tuple[MeasuredLink, ...]) -> tuple[MeasuredLink, ...]:
            return tuple(changed_link for one in links if (changed_link := change(one)) is not None)

        measured_links, idle, decisive = map(those, (self.measured, self.idle, self.decisive))
        return replace(self, measured=measured_links, idle=idle, decisive=decisive)

    def map_of(self, name: str) -> AttentionMap:
        """The map of one stream; a UsageError if there is none."""
        name = choose(name, [item.stream for item in self.maps], "stream")
        return next(item for item in self.maps if item.stream == name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attention) and _alike(self, other, Attention)

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class HeadLine:
    """One head in a line."""

    head: str
    profile: NDArray[np.float64]  # what each key receives on average; if signed, sizes
    pattern: str  # what it does in words ("each → the one before"), or its sharpest link
    weight: float  # how much of a row's attention that pattern or link holds
    # mean entropy of its rows, nats; 0: each query attends to one key; NaN: blocks or signed values
    entropy: float
    mass: float = 1.0  # the mean sum of a row; of signed values the sum of all sizes


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One matrix to look at, and the heads behind it so that a mean never hides them."""

    map: AttentionMap  # one layer and one head, shape (1, 1, queries, keys)
    caption: str  # what was run and what of it this is; `run` and `which` are its two halves
    orientation: str  # who attends to whom
    heads: tuple[HeadLine, ...] = ()  # one line for each head of the layer; empty if there is one
    strongest: Link | None = None  # of all layers and heads of the stream
    run: str = ""
    which: str = ""
    links: tuple[Link, ...] = ()  # the strongest links of these, strongest first
    second: bool = False  # the mean beside the head to see first; pictures leave it out
    focus: Focus | None = None  # the head that it shows and why, where that is one of several
