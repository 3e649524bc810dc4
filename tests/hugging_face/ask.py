"""Questions to a source as one-liners; an error that stands in the place of an answer is raised."""

from __future__ import annotations

from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Kind, Query


def attend(source: Any, text: str, target: str | None = None, kind: Kind = "self") -> Attention:
    """The attention of one query."""
    (found,) = source.attend([Query(text, target, kind)])
    if isinstance(found, InputError):
        raise found
    answer: Attention = found
    return answer


def cross(source: Any, text: str, target: str | None = None) -> Attention:
    """The attention of a target over its source."""
    return attend(source, text, target, "cross")


def gradients(source: Any, text: str, wanted: str | None = None) -> AttentionGradients:
    """What is predicted from one text."""
    found: AttentionGradients = source.gradients(Query(text), wanted)
    return found


def values(source: Any, text: str) -> ValueVectors:
    """What each head makes of each token of one text."""
    found: ValueVectors = source.values(Query(text))
    return found
