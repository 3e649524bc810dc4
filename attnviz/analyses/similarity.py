"""How differently two heads look: the Jensen–Shannon divergence of their rows (Lin 1991)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import check_measurable, row_entropy
from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.measures import SimilarityReport

LARGEST = float(np.log(2))
"""Of two rows that never look at the same key."""

Rows = NDArray[np.float64]


def jensen_shannon(
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    entropies: tuple[Rows, Rows] | None = None,
) -> Rows:
    """H((p + q) / 2) − (H(p) + H(q)) / 2 of rows, in nats; 0: they agree, ln 2: on no key.

    Args:
        first: shape (…, queries, keys); rows sum to 1.
        second: likewise, of a shape that broadcasts against the first.
        entropies: of both, where they are known.

    Returns:
        Shape (…, queries).
    """
    of_first, of_second = entropies or (row_entropy(first), row_entropy(second))
    divergences: Rows = row_entropy((first + second) / 2) - (of_first + of_second) / 2
    return np.maximum(divergences, 0.0)


# <similarity> Which heads look alike: Jensen–Shannon divergences between all of them (Clark et
# al. 2019, §6).
#
# The divergence is the square of a distance (Endres and Schindelin 2003), so heads can be placed
# in a plane by classical scaling (Torgerson 1952): as near to one another there as they look
# alike.

Square = NDArray[np.float64]


def head_divergences(item: AttentionMap) -> Square:
    """Mean Jensen–Shannon divergence between the rows of every two heads, in nats.

    Args:
        item: a map of shares.

    Returns:
        Shape (layers · heads, layers · heads), layer by layer: symmetric, 0 on the diagonal.

    Raises:
        UsageError: a map of signed values.
        InputError: a map of blocks.
    """
    check_measurable(item)
    heads = item.weights.reshape(-1, *item.weights.shape[2:])
    entropies = row_entropy(heads)
    found = np.zeros((len(heads), len(heads)))
    for place, head in enumerate(heads):
        others = slice(place + 1, None)
        known = (entropies[place], entropies[others])
        found[place, others] = jensen_shannon(head, heads[others], known).mean(axis=-1)
    return found + found.T


def plane(divergences: Square) -> tuple[NDArray[np.float64], float]:
    """Places in a plane whose squared distances come closest to the divergences.

    Args:
        divergences: shape (items, items).

    Returns:
        Places of shape (items, 2), around 0 and with signs fixed so that the same input gives the
        same picture; and the share of all spread that the plane shows, 0 to 1.
    """
    count = len(divergences)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centring @ divergences @ centring / 2)
    largest = np.argsort(values)[::-1][:2]
    places = vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0))
    places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    signs = np.sign(places[np.abs(places).argmax(axis=0), [0, 1]])
    spread = np.maximum(values, 0.0)
    shown = float(spread[largest].sum() / spread.sum()) if spread.sum() > 0 else 1.0
    return places * np.where(signs == 0, 1.0, signs), shown


class SimilarityStudy:
    """The heads of each text's main map compared with one another; each text counts the same."""

    def __init__(self) -> None:
        self.texts = 0
        self.first: Attention | None = None
        self.total: Square | float = 0.0

    def add(self, attention: Attention) -> None:
        """Compare the heads on one more text."""
        self.first = self.first or attention
        self.texts += 1
        self.total = self.total + head_divergences(attention.main)

    def report(self) -> SimilarityReport:
        """The mean divergences, and the places in a plane that show them best."""
        assert self.first is not None
        item = self.first.main
        divergences: Square = np.asarray(self.total) / self.texts
        places, shown = plane(divergences)
        texts = f" · mean over {self.texts} texts" if self.texts > 1 else ""
        return SimilarityReport(
            caption=describe_run(self.first, item) + texts,
            stream=item.stream,
            heads=tuple((layer, head) for layer in item.layers for head in item.heads),
            divergences=divergences,
            places=places,
            shown=shown,
            provenance=self.first.provenance,
            texts=self.texts,
        )
