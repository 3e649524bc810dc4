"""What sources of attention share: queries one by one, and kinds of query that they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Kind, Query

REFUSALS: dict[Kind, str] = {
    "self": "co-attention needs two texts: attnviz co A B",
    "cross": "co-attention needs 'co': attnviz co A B",
    "pair": (
        "--pair needs a model that reads sentence pairs (--model with a BERT-like model): "
        "use 'attnviz cross' or 'attnviz co' for two texts"
    ),
    "co": "co-attention runs on an own layer only: attnviz co A B",
    "picture": "'attnviz image' needs a vision model: --model ID_OR_FOLDER",
}
"""The message where a source cannot answer a kind of query."""


def check_kind(query: Query, *answered: Kind) -> None:
    """Refuse a query that a source cannot answer.

    Raises:
        UsageError: its kind is not one of those answered.
    """
    if query.kind not in answered:
        raise UsageError(REFUSALS[query.kind])


def attend_each(
    attend_one: Callable[[Query], Attention], queries: Sequence[Query]
) -> Iterator[Attention | InputError]:
    """The maps of each query in order, read one by one, or why a query has none."""
    for query in queries:
        try:
            yield attend_one(query)
        except InputError as error:
            yield error


def texts_of(query: Query) -> tuple[str | None, str | None, str | None]:
    """A query's text, source and target, as `Attention` has them; empty texts are none."""
    if query.kind == "self":
        return query.text or None, None, None
    return None, query.text or None, query.target or None
