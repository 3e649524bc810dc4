"""Many texts in windows, by whoever does the work: results in the order of the input.

What is computed for a record depends on its window alone, and windows on the input alone. So every
engine gives the same results to the last bit, and a run that is gone on with gives what it would
have given uninterrupted.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from attnviz.core.errors import AttnvizError
from attnviz.core.notices import notify
from attnviz.core.options import Choice, Origin
from attnviz.core.registry import Command
from attnviz.models import Source
from attnviz.models.lens import needs_head
from attnviz.models.open import open_source
from attnviz.runs.engines.here import Here
from attnviz.runs.engines.shards import Engine
from attnviz.runs.pipeline import Result, attend_chunk
from attnviz.runs.word_alignment import Aligned, Aligner
from attnviz.storage.texts import BadText, Text

Record = Text | BadText
Outcome = Result | AttnvizError
Chunk = Sequence[Record]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class AttendChunk:
    """Work on one window, anywhere: it can be pickled, and opens the source where it runs.

    Attributes:
        origin: where attention comes from.
        choice: which part of it.
        command: what is asked.
        batch_size: texts that a model reads at once at most; None: as many as fit.
    """

    origin: Origin
    choice: Choice
    command: Command
    batch_size: int | None = None

    def open(self) -> Source:
        """The source, loaded once in a process.

        Raises:
            AttnvizError: it cannot be had.
        """
        return opened(self.origin, self.command, needs_head(self.choice.lens))

    def results(self, window: Chunk) -> Iterator[Outcome]:
        """What becomes of each record, as it is asked for.

        Raises:
            AttnvizError: what would fail for every text.
        """
        return attend_chunk(self.open(), window, self.choice, self.command, self.batch_size)

    def __call__(self, window: Chunk) -> list[Outcome]:
        """What becomes of each record, all at once, as it is sent from one process to another.

        Raises:
            AttnvizError: what would fail for every text.
        """
        return list(self.results(window))


@lru_cache(maxsize=2)
def opened(origin: Origin, command: Command, with_head: bool = False) -> Source:
    """A source that stays open for as long as the process works on its texts.

    Raises:
        AttnvizError: it cannot be had.
    """
    source = open_source(origin, command, with_head=with_head)
    gc.enable()
    return source


def attend_all(
    work: AttendChunk, windows: Iterable[Chunk], engine: Engine, done: int = 0
) -> Iterator[tuple[Record, Outcome]]:
    """Each record with what became of it, in order.

    Args:
        work: what is done with a window.
        windows: of all records, from the first one on.
        engine: who does it.
        done: how many records to leave out. The window in which they end is worked on as a whole,
            because its numbers depend on all of it.

    Raises:
        AttnvizError: what would fail for every text.
    """
    number = 0

    def left() -> Iterator[Chunk]:
        """The windows that are not all done; engines ask for some before any has been worked on."""
        nonlocal number
        end = 0
        for window in windows:
            end += len(window)
            if end > done:
                yield window
            else:
                number = end

    for record, outcome in _worked(work, left(), engine):
        if number >= done:
            yield record, outcome
        number += 1


def _worked(
    work: AttendChunk, windows: Iterable[Chunk], engine: Engine
) -> Iterator[tuple[Record, Outcome]]:
    if isinstance(engine, Here):
        # Here nothing is sent, and a long text's maps need not wait for its company's.
        for window in windows:
            yield from zip(window, work.results(window), strict=True)
        return
    yield from each(side_by_side(work, windows, engine))


def each(
    found: Iterable[tuple[Chunk, Sequence[Made] | AttnvizError]],
) -> Iterator[tuple[Record, Made | AttnvizError]]:
    """Each record of some windows with what became of it."""
    for window, made in found:
        if isinstance(made, AttnvizError):
            yield from ((record, made) for record in window)
        else:
            yield from zip(window, made, strict=True)


def side_by_side(
    work: Callable[[Chunk], Made], windows: Iterable[Chunk], engine: Engine
) -> Iterator[tuple[Chunk, Made | AttnvizError]]:
    """Each window beside what an engine made of it, or why it made nothing."""
    sent: deque[Chunk] = deque()

    def sending() -> Iterator[Chunk]:
        for window in windows:
            sent.append(window)
            yield window

    for found in engine.map(work, sending(), named):
        yield sent.popleft(), found


def named(number: int, window: Chunk) -> str:
    """A window by its first and last record, for messages."""
    first, last = window[0], window[-1]
    return f"{first.where or 'the first text'} to {last.where or 'the last'}"


# <many_pairs> Many pairs whose words are to be aligned, window by window like any other texts.

OTHER = {"en": "fr", "fr": "en"}
"""The language that a translation into one comes from."""


@dataclass(frozen=True, slots=True)
class AlignChunk:
    """Work on one window of pairs whose words are to be aligned, likewise.

    Attributes:
        origin: where attention comes from.
        layer: layers to read; None: the one in focus, else all.
        head: heads to read, likewise.
        how: how two directions are joined; None: as the model is made for.
        against: what a decoder's row stands for: "input" or "output".
        batch_size: pairs that a model reads at once at most; None: as many as fit.
    """

    origin: Origin
    layer: str | None = None
    head: str | None = None
    how: str | None = None
    against: str = "input"
    batch_size: int | None = None

    def __call__(self, window: Chunk) -> list[Aligned | AttnvizError]:
        """What becomes of each record.

        Raises:
            AttnvizError: what would fail for every pair.
        """
        source = opened(self.origin, "cross")
        other = OTHER.get(self.origin.to or "")
        backward = opened(replace(self.origin, to=other), "cross") if other else source
        aligner = Aligner(source, backward, self.how, self.against, self.layer, self.head)
        pairs = [record for record in window if isinstance(record, Text)]
        aligned = aligner.align(pairs, self.batch_size)
        found = [_placed(r, r.error if isinstance(r, BadText) else next(aligned)) for r in window]
        for text in aligner.notes:
            notify(text)
        return found


def _placed(record: Record, found: Aligned | AttnvizError) -> Aligned | AttnvizError:
    """What became of a record; an error says whose it is."""
    if isinstance(found, Aligned) or isinstance(record, BadText) or not record.where:
        return found
    return type(found)(f"{record.where}: {found}")
