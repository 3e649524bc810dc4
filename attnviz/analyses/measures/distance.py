"""How far heads look: the mean distance in tokens, and in which direction.

With special tokens included, as a sink at the start is part of what a head does. The patches of a
picture stand in no line; for them there is `patch_distance`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.core.attention_map import Token
from attnviz.core.measures import HeadMeasure


def distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean over the rows i of Σ_j a_ij |i − j|."""
    return _weighted(subject, "distance", ("only itself", "only the far end"), np.abs)


def offset(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean over the rows i of Σ_j a_ij (j − i)."""
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
        return subject.mean(np.einsum("lhij,ij->lhi", weights, apart), subject.rows)

    return subject.measure(name, "tokens", ends, formula, top=length - 1)


# <patch_distance> How far heads look in a picture: the mean distance between patches (Dosovitskiy
# 2020, fig. 7).

_PATCH = re.compile(r"(\d+),(\d+)")


def patch_distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean over the patches of Σ_j a_ij times the way from patch i to patch j, in patches.

    The class token lies nowhere in the picture: its row and its column are left out, and what is
    left of each row is made to sum to 1 again. Times the side of a patch it is a way in pixels.
    """
    item = subject.item
    places = patch_places(item.key_tokens)
    if places is None or not within_one_text(item):
        return None
    patches = [place for place, token in enumerate(item.key_tokens) if not token.special]
    apart = np.linalg.norm(places[:, None] - places, axis=-1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        kept = weights[:, :, patches][:, :, :, patches].astype(np.float64)
        held = kept.sum(axis=-1)
        ways = np.einsum("lhij,ij->lhi", kept, apart)
        # A patch that looks at nothing but the class token looks nowhere.
        looking = held > 0
        shares = np.where(looking, ways / np.where(looking, held, 1.0), 0.0).sum(axis=-1)
        means: Numbers = shares / np.maximum(looking.sum(axis=-1), 1)
        return means

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
    whole = [(row, column) for row in range(rows) for column in range(columns)]
    return np.array(places, dtype=np.float64) if places == whole else None
