"""One run of `attnviz corpus`: shards of texts become aggregates, and these are written once."""

from __future__ import annotations

import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.report import report_of
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.announce import announce, heard_by
from attnviz.cli.corpus_study import SHARED, Shard, Study, named, shards, size
from attnviz.cli.corpus_texts import Texts, read_frequencies, read_twice
from attnviz.cli.input import texts_of
from attnviz.cli.options import Options
from attnviz.cli.output import (
    check_writable,
    refuse_binary_on_terminal,
    write_bytes,
    write_file,
)
from attnviz.cli.rejects import Failures, failures, stopping
from attnviz.cli.run import Notes, count_texts, sharing
from attnviz.corpus_report import CorpusReport
from attnviz.engines import Engine, open_engine
from attnviz.engines.here import Here
from attnviz.errors import UsageError, WorkerError
from attnviz.many_texts import AttendWindow
from attnviz.outputs import as_bytes, picture_suffix
from attnviz.pipeline import check_choice
from attnviz.registry import Command
from attnviz.renderers import Display
from attnviz.sources.open import check_origin
from attnviz.storage.json import dump_json

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
        if self.format == "npz":
            refuse_binary_on_terminal("npz")
        for path in paths:
            check_writable(path)


def run(asked: Asked) -> int:
    """Study a corpus and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    asked.check()
    options = asked.options
    vocabulary, texts, total = _read(asked)
    attend = AttendWindow(options.origin, options.choice, asked.command, options.many.batch_size)
    study = Study(attend, vocabulary, asked.replicates, asked.seed)
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, heard_by(say):
        aggregates = study.empty()
        with _progress(total, asked) as advance:
            notes = add_up(study, texts, engine, aggregates, failed, advance)
        for text, count in notes.items():
            announce(text if count == 1 else f"{text} ({count:,} such texts)")
    if not aggregates.texts:
        return 1
    finish(aggregates, asked)
    return 1 if failed.count else 0


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


def add_up(
    study: Study,
    texts: Texts,
    engine: Engine,
    aggregates: Aggregates,
    failed: Failures,
    advance: Callable[[int], None],
) -> dict[str, int]:
    """Add all texts to the aggregates, and answer the notes on them.

    Args:
        study: the work on a shard.
        texts: of the corpus, in order.
        engine: who does it.
        aggregates: to add to.
        failed: takes what came to nothing.
        advance: is told how many more records are done.

    Returns:
        How many texts have a note; of notes that differ in their numbers, the first stands for all.

    Raises:
        AttnvizError: what would fail for every text, or the first failure where that is the end.
    """
    sent: deque[Shard] = deque()
    kinds: dict[str, str] = {}
    notes: Counter[str] = Counter()
    each = 1 if isinstance(engine, Here) else SHARED
    for outcome in engine.map(study, _sending(shards(texts, each), sent), named):
        shard = sent.popleft()
        if isinstance(outcome, WorkerError):
            for _, record in (numbered for window in shard for numbered in window):
                failed.add(record, outcome)
            aggregates.failed += size(shard)
            continue
        for record, error in outcome.failures:
            failed.add(record, error)
        for text, count in outcome.notes.items():
            notes[kinds.setdefault(re.sub(r"\d[\d.,]*|'.*'", "", text), text)] += count
        aggregates.merge(outcome.aggregates)
        advance(size(shard))
    return notes


def _sending(found: Iterable[Shard], sent: deque[Shard]) -> Iterator[Shard]:
    for shard in found:
        sent.append(shard)
        yield shard


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
