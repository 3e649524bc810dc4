"""Where along the layers an answer appears."""

from __future__ import annotations

from attnviz.core.attention_map import Provenance
from attnviz.core.records import dataclass
from attnviz.features.writers.report import WriterPart


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
