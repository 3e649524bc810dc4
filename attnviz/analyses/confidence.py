"""Confidence of a head (Voita et al. 2019, section 4): its mean largest weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.subject import Numbers, Subject
from attnviz.measures import HeadMeasure


def confidence(subject: Subject) -> HeadMeasure:
    """Mean of each row's largest weight, the end token aside, which the paper leaves out.

    The end token is the last key where it is special.
    """
    keys = subject.item.key_tokens
    kept = len(keys) - (len(keys) > 1 and keys[-1].special)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        largest = weights[..., :kept].max(axis=-1).astype(np.float64)
        return subject.mean(largest, subject.rows)

    return subject.measure("confidence", "share", ("no key stands out", "one key a row"), formula)
