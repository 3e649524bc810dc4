"""The work of `attnviz corpus` on one shard of texts, wherever it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.errors import AttnvizError, InputError
from attnviz.many_texts import AttendWindow, Record
from attnviz.texts import windows

Numbered = tuple[int, Record]
Shard = Sequence[Numbered]
"""A window of records, each with its number in the corpus."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a shard gave.

    Attributes:
        aggregates: of its texts.
        failures: the records that came to nothing, each with why, in order.
        notes: what a reader must know, and of how many texts.
    """

    aggregates: Aggregates
    failures: Sequence[tuple[Record, AttnvizError]]
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Study:
    """Work on one shard at a time: it can be pickled, and opens the model where it runs.

    Attributes:
        attend: how a window's texts are read.
        vocabulary: the frequent words of the corpus.
        replicates: of the bootstrap.
        seed: of the bootstrap.
    """

    attend: AttendWindow
    vocabulary: Vocabulary
    replicates: int
    seed: int

    def empty(self) -> Aggregates:
        """Aggregates of no text, to merge others into."""
        return Aggregates(self.vocabulary, self.replicates, self.seed)

    def __call__(self, shard: Shard) -> Outcome:
        """The aggregates of a shard's texts.

        Raises:
            AttnvizError: what would fail for every text.
        """
        aggregates = self.empty()
        failures: list[tuple[Record, AttnvizError]] = []
        notes: Counter[str] = Counter()
        results = self.attend.results([record for _, record in shard])
        for (number, record), result in zip(shard, results, strict=True):
            if isinstance(result, AttnvizError):
                failures.append((record, result))
                continue
            try:
                aggregates.add(result, number)
                notes.update(result.provenance.notes)
            except InputError as error:
                failures.append((record, InputError(f"{record.where}: {error}")))
        aggregates.failed = len(failures)
        return Outcome(aggregates, failures, notes)


def shards(records: Iterable[Record], done: int = 0) -> Iterator[Shard]:
    """Windows of records, which are numbered from 0.

    Args:
        records: of the whole corpus.
        done: how many records to leave out, all those of whole windows.
    """
    number = 0
    for window in windows(records):
        if number >= done:
            yield list(enumerate(window, number))
        number += len(window)


def named(number: int, shard: Shard) -> str:
    """A shard by its first and last record, for messages."""
    (_, first), (_, last) = shard[0], shard[-1]
    return f"{first.where} to {last.where}"
