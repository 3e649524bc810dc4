"""Many texts in chunks, by whichever engine does the work: results in the order of the input.

What is computed for a record depends on its chunk alone, and chunks on the input alone. So every
engine gives the same results to the last bit, and a resumed run gives what it would have given
uninterrupted.
"""

import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from platform import node
from threading import RLock
from typing import ClassVar, TypeVar

from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Choice, InMemoryModel, Many, Origin
from attnviz.core.records import dataclass, field
from attnviz.core.registry import Command, SourceKind, needs_head
from attnviz.models import Source, WithHead
from attnviz.models.fingerprints import FileFingerprint
from attnviz.models.open import open_source, states_of
from attnviz.runs.engines import open_engine
from attnviz.runs.engines.shards import Engine
from attnviz.runs.pipeline import NameOfBlocks, Result, attend_chunk, name_as_chosen
from attnviz.storage.texts import CHUNK_SIZE, BadText, Text

MOST_OPEN = 2  # models that stay loaded for further texts

Record = Text | BadText
Outcome = Result | AttnvizError
Chunk = Sequence[Record]
Shard = TypeVar("Shard")
Value = TypeVar("Value")


States = Mapping[str, FileFingerprint]  # files of an origin, by option
_OPEN: dict[Hashable, tuple[States, Source]] = {}
_OPENING = RLock()


def source_for(
    origin: Origin, kind: SourceKind, *, with_head: WithHead = False, states: States | None = None
) -> Source:
    """A source. It stays open for the next texts until its files change, with `MOST_OPEN` at most.

    If `states` are given, files in another state are an error: the run began with other ones.
    """
    if isinstance(origin.model, InMemoryModel):  # its owner may change it, or let it go
        return open_source(origin, kind, with_head=with_head)
    key, state = (origin, kind, with_head), states_of(origin) if states is None else states
    with _OPENING:
        state_before, source = _OPEN.pop(key, (None, None))
        if source is None or state_before != state:
            source = None  # frees its memory before the next one loads
            while len(_OPEN) >= MOST_OPEN:
                del _OPEN[next(iter(_OPEN))]
            source = open_source(origin, kind, with_head=with_head)
            if not gc.isenabled():
                gc.freeze()  # else the next collection walks through all that start-up made
                gc.enable()
            if states_of(origin) != state:
                name = origin.model or origin.adapter or origin.weights or origin.qk
                raise InputError(f"'{name}' changed after the run began: start it again")
        _OPEN[key] = state, source
        return source


def close_sources() -> None:
    with _OPENING:
        _OPEN.clear()


@dataclass(frozen=True, slots=True)
class SourceWork:
    """Work that pickles, and opens its source in the process where it runs, once for all texts."""

    origin: Origin
    states: States = field(init=False)
    machine: str = field(init=False, default_factory=node)

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", states_of(self.origin))

    def source_for(self, command: Command, *, with_head: WithHead = False) -> Source:
        """The source, loaded once in a process; other machines have files of their own."""
        states = self.states if node() == self.machine else None
        return source_for(self.origin, command, with_head=with_head, states=states)


@dataclass(frozen=True, slots=True)
class AttendChunk(SourceWork):
    """The attention of a chunk."""

    choice: Choice
    command: Command
    batch_size: int | None = None
    measures: bool = False  # whether heads are measured, which a text of any length allows
    size: ClassVar[int] = CHUNK_SIZE  # records in a chunk
    name: ClassVar[NameOfBlocks] = staticmethod(name_as_chosen)

    def open(self) -> Source:
        """The source, loaded with the output head if the lens needs it."""
        return self.source_for(
            self.command, with_head=needs_head(self.choice.lens) or self.origin.keep_qk
        )

    def __call__(self, chunk: Chunk) -> Iterator[Outcome]:
        """The result of each record, or why it has none, made when it is asked for."""
        if all(isinstance(record, BadText) for record in chunk):  # no model is opened for these
            return iter([record.error for record in chunk if isinstance(record, BadText)])
        return attend_chunk(
            *(self.open(), chunk, self.choice, self.command, self.batch_size),
            measures=type(self).name if self.measures else None,
        )


def engine_for(many: Many) -> AbstractContextManager[Engine]:
    """The engine that shares the work on many texts."""
    return open_engine(many.engine, many.workers)


def attend_all(
    work: Callable[[Chunk], Iterable[Outcome]],
    chunks: Iterable[Chunk],
    engine: Engine,
    start: int = 0,
) -> Iterator[tuple[Record, Outcome]]:
    """Each record with its result, in order, without the first `done` records."""
    rest = iter(chunks)
    for chunk in rest:
        if start < len(chunk):
            # The whole chunk runs again: its numbers depend on every text in it.
            outcomes = with_records(with_shards(work, chain([chunk], rest), engine, chunk_name))
            yield from islice(outcomes, start, None)
            return
        start -= len(chunk)
    if start:
        raise InputError(
            f"the unfinished run has {start} records more than its input: leave --resume out"
        )


def with_records(
    outcomes: Iterable[tuple[Chunk, Iterable[Value] | AttnvizError]],
) -> Iterator[tuple[Record, Value | AttnvizError]]:
    """Each record of some chunks with its result; a failed chunk fails each of its records."""
    for chunk, results in outcomes:
        if isinstance(results, AttnvizError):
            yield from ((record, results) for record in chunk)
        else:
            yield from zip(chunk, results, strict=True)


def with_shards(
    work: Callable[[Shard], Value],
    shards: Iterable[Shard],
    engine: Engine,
    name: Callable[[int, Shard], str],
) -> Iterator[tuple[Shard, Value | AttnvizError]]:
    """Each shard with its result from an engine, or the error."""
    in_work = deque[Shard]()  # itertools.tee would keep the last 57 to 114

    def count_in(shard: Shard) -> Shard:
        in_work.append(shard)
        return shard

    for result in engine.map(work, map(count_in, shards), name):
        yield in_work.popleft(), result
    if in_work:
        raise ValueError(f"{len(in_work)} shards have no result")


def chunk_name(number: int, chunk: Chunk) -> str:
    """A chunk by its first and last record, for messages."""
    first, last = chunk[0], chunk[-1]
    return f"{first.where or 'the first text'} to {last.where or 'the last'}"
