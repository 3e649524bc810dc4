"""How far heads attend: the mean distance in tokens and its direction, or in patches of a picture.

Special tokens are included, as a sink at the start is part of what a head does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.entropy import mean_known
from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.core.attention_map import Token
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import text_places

_PATCH = re.compile(r"(\d+),(\d+)")


def distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a token and the tokens it attends to, in tokens.

    Mean over the rows i of Σ_j a_ij |i − j| / Σ_j a_ij.
    """
    return _weighted(subject, "distance", ("only itself", "only the far end"), np.abs)


def offset(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean signed distance, negative towards the past.

    Mean over the rows i of Σ_j a_ij (j − i) / Σ_j a_ij.
    """
    return _weighted(subject, "offset", ("only the past", "only what follows"), np.positive)


def _weighted(
    subject: MeasuredMap, name: str, ends: tuple[str, str], kind: np.ufunc
) -> HeadMeasure | None:
    length = len(subject.item.key_tokens)
    in_line = within_one_text(subject.item) and patch_places(subject.item.key_tokens) is None
    if not in_line or length < 2:
        return None
    positions = np.arange(length, dtype=np.float32)
    apart = kind(positions - positions[:, None])

    def formula(weights: NDArray[np.floating]) -> Numbers:
        sums = weights.sum(axis=-1, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return subject.mean(np.einsum("lhij,ij->lhi", weights, apart) / sums, subject.rows)

    return subject.measure(name, "tokens", ends, formula, top=length - 1)


def patch_distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a patch of a picture and those it attends to, in patches.

    Mean over the patches of Σ_j a_ij times the distance of patches i and j (Dosovitskiy 2020, fig.
    7). The class token has no place: its row and column are left out, and what is left of each row
    is made to sum to 1 again. Times the side of a patch it is a distance in pixels.
    """
    item = subject.item
    places = patch_places(item.key_tokens)
    if places is None or not within_one_text(item):
        return None
    patches = text_places(item.key_tokens)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        kept = weights[:, :, patches][:, :, :, patches].astype(np.float64)
        held = kept.sum(axis=-1)
        weighted = np.einsum("lhij,ij->lhi", kept, apart)
        # A patch that attends to nothing but the class token has no distance.
        attending = held > 0
        return mean_known(np.where(attending, weighted / np.where(attending, held, 1.0), np.nan))

    ends = ("only itself", "only the far corner")
    return subject.measure("patch-distance", "patches", ends, formula, top=float(apart.max()))


def patch_places(tokens: Sequence[Token]) -> NDArray[np.float64] | None:
    """Row and column of each patch, shape (patches, 2); None where the tokens are no picture's.

    A picture's tokens are named "row,column", row by row without a gap; special ones may stand
    among them.
    """
    found = [_PATCH.fullmatch(token.text) for token in tokens if not token.special]
    places = [(int(match[1]), int(match[2])) for match in found if match]
    if len(places) < max(len(found), 2):
        return None
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    grid = [(row, column) for row in range(rows) for column in range(columns)]
    return np.array(places, dtype=np.float64) if places == grid else None
