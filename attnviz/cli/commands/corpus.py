"""`attnviz corpus`: what each head does over a whole corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.heads import ORDERS, check_order
from attnviz.cli.inputs import texts_of
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.rejects import rejected
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts, sharing
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import AttnvizError, UsageError
from attnviz.core.notices import notify
from attnviz.core.options import Option, Options
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
from attnviz.runs.resumable import can_last
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
    cross: Annotated[
        bool,
        Option(
            ORIGIN,
            "--cross",
            "FILE holds pairs of source and target: measure how targets attend to sources.",
        ),
    ] = False,
    show: Annotated[
        str,
        Option(
            CHOICE,
            "--show",
            "What tables and rows hold: {choices}. json and npz hold everything.",
            "WHAT",
            choices=SHOWS,
        ),
    ] = "measures",
    order: Annotated[
        str,
        Option(
            CHOICE,
            "--sort",
            "Order: role (the clearest first), layer, or a measure (the largest first).",
            "NAME",
            choices=ORDERS,
        ),
    ] = "role",
    top: Annotated[
        int | None,
        Option(
            CHOICE,
            "--top",
            "Heads in tables and rows, the first as sorted; all by default.",
            "N",
            1,
        ),
    ] = None,
    frequencies: Annotated[
        Path | None,
        Option(
            CHOICE,
            "--frequencies",
            "Word, tab, count a line: how frequent words are. Default: as in the texts.",
            "FILE",
        ),
    ] = None,
    replicates: Annotated[
        int, Option(CHOICE, "--replicates", "Bootstrap replicates behind each interval.", "N", 2)
    ] = 200,
    bootstrap_seed: Annotated[
        int, Option(CHOICE, "--bootstrap-seed", "Seed of the bootstrap.", "N", 0)
    ] = 0,
    overview: Annotated[
        Path | None,
        Option(
            OUTPUT,
            "--overview",
            "Every head's positions, classes and measures as a picture: .png, .svg or .pdf.",
            "FILE",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --overview heads.png
    """
    check_order(order, None)
    asked = CorpusRequest(
        options=options,
        file=file,
        command="cross" if cross else "self",
        show=show,
        order=order,
        top=top,
        frequencies=frequencies,
        replicates=replicates,
        seed=bootstrap_seed,
        overview=overview,
    )
    raise typer.Exit(run(asked))


@dataclass(frozen=True, slots=True)
class CorpusRequest:
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
    overview: Path | None

    def check(self) -> None:
        """Find out before a model loads whether everything can be done and written.

        Raises:
            UsageError: a wrong suffix, choice or origin, or one file asked for twice.
            OutputError: a place that cannot be written.
        """
        check_choice(self.options.choice)
        check_origin(self.options.origin, self.command)
        if self.options.many.resume and self._resumable() is None:
            raise UsageError(
                "--resume continues an interrupted run: give the texts as a file, and -o FILE or "
                "--overview FILE"
            )

    def _resumable(self) -> Path | None:
        """The file beside which the run's state is kept, where the run could be resumed."""
        path = self.options.output.output or self.overview
        if path is None or not can_last(path) or not Path(self.file).is_file():
            return None
        return path

    def checkpoint(self) -> Checkpoint | None:
        """Where the run's state is kept, if it could be resumed.

        Raises:
            InputError: a file that decides the output cannot be read.
        """
        path = self._resumable()
        if path is None:
            return None
        origin, choice, many = self.options.origin, self.options.choice, self.options.many
        options = run_options(f"corpus {self.command}", origin, choice, many, Path(self.file))
        options |= {"--replicates": str(self.replicates), "--bootstrap-seed": str(self.seed)}
        if self.frequencies is not None:
            counts = read_bytes(self.frequencies)
            options["the checksum of --frequencies"] = hashlib.sha256(counts).hexdigest()[:16]
        return Checkpoint(path, options)


def run(asked: CorpusRequest) -> int:
    """Study a corpus and write what was asked for; answers the exit status.

    Raises:
        AttnvizError: nothing could be done, or nothing more.
    """
    asked.check()
    options = asked.options
    checkpoint = asked.checkpoint()
    with Report(options, "corpus", pictures={"overview": asked.overview}) as report:
        vocabulary, texts, total = _read(asked)
        attend = AttendChunk(options.origin, options.choice, asked.command, options.many.batch_size)
        task = ShardTask(attend, vocabulary, asked.replicates, asked.seed)
        state = CorpusState(task.empty())
        if options.many.resume and checkpoint is not None:
            earlier = checkpoint.restore(task)
            if earlier is None:
                notify("nothing to resume: starting from the first text")
            else:
                state = earlier
                report.reject(state.rejects.encode(), state.failed)

        def on_failure(record: Record, error: AttnvizError) -> str:
            report.skip(record, error)
            return "" if options.many.rejects is None else rejected(record, error).decode()

        left = None if total is None else total - state.records
        with (
            open_engine(*sharing(options)) as engine,
            report.counted(lambda: left) as advance,
        ):
            found = study(
                *(task, texts, engine),
                state=state,
                checkpoint=checkpoint,
                on_failure=on_failure,
                advance=advance,
                order=asked.order,
            )
        if found is not None:
            report.add(_data(found, asked))
        report.finish()
        report.say_done(f"{state.records} texts")
    if checkpoint is not None:
        checkpoint.discard()
    return 1 if found is None else report.status


def _read(asked: CorpusRequest) -> tuple[Vocabulary, Iterator[Record], int | None]:
    """The frequent words, the texts and, where it is known, how many these are."""
    many = asked.options.many

    def open_texts() -> Iterator[Record]:
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


def _data(report: CorpusReport, asked: CorpusRequest) -> Data:
    """The report in every form."""
    from attnviz.renderers.data import corpus as data
    from attnviz.renderers.text.corpus import corpus_table

    streams = (replace(stream, rows=stream.rows[: asked.top]) for stream in report.streams)
    first = replace(report, streams=tuple(streams))

    def overview() -> Figure:
        from attnviz.renderers.figures.corpus_overview import corpus_overview

        return corpus_overview(report)

    return Data(
        text=lambda display: corpus_table(first, asked.show, display),
        rows=lambda: data.corpus_tsv(first, asked.show),
        document=lambda: data.corpus_json(report),
        arrays=lambda: data.corpus_npz(report),
        figures={"overview": overview},
        about=dump_json(asdict(report.provenance)),
    )
