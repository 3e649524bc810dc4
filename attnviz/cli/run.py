"""Run texts through a model and report each result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from attnviz.cli.inputs import count_records, stdin_is_ready
from attnviz.cli.report import Report
from attnviz.core.errors import AttnvizError
from attnviz.core.options import Options
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.runs.engines import InProcess, open_engine
from attnviz.runs.many_texts import AttendChunk, Outcome, Record, attend_all
from attnviz.runs.pipeline import check_choice
from attnviz.storage.texts import chunks


def run_texts(
    command: Command,
    texts: Iterable[Record],
    *,
    many: bool,
    options: Options,
    input_file: str | None = None,
) -> int:
    """Compute the attention of texts, write what was asked for and return the exit status.

    Usage errors are raised before a model loads.
    """
    check_choice(options.choice)
    check_origin(options.origin, command)
    work = AttendChunk(options.origin, options.choice, command, options.many.batch_size)
    again = None if input_file in (None, "-") else Path(str(input_file))
    with (
        open_engine(*sharing(options)) as engine,
        Report(options, many=many, command=command, input_file=again) as report,
    ):
        total = partial(count_texts, input_file, command, options)
        if report.complete:
            return report.status
        if isinstance(engine, InProcess):
            work.open()
        loaded = time.perf_counter()
        ready = more_of_stdin(input_file) if many else None
        found = attend_all(work, chunks(texts, ready=ready), engine, report.done)
        done = report_all(found, report, total if many else None)
        report.say_done(f"{done} text{'s' * (done != 1)}", loaded)
    return report.status


def report_all(
    found: Iterable[tuple[Record | None, Outcome]],
    report: Report,
    total: Callable[[], int | None] | None = None,
) -> int:
    """Write each result, note or failure, and return how many results there were."""
    done = 0
    with report.counted(total) as advance:
        for record, outcome in found:
            advance(1)
            if isinstance(outcome, AttnvizError):
                report.skip(record, outcome)
                continue
            done += 1
            report.say_of(outcome)
            report.add(outcome)
    report.finish()
    return done


def more_of_stdin(input_file: str | None) -> Callable[[], bool] | None:
    """The function that tells whether stdin has more data now; None if a file is read."""
    return stdin_is_ready if input_file in (None, "-") else None


def sharing(options: Options) -> tuple[str, int | None, str | None]:
    """The arguments of `open_engine`."""
    return options.many.engine, options.many.workers, options.many.ray_address


def count_texts(input_file: str | None, command: Command, options: Options) -> int | None:
    """How many texts a file holds, good and bad; None if that is not known."""
    if input_file is None:
        return None
    return count_records(input_file, options.many, pairs=command != "self")
