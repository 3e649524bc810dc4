"""Heads that look for other places of the same token."""

from __future__ import annotations

import numpy as np

from attnviz.analyses.mask import within_one_text
from attnviz.analyses.subject import Subject
from attnviz.measures import HeadMeasure


def same_token(subject: Subject) -> HeadMeasure | None:
    """Share on tokens that read the same, itself and special tokens aside.

    Averaged over the rows that can see such a token; across two texts the token itself is one.
    """
    item = subject.item
    queries = np.array([token.text for token in item.query_tokens])
    keys = np.array([token.text for token in item.key_tokens])
    targets = queries[:, None] == keys
    targets[[token.special for token in item.query_tokens]] = False
    targets[:, [token.special for token in item.key_tokens]] = False
    if within_one_text(item):
        np.fill_diagonal(targets, False)
    return subject.share_on(
        "same-token", targets, ("never the same token", "only other places of the same token")
    )
