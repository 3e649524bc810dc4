"""`attnviz heads --treebank`: every sentence of a file, its map, and what each head finds in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.heads import ORDERS, ROLES, HeadStudy, check_order
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.analyses.treebank import TreebankStudy
from attnviz.cli.app import complain
from attnviz.cli.inputs import InputOption, reading, texts_of
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
from attnviz.cli.output import check_writable, different, note, write_file, write_text
from attnviz.cli.rejects import failures
from attnviz.cli.run import Notes, more_of_stdin, sharing
from attnviz.core.attention_map import Provenance
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose
from attnviz.core.notices import notices_to, notify
from attnviz.models import Source
from attnviz.models.open import check_origin, open_source
from attnviz.renderers import Display
from attnviz.renderers.data.heads import measures_json, measures_tsv
from attnviz.renderers.text.heads import (
    measures_table,
    similarity_json,
    similarity_table,
    similarity_tsv,
    treebank_json,
    treebank_table,
    treebank_tsv,
)
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk, Record, attend_all
from attnviz.runs.outputs import picture_suffix
from attnviz.runs.pipeline import attend_one, check_choice
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.storage.documents import dump_json
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def relations(file: str, asked: HeadsRequest) -> int:
    """Score every head on every relation of a treebank; answers the exit status.

    A sentence that the model cannot take is named and left out.

    Raises:
        InputError: the file cannot be read, holds no sentence, or none could be used.
    """
    sentences = read_treebank(file)
    source = open_source(asked.options.origin, "self")
    study, failed = TreebankStudy(), 0
    said: set[str] = set()
    for sentence in _counted(sentences, asked):
        try:
            found = attend_one(source, Text("0", sentence.text), asked.options.choice, "self")
            study.add(sentence, found)
        except InputError as error:
            failed += 1
            complain(f"the sentence at {sentence.where}: {error}")
            continue
        for text in found.provenance.notes:
            if text not in said:
                asked.say(text)
            said.add(text)
    if not study.sentences:
        raise InputError(f"'{file}' holds no sentence that could be used")
    report = study.report()
    for text in report.notes:
        asked.say(text)
    write_report(
        {
            "table": lambda display: treebank_table(report, display),
            "tsv": lambda _: treebank_tsv(report),
            "json": lambda _: treebank_json(report),
        },
        asked,
    )
    return 1 if failed else 0


def read_treebank(file: str) -> list[Sentence]:
    """The sentences of a file, all of which are read before a model loads; "-" is stdin.

    Raises:
        InputError: it cannot be read, or is no CoNLL-U.
    """
    if file == "-":
        return list(read_sentences(sys.stdin.buffer, "stdin"))
    try:
        with Path(file).open("rb") as lines:
            return list(read_sentences(lines, f"'{file}'"))
    except FileNotFoundError as error:
        raise InputError(f"there is no file '{file}'") from error
    except IsADirectoryError as error:
        raise InputError(f"'{file}' is a folder, not a file") from error
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror}") from error


def _counted(sentences: list[Sentence], asked: HeadsRequest) -> Iterator[Sentence]:
    """The sentences, counted on stderr where someone watches."""
    if asked.options.output.quiet or not sys.stderr.isatty():
        yield from sentences
        return
    from attnviz.cli.progress import counted

    yield from counted(sentences)


# <heads_run> One run of `attnviz heads`: maps of every text, measured, and written once.

SUFFIXES = {".txt": "table", ".tsv": "tsv", ".json": "json"}


@dataclass(frozen=True, slots=True)
class HeadsRequest:
    """What was asked for beside the shared options.

    Attributes:
        options: the shared ones.
        order: what heads are sorted by.
        role: leave out heads without it.
        similar: divergences between heads rather than measures.
        format: what stdout gets.
        output: a file for the same.
        overview: a picture of roles and measures.
        scatter: a picture of heads in a plane.
        repeat: also run the model over repeated random words.
    """

    options: Options
    order: str = "role"
    role: str | None = None
    similar: bool = False
    format: str = "table"
    output: Path | None = None
    overview: Path | None = None
    scatter: Path | None = None
    repeat: bool = True

    def check(self) -> None:
        """Find out before a model loads whether everything can be done and written.

        Raises:
            UsageError: a wrong suffix, choice or origin, or one file asked for twice.
            OutputError: a place that cannot be written.
        """
        check_choice(self.options.choice)
        check_origin(self.options.origin, "self")
        rejects = self.options.many.rejects
        paths = different(self.output, self.overview, self.scatter, rejects)
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            raise UsageError(f"-o '{self.output}' must end in {', '.join(SUFFIXES)}")
        for path in (self.overview, self.scatter):
            if path is not None:
                picture_suffix(path)
        for path in paths:
            check_writable(path)

    def say(self, text: str) -> None:
        """A note on stderr, unless quiet was asked for."""
        if not self.options.output.quiet:
            note(text)


def measures(texts: Iterable[Record], asked: HeadsRequest, file: str | None = None) -> int:
    """Measure the heads over all texts and write what was asked for; answers the exit status.

    Args:
        texts: good and bad records in order.
        asked: what was asked for.
        file: where the texts come from; "-" or None: stdin or the command line.

    Raises:
        AttnvizError: what would fail for every text.
    """
    options, study, similarity = asked.options, HeadStudy(), SimilarityStudy()
    work = AttendChunk(options.origin, options.choice, "self", options.many.batch_size)
    wants_roles = not asked.similar or asked.overview or asked.scatter
    repeat = asked.repeat and options.origin.weights is None and wants_roles
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, notices_to(say):
        read = chunks(texts, ready=more_of_stdin(file))
        for record, found in attend_all(work, read, engine):
            if isinstance(found, AttnvizError):
                failed.add(record, found)
                continue
            try:
                study.add(found, repeats=not repeat)
            except InputError as error:
                failed.add(record, error)
                continue
            for text in found.provenance.notes:
                notify(text)
            if asked.similar or asked.scatter:
                similarity.add(found)
    if not study.texts:
        return 1
    if repeat:
        _repeat(work.open(), study, asked)
    _write(study, similarity, asked)
    return 1 if failed.count else 0


def _repeat(source: Source, study: HeadStudy, asked: HeadsRequest) -> None:
    """Measure what random words said twice show; a model that cannot take them goes without."""
    from attnviz.analyses.measures.repetition import repeated_words

    text = repeated_words()
    try:
        study.add_repeated(attend_one(source, Text("0", text), asked.options.choice, "self"))
    except InputError as error:
        asked.say(f"no induction and duplicate scores: {error}")
        return
    words = text.split()
    asked.say(
        f"induction and duplicate are read off {len(words) // 2} random words said twice "
        f"({' '.join(words[:3])} …); --no-repeat leaves them out"
    )


def _write(study: HeadStudy, similarity: SimilarityStudy, asked: HeadsRequest) -> None:
    """The pictures, then the table or the data."""
    report = study.report(asked.order, asked.role)
    if asked.role is not None and not report.rows:
        asked.say(f"no head has the role '{asked.role}'")
    if asked.overview is not None:
        from attnviz.renderers.figures.head_overview import head_overview

        _draw(head_overview(study.report("layer")), asked.overview, report.provenance)
    if asked.scatter is not None:
        from attnviz.renderers.figures.head_plane import head_plane

        plane = head_plane(similarity.report(), study.report("layer").rows)
        _draw(plane, asked.scatter, report.provenance)
    if asked.similar:
        alike = similarity.report()
        write_report(
            {
                "table": lambda display: similarity_table(alike, display),
                "tsv": lambda _: similarity_tsv(alike),
                "json": lambda _: similarity_json(alike),
            },
            asked,
        )
        return
    write_report(
        {
            "table": lambda display: measures_table(report, display, keep=asked.order),
            "tsv": lambda _: measures_tsv(report),
            "json": lambda _: measures_json(report),
        },
        asked,
    )


def _draw(figure: Figure, path: Path, provenance: Provenance) -> None:
    """Write a picture, with where its numbers came from in the file's metadata."""
    from attnviz.renderers.figures.figure import figure_bytes

    told = dump_json(asdict(provenance))
    write_file(path, figure_bytes(figure, picture_suffix(path), told))


