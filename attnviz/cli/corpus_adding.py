"""Shards of a corpus worked on by an engine and added up, from where an earlier run stopped."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.cli.corpus_checkpoint import Checkpoint, Reached
from attnviz.cli.corpus_study import Outcome, Shard, Study, named, shards
from attnviz.cli.rejects import Failures, rejected
from attnviz.engines import Engine
from attnviz.errors import AttnvizError
from attnviz.many_texts import Record


@dataclass
class Adding:
    """A corpus that is being added up.

    Attributes:
        study: the work on a shard.
        failed: takes what comes to nothing.
        checkpoint: where the state is kept meanwhile; None: nowhere.
        aggregates: of all that is done.
        reached: what else is known of it.
    """

    study: Study
    failed: Failures
    checkpoint: Checkpoint | None
    aggregates: Aggregates = field(init=False)
    reached: Reached = field(default_factory=Reached)

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
