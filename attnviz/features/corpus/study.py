"""What each head does over a whole corpus: chunks become aggregates, and these a report.

The journal beside the file that a run will write keeps the aggregates of the chunks that are done.
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from msgspec import DecodeError, Struct, json

from attnviz.analyses.masks import without_implied
from attnviz.core.errors import AttnvizError, InputError, OutputError, is_number
from attnviz.core.notices import join_notices, kind_of, notify
from attnviz.core.records import dataclass, field, replace
from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.report import report_of
from attnviz.features.corpus.results import CorpusReport
from attnviz.features.corpus.words import Vocabulary, WordCounts, vocabulary_of
from attnviz.runs.engines.shards import Engine
from attnviz.runs.inputs import TextInput
from attnviz.runs.journal import Count, Journal, Progress, RunJournal, damage_of
from attnviz.runs.many_texts import AttendChunk, Chunk, Record, chunk_name, with_shards
from attnviz.storage.archive import DAMAGE
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_text
from attnviz.storage.texts import CHUNK_SIZE, Text, chunks

SECONDS = 2.0  # between two journals at least
_MEMBER = "notes"
Shard = tuple[int, Chunk]  # a chunk of records and the number of its first in the corpus, from 0
OnFailure = Callable[[Record, AttnvizError], str]  # the line of --on-error for a failed record


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a shard: aggregates, failed records, and notes with counts of texts."""

    aggregates: Aggregates
    failures: Sequence[tuple[Record, AttnvizError]]
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShardTask:
    """The work on a shard; it can be pickled, and opens the model where it runs."""

    attend: AttendChunk
    vocabulary: Vocabulary
    samples: bool = False

    def empty(self) -> Aggregates:
        return Aggregates(self.vocabulary, samples=self.samples)

    def __call__(self, shard: Shard) -> ShardResult:
        """The aggregates of a shard's texts."""
        first, chunk = shard
        aggregates = self.empty()
        failures: list[tuple[Record, AttnvizError]] = []
        notes: Counter[str] = Counter()
        results = zip(chunk, self.attend(chunk), strict=True)
        for number, (record, result) in enumerate(results, first):
            if isinstance(result, AttnvizError):
                failures.append((record, result))
                continue
            shares = without_implied(result)
            try:
                aggregates.add(shares, number)
                notes.update(shares.provenance.notes)
                notes.update([MEASURED_ONLY] if shares.in_blocks else [])
            except InputError as error:
                failures.append((record, type(error)(f"{record.where}: {error}")))
        aggregates.failures = len(failures)
        return ShardResult(aggregates, failures, notes)


@dataclass
class CorpusState:
    """The state of a run after the records that are done."""

    aggregates: Aggregates
    records: int = 0
    failures: int = 0
    rejects: str = ""
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, chunk: Chunk, result: ShardResult | AttnvizError, on_failure: OnFailure) -> None:
        """Add the next shard's records."""
        if isinstance(result, AttnvizError):
            failures: Sequence[tuple[Record, AttnvizError]] = [(item, result) for item in chunk]
            self.aggregates.failures += len(chunk)
        else:
            failures = result.failures
            self.aggregates.merge(result.aggregates)
            # Notes that differ only in numbers become one, with ranges.
            for text, count in result.notes.items():
                same = next((one for one in self.notes if kind_of(one) == kind_of(text)), text)
                before = self.notes.pop(same, 0)
                self.notes[join_notices(same, text)] = before + count
        for record, error in failures:
            self.rejects += on_failure(record, error)
            self.failures += 1
        self.records += len(chunk)


class SavedNotes(Struct, frozen=True, forbid_unknown_fields=True):
    """What a journal's payload holds beside the arrays of aggregates."""

    rejects: str
    notes: dict[str, Count]


