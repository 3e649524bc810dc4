"""How far the files of an unfinished run have come, and with which options it was started.

The journal '.NAME.journal' beside a file NAME is replaced whole, and only after what it tells of
has reached the disk: after a crash it may tell of less than there is, but never of more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from attnviz import __version__
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options
from attnviz.storage.documents import dump_json, parse_json
from attnviz.storage.saved import shard_path
from attnviz.storage.writing import write_file

SCHEMA = 1
SAMPLE = 1 << 20
"""Bytes of an input file, at its beginning and at its end, that tell it from another."""
DECIDING = ("columns", "input_format", "max_line", "batch_size", "shard_size", "rejects")
"""What of the options of many texts decides what a file holds; who shares the work does not."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A place between two records.

    Attributes:
        output: bytes of the unfinished data file, or of the shard that is being written.
    """

    records: int = 0
    failed: int = 0
    output: int = 0
    rejects: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Journal:
    """The options of a run, by the names that a user knows, and how far it has come."""

    options: Mapping[str, str]
    progress: Progress = field(default_factory=Progress)

    def files(self, path: Path) -> list[Path]:
        """The files of the run that may be unfinished, where `path` is the output."""
        rejects = self.options.get("--rejects")
        size = self._shard_size
        current = shard_path(path, self.progress.records // size) if size else path
        return [current, *([Path(rejects)] if rejects else [])]

    def shards(self, path: Path) -> list[Path]:
        """Every shard that the run has written, and the one that it may have."""
        if not self._shard_size:
            return []
        count = self.progress.records // self._shard_size + 1
        return [shard_path(path, number) for number in range(count)]

    @property
    def _shard_size(self) -> int:
        return int(self.options.get("--shard-size", 0))

    def write(self, path: Path) -> None:
        """Replace the journal at a path as a whole."""
        document = {"schema": SCHEMA, "question": {**self.options}, **asdict(self.progress)}
        write_file(path, dump_json(document).encode() + b"\n", durably=True)


def read_journal(path: Path) -> Journal | None:
    """The journal at a path, if there is one."""
    if not path.is_file():
        return None
    found = parse_json(path.read_bytes(), f"the journal '{path}'")
    try:
        if found["schema"] != SCHEMA:
            raise InputError(
                f"the journal '{path}' has schema {found['schema']}, not {SCHEMA}: remove it"
            )
        progress = Progress(**{item.name: found[item.name] for item in fields(Progress)})
        options = {str(name): str(value) for name, value in found["question"].items()}
        return Journal(options, progress)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the journal '{path}' is damaged: remove it") from error


def run_options(command: str, options: Options, input_file: Path) -> dict[str, str]:
    """Everything that decides the bytes of the output, by the names that a user knows."""
    given: dict[str, Any] = {"attnviz": __version__, "command": command, "--input": input_file}
    for half in (options.origin, options.choice, options.many):
        for item in fields(half):
            if half is not options.many or item.name in DECIDING:
                given[item.metadata["option"].names[0]] = getattr(half, item.name)
    given |= _fingerprint(input_file)
    return {name: str(value) for name, value in given.items() if value is not None}


def check_same_options(before: Mapping[str, str], now: Mapping[str, str], path: Path) -> None:
    """Refuse to resume a run with other options than it was started with."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise UsageError(
                f"'{path}' was started with different options: {name} was "
                f"{_quoted(before.get(name))} and is {_quoted(now.get(name))}; "
                "give the same, or leave --resume out to start again"
            )


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            sample = hashlib.sha256(file.read(SAMPLE))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - SAMPLE, 0))
            sample.update(file.read(SAMPLE))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return {"the input's size": size, "the input's checksum": sample.hexdigest()[:16]}


def _quoted(value: str | None) -> str:
    return "not given" if value is None else f"'{value}'"
