"""The work of `attnviz corpus` on one shard of texts, wherever it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.errors import AttnvizError, InputError
from attnviz.many_texts import AttendWindow, Record
from attnviz.texts import windows

Numbered = tuple[int, Record]
Shard = Sequence[Sequence[Numbered]]
"""Windows of records, each record with its number in the corpus."""
SHARED = 4
"""How many windows make a shard where several share the work."""


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
        for window in shard:
            results = self.attend.results([record for _, record in window])
            for (number, record), result in zip(window, results, strict=True):
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


def shards(records: Iterable[Record], windows_each: int = 1, done: int = 0) -> Iterator[Shard]:
    """Consecutive windows of records, so many together, the records numbered from 0.

    Args:
        records: of the whole corpus.
        windows_each: how many make a shard; the last one may have fewer.
        done: how many records to leave out, all those of whole windows.
    """
    numbered = (window for window in _numbered(windows(records)) if window[0][0] >= done)
    while shard := list(islice(numbered, windows_each)):
        yield shard


def _numbered(found: Iterable[Sequence[Record]]) -> Iterator[list[Numbered]]:
    number = 0
    for window in found:
        yield list(enumerate(window, number))
        number += len(window)


def size(shard: Shard) -> int:
    """How many records a shard has, good and bad."""
    return sum(map(len, shard))


def named(number: int, shard: Shard) -> str:
    """A shard by its first and last record, for messages."""
    (_, first), (_, last) = shard[0][0], shard[-1][-1]
    return f"{first.where} to {last.where}"
