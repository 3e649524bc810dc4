"""Types of the report on a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.attention_map import Provenance
    from attnviz.core.effects import PruneCurve
    from attnviz.core.measures import HeadRow, Meaning
    from attnviz.core.writers import WiringReport


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
    """A text in which a head attends strongly, with its strongest link.

    Attributes:
        rank: 1 for the text with the strongest link.
        weight: the weight of the link.
        id: the text's name, or its number in the input.
        texts: the text; for a pair, both.
    """

    layer: str
    head: str
    rank: int
    weight: float
    query: str
    key: str
    id: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that a reader can look up.

    Attributes:
        texts: the text; for a pair, both; for a picture, its file.
        queries: words or patches; so are `keys`.
        seen: the part of a picture that its patches cover: left, top, right, bottom in pixels.
    """

    id: str
    texts: tuple[str, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    seen: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Atlas:
    """Examples and statistics of a stream's heads to browse; a text counts by its strongest link.

    Attributes:
        counts: texts in each bucket of weights, from 0 up, and texts without a link between two
            words; shape (heads, buckets + 1).
        drawn: links of example texts of each bucket, then of the strongest; shape (heads,
            buckets + 1, texts, numbers): weight, number of the text (-1: none), query word, then
            place and weight of that word's strongest keys, beginning with the link's key.
        words: the most frequent words.
        ends: texts in which the link's query, or its key, is each of these words, or another word;
            shape (heads, 2, words + 1).
        nearest: the most similar heads, and their `distances` from 0 to 1; shape (heads,
            neighbours).
        texts: by number; each word begins with the space before it, if any, or with a tab if it is
            not in the text (special tokens).
        rule: the rule of drawing, in words.
        distance: the definition of the distance, in words.
    """

    counts: NDArray[np.int64]
    drawn: NDArray[np.float64]
    words: tuple[str, ...]
    ends: NDArray[np.int64]
    nearest: NDArray[np.intp]
    distances: NDArray[np.float64]
    texts: Mapping[int, SourceText]
    rule: str
    distance: str


@dataclass(frozen=True, slots=True, eq=False)
class StreamReport:
    """Every head of one stream; arrays end in the axes (layers, heads).

    Attributes:
        tokens: number of rows in the layer that has most.
        texts: number of texts with a value, shape (measures, layers, heads).
        mean: mean over these texts, or NaN, with its interval from `low` to `high`.
        deviation: sample standard deviation over these texts.
        uniform: mean for uniform attention to all visible keys.
        offsets: position of the key minus that of the query; for pictures, their rounded distance
            in patches.
        by_offset: mean weight of links with each offset, without special tokens; shape
            (offsets, …).
        offset_shares: share of the attention of text tokens to text tokens before all offsets, at
            each, and after them; shape (offsets + 2, …). The rest goes to special tokens.
        class_shares: share of all attention for each class of keys, shape (classes, …);
            `class_even`: that of uniform attention.
        paired: number of frequent words whose pairs were counted.
        pairs: the strongest pairs of each head, strongest first.
        firings: the texts in which each head attends most strongly.
    """

    stream: str
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    tokens: int
    measures: tuple[Meaning, ...]
    texts: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    uniform: NDArray[np.float64]
    offsets: tuple[int, ...]
    by_offset: NDArray[np.float64]
    offset_shares: NDArray[np.float64]
    classes: tuple[str, ...]
    class_shares: NDArray[np.float64]
    class_even: NDArray[np.float64]
    paired: int
    pairs: tuple[Pair, ...]
    firings: tuple[TopExample, ...]
    rows: tuple[HeadRow, ...]
    atlas: Atlas | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CorpusReport:
    """Every head over a corpus.

    Attributes:
        texts: number of texts that were read.
        failed: number of texts that failed.
        interval: the kind of intervals, in words.
        fewest: occurrences of a pair of words below which it is left out.
        curve: the loss while heads are switched off, if requested.
        wiring: which heads read which heads, if requested.
        notes: notes on texts (cut, left out, …).
        things: "texts" or "pictures".
    """

    caption: str
    streams: tuple[StreamReport, ...]
    texts: int
    failed: int
    interval: str
    fewest: int
    provenance: Provenance
    curve: PruneCurve | None = None
    wiring: WiringReport | None = None
    notes: tuple[str, ...] = ()
    things: str = "texts"
