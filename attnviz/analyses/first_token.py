"""Heads that rest on the first token."""

from __future__ import annotations

import numpy as np

from attnviz.analyses.mask import within_one_text
from attnviz.analyses.subject import Subject
from attnviz.measures import HeadMeasure


def first_token(subject: Subject) -> HeadMeasure | None:
    """Mean of a_i0 over i ≥ 1: the first token has to look at itself in a causal map.

    Across two texts the first key, from every query.
    """
    item = subject.item
    targets = np.zeros((len(item.query_tokens), len(item.key_tokens)), dtype=bool)
    targets[int(within_one_text(item)) :, 0] = True
    return subject.share_on("first-token", targets, ("never the first token", "only the first"))
