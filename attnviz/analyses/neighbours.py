"""Heads that look at the token before, at the token after, or at the token itself.

Of N tokens, N − 1 have one before them and N − 1 one after: means are over these.
"""

from __future__ import annotations

import numpy as np

from attnviz.analyses.mask import within_one_text
from attnviz.analyses.subject import Subject
from attnviz.measures import HeadMeasure


def previous_token(subject: Subject) -> HeadMeasure | None:
    """Mean of a_(i, i−1) over the N − 1 rows that have a token before them."""
    return _diagonal(subject, "previous-token", -1, "the token before")


def next_token(subject: Subject) -> HeadMeasure | None:
    """Mean of a_(i, i+1) over the N − 1 rows that have a token after them; none in a causal map."""
    return _diagonal(subject, "next-token", 1, "the token after")


def own_token(subject: Subject) -> HeadMeasure | None:
    """Mean of a_ii over all N rows."""
    return _diagonal(subject, "self", 0, "itself")


def _diagonal(subject: Subject, name: str, offset: int, what: str) -> HeadMeasure | None:
    if not within_one_text(subject.item):
        return None
    targets = np.eye(len(subject.item.key_tokens), k=offset, dtype=bool)
    return subject.share_on(name, targets, (f"never {what}", f"only {what}"))
