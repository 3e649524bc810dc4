"""A request becomes a source, and a source turns text into maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.storage.texts import Text


class Source(Protocol):
    """Something that can be asked for the attention of a text, or of a pair of texts."""

    def attend_self(self, text: str) -> Attention:
        """The maps of one text, the one to show first."""
        ...

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """The maps of a pair; queries come from the target, keys from the source."""
        ...


@runtime_checkable
class PairSource(Protocol):
    """A source that also reads two texts as one sequence, as BERT does."""

    def attend_pair(self, first: str, second: str) -> Attention:
        """The maps of both texts over themselves and each other."""
        ...


@runtime_checkable
class Batching(Protocol):
    """A source that reads many texts at once, with the numbers that each would have alone."""

    def attend_many(
        self, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """Each text's maps, in the texts' order, or why that text has none.

        Args:
            texts: of one window; what is read together depends on nothing else.
            alone: True for a text's attention over itself, or a sentence pair's over its two.
            batch_size: how many are read at once at most; None: as many as is good.
        """
        ...


@runtime_checkable
class Explaining(Protocol):
    """A source whose model predicts something, so that a prediction can be explained."""

    def explain_self(self, text: str, wanted: str | None = None) -> AttentionGradients:
        """The prediction from a text, or the wanted one, with gradients."""
        ...

    def explain_cross(
        self, source: str, target: str | None = None, wanted: str | None = None
    ) -> AttentionGradients:
        """A token of the target, with gradients."""
        ...


@runtime_checkable
class Transforming(Protocol):
    """A source that knows what its weights add up."""

    def transform_self(self, text: str) -> ValueVectors:
        """What each head makes of each token of a text."""
        ...

    def transform_cross(self, source: str, target: str | None = None) -> ValueVectors:
        """What each head makes of each token of a pair."""
        ...
