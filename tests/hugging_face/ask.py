"""Questions to a source as one-liners; an error that stands in the place of an answer is raised."""

from typing import Any

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Kind, Picture, Query
from attnviz.models import attend_query
from attnviz.models.hugging_face.capture.passes import CaptureSpec
from attnviz.models.hugging_face.capture.region import PooledGrid, each_token


def attend(source: Any, text: str, target: str | None = None, kind: Kind = "self") -> Attention:
    """The attention of one query."""
    return attend_query(source, Query(text, target, kind))


def cross(source: Any, text: str, target: str | None = None) -> Attention:
    """The attention of a target over its source."""
    return attend(source, text, target, "cross")


def about(image: Any, text: str = "", **asked: Any) -> Query:
    """A question about a picture; `asked` are the fields of `Picture`."""
    return Query(text, kind="picture", picture=Picture(image, **asked))


def look(source: Any, image: Any, text: str = "", **asked: Any) -> Attention:
    """The attention of one picture."""
    return attend_query(source, about(image, text, **asked))


def gradients(source: Any, text: str, wanted: str | None = None) -> AttentionGradients:
    """What is predicted from one text."""
    found: AttentionGradients = source.gradients(Query(text), wanted)
    return found


def values(source: Any, text: str) -> ValueVectors:
    """What each head makes of each token of one text."""
    found: ValueVectors = source.values(Query(text))
    return found


def every_weight(path: str, call: AttentionCall) -> CaptureSpec:
    """What to read of a kernel's call: all of its weights."""
    return CaptureSpec(PooledGrid(each_token(call.query.shape[2]), each_token(call.key.shape[2])))
