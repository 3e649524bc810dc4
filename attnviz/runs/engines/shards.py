"""The interface of engines, the order of outcomes, and the answers of workers."""

import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from attnviz.core.errors import AttnvizError, WorkerError
from attnviz.core.locks import SharedSetting
from attnviz.core.notices import notices_to, notify
from attnviz.core.records import dataclass

Ticket = TypeVar("Ticket")
Shard = TypeVar("Shard")
Outcome = TypeVar("Outcome")
TRIES = 3  # tries of a shard whose workers die
AHEAD = 2  # shards in flight for each worker: one in work, one waiting


def shard_name(number: int, shard: object) -> str:
    """A shard by its number."""
    return f"shard {number}"


class Engine(Protocol):
    """Does the same work on many shards, one after another or several at once."""

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = shard_name,
    ) -> Iterator[Outcome | WorkerError]:
        """The outcome of each shard, in order; a WorkerError for a shard that kills workers.

        Few shards and outcomes are in memory at once. Notices of the work arrive with its outcome.
        An iterator from another process arrives as a list. A worker process keeps one copy of the
        work, with all that its first shard loaded; the work must pickle before that. Errors of the
        work or of the iterable are raised after the outcomes of all earlier shards.
        """
        # In this process, each when its outcome is asked for.
        with ONE_THREAD:
            yield from map(work, shards)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers at once."""
        return


def in_order(
    submit: Callable[[int, Shard], Ticket],
    collect: Callable[[Ticket], Outcome],
    shards: Iterable[Shard],
    ahead: int,
) -> Iterator[Outcome]:
    """The outcomes in the shards' order."""
    pairs = enumerate(shards)
    waiting: deque[Ticket] = deque()
    failure: Exception | None = None
    more = True
    while more or waiting:
        while more and len(waiting) < ahead:
            try:
                waiting.append(submit(*next(pairs)))
            except StopIteration:
                more = False
            except Exception as error:
                failure, more = error, False
        if waiting:
            yield collect(waiting.popleft())
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class Answer(Generic[Outcome]):
    """The outcome of a shard in another process."""

    notices: tuple[str, ...]
    outcome: Outcome | None = None
    error: Exception | None = None

    def unpack(self) -> Outcome:
        """Send the notices on, then return the result or raise its error."""
        for text in self.notices:
            notify(text)
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # None only beside an error


def answer(work: Callable[[Shard], Outcome], shard: Shard) -> Answer[Outcome]:
    """Do the work in a worker; an error becomes a part of the answer."""
    notices: list[str] = []
    try:
        with notices_to(notices.append):
            outcome = work(shard)
            if isinstance(outcome, Iterator):
                outcome = list(outcome)  # type: ignore[assignment]  # an iterator does not pickle
    except Exception as error:
        return Answer(tuple(notices), error=to_portable(error))
    return Answer(tuple(notices), outcome)


def to_portable(error: Exception) -> Exception:
    """An error that pickles; an unexpected one carries its traceback as a note."""
    if not isinstance(error, AttnvizError):
        error.add_note(f"In a worker:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        # An error whose constructor needs more than its message does not unpickle.
        stand_in = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            stand_in.add_note(note)
        return stand_in
    return error


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_openblas() -> Any:
    """Give OpenBLAS, numpy's linear algebra, one thread until what is returned is left.

    On some processors its sums depend on the number of threads, and so on that of workers. What
    numpy runs is small: more threads gain little, and spin where another program has a core.
    """
    import numpy as np  # noqa: F401 - a library is limited once it is loaded
    from threadpoolctl import ThreadpoolController

    every = ThreadpoolController().select(internal_api="openblas")
    paths = (one["filepath"] for one in every.info())  # on ARM torch has one of its own
    return every.select(filepath=[one for one in paths if "/torch/" not in one]).limit(limits=1)


ONE_THREAD = SharedSetting(limit_openblas)


def fix_sums() -> None:
    """Make sums equal to the last bit on any number of threads, with Intel's MKL.

    torch uses MKL on most machines. MKL splits a sum by its threads, on processors that are not
    Intel's whatever this says, so one process with all cores would differ from two with half of
    them. It reads the setting at its first sum; processes that start later inherit it.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
