"""A request becomes a source of attention, and a source answers queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from attnviz.core.errors import InputError, UsageError, choose

if TYPE_CHECKING:
    # Listing the cached models must not wait for numpy.
    from attnviz.core.attention_map import Attention, Provenance, Token
    from attnviz.core.effects import Experiment, HeadOutputs
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.core.query import Kind, Query
    from attnviz.core.writers import HeadWeights, ResidualStream, WrittenText
    from attnviz.mechanisms.formula import HeadArithmetic, HeadPlace

Answer = TypeVar("Answer")

REFUSALS: dict[Kind, str] = {
    "self": "co-attention needs two texts: attnviz cross A B --mechanism co",
    "pair": (
        "--pair needs a model that reads sentence pairs (--model with a BERT-like model): "
        "use 'attnviz cross' for two texts"
    ),
    "picture": "a picture needs a vision model: attnviz image FILE --model ID_OR_FOLDER",
    "recording": "a recording needs a speech model: attnviz audio FILE --model ID_OR_FOLDER",
}
"""Messages for queries that a source cannot answer."""

Choose: TypeAlias = "Callable[[Sequence[Token]], Sequence[int]]"
"""The positions that are wanted of some tokens."""
WithHead: TypeAlias = Literal["exact"] | bool  # "exact": exact effects, no gradients


class Source(Protocol):
    """Something that answers a query with attention maps."""

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of each query in order, or an error in the place of one that has none.

        A query is read when its answer is asked for. Batches depend on the queries alone and have
        at most `batch_size` of them; None: as many as fit.

        Raises:
            UsageError: a kind of query that the source cannot answer.
            AttnvizError: what would fail for every query.
        """


@runtime_checkable
class SupportsGradients(Protocol):
    """A source whose model predicts something."""

    def gradients(self, query: Query, target: str | None = None) -> AttentionGradients: ...


@runtime_checkable
class Experimenting(Protocol):
    """A source whose model can run with parts switched off."""

    def experiment(self, query: Query, target: str | None = None) -> Experiment:
        """The model with a query; it explains the wanted output, or "all"."""


@runtime_checkable
class SupportsHeadOutputs(Protocol):
    """A source that reads the outputs of heads in several texts faster than one by one."""

    def head_outputs(self, queries: Sequence[Query], like: Experiment) -> list[HeadOutputs]:
        """What each head puts out in each of some texts; `like` is an experiment of their kind."""


@runtime_checkable
class SupportsChat(Protocol):
    """A source that knows how its model writes a conversation."""

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> str:
        """A conversation up to where the model answers, and the tools that it may call."""


@runtime_checkable
class SupportsValues(Protocol):
    """A source that knows its value vectors."""

    def values(self, query: Query) -> ValueVectors: ...


@runtime_checkable
class SupportsManyTexts(Protocol):
    """A source that reads what lenses need of several texts faster than one by one."""

    def many_gradients(
        self, queries: Sequence[Query], target: str | None, batch_size: int | None
    ) -> Iterator[AttentionGradients | InputError]:
        """The gradients of each query in order, or its error, as `attend` gives maps."""

    def many_values(
        self, queries: Sequence[Query], batch_size: int | None
    ) -> Iterator[ValueVectors | InputError]: ...


@runtime_checkable
class SupportsWriters(Protocol):
    """A source that knows what each part of its model writes into the residual stream."""

    def trace_writers(self, query: Query) -> WrittenText:
        """A query with what each part of the model writes."""

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]: ...


@runtime_checkable
class SupportsStream(Protocol):
    """A source that reads its head off any layer."""

    def read_stream(
        self, query: Query, choose: Choose, *, attention_only: bool = False
    ) -> ResidualStream | None:
        """The stream at the positions that `choose` takes of those that predict tokens.

        With `attention_only` it is the sum of the embeddings and of what attention adds. None: the
        model predicts no token at each position.

        Raises:
            AttentionError: attention adds to no stream, or cannot be told apart.
        """


@runtime_checkable
class SupportsHeadArithmetic(Protocol):
    """A source that gives the intermediate matrices of each head."""

    def head_arithmetic(self, query: Query, which: HeadPlace) -> HeadArithmetic:
        """The matrices of one head, from its layer's input to what it adds to the stream."""


def attend_query(source: Source, query: Query) -> Attention:
    """The maps of one query."""
    (answer,) = source.attend([query])
    if isinstance(answer, InputError):
        raise type(answer)(str(answer)) from answer
    return answer


def answer(read: Callable[[Query], Answer], query: Query) -> Answer | InputError:
    """What is read of a query, or what is wrong with it in its place."""
    try:
        return read(query)
    except InputError as error:
        return error


def check_kind(query: Query, *kinds: Kind) -> None:
    """Refuse a kind of query that a source does not answer."""
    if query.kind not in kinds:
        raise UsageError(REFUSALS[query.kind])


def check_device(device: str) -> str:
    """The device's name where this machine has it; "auto" stays on the processor."""
    choose(device, ("auto", "cpu", "cuda", "mps"), "device")
    if device in ("auto", "cpu"):
        return "cpu"
    import torch

    if not (torch.cuda.is_available() if device == "cuda" else torch.mps.is_available()):
        raise UsageError(f"device '{device}' is not available on this machine: use cpu")
    return device


class Predicting(ABC):
    """Gradients for a source that can open experiments."""

    __slots__ = ()

    @abstractmethod
    def experiment(self, query: Query, target: str | None = None) -> Any:
        """A query to run with parts off; it explains the wanted output, or the usual one."""

    def gradients(self, query: Query, target: str | None = None) -> AttentionGradients:
        gradients_of_target: AttentionGradients = self.experiment(query, target).explain_first()
        return gradients_of_target


class UnbatchedSource(ABC):
    """A source that answers queries one by one."""

    __slots__ = ()

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        for query in queries:
            yield answer(self._attend_one, query)

    @abstractmethod
    def _attend_one(self, query: Query) -> Attention: ...


def query_texts(query: Query) -> tuple[str | None, str | None, str | None]:
    """A query's text, source and target, as `Attention` has them; empty texts are none."""
    if query.kind == "self":
        return query.text or None, None, None
    return None, query.text or None, query.target or None
