"""One run of `attnviz heads`: maps of every text, measured, and written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.analyses.heads import HeadStudy
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.announce import announce, heard_by
from attnviz.attention_map import Provenance
from attnviz.cli.options import Options
from attnviz.cli.output import check_writable, different, note, write_file, write_text
from attnviz.cli.rejects import failures
from attnviz.cli.run import Notes, more_of_stdin, sharing
from attnviz.engines import open_engine
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.many_texts import AttendWindow, Record, attend_all
from attnviz.outputs import picture_suffix
from attnviz.pipeline import attend_one, check_choice
from attnviz.renderers import Display
from attnviz.renderers.measures_data import measures_json, measures_tsv
from attnviz.renderers.measures_table import measures_table
from attnviz.renderers.similarity import similarity_json, similarity_table, similarity_tsv
from attnviz.sources import Source
from attnviz.sources.open import check_origin
from attnviz.storage.json import dump_json
from attnviz.texts import Text, windows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = {".txt": "table", ".tsv": "tsv", ".json": "json"}


@dataclass(frozen=True, slots=True)
class Asked:
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


def measures(texts: Iterable[Record], asked: Asked, file: str | None = None) -> int:
    """Measure the heads over all texts and write what was asked for; answers the exit status.

    Args:
        texts: good and bad records in order.
        asked: what was asked for.
        file: where the texts come from; "-" or None: stdin or the command line.

    Raises:
        AttnvizError: what would fail for every text.
    """
    options, study, similarity = asked.options, HeadStudy(), SimilarityStudy()
    work = AttendWindow(options.origin, options.choice, "self", options.many.batch_size)
    wants_roles = not asked.similar or asked.overview or asked.scatter
    repeat = asked.repeat and options.origin.weights is None and wants_roles
    say = None if options.output.quiet else Notes().say
    with failures(options) as failed, open_engine(*sharing(options)) as engine, heard_by(say):
        read = windows(texts, ready=more_of_stdin(file))
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
                announce(text)
            if asked.similar or asked.scatter:
                similarity.add(found)
    if not study.texts:
        return 1
    if repeat:
        _repeat(work.open(), study, asked)
    _write(study, similarity, asked)
    return 1 if failed.count else 0


def _repeat(source: Source, study: HeadStudy, asked: Asked) -> None:
    """Measure what random words said twice show; a model that cannot take them goes without."""
    from attnviz.analyses.random_words import repeated_words

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


def _write(study: HeadStudy, similarity: SimilarityStudy, asked: Asked) -> None:
    """The pictures, then the table or the data."""
    report = study.report(asked.order, asked.role)
    if asked.role is not None and not report.rows:
        asked.say(f"no head has the role '{asked.role}'")
    if asked.overview is not None:
        from attnviz.renderers.head_overview import head_overview

        _draw(head_overview(study.report("layer")), asked.overview, report.provenance)
    if asked.scatter is not None:
        from attnviz.renderers.head_plane import head_plane

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
    from attnviz.renderers.figure import figure_bytes

    told = dump_json(asdict(provenance))
    write_file(path, figure_bytes(figure, picture_suffix(path), told))


def write_report(spellings: Mapping[str, Callable[[Display], str]], asked: Asked) -> None:
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
