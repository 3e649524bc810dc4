"""What is known of a corpus so far, and the file that keeps it for a run that is interrupted.

The file '.NAME.unfinished' lies beside the file NAME that the run will write: one archive of the
aggregates and of how far the run has come, replaced whole between two chunks.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from msgspec import Struct, ValidationError, convert

from attnviz.analyses.corpus.accumulators import Aggregates
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.masks import without_implied
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.notices import joined, kind_of
from attnviz.runs.journal import Count, check_same_options, checksum_of
from attnviz.runs.many_texts import AttendChunk, Chunk, Record
from attnviz.storage.archive import DAMAGE
from attnviz.storage.documents import dump_json
from attnviz.storage.writing import beside, write_file

SECONDS = 2.0
"""Between two checkpoints at least: as much work may be done twice."""
_MEMBER = "checkpoint"
REACHED = ("records", "failed", "rejects", "notes")
"""What of a state is not its aggregates."""
Shard = tuple[int, Chunk]
"""A chunk of records and the number of its first in the corpus, from 0."""
OnFailure = Callable[[Record, AttnvizError], str]
"""Told of a record that failed; answers its line in the file of rejects, if there is one."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a shard gave: aggregates, failed records with why, and notes with counts of texts."""

    aggregates: Aggregates
    failures: Sequence[tuple[Record, AttnvizError]]
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShardTask:
    """The work on a shard: it can be pickled, and opens the model in the process where it runs."""

    attend: AttendChunk
    vocabulary: Vocabulary
    samples: bool = False

    def empty(self) -> Aggregates:
        """Aggregates of no text, to merge others into."""
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
            except InputError as error:
                failures.append((record, InputError(f"{record.where}: {error}")))
        aggregates.failed = len(failures)
        return ShardResult(aggregates, failures, notes)


@dataclass
class CorpusState:
    """What is known of the records that are done."""

    aggregates: Aggregates
    records: int = 0
    failed: int = 0
    rejects: str = ""
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, chunk: Chunk, found: ShardResult | AttnvizError, on_failure: OnFailure) -> None:
        """Add the next shard's records."""
        if isinstance(found, AttnvizError):
            failures: Sequence[tuple[Record, AttnvizError]] = [(item, found) for item in chunk]
            self.aggregates.failed += len(chunk)
        else:
            failures = found.failures
            self.aggregates.merge(found.aggregates)
            self._add_notes(found.notes)
        for record, error in failures:
            self.rejects += on_failure(record, error)
            self.failed += 1
        self.records += len(chunk)

    def _add_notes(self, notes: Mapping[str, int]) -> None:
        """Notes that differ in their numbers only become one, with ranges."""
        for text, count in notes.items():
            same = next((one for one in self.notes if kind_of(one) == kind_of(text)), text)
            before = self.notes.pop(same, 0)
            self.notes[joined(same, text)] = before + count


class SavedState(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint holds beside arrays."""

    question: dict[str, str]
    records: Count
    failed: Count
    rejects: str
    notes: dict[str, Count]
    checksum: str  # of all else


def _checksum(document: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    named = (part for name in sorted(arrays) for part in (name.encode(), arrays[name].tobytes()))
    return checksum_of(dump_json(document).encode(), *named)


class CorpusCheckpoint:
    """The file that a run's state is kept in."""

    def __init__(self, path: Path, options: Mapping[str, str]) -> None:
        self.path, self.place = path, beside(path, "unfinished")
        self.options, self.saved_at = options, time.monotonic()

    def restore(self, task: ShardTask) -> CorpusState | None:
        """The state that an earlier run has left; None where it has left nothing."""
        if not self.place.is_file():
            return None
        try:
            with self.place.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
            document = orjson.loads(str(arrays.pop(_MEMBER)))
            found = convert(document, SavedState)
            if document.pop("checksum") != _checksum(document, arrays):
                raise ValueError("a number is another than was written")
            check_same_options(found.question, self.options, self.path)
            aggregates = Aggregates.from_arrays(arrays, task.vocabulary)
            return CorpusState(aggregates, **{name: document[name] for name in REACHED})
        except (*DAMAGE, MemoryError, ValidationError) as error:
            raise InputError(f"'{self.place}' is damaged: remove it to start again") from error

    def save(self, state: CorpusState) -> None:
        """Put the run's state on the disk, unless that was just done."""
        if time.monotonic() - self.saved_at < SECONDS:
            return
        document = {"question": {**self.options}, **{n: getattr(state, n) for n in REACHED}}
        arrays: dict[str, Any] = state.aggregates.to_arrays()
        document["checksum"] = _checksum(document, arrays)
        arrays[_MEMBER] = np.array(dump_json(document))
        file = io.BytesIO()
        np.savez(file, **arrays)
        write_file(self.place, file.getvalue(), durably=True)
        self.saved_at = time.monotonic()

    def discard(self) -> None:
        """Remove it: the run is complete."""
        self.place.unlink(missing_ok=True)
