"""`attnviz corpus`: what each head does over a whole corpus."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.corpus.report import orders_of
from attnviz.analyses.corpus.words import PATCHES, Vocabulary
from attnviz.analyses.heads import check_order
from attnviz.cli.commands.heads import BY, CROSS, SORT, WITH_EFFECT, check_effect
from attnviz.cli.inputs import pictures_in, texts_of
from attnviz.cli.options import CHOICE, OUTPUT, with_options
from attnviz.cli.rejects import reject_of
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts, sharing
from attnviz.cli.sinks import PAGES
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.options import Options, opt
from attnviz.core.registry import Command
from attnviz.models.open import check_origin, check_vision
from attnviz.renderers.reports import Data
from attnviz.runs.corpus import (
    CorpusCheckpoint,
    CorpusState,
    ShardTask,
    read_frequencies,
    read_twice,
    study,
)
from attnviz.runs.effects import EffectChunk, Instead, curve_of, kept_for_curve
from attnviz.runs.engines import open_engine
from attnviz.runs.journal import run_options
from attnviz.runs.many_texts import AttendChunk, Record
from attnviz.runs.pictures import thumbnails
from attnviz.runs.pipeline import check_choice
from attnviz.runs.resumable import can_resume
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import BadText, Text, is_utf8

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWS = ("measures", "positions", "classes", "pairs", "links")


@with_options(
    *("model", "compute", "mechanism", "causal", "to", "long"),
    *("stream", "heads", "special", "reading", "sharing"),
    also=("resume",),
    writes="corpus",
)
def corpus(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Texts: .txt (one a line), .jsonl, .csv or .tsv; - is stdin. Or a picture, or a "
            "folder of pictures.",
        ),
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILE…", help="Further pictures and folders.")
    ] = None,
    cross: bool = CROSS,
    show: str = opt(
        CHOICE,
        "--show WHAT",
        "What tables and rows hold: {choices}. json and npz always hold everything.",
        default="measures",
        choices=SHOWS,
    ),
    order: str = SORT,
    effect: bool = WITH_EFFECT,
    by: Instead = BY,
    top: int | None = opt(
        CHOICE, "--top N", "How many heads to list, in the order of --sort; by default all.", min=1
    ),
    frequencies: Path | None = opt(
        CHOICE,
        "--frequencies FILE",
        "How frequent words are: word, tab, count on each line. By default counted in the texts.",
        rare=True,
    ),
    overview: Path | None = opt(
        OUTPUT,
        "--overview FILE",
        "Every head's positions, classes and measures as a picture: .png, .svg or .pdf.",
    ),
    prune_curve: Path | None = opt(
        OUTPUT,
        "--prune-curve FILE",
        "The loss while heads are switched off one after another, as a picture; needs --effect.",
        rare=True,
    ),
    atlas: Path | None = opt(
        OUTPUT,
        "--atlas PAGE",
        "Page to browse all heads, with texts in which each attends strongly, usually, weakly.",
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --overview heads.png

    attnviz corpus sample_inputs/sentences.txt --atlas atlas.html -f none

    attnviz corpus ./my-pictures --model ./my-vit --atlas atlas.html -f none

    attnviz corpus sample_inputs/pairs.tsv --cross --effect --sort effect --prune-curve curve.png
    """
    check_order(order, None)
    check_effect(order, by, effect=effect)
    if prune_curve is not None and not effect:
        raise UsageError("--prune-curve switches heads off by their effects: add --effect")
    check_choice(options.choice)
    pictures, aside = pictures_in([file, *(more or ())])
    command: Command = "cross" if cross else "self"
    if pictures:
        command, file = "picture", str(pictures[0])
        texts_only = {"--cross": cross, "--effect": effect, "--frequencies": frequencies}
        _check_pictures(
            options, {**texts_only, "--overview": overview, "--show pairs": show == "pairs"}
        )
    check_origin(options.origin, command)
    own = _own(pictures, frequencies, **{"--effect": effect and by, "--atlas": atlas and "given"})
    if atlas is not None:
        options = _with_atlas(options, atlas)
    figures = {"overview": overview, "prune_curve": prune_curve}
    places = (options.output.output, *figures.values(), atlas)
    written = next((path for path in places if path), None)
    checkpoint = _checkpoint(written, file, command, options, own)
    with Report(options, "corpus", pictures=figures) as report:
        if aside:
            report.say(f"{aside} files that are no pictures are left out")
        vocabulary, texts, total = _read(file, pictures, command, frequencies, options)
        what = options.origin, options.choice, command, options.many.batch_size
        attend = EffectChunk(*what, by) if effect else AttendChunk(*what)
        task, kept = ShardTask(attend, vocabulary, samples=atlas is not None), list[Record]()
        state = _state(task, checkpoint, report)
        left = None if total is None else total - state.records

        def on_failure(record: Record, error: AttnvizError) -> str:
            report.skip(record, error)
            return "" if options.many.rejects is None else reject_of(record, error).decode()

        with open_engine(*sharing(options)) as engine, report.counted(lambda: left) as advance:
            found = study(
                *(task, kept_for_curve(texts, kept) if prune_curve else texts, engine),
                state=state,
                checkpoint=checkpoint,
                on_failure=on_failure,
                advance=advance,
                order=order,
            )
            if found is not None and prune_curve and isinstance(attend, EffectChunk):
                orders = partial(orders_of, state.aggregates)
                found = replace(found, curve=curve_of(attend, kept, found, orders, engine))
        if found is not None:
            report.add(_data(found, show, top))
        report.finish(f"{state.records} {'pictures' if pictures else 'texts'}")
    if checkpoint is not None:
        checkpoint.discard()
    raise typer.Exit(1 if found is None else report.status)


