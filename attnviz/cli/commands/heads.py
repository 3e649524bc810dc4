"""attnviz heads: maps of every text, or of a treebank's sentences, measured and written once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.analyses.heads import ORDERS, ROLES, HeadStudy, check_order
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.analyses.treebank import TreebankStudy
from attnviz.cli.inputs import INPUT, reading, texts_of
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts, more_of_stdin, sharing
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.options import Options, opt
from attnviz.models import Source
from attnviz.models.open import check_origin, open_source
from attnviz.renderers.data.heads import measures_json, measures_tsv
from attnviz.renderers.reports import Data
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
from attnviz.runs.pipeline import attend_one, check_choice
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.storage.documents import dump_json
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class HeadsRequest:
    """What was asked for beside the shared options."""

    options: Options
    order: str = "role"
    role: str | None = None
    similar: bool = False
    overview: Path | None = None
    scatter: Path | None = None
    repeat: bool = True
    file: str | None = None

    def report(self) -> Report:
        """Where everything goes, checked before a model loads."""
        check_choice(self.options.choice)
        check_origin(self.options.origin, "self")
        pictures = {"overview": self.overview, "scatter": self.scatter}
        return Report(self.options, "heads", pictures=pictures)


@with_options(
    *("model", "compute", "mechanism", "layer", "weights", "causal", "long"),
    *("stream", "heads", "special", "reading", "sharing"),
    writes="heads",
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: str | None = INPUT,
    no_repeat: bool = opt(
        False,
        ORIGIN,
        "--no-repeat",
        "Leave out the second run, over random words said twice, that induction needs.",
    ),
    treebank: str | None = opt(
        None,
        ORIGIN,
        "--treebank",
        "Sentences with dependencies (.conllu): which head finds which relation.",
        "FILE",
    ),
    role: str | None = opt(
        None, CHOICE, "--role", "Only heads of this role: {choices}.", "NAME", choices=ROLES
    ),
    order: str = opt(
        "role",
        CHOICE,
        "--sort",
        "Order: role (the clearest first), layer, or a measure (the largest first).",
        "NAME",
        choices=ORDERS,
    ),
    similar: bool = opt(
        False,
        CHOICE,
        "--similar",
        "Show which heads look alike instead: Jensen-Shannon divergences.",
    ),
    overview: Path | None = opt(
        None,
        OUTPUT,
        "--overview",
        "Roles and measures of all heads as a picture: .png, .svg or .pdf.",
        "FILE",
    ),
    scatter: Path | None = opt(
        None,
        OUTPUT,
        "--scatter",
        "Heads in a plane, near where they look alike, as a picture.",
        "FILE",
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does: a line a head, beside what uniform attention would give.

    attnviz heads "The cat sat on the mat" --model ./my-bert

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads --treebank sample_inputs/relations.conllu
    """
    check_order(order, role)
    asked = HeadsRequest(
        options, order, role, similar, overview, scatter, not no_repeat, input_file
    )
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
        raise typer.Exit(measures(iter([Text("0", "")]), False, asked))
    texts, many = texts_of(text or [], input_file, **reading(options))
    raise typer.Exit(measures(texts, many, asked))


def measures(texts: Iterable[Record], many: bool, asked: HeadsRequest) -> int:
    """Measure the heads over all texts and write what was asked for; answers the exit status."""
    options, study, similarity = asked.options, HeadStudy(), SimilarityStudy()
    work = AttendChunk(options.origin, options.choice, "self", options.many.batch_size)
    wants_roles = not asked.similar or asked.overview or asked.scatter
    repeat = asked.repeat and options.origin.weights is None and bool(wants_roles)
    total = partial(count_texts, asked.file, "self", options) if many else None
    with asked.report() as report, open_engine(*sharing(options)) as engine:
        read = chunks(texts, ready=more_of_stdin(asked.file))
        with report.counted(total) as advance:
            for record, found in attend_all(work, read, engine):
                advance(1)
                if isinstance(found, AttnvizError):
                    report.skip(record, found)
                    continue
                try:
                    study.add(found, repeats=not repeat)
                except InputError as error:
                    report.skip(record, error)
                    continue
                for text in found.provenance.notes:
                    report.say(text)
                if asked.similar or asked.scatter:
                    similarity.add(found)
        if study.texts:
            if repeat:
                _repeat(work.open(), study, report, options)
            report.add(_data(study, similarity, asked, report))
        report.finish()
        report.say_done(f"{study.texts} text{'s' * (study.texts != 1)}")
    return report.status if study.texts else 1


def _repeat(source: Source, study: HeadStudy, report: Report, options: Options) -> None:
    """Measure what random words said twice show; a model that cannot take them goes without."""
    from attnviz.analyses.measures.repetition import repeated_words

    text = repeated_words()
    try:
        study.add_repeated(attend_one(source, Text("0", text), options.choice, "self"))
    except InputError as error:
        report.say(f"no induction and duplicate scores: {error}")
        return
    words = text.split()
    report.say(
        f"induction and duplicate are read off {len(words) // 2} random words said twice "
        f"({' '.join(words[:3])} …); --no-repeat leaves them out"
    )


def _data(
    study: HeadStudy, similarity: SimilarityStudy, asked: HeadsRequest, report: Report
) -> Data:
    found = study.report(asked.order, asked.role)
    if asked.role is not None and not found.rows:
        report.say(f"no head has the role '{asked.role}'")

    def overview() -> Figure:
        from attnviz.renderers.figures.head_overview import head_overview

        return head_overview(study.report("layer"))

    def scatter() -> Figure:
        from attnviz.renderers.figures.head_plane import head_plane

        return head_plane(similarity.report(), study.report("layer").rows)

    figures = {"overview": overview, "scatter": scatter}
    about = dump_json(asdict(found.provenance))
    if asked.similar:
        alike = similarity.report()
        return Data(
            text=lambda display: similarity_table(alike, display),
            rows=lambda: similarity_tsv(alike),
            document=lambda: similarity_json(alike),
            figures=figures,
            about=about,
        )
    return Data(
        text=lambda display: measures_table(found, display, keep=asked.order),
        rows=lambda: measures_tsv(found),
        document=lambda: measures_json(found),
        figures=figures,
        about=about,
    )


def relations(file: str, asked: HeadsRequest) -> int:
    """Score every head on every relation of a treebank; answers the exit status.

    A sentence that the model cannot take is named and left out.
    """
    with asked.report() as report:
        sentences = read_treebank(file)
        source = open_source(asked.options.origin, "self")
        study = TreebankStudy()
        with report.counted(lambda: len(sentences)) as advance:
            for sentence in sentences:
                advance(1)
                try:
                    text = Text("0", sentence.text)
                    found = attend_one(source, text, asked.options.choice, "self")
                    study.add(sentence, found)
                except InputError as error:
                    report.skip(None, InputError(f"the sentence at {sentence.where}: {error}"))
                    continue
                for note in found.provenance.notes:
                    report.say(note)
        if not study.sentences:
            raise InputError(f"'{file}' holds no sentence that could be used")
        result = study.report()
        for note in result.notes:
            report.say(note)
        report.add(
            Data(
                text=lambda display: treebank_table(result, display),
                rows=lambda: treebank_tsv(result),
                document=lambda: treebank_json(result),
            )
        )
        report.finish()
        report.say_done(f"{study.sentences} sentences")
    return report.status


def read_treebank(file: str) -> list[Sentence]:
    """The sentences of a file, all of which are read before a model loads; "-" is stdin."""
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
