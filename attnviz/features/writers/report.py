"""What explains a head: what was written into its sides, and what its links argue for."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import effects, writers
from attnviz.core.attention_map import Provenance
from attnviz.core.measures import Argument
from attnviz.core.records import asdict, dataclass

LISTED = 6  # writers of a side that are named
# Position decides a link of weight LEAST or more if other rows have the share ALONE of its weight.
ALONE, LEAST = 0.5, 0.1


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

    side: writers.Side
    writer: str
    expected: float  # the weight at held norms
    measured: float  # with every norm computed anew


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """Why a head looks at a key, and what that adds to the logits."""

    caption: str  # the model, the head and the link, in words
    head: effects.HeadAt
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