def _check_pictures(options: Options, asked: Mapping[str, object]) -> None:
    """Refuse what is asked of texts only."""
    check_vision(options.origin)
    read = {"--columns": options.many.columns, "--input-format": options.many.input_format}
    if given := [option for option, value in {**asked, **read}.items() if value]:
        raise UsageError(f"{given[0]} is for texts, and these are pictures: leave it out")


def _own(pictures: Sequence[Path], frequencies: Path | None, **given: object) -> dict[str, str]:
    """What decides the output beside the shared options, for --resume."""
    own = {name: value for name, value in given.items() if isinstance(value, str)}
    if frequencies is not None:
        checksum = hashlib.sha256(read_bytes(frequencies)).hexdigest()
        own["the checksum of --frequencies"] = checksum[:16]
    if pictures:
        sizes = "\n".join(f"{path.stat().st_size} {path}" for path in pictures)
        own["the pictures"] = hashlib.sha256(os.fsencode(sizes)).hexdigest()[:16]
    return own


def _records(pictures: Sequence[Path]) -> Iterator[Record]:
    for number, path in enumerate(pictures, 1):
        name, where = str(path), f"'{path}'"
        if is_utf8(name):
            yield Text(name, name, where=where, line=number, raw=name)
        else:
            yield BadText(where, InputError(f"the name {where} is not valid UTF-8"), number, name)


def _with_atlas(options: Options, atlas: Path) -> Options:
    """The options of a run whose page is an atlas."""
    if atlas.suffix.lower() not in PAGES:
        raise UsageError(f"--atlas '{atlas}' names no page: end it in {' or '.join(PAGES)}")
    given = tuple((name, value) for name, value in options.given if name != "atlas")
    return replace(options, given=given, output=replace(options.output, html=atlas))


def _checkpoint(
    path: Path | None, file: str, command: Command, options: Options, own: Mapping[str, str]
) -> CorpusCheckpoint | None:
    """Where the state is kept of a run that will write `path`, if it could be resumed."""
    if path is None or not can_resume(path) or not Path(file).is_file():
        if options.many.resume:
            raise UsageError(
                "--resume continues an interrupted run: give the texts as a file, and -o FILE, "
                "--overview FILE or --atlas PAGE"
            )
        return None
    return CorpusCheckpoint(path, {**run_options(f"corpus {command}", options, Path(file)), **own})


def _read(
    file: str,
    pictures: Sequence[Path],
    command: Command,
    frequencies: Path | None,
    options: Options,
) -> tuple[Vocabulary, Iterator[Record], int | None]:
    if pictures:
        return Vocabulary({}, (), PATCHES), _records(pictures), len(pictures)

    def open_texts() -> Iterator[Record]:
        texts, _ = texts_of([], file, options.many, pairs=command == "cross")
        return texts

    if frequencies is None:
        return read_twice(open_texts, file)
    return read_frequencies(frequencies), open_texts(), count_texts(file, command, options)


def _state(task: ShardTask, checkpoint: CorpusCheckpoint | None, report: Report) -> CorpusState:
    """The state to start from: with --resume what an earlier run has left."""
    if report.options.many.resume and checkpoint is not None:
        state = checkpoint.restore(task)
        if state is not None:
            report.reject(state.rejects.encode(), state.failed)
            return state
        report.say("nothing to resume: starting from the first text")
    return CorpusState(task.empty())


def _data(report: CorpusReport, show: str, top: int | None) -> Data:
    from attnviz.renderers.data import corpus_data as data
    from attnviz.renderers.text.corpus_table import corpus_table

    streams = (replace(stream, rows=stream.rows[:top]) for stream in report.streams)
    first = replace(report, streams=tuple(streams))

    def overview() -> Figure:
        from attnviz.renderers.figures.corpus_overview import corpus_overview

        return corpus_overview(report)

    def curve() -> Figure:
        from attnviz.renderers.figures.prune_curve import prune_curve

        assert report.curve is not None
        return prune_curve(report.curve)

    def page(command: str) -> str:
        from attnviz.renderers.page.atlas import atlas_page

        return atlas_page(report, command, thumbnails(report))

    return Data(
        text=lambda display: corpus_table(first, show, display),
        rows=lambda: data.corpus_tsv(first, show),
        document=lambda: data.corpus_json(report),
        arrays=lambda: data.corpus_npz(report),
        figures={"overview": overview, "prune_curve": curve},
        page=page,
        about=dump_json(asdict(report.provenance)),
        value=report,
    )
