"""One run of `attnviz corpus`: shards of texts become aggregates, and these are written once."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.report import report_of
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.announce import announce, heard_by
from attnviz.cli.corpus_adding import Adding
from attnviz.cli.corpus_checkpoint import Checkpoint
from attnviz.cli.corpus_study import Study
from attnviz.cli.corpus_texts import Texts, read_frequencies, read_twice
from attnviz.cli.input import texts_of
from attnviz.cli.journal import question_of
from attnviz.cli.options import Options
from attnviz.cli.output import (
    check_writable,
    refuse_binary_on_terminal,
    write_bytes,
    write_file,
)
from attnviz.cli.rejects import failures, stopping
from attnviz.cli.run import Notes, count_texts, sharing
from attnviz.cli.unfinished import can_last
from attnviz.corpus_report import CorpusReport
from attnviz.engines import open_engine
from attnviz.errors import UsageError
from attnviz.many_texts import AttendWindow
from attnviz.outputs import as_bytes, picture_suffix
from attnviz.pipeline import check_choice
from attnviz.registry import Command
from attnviz.renderers import Display
from attnviz.sources.open import check_origin
from attnviz.storage.json import dump_json
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
        paths = [path for path in (self.output, self.overview) if path]
        if len({path.absolute() for path in paths}) < len(paths):
            raise UsageError("two outputs go to the same file: name different ones")
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


def run(asked: Asked) -> int:
    """Study a corpus and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    asked.check()
    options = asked.options
    checkpoint = asked.checkpoint()
    vocabulary, texts, total = _read(asked)
    attend = AttendWindow(options.origin, options.choice, asked.command, options.many.batch_size)
    study = Study(attend, vocabulary, asked.replicates, asked.seed)
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, heard_by(say):
        adding = Adding(study, failed, checkpoint)
        if options.many.resume and not adding.go_on():
            announce("there is nothing to go on with: beginning")
        left = None if total is None else total - adding.reached.records
        with _progress(left, asked) as advance:
            adding.add_all(texts, engine, advance)
        for text in adding.notes():
            announce(text)
    if adding.aggregates.texts:
        finish(adding.aggregates, asked)
    if checkpoint is not None:
        checkpoint.discard()
    return 1 if failed.count or not adding.aggregates.texts else 0


def _read(asked: Asked) -> tuple[Vocabulary, Texts, int | None]:
    """The frequent words, the texts and, where it is known, how many these are."""
    many = asked.options.many

    def open_texts() -> Texts:
        texts, _ = texts_of(
            [],
            asked.file,
            pairs=asked.command == "cross",
            columns=many.columns,
            input_format=many.input_format,
        )
        return texts

    if asked.frequencies is None:
        return read_twice(open_texts, asked.file)
    vocabulary = read_frequencies(asked.frequencies)
    return vocabulary, open_texts(), count_texts(asked.file, asked.command, asked.options)


def _progress(total: int | None, asked: Asked) -> AbstractContextManager[Callable[[int], None]]:
    """A count, a rate and the time that remains, on a terminal."""
    if asked.options.output.quiet or not sys.stderr.isatty():
        return nullcontext(lambda done: None)
    from attnviz.cli.progress import advancing

    return advancing(total)


def finish(aggregates: Aggregates, asked: Asked) -> None:
    """Write the picture, the file and stdout.

    Raises:
        OutputError: what cannot be written.
    """
    from attnviz.cli.sinks import display_of_stdout

    report = report_of(aggregates, asked.order)
    display = display_of_stdout(many=False)
    if asked.overview is not None:
        from attnviz.renderers.corpus_overview import corpus_overview
        from attnviz.renderers.figure import figure_bytes

        told = dump_json(asdict(report.provenance))
        suffix = picture_suffix(asked.overview)
        write_file(asked.overview, figure_bytes(corpus_overview(report), suffix, told))
    if asked.output is not None:
        format_name = SUFFIXES[asked.output.suffix.lower()]
        plain = Display(width=display.width)
        write_file(asked.output, written(report, format_name, asked, plain))
    if asked.format != "none":
        write_bytes(written(report, asked.format, asked, display))


def written(report: CorpusReport, format_name: str, asked: Asked, display: Display) -> bytes:
    """The report in a format."""
    first = replace(
        report,
        streams=tuple(replace(stream, rows=stream.rows[: asked.top]) for stream in report.streams),
    )
    from attnviz.renderers import corpus_data
    from attnviz.renderers.corpus_table import corpus_table

    spellings: dict[str, Callable[[], str | bytes]] = {
        "table": lambda: corpus_table(first, asked.show, display),
        "tsv": lambda: corpus_data.corpus_tsv(first, asked.show),
        "json": lambda: corpus_data.corpus_json(report),
        "npz": lambda: corpus_data.corpus_npz(report),
    }
    return as_bytes(spellings[format_name]())
