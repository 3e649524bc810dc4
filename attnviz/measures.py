"""What analyses say about a map: a number a head, a link, and the view that a reader sees first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.attention_map import AttentionMap


@dataclass(frozen=True, slots=True, eq=False)
class HeadMeasure:
    """A number for each head.

    Attributes:
        name: what is measured ("entropy").
        unit: "nats", "share", ….
        low: what its smallest value means, in words.
        high: what its largest value means.
        values: float of shape (layers, heads).
    """

    name: str
    unit: str
    low: str
    high: str
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Link:
    """One cell of a map: who attends to whom, how much, and in which head."""

    query: str
    key: str
    weight: float
    layer: str
    head: str


@dataclass(frozen=True, slots=True, eq=False)
class HeadLine:
    """One head in a line.

    Attributes:
        head: its name.
        profile: what each key receives on average, shape (keys,).
        pattern: what it does in words ("each → the one before"), or its sharpest link.
        weight: how much of a row's attention that pattern or link holds.
        entropy: mean over its rows, in nats; 0: every query looks at one key.
    """

    head: str
    profile: NDArray[np.float64]
    pattern: str
    weight: float
    entropy: float


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One matrix to look at, and the heads behind it so that a mean never hides them.

    Attributes:
        map: one layer and one head, shape (1, 1, queries, keys).
        caption: what was run and what of it this is.
        orientation: who attends to whom.
        heads: a line for each head of the layer; empty where there is only one.
        strongest: the strongest link over every layer and head of the stream, if any.
    """

    map: AttentionMap
    caption: str
    orientation: str
    heads: tuple[HeadLine, ...] = ()
    strongest: Link | None = None
