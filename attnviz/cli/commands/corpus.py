"""`attnviz corpus`: what each head does over a whole corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.heads import check_order
from attnviz.cli.commands.heads import SORT
from attnviz.cli.inputs import reading, texts_of
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.rejects import rejected
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts, sharing
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.options import Options, opt
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.renderers.reports import Data
from attnviz.runs.corpus import (
    Checkpoint,
    CorpusState,
    ShardTask,
    read_frequencies,
    read_twice,
    study,
)
from attnviz.runs.engines import open_engine
from attnviz.runs.journal import run_options
from attnviz.runs.many_texts import AttendChunk, Record
from attnviz.runs.pipeline import check_choice
from attnviz.runs.resumable import can_resume
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWS = ("measures", "positions", "classes", "pairs", "links")


@with_options(
    *("model", "compute", "mechanism", "layer", "causal", "to", "long"),
    *("stream", "heads", "special", "reading", "sharing"),
    also=("resume",),
    writes="corpus",
)
def corpus(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Texts: .txt (one a line), .jsonl, .csv or .tsv; - is stdin."
        ),
    ],
    cross: bool = opt(
        ORIGIN,
        "--cross",
        "FILE holds pairs of source and target: measure how targets attend to sources.",
    ),
    show: str = opt(
        CHOICE,
        "--show WHAT",
        "What tables and rows hold: {choices}. json and npz hold everything.",
        default="measures",
        choices=SHOWS,
    ),
    order: str = SORT,
    top: int | None = opt(
        CHOICE, "--top N", "Heads in tables and rows, the first as sorted; all by default.", min=1
    ),
    frequencies: Path | None = opt(
        CHOICE,
        "--frequencies FILE",
        "Word, tab, count a line: how frequent words are. Default: as in the texts.",
    ),
    overview: Path | None = opt(
        OUTPUT,
        "--overview FILE",
        "Every head's positions, classes and measures as a picture: .png, .svg or .pdf.",
    ),
    replicates: Annotated[int | None, typer.Option(hidden=True)] = None,
    bootstrap_seed: Annotated[int | None, typer.Option(hidden=True)] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --overview heads.png
    """
    check_order(order, None)
    check_choice(options.choice)
    command: Command = "cross" if cross else "self"
    check_origin(options.origin, command)
    own: dict[str, str] = {}
    if frequencies is not None:
        checksum = hashlib.sha256(read_bytes(frequencies)).hexdigest()
        own["the checksum of --frequencies"] = checksum[:16]
    checkpoint = _checkpoint(options.output.output or overview, file, command, options, own)
    with Report(options, "corpus", pictures={"overview": overview}) as report:
        if replicates is not None or bootstrap_seed is not None:
            report.say("--replicates and --bootstrap-seed do nothing: intervals are a closed form")
        vocabulary, texts, total = _read(file, command, frequencies, options)
        attend = AttendChunk(options.origin, options.choice, command, options.many.batch_size)
        task = ShardTask(attend, vocabulary)
        state = _state(task, checkpoint, report)
        left = None if total is None else total - state.records

        def on_failure(record: Record, error: AttnvizError) -> str:
            report.skip(record, error)
            return "" if options.many.rejects is None else rejected(record, error).decode()

        with open_engine(*sharing(options)) as engine, report.counted(lambda: left) as advance:
            found = study(
                *(task, texts, engine),
                state=state,
                checkpoint=checkpoint,
                on_failure=on_failure,
                advance=advance,
                order=order,
            )
        if found is not None:
            report.add(_data(found, show, top))
        report.finish()
        report.say_done(f"{state.records} texts")
    if checkpoint is not None:
        checkpoint.discard()
    raise typer.Exit(1 if found is None else report.status)


def _checkpoint(
    path: Path | None, file: str, command: Command, options: Options, own: Mapping[str, str]
) -> Checkpoint | None:
    """Where the state is kept of a run that will write `path`, if it could be resumed."""
    if path is None or not can_resume(path) or not Path(file).is_file():
        if options.many.resume:
            raise UsageError(
                "--resume continues an interrupted run: give the texts as a file, and -o FILE or "
                "--overview FILE"
            )
        return None
    return Checkpoint(path, {**run_options(f"corpus {command}", options, Path(file)), **own})


def _read(
    file: str, command: Command, frequencies: Path | None, options: Options
) -> tuple[Vocabulary, Iterator[Record], int | None]:

    def open_texts() -> Iterator[Record]:
        texts, _ = texts_of([], file, pairs=command == "cross", **reading(options))
        return texts

    if frequencies is None:
        return read_twice(open_texts, file)
    return read_frequencies(frequencies), open_texts(), count_texts(file, command, options)


def _state(task: ShardTask, checkpoint: Checkpoint | None, report: Report) -> CorpusState:
    """The state to start from: with --resume what an earlier run has left."""
    if report.options.many.resume and checkpoint is not None:
        state = checkpoint.restore(task)
        if state is not None:
            report.reject(state.rejects.encode(), state.failed)
            return state
        report.say("nothing to resume: starting from the first text")
    return CorpusState(task.empty())


def _data(report: CorpusReport, show: str, top: int | None) -> Data:
    from attnviz.renderers.data import corpus as data
    from attnviz.renderers.text.corpus import corpus_table

    streams = (replace(stream, rows=stream.rows[:top]) for stream in report.streams)
    first = replace(report, streams=tuple(streams))

    def overview() -> Figure:
        from attnviz.renderers.figures.corpus_overview import corpus_overview

        return corpus_overview(report)

    return Data(
        text=lambda display: corpus_table(first, show, display),
        rows=lambda: data.corpus_tsv(first, show),
        document=lambda: data.corpus_json(report),
        arrays=lambda: data.corpus_npz(report),
        figures={"overview": overview},
        about=dump_json(asdict(report.provenance)),
        value=report,
    )
