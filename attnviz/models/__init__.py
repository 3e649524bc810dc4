"""A request becomes a source of attention, and a source answers queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Query


class Source(Protocol):
    """Something that answers a query with attention maps."""

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of each query in order, or an error in the place of one that has none.

        No query is read before its answer is asked for.

        Args:
            queries: of one chunk; what is batched depends on nothing else.
            batch_size: how many are read at once at most; None: as many as fit.

        Raises:
            UsageError: a kind of query that the source cannot answer.
            AttnvizError: what would fail for every query.
        """
        ...


@runtime_checkable
class Explaining(Protocol):
    """A source whose model predicts something that can be explained."""

    def gradients(self, query: Query, wanted: str | None = None) -> AttentionGradients:
        """The gradients of a prediction, or of the wanted output, by every weight."""
        ...


@runtime_checkable
class Transforming(Protocol):
    """A source that knows the vectors that its weights add up."""

    def values(self, query: Query) -> ValueVectors:
        """The value vectors of each head."""
        ...


def attend_query(source: Source, query: Query) -> Attention:
    """The maps of one query.

    Raises:
        InputError: it has none.
    """
    (found,) = source.attend([query])
    if isinstance(found, InputError):
        raise found
    return found
