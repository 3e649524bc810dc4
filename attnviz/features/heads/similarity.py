"""All heads of a text compared with one another.

They are compared by the Jensen–Shannon divergence of their rows (Lin 1991; Clark et al. 2019, §6).
It is the square of a distance (Endres and Schindelin 2003), so heads can be placed in a plane by
classical scaling (Torgerson 1952): as near to one another there as they look alike.
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import entropy, masks
from attnviz.core.attention_map import Attention, AttentionMap, Provenance
from attnviz.core.records import dataclass
from attnviz.features.measures.texts import TextStudy

Square = NDArray[np.float64]


def head_divergences(item: AttentionMap) -> Square:
    """Mean Jensen–Shannon divergence between the rows of every two heads, in nats.

    Rows are made to sum to 1; NaN where two heads have no row in which both attend to anything.
    """
    masks.check_measurable(item)
    rows = masks.map_shares(item.weights)
    return entropy.pair_divergences(rows.reshape(-1, *rows.shape[2:]))


def plane(divergences: Square) -> tuple[NDArray[np.float64], float]:
    """Points in a plane whose squared distances are as close as possible to the divergences."""
    count = len(divergences)
    # Two heads that no text compares get the largest distance.
    divergences = np.where(np.isnan(divergences), np.log(2), divergences)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centring @ divergences @ centring / 2)
    largest = np.argsort(values)[::-1][:2]
    places = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
    places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])
    spread = np.maximum(values, 0.0)
    share = float(spread[largest].sum() / spread.sum()) if spread.sum() > 0 else 1.0
    return places * np.where(signs == 0, 1.0, signs), share


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityReport:
    """Which heads look alike."""

    caption: str
    stream: str
    heads: tuple[tuple[str, str], ...]  # layer and head by name, in the order of the axes
    divergences: NDArray[np.float64]  # means, shape (heads, heads)
    places: NDArray[np.float64]  # of the heads in a plane, shape (heads, 2)
    shown: float  # the share of all spread that the plane shows
    provenance: Provenance
    texts: int = 1


class SimilarityStudy(TextStudy):
    """The heads of each text's main map compared with one another."""

    def __init__(self) -> None:
        super().__init__()
        self.total: Square | float = 0.0
        self.counts: NDArray[np.int64] | int = 0

    def add(self, attention: Attention) -> None:
        self.count(attention)
        divergences = head_divergences(attention.main)
        self.total = self.total + np.nan_to_num(divergences)
        self.counts = self.counts + ~np.isnan(divergences)

    def report(self) -> SimilarityReport:
        """The mean divergences, and the places in a plane that show them best."""
        item = self.example.main
        counts = np.asarray(self.counts)
        divergences: Square = np.where(counts > 0, self.total / np.maximum(counts, 1), np.nan)
        places, share = plane(divergences)
        return SimilarityReport(
            caption=self.caption(),
            stream=item.stream,
            heads=tuple((layer, head) for layer in item.layers for head in item.heads),
            divergences=divergences,
            places=places,
            shown=share,
            provenance=self.provenance,
            texts=self.texts,
        )
