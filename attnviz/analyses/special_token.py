"""Heads that rest on special tokens."""

from __future__ import annotations

import numpy as np

from attnviz.analyses.subject import Subject
from attnviz.measures import HeadMeasure


def special_token(subject: Subject) -> HeadMeasure | None:
    """Share on special tokens ([CLS], <eos>), over the rows that can see one."""
    item = subject.item
    special = np.array([token.special for token in item.key_tokens])
    targets = np.broadcast_to(special, (len(item.query_tokens), len(special)))
    return subject.share_on("special-token", targets, ("only text", "only special tokens"))
