"""The texts of a corpus, read twice: once to count its words, once for the model."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from attnviz.analyses.corpus.accumulators import Aggregates
from attnviz.analyses.corpus.words import Vocabulary, WordCounts, vocabulary_of
from attnviz.cli.journal import Journal
from attnviz.cli.rejects import Failures, rejected
from attnviz.cli.resumable import beside
from attnviz.core.errors import AttnvizError, InputError, OutputError
from attnviz.runs.engines.shards import Engine
from attnviz.runs.many_texts import AttendChunk, Record
from attnviz.storage.archive import DAMAGE
from attnviz.storage.documents import dump_json, parse_json
from attnviz.storage.texts import BadText, Text, chunks

Texts = Iterator[Text | BadText]


def read_twice(open_texts: Callable[[], Texts], file: str) -> tuple[Vocabulary, Texts, int]:
    """The frequent words of a corpus, its texts, and how many of them, good and bad, there are.

    What can be read only once, such as stdin, is kept in a temporary file meanwhile.

    Args:
        open_texts: begins to read them.
        file: where from.

    Raises:
        AttnvizError: what reading raises.
    """
    counts, number = WordCounts(), 0
    once = file == "-" or not Path(file).is_file()
    kept = _place() if once else None
    for text in open_texts():
        number += 1
        if isinstance(text, Text):
            counts.add(text.text)
            counts.add(text.target or "")
        if kept is not None:
            _keep(text, kept)
    texts = open_texts() if kept is None else _kept(kept)
    return counts.vocabulary(), texts, number


def _place() -> BinaryIO:
    return cast(BinaryIO, tempfile.TemporaryFile())


def _keep(text: Text | BadText, file: BinaryIO) -> None:
    try:
        pickle.dump(text, file)
    except OSError as error:
        raise OutputError(
            f"cannot keep the texts in '{tempfile.gettempdir()}': {error.strerror}; give them as "
            "a file, or word counts by --frequencies"
        ) from error


def _kept(file: BinaryIO) -> Texts:
    """The texts in a temporary file that this process wrote."""
    with file:
        file.seek(0)
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def read_frequencies(path: Path) -> Vocabulary:
    """The frequent words by a file of words and counts, a line each, with a tab between.

    Raises:
        InputError: it cannot be read, or a line is something else.
    """
    counts: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                word, _, count = line.rstrip("\n").rpartition("\t")
                if not word or not count.strip().isdecimal():
                    raise InputError(
                        f"line {number} of '{path}' is no word, tab and count: '{line.strip()}'"
                    )
                counts[word.lower()] = counts.get(word.lower(), 0) + int(count)
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not valid UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return vocabulary_of(counts.items())


# <corpus_study> The work of `attnviz corpus` on one shard of texts, wherever it is done.

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
class ShardTask:
    """Work on one shard at a time: it can be pickled, and opens the model where it runs.

    Attributes:
        attend: how a window's texts are read.
        vocabulary: the frequent words of the corpus.
        replicates: of the bootstrap.
        seed: of the bootstrap.
    """

    attend: AttendChunk
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
    for window in chunks(records):
        if number >= done:
            yield list(enumerate(window, number))
        number += len(window)


def named(number: int, shard: Shard) -> str:
    """A shard by its first and last record, for messages."""
    (_, first), (_, last) = shard[0], shard[-1]
    return f"{first.where} to {last.where}"


# <corpus_checkpoint> How far an unfinished run of `attnviz corpus` has come: '.NAME.unfinished'
# beside its file NAME.
#
# One archive holds everything, the aggregates of the records that are done included, and is
# replaced as a whole; after a crash it tells of a place between two windows of records.

SECONDS = 2.0
"""Between two checkpoints at least: as much work may be done twice."""
_MEMBER = "checkpoint"


@dataclass
class CorpusProgress:
    """What is known behind a window of records, beside the aggregates.

    Attributes:
        records: how many are done.
        failed: how many of them came to nothing.
        rejects: their lines for the file of rejects.
        notes: said of texts, and of how many.
    """

    records: int = 0
    failed: int = 0
    rejects: str = ""
    notes: dict[str, int] = field(default_factory=dict)


class Checkpoint:
    """The place where a run can be gone on with."""

    def __init__(self, path: Path, question: Mapping[str, str]) -> None:
        """Name the place.

        Args:
            path: the file that the run will write in the end.
            question: everything that decides what it will hold.
        """
        self.path, self.place = path, beside(path, "unfinished")
        self.question, self.saved = question, time.monotonic()

    def restore(self, aggregates: Aggregates) -> CorpusProgress | None:
        """Add what an earlier run has left to the aggregates; None where it has left nothing.

        Raises:
            UsageError: the earlier run was asked something else.
            InputError: what it left is damaged.
        """
        if not self.place.is_file():
            return None
        try:
            with np.load(self.place, allow_pickle=False) as archive:
                arrays = dict(archive)
            document = parse_json(str(arrays.pop(_MEMBER)), f"'{self.place}'")
            Journal(document["question"]).check(self.question, self.path)
            aggregates.merge_arrays(arrays)
            return CorpusProgress(**document["reached"])
        except DAMAGE as error:
            raise InputError(f"'{self.place}' is damaged: remove it to begin again") from error

    def save(self, aggregates: Aggregates, reached: CorpusProgress) -> None:
        """Put the run's state on the disk, unless that was just done.

        Raises:
            OutputError: the disk is full or gone; the earlier state is still there.
        """
        if time.monotonic() - self.saved < SECONDS:
            return
        document = {"question": {**self.question}, "reached": asdict(reached)}
        arrays: dict[str, Any] = aggregates.to_arrays()
        new = self.place.with_name(f"{self.place.name}.new")
        try:
            with new.open("wb") as file:
                np.savez(file, **{_MEMBER: np.array(dump_json(document)), **arrays})
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.place)
        except OSError as error:
            raise OutputError(f"cannot write '{self.place}': {error.strerror}") from error
        finally:
            new.unlink(missing_ok=True)
        self.saved = time.monotonic()

    def discard(self) -> None:
        """Remove it: the run is through."""
        self.place.unlink(missing_ok=True)


# <corpus_adding> Shards of a corpus worked on by an engine and added up, from where an earlier
# run stopped.


@dataclass
class Accumulator:
    """A corpus that is being added up.

    Attributes:
        study: the work on a shard.
        failed: takes what comes to nothing.
        checkpoint: where the state is kept meanwhile; None: nowhere.
        aggregates: of all that is done.
        reached: what else is known of it.
    """

    study: ShardTask
    failed: Failures
    checkpoint: Checkpoint | None
    aggregates: Aggregates = field(init=False)
    reached: CorpusProgress = field(default_factory=CorpusProgress)

    def __post_init__(self) -> None:
        self.aggregates = self.study.empty()

    def go_on(self) -> bool:
        """Begin where an earlier run stopped; False where there is none to go on with.

        Raises:
            AttnvizError: it was asked something else, or what it left is damaged.
        """
        found = self.checkpoint.restore(self.aggregates) if self.checkpoint else None
        if found is None:
            return False
        self.reached = found
        self.failed.count += found.failed
        if self.failed.write is not None:
            self.failed.write(found.rejects.encode())
        return True

    def add_all(
        self, texts: Iterable[Record], engine: Engine, advance: Callable[[int], None]
    ) -> None:
        """Add every text that is not done yet.

        Args:
            texts: of the whole corpus, in order.
            engine: who does the work.
            advance: is told how many more records are done.

        Raises:
            AttnvizError: what would fail for every text, or the first failure where that is to be
                the end.
        """
        sent: deque[Shard] = deque()
        waiting = _sending(shards(texts, self.reached.records), sent)
        for outcome in engine.map(self.study, waiting, named):
            shard = sent.popleft()
            if isinstance(outcome, AttnvizError):
                self.aggregates.failed += len(shard)
                self._fail((record, outcome) for _, record in shard)
            else:
                self._add(outcome)
            self.reached.records += len(shard)
            if self.checkpoint is not None:
                self.checkpoint.save(self.aggregates, self.reached)
            advance(len(shard))

    def _add(self, outcome: Outcome) -> None:
        self._fail(outcome.failures)
        self.aggregates.merge(outcome.aggregates)
        notes = self.reached.notes
        kinds = {_kind(text): text for text in notes}
        for text, count in outcome.notes.items():
            # Of notes that differ in their numbers the first stands for all.
            first = kinds.setdefault(_kind(text), text)
            notes[first] = notes.get(first, 0) + count

    def _fail(self, failures: Iterable[tuple[Record, AttnvizError]]) -> None:
        for record, error in failures:
            self.failed.add(record, error)
            self.reached.failed += 1
            if self.failed.write is not None:
                self.reached.rejects += rejected(record, error).decode()

    def notes(self) -> Iterator[str]:
        """What a reader must know of the texts, and of how many of them."""
        for text, count in self.reached.notes.items():
            yield text if count == 1 else f"{text} ({count:,} such texts)"


def _sending(found: Iterable[Shard], sent: deque[Shard]) -> Iterator[Shard]:
    for shard in found:
        sent.append(shard)
        yield shard


def _kind(note: str) -> str:
    return re.sub(r"\d[\d.,]*|'.*'", "", note)
