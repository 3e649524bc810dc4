"""How differently two heads look: the Jensen–Shannon divergence of their rows (Lin 1991)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import row_entropy

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
