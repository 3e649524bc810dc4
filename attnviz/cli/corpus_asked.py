"""What `attnviz corpus` was asked, and whether it can be done and written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from attnviz.cli.corpus_checkpoint import Checkpoint
from attnviz.cli.journal import question_of
from attnviz.cli.options import Options
from attnviz.cli.output import (
    check_writable,
    different,
    refuse_binary_on_terminal,
)
from attnviz.cli.rejects import stopping
from attnviz.cli.unfinished import can_last
from attnviz.errors import UsageError
from attnviz.outputs import picture_suffix
from attnviz.pipeline import check_choice
from attnviz.registry import Command
from attnviz.sources.open import check_origin
from attnviz.storage.matrices import read_bytes

SUFFIXES = {".txt": "table", ".tsv": "tsv", ".json": "json", ".npz": "npz"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Attributes:
        options: the shared options.
        file: where the texts are; "-" for stdin.
        command: "self", or "cross" for pairs.
        show: what table and tsv hold.
        order: what heads are sorted by.
        top: how many of them table and tsv hold; None: all.
        frequencies: a file of words and counts.
        replicates: of the bootstrap.
        seed: of the bootstrap.
        format: what stdout gets.
        output: a file for the same.
        overview: a picture.
    """

    options: Options
    file: str
    command: Command
    show: str
    order: str
    top: int | None
    frequencies: Path | None
    replicates: int
    seed: int
    format: str
    output: Path | None
    overview: Path | None

    def check(self) -> None:
        """Find out before a model loads whether everything can be done and written.

        Raises:
            UsageError: a wrong suffix, choice or origin, or one file asked for twice.
            OutputError: a place that cannot be written.
        """
        check_choice(self.options.choice)
        stopping(self.options)
        check_origin(self.options.origin, self.command)
        paths = different(self.output, self.overview, self.options.many.rejects)
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            raise UsageError(f"-o '{self.output}' must end in {', '.join(SUFFIXES)}")
        if self.overview is not None:
            picture_suffix(self.overview)
        if self.options.many.resume and self._lasting() is None:
            raise UsageError(
                "--resume goes on with a file that an interrupted run was to write: give the texts "
                "as a file, and -o FILE or --overview FILE"
            )
        if self.format == "npz":
            refuse_binary_on_terminal("npz")
        for path in paths:
            check_writable(path)

    def _lasting(self) -> Path | None:
        """The file beside which the run's state is kept, where it can be gone on with."""
        path = self.output or self.overview
        if path is None or not can_last(path) or not Path(self.file).is_file():
            return None
        return path

    def checkpoint(self) -> Checkpoint | None:
        """The place of the run's state.

        Raises:
            InputError: a file that decides the answer cannot be read.
        """
        path = self._lasting()
        if path is None:
            return None
        question = question_of(f"corpus {self.command}", self.options, Path(self.file))
        question |= {"--replicates": str(self.replicates), "--bootstrap-seed": str(self.seed)}
        if self.frequencies is not None:
            counts = read_bytes(self.frequencies)
            question["the checksum of --frequencies"] = hashlib.sha256(counts).hexdigest()[:16]
        return Checkpoint(path, question)
