"""`attnviz corpus`: what each head does over a whole corpus."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.analyses.corpus.words import Vocabulary
from attnviz.analyses.heads import ORDERS, check_order
from attnviz.cli.inputs import texts_of
from attnviz.cli.options import (
    CHOICE,
    ORIGIN,
    OUTPUT,
    READING,
    SHARING,
    Options,
    completing,
    with_options,
)
from attnviz.cli.output import (
    check_writable,
    different,
    refuse_binary_on_terminal,
    write_bytes,
    write_file,
)
from attnviz.cli.rejects import failures, rejected, stopping
from attnviz.cli.run import Notes, count_texts, sharing
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.errors import AttnvizError, UsageError, choose
from attnviz.core.notices import notices_to, notify
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.renderers import Display
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
from attnviz.runs.outputs import as_bytes, picture_suffix
from attnviz.runs.pipeline import check_choice
from attnviz.runs.resumable import can_last
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes

SUFFIXES = {".txt": "table", ".tsv": "tsv", ".json": "json", ".npz": "npz"}
FORMATS = ("table", "tsv", "json", "npz", "none")
SHOWS = ("measures", "positions", "classes", "pairs", "links")


@with_options(
    without=(
        *("weights", "lens", "explain", "generate", "chat", "labels", "reduce", "over"),
        *("format", "output", "heatmap", "grid", "links", "html", "open_page", "top", "verbose"),
        *("keep_qk", "group", "words", "rows", "window"),
    ),
    many=(*READING, *SHARING, "resume"),
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
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help=f"What stdout gets: {', '.join(FORMATS)}.",
            autocompletion=completing(FORMATS),
        ),
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="The same as a file: .txt, .tsv, .json or .npz.",
        ),
    ] = None,
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
    choose(format_name, FORMATS, "format")
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
        format=format_name,
        output=output,
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
        paths = different(self.output, self.overview, self.options.many.rejects)
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            raise UsageError(f"-o '{self.output}' must end in {', '.join(SUFFIXES)}")
        if self.overview is not None:
            picture_suffix(self.overview)
        if self.options.many.resume and self._resumable() is None:
            raise UsageError(
                "--resume continues an interrupted run: give the texts as a file, and -o FILE or "
                "--overview FILE"
            )
        if self.format == "npz":
            refuse_binary_on_terminal("npz")
        for path in paths:
            check_writable(path)

    def _resumable(self) -> Path | None:
        """The file beside which the run's state is kept, where the run could be resumed."""
        path = self.output or self.overview
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
    vocabulary, texts, total = _read(asked)
    attend = AttendChunk(options.origin, options.choice, asked.command, options.many.batch_size)
    task = ShardTask(attend, vocabulary, asked.replicates, asked.seed)
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, notices_to(say):
        state = CorpusState(task.empty())
        if options.many.resume and checkpoint is not None:
            earlier = checkpoint.restore(task)
            if earlier is None:
                notify("nothing to resume: starting from the first text")
            else:
                state = earlier
                failed.count += state.failed
                if failed.write is not None:
                    failed.write(state.rejects.encode())

        def on_failure(record: Record, error: AttnvizError) -> str:
            failed.add(record, error)
            return "" if failed.write is None else rejected(record, error).decode()

        with _progress(None if total is None else total - state.records, asked) as advance:
            report = study(
                *(task, texts, engine),
                state=state,
                checkpoint=checkpoint,
                on_failure=on_failure,
                advance=advance,
                order=asked.order,
            )
    if report is not None:
        write(report, asked)
    if checkpoint is not None:
        checkpoint.discard()
    return 1 if failed.count or report is None else 0


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


def _progress(
    total: int | None, asked: CorpusRequest
) -> AbstractContextManager[Callable[[int], None]]:
    """A count, a rate and the time that remains, on a terminal."""
    if asked.options.output.quiet or not sys.stderr.isatty():
        return nullcontext(lambda done: None)
    from attnviz.cli.progress import advancing

    return advancing(total)


def write(report: CorpusReport, asked: CorpusRequest) -> None:
    """Write the picture, the file and stdout.

    Raises:
        OutputError: what cannot be written.
    """
    from attnviz.cli.sinks import display_of_stdout

    display = display_of_stdout(many=False)
    if asked.overview is not None:
        from attnviz.renderers.figures.corpus_overview import corpus_overview
        from attnviz.renderers.figures.figure import figure_bytes

        provenance = dump_json(asdict(report.provenance))
        suffix = picture_suffix(asked.overview)
        write_file(asked.overview, figure_bytes(corpus_overview(report), suffix, provenance))
    if asked.output is not None:
        format_name = SUFFIXES[asked.output.suffix.lower()]
        plain = Display(width=display.width)
        write_file(asked.output, _rendered(report, format_name, asked, plain))
    if asked.format != "none":
        write_bytes(_rendered(report, asked.format, asked, display))


def _rendered(
    report: CorpusReport, format_name: str, asked: CorpusRequest, display: Display
) -> bytes:
    from attnviz.renderers.data import corpus as corpus_data
    from attnviz.renderers.text.corpus import corpus_table

    streams = (replace(stream, rows=stream.rows[: asked.top]) for stream in report.streams)
    first = replace(report, streams=tuple(streams))
    renderings: dict[str, Callable[[], str | bytes]] = {
        "table": lambda: corpus_table(first, asked.show, display),
        "tsv": lambda: corpus_data.corpus_tsv(first, asked.show),
        "json": lambda: corpus_data.corpus_json(report),
        "npz": lambda: corpus_data.corpus_npz(report),
    }
    return as_bytes(renderings[format_name]())
