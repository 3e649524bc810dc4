"""Heads that rest on punctuation marks."""

from __future__ import annotations

import unicodedata

import numpy as np

from attnviz.analyses.subject import Subject
from attnviz.attention_map import Token
from attnviz.measures import HeadMeasure


def punctuation(subject: Subject) -> HeadMeasure | None:
    """Share on tokens of nothing but punctuation, over the rows that can see one."""
    item = subject.item
    marks = np.array([is_mark(token) for token in item.key_tokens])
    targets = np.broadcast_to(marks, (len(item.query_tokens), len(marks)))
    return subject.share_on("punctuation", targets, ("only words", "only punctuation"))


def is_mark(token: Token) -> bool:
    """True for a token of nothing but punctuation."""
    text = token.text.strip()
    marks = all(unicodedata.category(character).startswith("P") for character in text)
    return bool(text) and marks and not token.special
