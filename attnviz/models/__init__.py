"""A request becomes a source of attention, and a source answers queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from attnviz.core.errors import InputError, UsageError, choose, in_words
from attnviz.core.registry import FeatureEntry

if TYPE_CHECKING:
    # Listing the cached models must not wait for numpy.
    from attnviz.core.attention_map import Attention, Provenance, Token
    from attnviz.core.effects import Experiment, HeadAt, HeadOutputs
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.core.query import Kind, Query
    from attnviz.core.writers import HeadWeights, ResidualStream, WrittenText
    from attnviz.mechanisms.formula import HeadArithmetic

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


REASONS = {
    "experiment": "nothing here predicts anything whose change could be measured",
    "trace_writers": (
        "what the parts of a model write is known of models only: give a text, and --model"
    ),
    "head_weights": "--weights-only needs a model: leave out what is none",
    "head_arithmetic": "--model has no numbers of single heads here",
    "render": "--chat needs a model that continues a text by a chat template",
}
"""Why a source refuses a question that it has no answer to; to any other it answers None."""


class Source:
    """What answers queries with attention maps, and refuses what it cannot do."""

    __slots__ = ()
    answers: ClassVar[Mapping[str, str]] = {}  # its row of `ANSWERS`

    @property
    def most_frames(self) -> int:
        """How many frames of a film it reads, no more and no fewer; 0: it reads no film alone."""
        return 0

    def lacks(self, name: str) -> bool:
        """Whether it has no answer of its own to a question, a method by name."""
        return name not in self.answers and getattr(type(self), name) is getattr(Source, name)

    def _ask(self, name: str, *arguments: Any, **how: Any) -> Any:
        """What the code of a feature answers; a UsageError or None where there is none."""
        if name in self.answers:
            return FeatureEntry("", self.answers[name]).load()(self, *arguments, **how)
        if name in REASONS:
            raise UsageError(REASONS[name])
        return None

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
        for query in queries:
            yield answer(self._attend_one, query)

    def _attend_one(self, query: Query) -> Attention | InputError:
        """The maps of one query, of a source that reads one at a time."""
        raise NotImplementedError

    def experiment(self, query: Query, target: str | None = None) -> Experiment:
        """The model with a query; it explains the wanted output, or "all"."""
        experiment: Experiment = self._ask("experiment", query, target)
        return experiment

    def gradients(self, query: Query, target: str | None = None) -> AttentionGradients:
        gradients: AttentionGradients = self.experiment(query, target).explain_first()
        return gradients

    def head_outputs(self, queries: Sequence[Query], like: Experiment) -> list[HeadOutputs]:
        """What each head puts out in each of some texts; `like` is an experiment of their kind."""
        if "head_outputs" not in self.answers:
            return [self.experiment(query).head_outputs() for query in queries]
        outputs: list[HeadOutputs] = self._ask("head_outputs", queries, like)
        return outputs

    def values(self, query: Query) -> ValueVectors:
        raise refuse_values(["rollout", "flow"] if query.kind in ("self", "pair") else ["raw"])

    def many_gradients(
        self, queries: Sequence[Query], target: str | None, batch_size: int | None
    ) -> Iterator[AttentionGradients | InputError] | None:
        """The gradients of each query in order, or its error; None: one by one is as fast."""
        gradients: Iterator[AttentionGradients | InputError] | None
        gradients = self._ask("many_gradients", queries, target, batch_size)
        return gradients

    def many_values(
        self, queries: Sequence[Query], batch_size: int | None
    ) -> Iterator[ValueVectors | InputError] | None:
        values: Iterator[ValueVectors | InputError] | None
        values = self._ask("many_values", queries, batch_size)
        return values

    def trace_writers(self, query: Query) -> WrittenText:
        """A query with what each part of the model writes into the residual stream."""
        text: WrittenText = self._ask("trace_writers", query)
        return text

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        weights: tuple[list[HeadWeights], Provenance] = self._ask("head_weights")
        return weights

    def read_stream(
        self, query: Query, choose: Choose, *, attention_only: bool = False
    ) -> ResidualStream | None:
        """The stream at the positions that `choose` takes of those that predict tokens.

        With `attention_only` it is the sum of the embeddings and of what attention adds. None: the
        model predicts no token at each position.

        Raises:
            AttentionError: attention adds to no stream, or cannot be told apart.
        """
        stream: ResidualStream | None
        stream = self._ask("read_stream", query, choose, attention_only=attention_only)
        return stream

    def head_arithmetic(self, query: Query, which: HeadAt) -> HeadArithmetic:
        """The matrices of one head, from its layer's input to what it adds to the stream."""
        steps: HeadArithmetic = self._ask("head_arithmetic", query, which)
        return steps

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> str:
        """A conversation up to where the model answers, and the tools that it may call."""
        text: str = self._ask("render", messages, tools)
        return text


def refuse_values(others: list[str]) -> UsageError:
    """The error for a lens that needs value vectors where they are not known."""
    return UsageError(
        "--lens norm needs the vectors that the weights add up, and here are only weights: use "
        f"--lens {in_words(others)}"
    )


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


def query_texts(query: Query) -> tuple[str | None, str | None, str | None]:
    """A query's text, source and target, as `Attention` has them; empty texts are none."""
    if query.kind == "self":
        return query.text or None, None, None
    return None, query.text or None, query.target or None
