"""One run of `attnviz corpus`: shards of texts become aggregates, and these are written once."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from attnviz.analyses.corpus.aggregates import Aggregates
from attnviz.analyses.corpus.report import report_of
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.announce import heard_by
from attnviz.cli.app import complain
from attnviz.cli.corpus_texts import Texts, read_frequencies, read_twice
from attnviz.cli.input import texts_of
from attnviz.cli.input_file import count_records
from attnviz.cli.options import Options
from attnviz.cli.output import (
    check_writable,
    refuse_binary_on_terminal,
    write_bytes,
    write_file,
)
from attnviz.cli.run import Notes
from attnviz.corpus_report import CorpusReport
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.outputs import as_bytes, picture_suffix
from attnviz.pipeline import attend_window, check_choice
from attnviz.registry import Command
from attnviz.renderers import Display
from attnviz.request import Choice, Origin
from attnviz.sources import Source
from attnviz.sources.open import check_origin, open_source
from attnviz.storage.json import dump_json
from attnviz.texts import BadText, Text, windows

SUFFIXES = {".txt": "table", ".tsv": "tsv", ".json": "json", ".npz": "npz"}

Advancing = AbstractContextManager[Callable[[int], None]]
Record = tuple[int, Text | BadText]
Shard = Sequence[Sequence[Record]]
"""Windows of records, each with its number in the corpus."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Attributes:
        options: the shared options.
        file: where the texts are; "-" for stdin.
        command: "self", or "cross" for pairs.
        show: what table and tsv hold.
        order: what heads are sorted by.
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a shard gave.

    Attributes:
        aggregates: of its texts.
        records: how many it had, good and bad.
        failures: number and message of each record that failed, in order.
        notes: what a reader must know, and of how many texts.
    """

    aggregates: Aggregates
    records: int
    failures: tuple[tuple[int, str], ...]
    notes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Study:
    """Work on one shard at a time, anywhere: it can be pickled, and opens the model where it runs.

    Attributes:
        origin: where attention comes from.
        choice: which part of it.
        command: "self", or "cross" for pairs.
        vocabulary: the frequent words of the corpus.
        replicates: of the bootstrap.
        seed: of the bootstrap.
        batch_size: texts that the model reads at once at most; None: as many as fit.
    """

    origin: Origin
    choice: Choice
    command: Command
    vocabulary: Vocabulary
    replicates: int
    seed: int
    batch_size: int | None = None

    def empty(self) -> Aggregates:
        """Aggregates of no text, to merge others into."""
        return Aggregates(self.vocabulary, self.replicates, self.seed)

    def __call__(self, shard: Shard) -> Outcome:
        """The aggregates of a shard's texts.

        Raises:
            AttnvizError: what would fail for every text.
        """
        source = _source(self.origin, self.command)
        aggregates = self.empty()
        failures: list[tuple[int, str]] = []
        notes: Counter[str] = Counter()
        for window in shard:
            texts = [text for _, text in window]
            found = attend_window(source, texts, self.choice, self.command, self.batch_size)
            for (number, text), result in zip(window, found, strict=True):
                try:
                    if isinstance(result, AttnvizError):
                        raise result
                    aggregates.add(result, number)
                    notes.update(result.provenance.notes)
                except InputError as error:
                    aggregates.failed += 1
                    where = "" if isinstance(result, AttnvizError) else f"{text.where}: "
                    failures.append((number, f"{where}{error}"))
        records = sum(map(len, shard))
        return Outcome(aggregates, records, tuple(failures), notes)


@cache
def _source(origin: Origin, command: Command) -> Source:
    """The model, loaded once in a process."""
    source = open_source(origin, command)
    gc.enable()
    return source


def shards(texts: Iterable[Text | BadText], windows_each: int = 1) -> Iterator[Shard]:
    """Consecutive windows of texts, so many together, with the texts' numbers."""
    numbered = enumerate_windows(windows(texts))
    while shard := list(islice(numbered, windows_each)):
        yield shard


def enumerate_windows(found: Iterable[Sequence[Text | BadText]]) -> Iterator[list[Record]]:
    """Windows whose texts have their numbers, counted from 0."""
    number = 0
    for window in found:
        yield list(enumerate(window, number))
        number += len(window)


def run(asked: Asked) -> int:
    """Study a corpus and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: nothing could be done.
    """
    asked.check()
    vocabulary, texts, total = _read(asked)
    options = asked.options
    study = Study(
        options.origin,
        options.choice,
        asked.command,
        vocabulary,
        asked.replicates,
        asked.seed,
        options.many.batch_size,
    )
    say = None if options.output.quiet else Notes().say
    with heard_by(say), _progress(total, asked) as advance:
        aggregates, notes = add_up(map(study, shards(texts)), study.empty(), advance)
    if not aggregates.texts:
        return 1
    if say is not None:
        for text, count in notes.items():
            say(text if count == 1 else f"{text} ({count:,} such texts)")
    finish(aggregates, asked)
    return 1 if aggregates.failed else 0


def _read(asked: Asked) -> tuple[Vocabulary, Texts, int | None]:
    many = asked.options.many

    def open_texts() -> Texts:
        pairs = asked.command == "cross"
        texts, _ = texts_of(
            [], asked.file, pairs=pairs, columns=many.columns, input_format=many.input_format
        )
        return texts

    if asked.frequencies is not None:
        vocabulary, texts = read_frequencies(asked.frequencies), open_texts()
        total = count_records(
            asked.file,
            pairs=asked.command == "cross",
            columns=many.columns,
            input_format=many.input_format,
        )
        return vocabulary, texts, total
    return read_twice(open_texts, asked.file)


def add_up(
    outcomes: Iterable[Outcome], aggregates: Aggregates, advance: Callable[[int], None]
) -> tuple[Aggregates, dict[str, int]]:
    """The aggregates of all shards, and the notes on their texts; failures are told as they come.

    Args:
        outcomes: of the shards.
        aggregates: to add to.
        advance: is told how many more records are done.

    Returns:
        The aggregates, and of notes that differ in their numbers only the first, with how many
        texts have one.
    """
    kinds: dict[str, str] = {}
    notes: Counter[str] = Counter()
    for outcome in outcomes:
        for _, message in outcome.failures:
            complain(message)
        for text, count in outcome.notes.items():
            notes[kinds.setdefault(re.sub(r"[\d.,]+", "", text), text)] += count
        aggregates.merge(outcome.aggregates)
        advance(outcome.records)
    return aggregates, notes


def _progress(total: int | None, asked: Asked) -> Advancing:
    """A count, a rate and the time that remains, on a terminal."""
    import sys

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
        write_file(asked.output, written(report, format_name, asked.show, plain))
    if asked.format != "none":
        write_bytes(written(report, asked.format, asked.show, display))


def written(report: CorpusReport, format_name: str, show: str, display: Display) -> bytes:
    """The report in a format."""
    from attnviz.renderers import corpus_data
    from attnviz.renderers.corpus_table import corpus_table

    spellings: dict[str, Callable[[], str | bytes]] = {
        "table": lambda: corpus_table(report, show, display),
        "tsv": lambda: corpus_data.corpus_tsv(report, show),
        "json": lambda: corpus_data.corpus_json(report),
        "npz": lambda: corpus_data.corpus_npz(report),
    }
    return as_bytes(spellings[format_name]())
