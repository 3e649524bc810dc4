"""What engines share: their interface, the order of outcomes, and what comes back from a worker."""

from __future__ import annotations

import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from attnviz.core.errors import AttnvizError, WorkerError
from attnviz.core.notices import notices_to, notify

Ticket = TypeVar("Ticket")
Shard = TypeVar("Shard")
Outcome = TypeVar("Outcome")
TRIES = 3
"""How often a shard is tried whose worker dies."""
AHEAD = 2
"""Shards in flight for each worker: one it works on, and one done or next, so that neither side
waits for the other."""


def numbered(number: int, shard: object) -> str:
    """A shard by its number."""
    return f"shard {number}"


class Engine(Protocol):
    """Something that does the same work on one shard after another, or on several at once."""

    def map(
        self,
        work: Callable[[Shard], Outcome],
        shards: Iterable[Shard],
        name: Callable[[int, Shard], str] = numbered,
    ) -> Iterator[Outcome | WorkerError]:
        """What the work makes of each shard, in order; a WorkerError for one that kills workers.

        Shards are read as they are needed and few outcomes wait, so that memory stays flat. What
        the work notifies of comes out here with its outcome. From another process, an iterator
        comes as a list. A worker process holds one copy of the work from first to last, with what
        it loaded for its first shard; the work must pickle before. What the work or the iterable
        raises comes after the outcomes of all shards before.
        """
        return map(work, shards)  # in this process, each when its outcome is asked for

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers, whatever they do."""
        return


def in_order(
    submit: Callable[[int, Shard], Ticket],
    collect: Callable[[Ticket], Outcome],
    shards: Iterable[Shard],
    ahead: int,
) -> Iterator[Outcome]:
    """The outcomes in the shards' order."""
    numbered = enumerate(shards)
    waiting: deque[Ticket] = deque()
    failure: Exception | None = None
    more = True
    while more or waiting:
        while more and len(waiting) < ahead:
            try:
                waiting.append(submit(*next(numbered)))
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
    """What the work made of a shard in another process."""

    notices: tuple[str, ...]
    outcome: Outcome | None = None
    error: Exception | None = None

    def unpack(self) -> Outcome:
        """The outcome, after its notices have been passed on here."""
        for text in self.notices:
            notify(text)
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # None only beside an error


def answer(work: Callable[[Shard], Outcome], shard: Shard) -> Answer[Outcome]:
    """Do the work in a worker; whatever goes wrong in it becomes a part of the answer."""
    notices: list[str] = []
    try:
        with notices_to(notices.append):
            outcome = work(shard)
            if isinstance(outcome, Iterator):
                outcome = list(outcome)  # type: ignore[assignment]  # an iterator does not pickle
    except Exception as error:
        return Answer(tuple(notices), error=portable(error))
    return Answer(tuple(notices), outcome)


def portable(error: Exception) -> Exception:
    """An error that pickles; an unexpected one with its traceback as a note."""
    if not isinstance(error, AttnvizError):
        error.add_note(f"In a worker:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        # Some errors cannot be made again from their message alone.
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


def fix_sums() -> None:
    """Make sums the same to the last bit on any number of threads, where the library can.

    Intel's MKL, on which torch stands on most machines, else splits a sum by its threads, and one
    process with all cores would differ from two with half of them. It reads this at its first sum;
    processes that are started later inherit it.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
