"""The data file of a run over many texts, in shards or whole, that an interrupted run can resume.

Until the file NAME is complete it is called '.NAME.unfinished', and a journal counts what is in it
and in the file of rejects. A format that grows (.jsonl, .tsv, .csv) is resumed after any record,
any other format after a complete shard.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from attnviz.core.errors import OutputError
from attnviz.core.notices import notify
from attnviz.renderers import Numbering, Renderer, Views, reports
from attnviz.runs.journal import Journal, Progress, RunJournal
from attnviz.storage.saved_maps import shard_path, shards_of
from attnviz.storage.writing import PartialFile, beside, check_writable

SECONDS = 0.5  # between two journals at least
Make = Callable[[int, bool], Renderer]  # of a first record, and whether its start is written


class ResumableSink:
    """The files that a run's records are written to."""

    def __init__(
        self,
        path: Path,
        make: Make,
        *,
        grows: bool,
        shard_size: int | None = None,
        rejects: Path | None = None,
        options: Mapping[str, str] | None = None,
        resume: bool = False,
        notify: Callable[[str], None] = notify,
    ) -> None:
        self.path, self.make, self.grows, self.shard_size = path, make, grows, shard_size
        self.rejects_path, self.options, self.notify = rejects, options, notify
        self.journal = RunJournal(path, options, SECONDS)
        self.data: PartialFile | None = None
        self.rejects: PartialFile | None = None
        self.complete = False
        old = self.journal.read()
        # The file of a finished run may have been replaced or deleted since.
        is_gone = old is not None and old.progress.ended and not (resume and self._is_there(old))
        self.old, self.has_started = None if is_gone else old, False
        there = shards_of(path) if shard_size is not None else path.exists()
        if resume and self.old is None and there:
            self.complete = True
            self._say_complete()
        elif old := self.journal.resume(self.old, self.notify, resume=resume):
            self._resume(old.progress)
        else:
            self._check_start()
        self.progress = self.journal.progress
        self.records, self.failures = self.progress.records, self.progress.failed

    def add(self, result: Any, views: Views) -> None:
        """Take one record's result, as the renderer takes it."""
        data = self._open()
        data.write(reports.as_bytes(self.renderer.add(result, views)))
        self._count(0)

    def skip(self, reject: bytes) -> None:
        """Take a record that failed, with its line for the file of rejects."""
        self._open()
        if isinstance(self.renderer, Numbering):
            self.renderer.skip()
        if self.rejects is not None:
            self.rejects.write(reject)
        self._count(1)

    def finish(self) -> None:
        """Move everything into place; where every record failed, the rejects only."""
        if self.complete or not self.has_started:
            return
        whole = self.shard_size is None and self.failures < self.records
        if self.data is not None and self.shard_size is not None:
            self._close_shard()
        elif self.data is not None and whole:
            self.data.write(reports.as_bytes(self.renderer.finish()))
        self._mark(is_end=True)
        self._save()
        if self.data is not None:
            (self.data.keep if whole else self.data.discard)()
        if self.rejects is not None:
            self.rejects.keep()
        self._end()

    def _end(self) -> None:
        """After every file is saved: keep the journal only if records failed."""
        if self.failures:
            self.journal.save(replace(self.progress, complete=True))
        else:
            self.journal.remove()
        self.complete = True

    def _is_there(self, old: Journal) -> bool:
        """Whether the files of a finished run are unchanged."""
        if old.progress.failed == old.progress.records:
            return True
        if old.shard_size is not None:
            return bool(shards_of(self.path))
        files = [one for one in (beside(self.path, "unfinished"), self.path) if one.is_file()]
        return bool(files) and files[0].stat().st_size == old.progress.output

    def leave(self) -> None:
        """End early: keep complete records, if there are any to continue from."""
        if self.complete or not self.has_started:
            return
        with suppress(OSError, OutputError):
            if self.data is not None:
                self.data.truncate(self.progress.output)
            if self.rejects is not None:
                self.rejects.truncate(self.progress.rejects)
            self._save()
        progress = self.journal.progress if self.options is not None else Progress()
        count = progress.records
        for file, size in ((self.data, progress.output), (self.rejects, progress.rejects)):
            if file is not None:
                (file.close if count and (size or file is self.rejects) else file.discard)()
        if count:
            self.journal.say_left(self.notify)
        else:
            self.journal.remove()

    def _check_start(self) -> None:
        for path in (self.path, self.rejects_path):
            if path is not None:
                check_writable(path)

    def _start(self) -> None:
        self.has_started = True
        if self.old is not None:
            size, count = self.old.shard_size, self.old.progress.records
            place = shard_path(self.path, count // size) if size else self.path
            PartialFile(place).discard()  # which fails where somebody is writing it
        if self.rejects_path is not None:
            self.rejects = PartialFile(self.rejects_path)
        self.journal.save(Progress())

    def _resume(self, progress: Progress) -> None:
        self.has_started = True
        if progress.ended:
            self.progress, self.failures = progress, progress.failed
            if not progress.complete:
                files = [(self.rejects_path, progress.rejects)]
                if self.shard_size is None and progress.failed < progress.records:
                    files.append((self.path, progress.output))
                for path, size in files:
                    if path is not None and beside(path, "unfinished").exists():
                        PartialFile(path, size).keep()
                self._end()
            self.complete = True
            self._say_complete()
            return
        partial = self.grows and progress.records % (self.shard_size or progress.records + 1) > 0
        place = self._place(progress.records)
        draft = beside(place, "unfinished")
        if self.shard_size is not None and partial and not draft.exists() and place.exists():
            # The shard was complete and nothing followed: cut it back to the same record.
            place.replace(draft)
        if self.rejects_path is not None:
            self.rejects = PartialFile(self.rejects_path, progress.rejects)
        if partial:
            self._open_at(progress)
        self.notify(f"resuming after {progress.records} records")

    def _say_complete(self) -> None:
        self.notify(f"'{self.path}' is complete: nothing is left to do")

    def _open(self) -> PartialFile:
        if not self.has_started:
            self._start()
        if self.data is None:
            self._open_at(Progress(self.records))
        assert self.data is not None
        return self.data

    def _open_at(self, progress: Progress) -> None:
        self.data = PartialFile(self._place(progress.records), progress.output)
        self.renderer = self.make(progress.records, progress.output > 0)

    def _count(self, failures: int) -> None:
        self.records += 1
        self.failures += failures
        if self.shard_size is not None and self.records % self.shard_size == 0:
            self._close_shard()
            self._save()
        elif self.grows:
            self._mark()
            if self.journal.is_due:
                self._save()

    def _close_shard(self) -> None:
        """Move a shard into place; with the first all of an earlier run go, which may be more."""
        assert self.data
        assert self.shard_size
        self.data.write(reports.as_bytes(self.renderer.finish()))
        if self.records <= self.shard_size:
            for shard in shards_of(self.path):
                shard.unlink(missing_ok=True)
        self.data.keep()
        self.data = None
        self._mark()

    def _mark(self, *, is_end: bool = False) -> None:
        output, rejects = (0 if file is None else file.size for file in (self.data, self.rejects))
        self.progress = Progress(self.records, self.failures, output, rejects, is_end)

    def _save(self) -> None:
        for file in (self.data, self.rejects):
            if file is not None:
                file.sync()
        self.journal.save(self.progress)

    def _place(self, record: int) -> Path:
        size = self.shard_size
        return self.path if size is None else shard_path(self.path, record // size)


def can_resume(path: Path) -> bool:
    """Whether a run that writes this file can be resumed: it is no device and no pipe."""
    return os.path.isfile(path) or not os.path.exists(path)  # noqa: PTH110, PTH113 - never fail
