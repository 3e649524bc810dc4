"""How far an unfinished run has come, and with which options it was started.

The journal '.NAME.journal' lies beside a file NAME. It is replaced whole, and only after the data
that it counts is on the disk: after a crash it may count less than there is, but never more. A run
that writes nothing before its end, such as that over a corpus, keeps its sums in the journal.
"""

import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict

from attnviz.core import __version__
from attnviz.core.errors import InputError, UsageError, is_number
from attnviz.core.options import InMemoryModel, Options, split_format
from attnviz.core.records import dataclass, fields
from attnviz.models import fingerprints
from attnviz.models.open import states_of
from attnviz.storage.documents import dump_json
from attnviz.storage.writing import beside, write_file

SCHEMA = 1
LONGEST = 1 << 20  # bytes of a journal at most: it holds the options of one command line
SAMPLE = 1 << 20  # bytes at both ends of an input file that go into its checksum
DECIDING = ("columns", "batch_size", "shard_size", "on_error")
"""The options of `Many` that decide what a file holds; how the work is shared does not."""
Count = Annotated[int, Meta(ge=0, le=1 << 53)]  # JSON holds whole numbers exactly so far


class Progress(Struct, frozen=True):
    """A place between two records."""

    records: Count = 0
    failed: Count = 0
    output: Count = 0  # bytes of the unfinished data file, or of the shard that is being written
    rejects: Count = 0
    ended: bool = False  # whether all records are done
    complete: bool = False  # whether every file is in its place, too


class SavedProgress(Progress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a journal's file holds."""

    schema: int
    question: dict[str, str]
    checksum: str  # of everything else, so that a damaged number is noticed
    payload: Count = 0  # bytes behind the first line


@dataclass(frozen=True, slots=True)
class Journal:
    """The options of a run, by the names that a user knows, how far it has come, and its sums."""

    options: Mapping[str, str]
    progress: Progress
    payload: bytes = b""

    @property
    def shard_size(self) -> int | None:
        """How many records a shard has; None: there are no shards."""
        size = self.options.get("--shard-size", "")
        return int(size) or None if is_number(size) else None

    def write(self, path: Path) -> None:
        document = {"schema": SCHEMA, "question": {**self.options}, **asdict(self.progress)}
        document["payload"] = len(self.payload)
        document["checksum"] = checksum_of(dump_json(document).encode(), self.payload)
        write_file(path, dump_json(document).encode() + b"\n" + self.payload, durably=True)


def read_journal(path: Path) -> Journal | None:
    """The journal at a path, if there is one; an InputError where it is damaged or newer."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            document = orjson.loads(file.readline(LONGEST))
            size = document.get("payload") if isinstance(document, dict) else 0
            payload = file.read() if size else b""
        if isinstance(document, dict) and document.get("schema", SCHEMA) != SCHEMA:
            raise InputError(
                f"the journal '{path}' has schema {document['schema']!r:.20}, not {SCHEMA}: "
                "remove it to start again"
            )
        progress = convert(document, SavedProgress)
        rest = {name: one for name, one in document.items() if name != "checksum"}
        checksum = checksum_of(dump_json(rest).encode(), payload)
        if (progress.checksum, progress.payload) != (checksum, len(payload)):
            raise ValueError("a byte is another, or missing")
        if progress.failed > progress.records:
            raise ValueError("more failed than there were")
    except (ValueError, ValidationError) as error:
        raise damage_of(path) from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return Journal(progress.question, convert(progress, Progress, from_attributes=True), payload)


def damage_of(path: Path) -> InputError:
    """The error for a file that is no complete journal."""
    return InputError(f"the journal '{path}' is damaged: remove it to start again")


class RunJournal:
    """The journal of the run that writes a file: what an earlier run left, and what this one saves.

    Without options there is none, and nothing is saved.

    Attributes:
        seconds: between two saves at least; as much work may be done twice.
        progress: how far the run has come by what is saved.
    """

    def __init__(self, path: Path, options: Mapping[str, str] | None, seconds: float) -> None:
        self.path, self.options, self.seconds = path, options, seconds
        self.place = beside(path, "journal")
        self.progress, self.saved_at = Progress(), time.monotonic()

    def read(self) -> Journal | None:
        return None if self.options is None else read_journal(self.place)

    def resume(
        self, old: Journal | None, say: Callable[[str], None], *, resume: bool
    ) -> Journal | None:
        """What this run continues; says why it does not continue the earlier run.

        Raises:
            UsageError: that was started with other options.
        """
        if old is None:
            if resume:
                say(f"nothing of '{self.path}' to resume: starting from the first record")
        elif resume:
            check_same_options(old.options, self.options or {}, self.path)
            self.progress = old.progress
            return old
        elif old.progress.records:
            say(
                f"this run replaces an unfinished '{self.path}' of {old.progress.records} records: "
                "--resume would continue it"
            )
        return None

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.seconds

    def save(self, progress: Progress, payload: bytes = b"") -> None:
        if self.options is not None:
            Journal(self.options, progress, payload).write(self.place)
        self.progress, self.saved_at = progress, time.monotonic()

    def say_left(self, say: Callable[[str], None]) -> None:
        """Say that this run, which ends early, can be continued."""
        if self.progress.records:
            say(f"{self.progress.records} records are done: continue with --resume")

    def remove(self) -> None:
        self.place.unlink(missing_ok=True)


def checksum_of(*parts: bytes) -> str:
    """The first 16 digits of the SHA-256 of some bytes."""
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def run_options(command: str, options: Options, input_file: Path) -> dict[str, str]:
    """All options that decide the bytes of the output, by the names that a user knows."""
    values: dict[str, Any] = {"attnviz": __version__, "command": command, "--input": input_file}
    for half in (options.origin, options.choice, options.many):
        for item in fields(half):
            if half is not options.many or item.name in DECIDING:
                values[item.metadata["option"].names[0]] = getattr(half, item.name)
    inputs = [value for name, value in options.given if name in ("input", "file")]
    if formats := [one for name in inputs if (one := split_format(name)[0])]:
        values["the input's format"] = formats[0]
    values["--on-error"] = options.many.rejects  # skip or stop changes no byte
    values |= {"--fields": options.output.fields, "--digits": options.output.digits}
    values |= _fingerprint(input_file)
    states = states_of(options.origin)
    if options.choice.group not in (None, "words", "sentences"):
        states["--group"] = fingerprints.fingerprint_files([Path(str(options.choice.group))])
    for name, state in states.items():
        if state:
            values[f"the state of {name}'s files"] = checksum_of(repr(state).encode())
    if isinstance(options.origin.model, InMemoryModel):
        values["the weights of --model"] = fingerprints.model_checksum(options.origin.model.model)
    texts = {name: str(value) for name, value in values.items() if value is not None}
    # The name of a file need not be UTF-8, but JSON must be.
    return {name: one.encode(errors="backslashreplace").decode() for name, one in texts.items()}


def check_same_options(before: Mapping[str, str], now: Mapping[str, str], path: Path) -> None:
    """Refuse to resume a run with other options than it was started with."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise UsageError(
                f"'{path}' was started with different options: {name} was "
                f"{_quote(before.get(name))} and is {_quote(now.get(name))}; "
                "give the same, or leave --resume out to start again"
            )


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            first, size = file.read(SAMPLE), file.seek(0, os.SEEK_END)
            file.seek(max(size - SAMPLE, 0))
            checksum = checksum_of(first, file.read(SAMPLE))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return {"the input's size": size, "the input's checksum": checksum}


def _quote(value: str | None) -> str:
    return "not given" if value is None else f"'{value}'"
