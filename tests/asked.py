"""Sources of attention asked in one line."""

from attnviz.core.attention_map import Attention
from attnviz.core.query import Query
from attnviz.models import Source, attend_query


def over_itself(source: Source, text: str) -> Attention:
    """The maps of a text."""
    return attend_query(source, Query(text))


def over_source(source: Source, text: str, target: str | None) -> Attention:
    """The maps of a target over its source."""
    return attend_query(source, Query(text, target, "cross"))


def over_each_other(source: Source, first: str, second: str | None) -> Attention:
    """The maps of two texts over each other."""
    return attend_query(source, Query(first, second, "cross"))
