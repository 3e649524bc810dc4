"""What `attnviz corpus` was asked, and whether it can be done and written."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.corpus.report import report_of
from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.heads import ORDERS, check_order
from attnviz.cli.corpus_work import (
    Accumulator,
    Checkpoint,
    ShardTask,
    Texts,
    read_frequencies,
    read_twice,
)
from attnviz.cli.inputs import texts_of
from attnviz.cli.journal import question_of
from attnviz.cli.options import (
    CHOICE,
    ORIGIN,
    OUTPUT,
    completing,
    with_options,
)
from attnviz.cli.report import Report
from attnviz.cli.resumable import can_last
from attnviz.cli.run import count_texts, sharing
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import UsageError, choose
from attnviz.core.notices import notify
from attnviz.core.options import Options
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.renderers.reports import Data
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk
from attnviz.runs.pipeline import check_choice
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        if self.options.many.resume and self._lasting() is None:
            raise UsageError(
                "--resume goes on with a file that an interrupted run was to write: give the texts "
                "as a file, and -o FILE or --overview FILE"
            )

    def _lasting(self) -> Path | None:
        """The file beside which the run's state is kept, where it can be gone on with."""
        path = self.options.output.output or self.overview
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


# <corpus_write> The report on a corpus, written wherever it was asked for.


def corpus_data(report: CorpusReport, asked: CorpusRequest) -> Data:
    """The report in every form."""
    first = replace(
        report,
        streams=tuple(replace(stream, rows=stream.rows[: asked.top]) for stream in report.streams),
    )
    from attnviz.renderers.data import corpus as data
    from attnviz.renderers.text.corpus import corpus_table

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


# <corpus_run> One run of `attnviz corpus`: shards of texts become aggregates, and these are
# written once.


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
        study = ShardTask(attend, vocabulary, asked.replicates, asked.seed)
        with open_engine(*sharing(options)) as engine:
            adding = Accumulator(study, report.failures, checkpoint)
            if options.many.resume and not adding.go_on():
                notify("there is nothing to resume: beginning")
            left = None if total is None else total - adding.reached.records
            with report.counted(lambda: left) as advance:
                adding.add_all(texts, engine, advance)
            for text in adding.notes():
                notify(text)
        if adding.aggregates.texts:
            report.add(corpus_data(report_of(adding.aggregates, asked.order), asked))
        report.finish()
        report.say_done(f"{adding.aggregates.texts} texts")
    if checkpoint is not None:
        checkpoint.discard()
    return report.status if adding.aggregates.texts else 1


def _read(asked: CorpusRequest) -> tuple[Vocabulary, Texts, int | None]:
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


# <corpus> attnviz corpus.

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
        typer.Option(
            "--cross",
            rich_help_panel=ORIGIN,
            help="FILE holds pairs of source and target: measure how targets attend to sources.",
        ),
    ] = False,
    show: Annotated[
        str,
        typer.Option(
            "--show",
            metavar="WHAT",
            rich_help_panel=CHOICE,
            help=f"What table and tsv hold: {', '.join(SHOWS)}. json and npz hold everything.",
            autocompletion=completing(SHOWS),
        ),
    ] = "measures",
    order: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help="Order: role (the clearest first), layer, or a measure (the largest first).",
            autocompletion=completing(ORDERS),
        ),
    ] = "role",
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            rich_help_panel=CHOICE,
            help="Heads in table and tsv, the first as sorted; all by default.",
        ),
    ] = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            "--frequencies",
            metavar="FILE",
            rich_help_panel=CHOICE,
            help="Word, tab, count a line: how frequent words are. Default: as in the texts.",
        ),
    ] = None,
    replicates: Annotated[
        int,
        typer.Option(
            "--replicates",
            metavar="N",
            min=2,
            rich_help_panel=CHOICE,
            help="Bootstrap replicates behind each interval.",
        ),
    ] = 200,
    bootstrap_seed: Annotated[
        int,
        typer.Option(
            "--bootstrap-seed",
            metavar="N",
            min=0,
            rich_help_panel=CHOICE,
            help="Seed of the bootstrap.",
        ),
    ] = 0,
    overview: Annotated[
        Path | None,
        typer.Option(
            "--overview",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Every head's positions, classes and measures as a picture: .png, .svg or .pdf.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does over a whole corpus, with intervals.

    attnviz corpus sample_inputs/sentences.txt --show positions

    attnviz corpus sample_inputs/sentences.txt -o heads.npz --overview heads.png
    """
    choose(show, SHOWS, "thing to show")
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
