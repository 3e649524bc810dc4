"""How far heads look: the mean distance in tokens, and in which direction.

With special tokens included, as a sink at the start is part of what a head does. The patches of a
picture stand in no line; for them there is `patch_distance`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.mask import within_one_text
from attnviz.analyses.patch_distance import patch_places
from attnviz.analyses.subject import Numbers, Subject
from attnviz.measures import HeadMeasure


def distance(subject: Subject) -> HeadMeasure | None:
    """Mean over the rows i of Σ_j a_ij |i − j|."""
    return _weighted(subject, "distance", ("only itself", "only the far end"), np.abs)


def offset(subject: Subject) -> HeadMeasure | None:
    """Mean over the rows i of Σ_j a_ij (j − i)."""
    return _weighted(subject, "offset", ("only the past", "only what follows"), np.positive)


def _weighted(
    subject: Subject, name: str, ends: tuple[str, str], kind: np.ufunc
) -> HeadMeasure | None:
    length = len(subject.item.key_tokens)
    in_line = within_one_text(subject.item) and patch_places(subject.item.key_tokens) is None
    if not in_line or length < 2:
        return None
    positions = np.arange(length, dtype=np.float32)
    apart = kind(positions - positions[:, None])

    def formula(weights: NDArray[np.floating]) -> Numbers:
        return subject.mean(np.einsum("lhij,ij->lhi", weights, apart), subject.rows)

    return subject.measure(name, "tokens", ends, formula, top=length - 1)
