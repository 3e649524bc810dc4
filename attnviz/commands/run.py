"""Run texts through a model and report each result."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from attnviz.commands.command import Run
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.runs.engines import InProcess
from attnviz.runs.inputs import TextInput
from attnviz.runs.many_texts import AttendChunk, Outcome, Record, attend_all, engine_for
from attnviz.runs.pipeline import check_choice
from attnviz.runs.reporting import good_results, hold_notes
from attnviz.storage.texts import chunks


def run_texts(run: Run, command: Command, texts: TextInput) -> Any:
    """Compute the attention of texts, write what was asked for and return the exit status."""
    options = run.options
    check_choice(options.choice)
    check_origin(options.origin, command)
    work = AttendChunk(options.origin, options.choice, command, options.many.batch_size)
    with (
        engine_for(options.many) as engine,
        run.report(many=texts.several, command=command, input_file=texts.file) as report,
    ):
        if report.complete:
            return report.status
        if isinstance(engine, InProcess):
            work.open()
        loaded_at = time.perf_counter()
        ready = texts.ready if texts.several else None
        outcomes = attend_all(work, chunks(texts.open(), ready=ready), engine, report.records_done)
        count = report_all(outcomes, report, texts.total)
        report.say_done(f"{count} text{'s' if count != 1 else ''}", loaded_at)
    return run.result


def report_all(
    outcomes: Iterable[tuple[Record | None, Outcome]],
    report: Any,
    total: Callable[[], int | None] | None = None,
) -> int:
    """Write each result, note or failure, and return how many results there were."""
    count, output = 0, report.options.output
    in_words = report.format == "table" and not output.pieces
    for _, outcome in good_results(outcomes, report, total):
        count += 1
        if not output.quiet:
            hold_notes(outcome, report, in_words=in_words)
        report.add(outcome)
    report.finish()
    return count
