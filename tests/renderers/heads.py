"""Reports on made-up heads, for the tests of what renders them."""

import math

import numpy as np

from attnviz.core.attention_map import Provenance
from attnviz.core.measures import HeadRow, Meaning, Role
from attnviz.features.heads.similarity import SimilarityReport
from attnviz.features.measures.study import HeadReport

PROVENANCE = Provenance("file", "made up", settings={"seed": 1})
ENTROPY = Meaning("entropy", "entr", "nats", "one key", "all keys", 2.0)
PREVIOUS = Meaning("previous-token", "prev", "share", "never", "always", 1.0)
OFFSET = Meaning("offset", "offs", "tokens", "the past", "what follows", 9.0)
INDUCTION = Meaning("induction", "ind", "share", "never", "always", 1.0)


def row(layer: int, head: int, previous: float, *, stream: str = "self", even: float = 0.1):
    roles = (Role("previous-token", previous, even),) if previous > 0.6 else ()
    values = {"entropy": 1.25, "previous-token": previous, "offset": -1.5, "induction": math.nan}
    uniform = {"entropy": 2.0, "previous-token": even, "offset": 0.0, "induction": math.nan}
    return HeadRow(stream, str(layer), str(head), values, uniform, roles)


def report(*rows: HeadRow, **fields: object) -> HeadReport:
    made = rows or (row(0, 2, 0.99), row(0, 0, 0.05), row(1, 1, 0.3))
    measures = (ENTROPY, OFFSET, PREVIOUS, INDUCTION)
    return HeadReport("made up · self", measures, made, PROVENANCE, **fields)  # type: ignore[arg-type]


def similarity(count: int = 3) -> SimilarityReport:
    places = np.random.default_rng(0).normal(size=(count, 2))
    divergences = ((places[:, None] - places) ** 2).sum(axis=-1) / 20
    heads = tuple((str(place // 12), str(place % 12)) for place in range(count))
    return SimilarityReport("made up · self", "self", heads, divergences, places, 0.75, PROVENANCE)
