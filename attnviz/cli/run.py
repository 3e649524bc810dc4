"""One run of a command: check everything, load, attend to each text, and write each result once."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from attnviz.analyses.tokens import notable_holders
from attnviz.cli.options import Options
from attnviz.cli.output import note
from attnviz.cli.rejects import Failures, stopping
from attnviz.cli.sinks import Sinks
from attnviz.core.errors import AttnvizError
from attnviz.core.notices import notices_to
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.runs.engines import InProcess, open_engine
from attnviz.runs.many_texts import AttendChunk, Outcome, Record, attend_all
from attnviz.runs.pipeline import Result, check_choice
from attnviz.storage.texts import chunks


def run_texts(
    command: Command,
    texts: Iterable[Record],
    many: bool,
    options: Options,
    input_file: str | None = None,
) -> int:
    """Attend to texts and write what was asked for; answers the exit status.

    Whatever could be asked wrongly is found before a model loads.

    Args:
        command: what is asked.
        texts: good and bad records in order.
        many: whether there may be several.
        options: what was asked for.
        input_file: where the texts come from; "-" or None: stdin or the command line.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    started = time.perf_counter()
    check_choice(options.choice)
    check_origin(options.origin, command)
    stopping(options)
    work = AttendChunk(options.origin, options.choice, command, options.many.batch_size)
    again = None if input_file in (None, "-") else Path(str(input_file))
    with open_engine(*sharing(options)) as engine, Sinks(options, many, command, again) as sinks:
        if sinks.complete:
            return 1 if sinks.failed else 0
        if isinstance(engine, InProcess):
            work.open()
        loaded = time.perf_counter()
        ready = more_of_stdin(input_file) if many else None
        found = attend_all(work, chunks(texts, ready=ready), engine, sinks.done)
        total = partial(count_texts, input_file, command, options)
        done = write_all(found, sinks, options, total if many else None)
        sinks.finish()
    if options.output.verbose:
        took = time.perf_counter() - loaded
        texts_done = f"{done} text{'s' * (done != 1)}"
        note(f"loaded in {loaded - started:.2f} s, {texts_done} in {took:.2f} s")
    return 1 if sinks.failed else 0


def more_of_stdin(input_file: str | None) -> Callable[[], bool] | None:
    """What tells whether more of stdin is there already; None where a file is read."""
    if input_file not in (None, "-"):
        return None
    from attnviz.cli.inputs import waiting

    return waiting


def sharing(options: Options) -> tuple[str, int | None, str | None]:
    """Who is to do the work, as `open_engine` takes it."""
    return options.many.engine, options.many.workers, options.many.ray_address


def write_all(
    found: Iterable[tuple[Record | None, Outcome]],
    sinks: Sinks,
    options: Options,
    total: Callable[[], int | None] | None = None,
) -> int:
    """Write each result, say each note once, and each failure; answers how many results there were.

    Args:
        found: each record, if it has a line of its own, with what became of it.
        sinks: where results go.
        options: what was asked for.
        total: counts the records, if several may come.

    Raises:
        AttnvizError: the first failure, where that was to be the end.
    """
    done = 0
    notes, failures = Notes(), Failures(stopping(options), sinks.skip)
    with notices_to(None if options.output.quiet else notes.say):
        shown = total is not None and not options.output.quiet and sys.stderr.isatty()
        for record, outcome in _with_progress(found, total) if total and shown else found:
            if isinstance(outcome, AttnvizError):
                failures.add(record, outcome)
                continue
            done += 1
            if not options.output.quiet:
                notes.say_of(outcome)
            sinks.add(outcome)
    return done


def count_texts(input_file: str | None, command: Command, options: Options) -> int | None:
    """How many texts a file holds, good and bad; None where that is not known."""
    if input_file is None:
        return None
    from attnviz.cli.inputs import count_records

    many, pairs = options.many, command != "self"
    return count_records(
        input_file, pairs=pairs, columns=many.columns, input_format=many.input_format
    )


class Notes:
    """Notes on stderr, each once; one that differs in its numbers only counts as said."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def say(self, text: str) -> None:
        """Say a note, unless it was said."""
        kind = re.sub(r"\d[\d.,]*|'.*'", "", text)
        if kind not in self.said:
            note(text)
        self.said.add(kind)

    def say_of(self, result: Result) -> None:
        """Say what a reader must know of a result."""
        for text in (*result.provenance.notes, *notable_holders(result)):
            self.say(text)


def _with_progress(
    found: Iterable[tuple[Record | None, Outcome]], total: Callable[[], int | None]
) -> Iterator[tuple[Record | None, Outcome]]:
    """The same, with a count and a rate on stderr once they take longer than a second."""
    from attnviz.cli.progress import counted

    yield from counted(found, total())
