"""How far the files of an unfinished run have come, and what was asked of it: '.NAME.journal'.

A journal is replaced whole, and only after what it tells of has reached the disk, so that after a
crash it may tell of less than there is, but never of more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from attnviz import __version__
from attnviz.cli.options import OPTIONS
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options
from attnviz.storage.documents import dump_json, parse_json
from attnviz.storage.saved import shard_path

SCHEMA = 1
SAMPLE = 1 << 20
"""Bytes of an input file, at its beginning and at its end, that tell it from another."""
READ_BY = ("columns", "input_format", "batch_size", "shard_size")
"""What of the options of many texts decides what a file holds; who shares the work does not."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A place between two records.

    Attributes:
        records: how many records of the input are done.
        failed: how many of them came to nothing.
        output: bytes of the unfinished data file, or of the shard that is being written.
        rejects: bytes of the unfinished file of rejects.
        ended: True once every record is done and only moving into place is left.
    """

    records: int = 0
    failed: int = 0
    output: int = 0
    rejects: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Journal:
    """What a run was asked, and how far it came."""

    question: Mapping[str, str]
    reached: Progress = field(default_factory=Progress)

    def check(self, question: Mapping[str, str], path: Path) -> None:
        """Refuse to go on with the answer to another question.

        Raises:
            UsageError: it is another; the message names the first thing that differs.
        """
        for name in {**self.question, **question}:
            was, now = self.question.get(name), question.get(name)
            if was != now:
                raise UsageError(
                    f"'{path}' was begun with another question: {name} was {_named(was)} and is "
                    f"{_named(now)}; ask the same, or leave --resume out to begin again"
                )

    def files(self, path: Path) -> list[Path]:
        """The files of the run that may be unfinished, of which `path` is the one asked for."""
        rejects = self.question.get("--rejects")
        current = self._shard(path, self.reached.records) if self._size else path
        return [current, *([Path(rejects)] if rejects else [])]

    def shards(self, path: Path) -> list[Path]:
        """Every shard that the run has written, and the one that it may have."""
        if not self._size:
            return []
        starts = range(0, self.reached.records + 1, self._size)
        return [self._shard(path, start) for start in starts]

    @property
    def _size(self) -> int:
        return int(self.question.get("--shard-size", 0))

    def _shard(self, path: Path, record: int) -> Path:
        return shard_path(path, record // self._size)

    def write(self, path: Path) -> None:
        """Replace the journal at a path as a whole.

        Raises:
            OSError: the disk is full or gone; the old journal is still there.
        """
        document = {"schema": SCHEMA, "question": {**self.question}, **asdict(self.reached)}
        new = path.with_name(f"{path.name}.new")
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(dump_json(document) + "\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


def read_journal(path: Path) -> Journal | None:
    """The journal at a path, if there is one.

    Raises:
        InputError: it is damaged, or of another schema.
    """
    if not path.is_file():
        return None
    found = parse_json(path.read_bytes(), f"the journal '{path}'")
    try:
        if found["schema"] != SCHEMA:
            raise InputError(
                f"the journal '{path}' has schema {found['schema']}, not {SCHEMA}: remove it"
            )
        reached = Progress(**{item.name: found[item.name] for item in fields(Progress)})
        return Journal(
            {str(name): str(value) for name, value in found["question"].items()}, reached
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the journal '{path}' is damaged: remove it") from error


def question_of(command: str, options: Options, input_file: Path) -> dict[str, str]:
    """Everything that decides the bytes of the answer, by the names that a user knows.

    Raises:
        InputError: the input file cannot be read.
    """
    asked: dict[str, Any] = {"attnviz": __version__, "command": command, "--input": input_file}
    for half in (options.origin, options.choice):
        asked |= {item.name: getattr(half, item.name) for item in fields(half)}
    asked |= {name: getattr(options.many, name) for name in READ_BY}
    asked["rejects"] = options.many.rejects
    asked |= _fingerprint(input_file)
    return {_spelt(name): str(value) for name, value in asked.items() if value is not None}


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            seen = hashlib.sha256(file.read(SAMPLE))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - SAMPLE, 0))
            seen.update(file.read(SAMPLE))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    return {"the input's size": size, "the input's checksum": seen.hexdigest()[:16]}


def _spelt(name: str) -> str:
    """A field as a user writes it."""
    return OPTIONS[name].names.split()[0] if name in OPTIONS else name


def _named(value: str | None) -> str:
    return "not given" if value is None else f"'{value}'"
