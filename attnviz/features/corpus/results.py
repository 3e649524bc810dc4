"""Types of the report on a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from attnviz.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Provenance
    from attnviz.core.effects import HeadAt
    from attnviz.core.measures import HeadRow, Meaning


@dataclass(frozen=True, slots=True)
class Pair:
    """The mean weight of one head between two words, over `count` occurrences."""

    layer: str
    head: str
    query: str
    key: str
    mean: float
    count: int


@dataclass(frozen=True, slots=True)
class TopExample:
    """A text in which a head attends strongly, with its strongest link."""

    layer: str
    head: str
    rank: int  # 1 for the text with the strongest link
    weight: float  # the weight of the link
    query: str
    key: str
    id: str  # the text's name, or its number in the input
    texts: tuple[str, ...]  # the text; for a pair, both


Example = TypeVar("Example", Pair, TopExample)


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that a reader can look up."""

    id: str
    texts: tuple[str, ...]  # the text; for a pair, both; for a picture, its file
    queries: tuple[str, ...]  # words or patches; so are `keys`
    keys: tuple[str, ...]
    seen: tuple[float, ...] = ()  # the box of a picture that patches cover, in pixels


@dataclass(frozen=True, slots=True, eq=False)
class Atlas:
    """Examples and statistics of a stream's heads; a text counts by its strongest link."""

    # texts in each bucket of weights, from 0 up, and texts without a link between two words; shape
    # (heads, buckets + 1)
    counts: NDArray[np.int64]
    # links of example texts of each bucket, then of the strongest; shape (heads, buckets + 1,
    # texts, numbers): weight, number of the text (-1: none), query word, then place and weight of
    # that word's strongest keys, beginning with the link's key
    drawn: NDArray[np.float64]
    words: tuple[str, ...]  # the most frequent words
    # texts in which the link's query, or its key, is each of these words, or another word; shape
    # (heads, 2, words + 1)
    ends: NDArray[np.int64]
    nearest: NDArray[np.intp]  # most similar heads, with `distances`; (heads, neighbours)
    distances: NDArray[np.float64]
    # by number; each word begins with the space before it, if any, or with a tab if it is not in
    # the text (special tokens)
    texts: Mapping[int, SourceText]
    rule: str  # the rule of drawing, in words
    distance: str  # the definition of the distance, in words


@dataclass(frozen=True, slots=True, eq=False)
class StreamReport:
    """Every head of one stream; arrays end in the axes (layers, heads)."""

    stream: str
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    tokens: int  # number of rows in the layer that has most
    measures: tuple[Meaning, ...]
    texts: NDArray[np.int64]  # number of texts with a value, shape (measures, layers, heads)
    mean: NDArray[np.float64]  # mean over these texts, or NaN; interval from `low` to `high`
    deviation: NDArray[np.float64]  # sample standard deviation over these texts
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    uniform: NDArray[np.float64]  # mean for uniform attention to all visible keys
    offsets: tuple[int, ...]  # key minus query position; in pictures the rounded distance
    by_offset: NDArray[np.float64]  # mean weight of links by offset, (offsets, …)
    # share of the attention of text tokens to text tokens before all offsets, at each, and after
    # them; shape (offsets + 2, …). The rest goes to special tokens
    offset_shares: NDArray[np.float64]
    classes: tuple[str, ...]
    # share of all attention for each class of keys, shape (classes, …); `class_even`: that of
    # uniform attention
    class_shares: NDArray[np.float64]
    class_even: NDArray[np.float64]
    paired: int  # number of frequent words whose pairs were counted
    pairs: tuple[Pair, ...]  # the strongest pairs of each head, strongest first
    firings: tuple[TopExample, ...]  # the texts in which each head attends most strongly
    rows: tuple[HeadRow, ...]
    atlas: Atlas | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PruneCurve:
    """The loss of a model while its heads are switched off one after another."""

    caption: str
    names: tuple[str, ...]  # each order's measure, lowest first, or "chance"
    orders: tuple[tuple[HeadAt, ...], ...]  # all heads, in the order of switching off
    off: tuple[int, ...]  # number of heads that are off at each point, from none to all
    losses: NDArray[np.float64]  # nats per output, shape (orders, points)
    texts: str  # the texts of the orders and of the losses, in words
    about: str  # the output that effects are measured on, in words

    def losses_by(self, name: str) -> NDArray[np.float64]:
        """The losses of the orders with this name."""
        return self.losses[[place for place, own_name in enumerate(self.names) if own_name == name]]


@dataclass(frozen=True, slots=True, eq=False)
class CorpusReport:
    """Every head over a corpus."""

    caption: str
    streams: tuple[StreamReport, ...]
    texts: int  # number of texts that were read
    failed: int  # number of texts that failed
    interval: str  # the kind of intervals, in words
    fewest: int  # occurrences of a pair of words below which it is left out
    provenance: Provenance
    curve: PruneCurve | None = None  # the loss while heads are switched off, if requested
    notes: tuple[str, ...] = ()  # notes on texts (cut, left out, …)
    things: str = "texts"  # "texts" or "pictures"

    @property
    def rows(self) -> tuple[HeadRow, ...]:
        """Every head of every stream, as of a single text."""
        return tuple(row for stream in self.streams for row in stream.rows)


def head_places(stream: StreamReport) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Layer, head and place in the arrays of each head, in the report's order."""
    for row in stream.rows:
        place = stream.layers.index(row.layer), stream.heads.index(row.head)
        yield row.layer, row.head, place


def group_by_head(items: Sequence[Example]) -> dict[tuple[str, str], list[Example]]:
    """Pairs or links by layer and head, in their order."""
    groups: dict[tuple[str, str], list[Example]] = {}
    for item in items:
        groups.setdefault((item.layer, item.head), []).append(item)
    return groups


def gives_order(number: int) -> bool:
    """Whether a text is in the half of the corpus whose effects order the heads for pruning."""
    # Every second text: an order and a loss from the same texts would flatter the order.
    return number % 2 == 0
