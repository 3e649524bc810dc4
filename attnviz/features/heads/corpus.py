"""What each head does over a corpus, as `attnviz heads` reports it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial

from attnviz.core import notices, registry
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.options import Options
from attnviz.features.corpus.report import orders_of
from attnviz.features.corpus.results import CorpusReport
from attnviz.features.corpus.study import (
    CorpusJournal,
    CorpusState,
    ShardTask,
    read_frequencies,
    read_twice,
    study,
)
from attnviz.features.corpus.words import PATCHES, Vocabulary
from attnviz.features.heads.request import HeadsRequest, chunks_of
from attnviz.features.measures.study import SHORT, not_measured
from attnviz.features.pruning.curve import EffectChunk, curve_of, keep_for_curve
from attnviz.features.vision.opening import check_vision
from attnviz.models.open import check_origin
from attnviz.renderers.reports import Data, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.journal import checksum_of, run_options
from attnviz.runs.many_texts import Record, engine_for
from attnviz.runs.pipeline import check_choice, keep_scores
from attnviz.runs.reporting import RunReport, reject_of
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes

STATISTICS = ("measures", "positions", "classes", "pairs", "links")  # what tables and rows may hold


def command_of(request: HeadsRequest, inputs: TextInput) -> registry.Command:
    return "picture" if inputs.pictures else request.command


def check_corpus(request: HeadsRequest, inputs: TextInput, options: Options) -> None:
    """Before a model loads, refuse what cannot be done."""
    check_choice(options.choice, rows=True)
    if inputs.pictures:
        check_vision(options.origin)
        texts_only = {
            "--cross": request.cross,
            "--effect": request.effect,
            "--frequencies": request.frequencies,
            "--picture": request.overview,
            "--statistics pairs": request.statistics == "pairs",
            "--columns": options.many.columns,
        }
        if flags := [option for option, value in texts_only.items() if value]:
            raise UsageError(f"{flags[0]} is for texts, and these are pictures: leave it out")
    check_origin(options.origin, command_of(request, inputs))


def question_of(request: HeadsRequest, inputs: TextInput, options: Options) -> dict[str, str]:
    """All options that decide the result, by the names that a user knows, for --resume."""
    assert inputs.file is not None
    settings = run_options(f"heads {command_of(request, inputs)}", options, inputs.file)
    if request.effect:
        settings["--effect"] = request.by
    if request.atlas:
        settings["--atlas"] = "given"
    if request.frequencies is not None:
        settings["the checksum of --frequencies"] = checksum_of(read_bytes(request.frequencies))
    if inputs.pictures:
        sizes = "\n".join(f"{path.stat().st_size} {path}" for path in inputs.pictures)
        settings["the pictures"] = checksum_of(os.fsencode(sizes))
    return settings


def report_corpus(
    request: HeadsRequest,
    inputs: TextInput,
    options: Options,
    report: RunReport,
    *,
    journal: CorpusJournal | None = None,
) -> None:
    """Report what each head does over a corpus; a journal keeps the state meanwhile."""
    if inputs.others:
        report.say(f"{inputs.others} files that are no pictures are left out")
    vocabulary, texts, total = _read(request, inputs)
    origin = keep_scores(options).origin
    attend = chunks_of(request, replace(options, origin=origin), command_of(request, inputs))
    task = ShardTask(attend, vocabulary, samples=request.atlas)
    sample = list[Record]()
    state = CorpusState(task.empty())
    if journal is not None:
        old = journal.resume(journal.read(), report.say, resume=options.many.resume)
        if old is not None:
            state = journal.restore(old, task)
            report.say(f"resuming after {state.records} records")
            report.reject(state.rejects.encode(), state.failures)
    remainder = None if total is None else total - state.records

    def on_failure(record: Record, error: AttnvizError) -> str:
        report.skip(record, error)
        return "" if options.many.rejects is None else reject_of(record, error).decode()

    with journal.until_done(report.say) if journal is not None else nullcontext():
        with engine_for(options.many) as engine, report.progress(lambda: remainder) as advance:
            result = study(
                *(task, keep_for_curve(texts, sample) if request.curve else texts, engine),
                state=state,
                journal=journal,
                on_failure=on_failure,
                advance=advance,
                order=request.order,
            )
            if result is not None and request.curve and isinstance(attend, EffectChunk):
                orders = partial(orders_of, state.aggregates)
                result = replace(result, curve=curve_of(attend, sample, result, orders, engine))
        if result is not None:
            names = dict.fromkeys(one.name for own in result.streams for one in own.measures)
            if request.order in SHORT and request.order not in names:
                raise UsageError(not_measured(request.order, names))
            report.add(_corpus_data(result, request))
        report.finish(f"{state.records} {'pictures' if inputs.pictures else 'texts'}")


def _read(
    request: HeadsRequest, inputs: TextInput
) -> tuple[Vocabulary, Iterator[Record], int | None]:
    if inputs.pictures:
        return Vocabulary({}, (), PATCHES), inputs.open(), inputs.count()
    if request.frequencies is None:
        return read_twice(inputs)
    return read_frequencies(request.frequencies), inputs.open(), inputs.count()


def _corpus_data(report: CorpusReport, request: HeadsRequest) -> Data:
    from attnviz.features.corpus import rows
    from attnviz.features.corpus.table import corpus_table

    streams = []
    for one in report.streams:
        role = [row for row in one.rows if request.role in (None, *(x.name for x in row.roles))]
        streams.append(replace(one, rows=tuple(role[: request.top])))
    first = replace(report, streams=tuple(streams))
    if request.role is not None and not any(one.rows for one in streams):
        notices.notify(f"no head has the role '{request.role}'")

    figures = {
        "overview": partial(draw_by, "attnviz.features.atlas.picture:corpus_overview", report)
    }
    if report.curve:
        figures["curve"] = partial(
            draw_by, "attnviz.features.pruning.picture:prune_curve", report.curve
        )

    def page(command: str) -> str:
        from attnviz.features.atlas.page import atlas_page, thumbnails

        return atlas_page(report, command, thumbnails(report))

    return Data(
        text=lambda display: corpus_table(first, request.statistics, display),
        rows=lambda: rows.corpus_tsv(first, request.statistics),
        document=lambda: rows.corpus_json(report),
        arrays=lambda: rows.corpus_npz(report),
        figures=figures,
        page=page if request.atlas else None,
        about=dump_json(asdict(replace(report.provenance, notes=report.notes))),
        value=report,
    )
