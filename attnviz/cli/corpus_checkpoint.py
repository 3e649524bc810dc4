"""How far an unfinished run of `attnviz corpus` has come: '.NAME.unfinished' beside its file NAME.

One archive holds everything, the aggregates of the records that are done included, and is replaced
as a whole; after a crash it tells of a place between two windows of records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.cli.journal import Journal
from attnviz.cli.unfinished import beside
from attnviz.errors import InputError, OutputError
from attnviz.storage.archive import DAMAGE
from attnviz.storage.json import dump_json, parse_json

SECONDS = 2.0
"""Between two checkpoints at least: as much work may be done twice."""
_MEMBER = "checkpoint"


@dataclass
class Reached:
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

    def restore(self, aggregates: Aggregates) -> Reached | None:
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
            return Reached(**document["reached"])
        except DAMAGE as error:
            raise InputError(f"'{self.place}' is damaged: remove it to begin again") from error

    def save(self, aggregates: Aggregates, reached: Reached) -> None:
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