def write_report(spellings: Mapping[str, Callable[[Display], str]], asked: HeadsRequest) -> None:
    """Write a report to stdout and, if asked, to a file.

    Args:
        spellings: for each format what gives the report in it.
        asked: where it goes.
    """
    from attnviz.cli.sinks import display_of_stdout

    display = display_of_stdout(many=False)
    if asked.output is not None:
        text = spellings[SUFFIXES[asked.output.suffix.lower()]](Display(width=display.width))
        write_file(asked.output, text.encode("utf-8", "backslashreplace"))
    if asked.format != "none":
        write_text(spellings[asked.format](display))


# <heads> attnviz heads.

FORMATS = ("table", "tsv", "json", "none")


@with_options(
    without=(
        "to",
        "lens",
        "explain",
        "generate",
        "chat",
        "labels",
        "reduce",
        "over",
        "format",
        "output",
        "heatmap",
        "grid",
        *("keep_qk", "group", "words", "links", "html", "open_page", "top", "rows", "window"),
        "verbose",
    ),
    many=(*READING, *SHARING),
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: InputOption = None,
    no_repeat: Annotated[
        bool,
        typer.Option(
            "--no-repeat",
            rich_help_panel=ORIGIN,
            help="Leave out the second run, over random words said twice, that induction needs.",
        ),
    ] = False,
    treebank: Annotated[
        str | None,
        typer.Option(
            "--treebank",
            metavar="FILE",
            rich_help_panel=ORIGIN,
            help="Sentences with dependencies (.conllu): which head finds which relation.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="NAME",
            rich_help_panel=CHOICE,
            help=f"Only heads of this role: {', '.join(ROLES)}.",
            autocompletion=completing(ROLES),
        ),
    ] = None,
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
    similar: Annotated[
        bool,
        typer.Option(
            "--similar",
            rich_help_panel=CHOICE,
            help="Show which heads look alike instead: Jensen-Shannon divergences.",
        ),
    ] = False,
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
            help="The same as a file: .txt, .tsv or .json.",
        ),
    ] = None,
    overview: Annotated[
        Path | None,
        typer.Option(
            "--overview",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Roles and measures of all heads as a picture: .png, .svg or .pdf.",
        ),
    ] = None,
    scatter: Annotated[
        Path | None,
        typer.Option(
            "--scatter",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Heads in a plane, near where they look alike, as a picture.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Show what each head does: a line a head, beside what an even look would give.

    attnviz heads "The cat sat on the mat" --model ./my-bert

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads --treebank sample_inputs/relations.conllu
    """
    from attnviz.cli.commands import heads as heads_run
    from attnviz.storage.texts import Text

    choose(format_name, FORMATS, "format")
    check_order(order, role)
    asked = heads_run.HeadsRequest(
        options, order, role, similar, format_name, output, overview, scatter, not no_repeat
    )
    asked.check()
    if similar and (role is not None or order != "role"):
        raise UsageError("--similar compares all heads with one another: leave out --role, --sort")
    if treebank is not None:
        others = (text, input_file, role, similar, overview, scatter, no_repeat, order != "role")
        if any(others):
            raise UsageError(
                "--treebank brings its own sentences and scores every head on them: of the other "
                "options it takes only where attention comes from, which part, and -f and -o"
            )

        raise typer.Exit(relations(treebank, asked))
    if options.origin.weights is not None and not text and input_file is None:
        # A file of weights can bring its own tokens.
        raise typer.Exit(heads_run.measures(iter([Text("0", "")]), asked))
    texts, _ = texts_of(text or [], input_file, **reading(options))
    raise typer.Exit(heads_run.measures(texts, asked, input_file))