class CorpusJournal(RunJournal):
    """A journal whose payload is an .npz archive of the aggregates."""

    def __init__(self, path: Path, options: Mapping[str, str]) -> None:
        super().__init__(path, options, SECONDS)

    def restore(self, old: Journal, task: ShardTask) -> CorpusState:
        try:
            with np.load(io.BytesIO(old.payload), allow_pickle=False) as archive:
                arrays = dict(archive)
            payload = json.decode(str(arrays.pop(_MEMBER)), type=SavedNotes)
            aggregates = Aggregates.from_arrays(arrays, task.vocabulary)
        except (*DAMAGE, MemoryError, DecodeError) as error:
            raise damage_of(self.place) from error
        progress = old.progress
        return CorpusState(
            aggregates, progress.records, progress.failed, payload.rejects, payload.notes
        )

    def save_state(self, state: CorpusState) -> None:
        if not self.is_due:
            return
        arrays: dict[str, Any] = state.aggregates.to_arrays()
        arrays[_MEMBER] = np.array(dump_json({"rejects": state.rejects, "notes": state.notes}))
        file = io.BytesIO()
        np.savez(file, **arrays)
        self.save(Progress(state.records, state.failures), file.getvalue())

    @contextmanager
    def until_done(self, say: Callable[[str], None]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.say_left(say)
            raise
        self.remove()


MEASURED_ONLY = (
    "a text read in blocks of rows counts in the measures, and not in positions, classes, pairs "
    "and links, which need whole maps"
)
PICTURES = 32  # pictures in a chunk: each takes as long as many sentences


def study(
    task: ShardTask,
    texts: Iterable[Record],
    engine: Engine,
    *,
    state: CorpusState | None = None,
    journal: CorpusJournal | None = None,
    on_failure: OnFailure = lambda record, error: "",
    advance: Callable[[int], None] = lambda records: None,
    order: str = "role",
) -> CorpusReport | None:
    """What each head does over a corpus; None where no text could be read.

    The state of an earlier run is continued. `on_failure` takes each record that failed, and may
    raise to stop there; `advance` takes how many more records are done. Heads are in the order of
    "role" (clearest first), "layer" or a measure.
    """
    state = state or CorpusState(task.empty())
    size = min(task.attend.size, PICTURES) if task.attend.command == "picture" else task.attend.size
    waiting = shards(texts, state.records, size)
    for (_, chunk), result in with_shards(task, waiting, engine, lambda n, s: chunk_name(n, s[1])):
        state.add(chunk, result, on_failure)
        if journal is not None:
            journal.save_state(state)
        advance(len(chunk))
    things = "pictures" if state.aggregates.vocabulary.pictures else "texts"
    notes = [
        text if count == 1 else f"{text} ({count:,} such {things})"
        for text, count in state.notes.items()
    ]
    for text in notes:
        notify(text)
    if not state.aggregates.texts:
        return None
    return replace(report_of(state.aggregates, order), notes=tuple(notes))


def shards(records: Iterable[Record], start: int = 0, size: int = CHUNK_SIZE) -> Iterator[Shard]:
    """Chunks of records, numbered."""
    number = 0
    for chunk in chunks(records, size):
        if number >= start:
            yield number, chunk
        number += len(chunk)
    if number < start:
        raise InputError(f"the unfinished run has {start} records, its input {number}: start again")


def read_twice(inputs: TextInput) -> tuple[Vocabulary, Iterator[Record], int]:
    """The frequent words of a corpus, its texts, and how many of them, good and bad, there are.

    Input that can be read only once, such as stdin, is kept in a temporary file.
    """
    counts, number = WordCounts(), 0
    with temporary_file_errors():
        copy = None if inputs.rereads else tempfile.TemporaryFile()  # noqa: SIM115  # `_read_back` closes it
    for text in inputs.open():
        number += 1
        if isinstance(text, Text):
            counts.add(text.text)
            counts.add(text.target or "")
        if copy is not None:
            with temporary_file_errors(copy):
                pickle.dump(text, copy)
    texts = inputs.open() if copy is None else _read_back(copy)
    return counts.vocabulary(), texts, number


@contextmanager
def temporary_file_errors(file: IO[bytes] | None = None) -> Iterator[None]:
    """Turn the system's errors about the temporary file into an OutputError."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):  # what is still buffered has no room either
            if file is not None:
                file.close()
        raise OutputError(
            f"cannot keep the texts in a temporary file: {error.strerror or error}; give them as a "
            "file, or word counts by --frequencies"
        ) from error


def _read_back(file: IO[bytes]) -> Iterator[Record]:
    with temporary_file_errors(file):
        size = file.seek(0, os.SEEK_END)
    with file:
        file.seek(0)
        while file.tell() < size:
            yield pickle.load(file)


def read_frequencies(path: Path) -> Vocabulary:
    """The frequent words from a file: a word, a tab and its count on each line."""
    counts: Counter[str] = Counter()
    text = read_text(path)
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        word, _, count = line.rstrip("\n").rpartition("\t")
        if not word or not is_number(count.strip()):
            raise InputError(
                f"line {number} of '{path}' is not a word, a tab and a count: '{line.strip()}'"
            )
        counts[word.lower()] += int(count)
    return vocabulary_of(counts.items())
