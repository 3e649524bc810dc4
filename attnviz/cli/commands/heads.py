"""attnviz heads: maps of every text, or of a treebank's sentences, measured and written once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.analyses.heads import ORDERS, ROLES, HeadStudy, check_order
from attnviz.analyses.masks import without_implied
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.analyses.treebank import TreebankStudy
from attnviz.cli.inputs import INPUT, texts_of
from attnviz.cli.options import CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.cli.run import count_texts, more_of_stdin, sharing
from attnviz.cli.sinks import data_of
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.measures import EFFECT
from attnviz.core.options import Options, opt
from attnviz.core.registry import Command
from attnviz.models import Source
from attnviz.models.open import brings_tokens, check_origin, open_source
from attnviz.renderers.reports import Data
from attnviz.renderers.text.head_tables import (
    measures_json,
    measures_table,
    measures_tsv,
    similarity_json,
    similarity_table,
    similarity_tsv,
    treebank_json,
    treebank_table,
    treebank_tsv,
)
from attnviz.runs.effects import EffectChunk, Instead
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AttendChunk, Outcome, Record, attend_all
from attnviz.runs.pipeline import attend_one, check_choice
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import Attention


SORT = opt(
    CHOICE,
    "--sort NAME",
    "Order of the heads: role (clearest first), layer, or a measure (largest first).",
    default="role",
    choices=ORDERS,
)
WITH_EFFECT = opt(
    CHOICE,
    "--effect",
    "Switch off each head by itself and measure the drop in log p of the output, in nats.",
)
BY = opt(CHOICE, "--by HOW", "What replaces a head that is off: {choices}.", default="zero")
CROSS = opt(
    ORIGIN, "--cross", "The texts are pairs: measure how each target attends to its source."
)


@with_options(
    *("model", "compute", "mechanism", "weights", "causal", "long"),
    *("stream", "heads", "special", "to", "reading", "sharing"),
    writes="heads",
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts, each in quotes; - reads stdin."),
    ] = None,
    input_file: str | None = INPUT,
    cross: bool = CROSS,
    no_repeat: bool = opt(
        ORIGIN,
        "--no-repeat",
        "Skip the second run over repeated random words, which induction is measured on.",
    ),
    treebank: str | None = opt(
        ORIGIN,
        "--treebank FILE",
        "Sentences with dependencies (.conllu), to show which head finds which relation.",
    ),
    role: str | None = opt(
        CHOICE, "--role NAME", "Only heads with this role: {choices}.", choices=ROLES
    ),
    order: str = SORT,
    effect: bool = WITH_EFFECT,
    by: Instead = BY,
    similar: bool = opt(
        CHOICE, "--similar", "Show instead which heads attend alike, by Jensen-Shannon divergence."
    ),
    overview: Path | None = opt(
        OUTPUT,
        "--overview FILE",
        "Roles and measures of all heads as a picture: .png, .svg or .pdf.",
    ),
    scatter: Path | None = opt(
        OUTPUT, "--scatter FILE", "Heads in a plane as a picture, close if they attend alike."
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does: one line per head, and what uniform attention would give.

    attnviz heads "The cat sat on the mat" --model ./my-bert

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads "The cat sleeps." "Le chat dort." --cross --effect --sort effect

    attnviz heads --treebank sample_inputs/relations.conllu
    """
    check_order(order, role)
    check_effect(order, by, effect=effect)
    if similar and (role is not None or order != "role"):
        clash = "--sort" if role is None else "--role"
        raise UsageError(f"--similar compares all heads with one another: leave {clash} out")
    if treebank is not None:
        others: dict[str, object] = {"TEXT": text, "--input": input_file, "--role": role}
        others |= {"--similar": similar}
        others |= {"--overview": overview, "--scatter": scatter, "--no-repeat": no_repeat}
        others |= {"--sort": order != "role", "--cross": cross, "--effect": effect}
        if given := [name for name, value in others.items() if value]:
            raise UsageError(
                "--treebank brings its own sentences and scores every head on them: leave "
                f"{given[0]} out"
            )
        raise typer.Exit(relations(treebank, options))
    texts, many = _texts(text or [], input_file, options, cross=cross)
    study, similarity = HeadStudy(), SimilarityStudy()
    command: Command = "cross" if cross else "self"
    what = options.origin, options.choice, command, options.many.batch_size
    work = EffectChunk(*what, by) if effect else AttendChunk(*what)
    wants_roles = not similar or overview or scatter
    repeat = not (no_repeat or cross) and not brings_tokens(options.origin) and bool(wants_roles)
    total = partial(count_texts, input_file, command, options) if many else None
    pictures = {"overview": overview, "scatter": scatter}
    with _report(options, pictures, command) as report, open_engine(*sharing(options)) as engine:
        read = chunks(texts, work.size, ready=more_of_stdin(input_file))
        with report.counted(total) as advance:
            for record, found in attend_all(work, read, engine):
                advance(1)
                kept = _measured(study, record, found, report, repeats=not repeat)
                if kept is not None and (similar or scatter or options.collect is not None):
                    similarity.add(kept)
        if study.texts and repeat:
            _repeat(work.open(), study, report, options)
        if study.texts:
            if role is not None and not study.report(order, role).rows:
                report.say(f"no head has the role '{role}'")
            report.add(_data(study, similarity, similar, order, role))
        report.finish(f"{study.texts} text{'s' * (study.texts != 1)}")
    raise typer.Exit(report.status if study.texts else 1)


def _texts(
    arguments: list[str], file: str | None, options: Options, *, cross: bool
) -> tuple[Iterable[Record], bool]:
    """The texts, and whether there may be several."""
    if cross and len(arguments) > 2:
        raise UsageError("--cross takes one source and one target: give more by --input FILE")
    # A file of weights can bring its own tokens.
    if brings_tokens(options.origin) and not arguments and file is None:
        return [Text("0", "")], False
    return texts_of(arguments, file, options.many, pairs=cross)


def check_effect(order: str, by: Instead, *, effect: bool) -> None:
    """Refuse what only effects know where they are not asked for."""
    if not effect and (order == EFFECT or by != "zero"):
        raise UsageError(f"{'--sort effect' if order == EFFECT else '--by'} needs --effect")


def _report(
    options: Options, pictures: Mapping[str, Path | None], command: Command = "self"
) -> Report:
    check_choice(options.choice)
    check_origin(options.origin, command)
    return Report(options, "heads", pictures=pictures)


def _measured(
    study: HeadStudy, record: Record, found: Outcome, report: Report, *, repeats: bool
) -> Attention | None:
    """The maps that were measured; None: there are none, or they could not be."""
    if isinstance(found, AttnvizError):
        report.skip(record, found)
        return None
    shares = without_implied(found)
    try:
        study.add(shares, repeats=repeats)
    except InputError as error:
        report.skip(record, error)
        return None
    for note in shares.provenance.notes:
        report.hold(note)
    return shares


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
    study: HeadStudy, similarity: SimilarityStudy, similar: bool, order: str, role: str | None
) -> Data:
    found = study.report(order, role)

    def overview() -> Figure:
        from attnviz.renderers.figures.head_overview import head_overview

        return head_overview(study.report("layer"))

    def scatter() -> Figure:
        from attnviz.renderers.figures.head_plane import head_plane

        return head_plane(similarity.report(), study.report("layer").rows)

    about = dump_json(asdict(found.provenance))
    more: dict[str, Any] = {"figures": {"overview": overview, "scatter": scatter}, "about": about}
    if similar:
        alike = similarity.report()
        return data_of(alike, similarity_table, similarity_tsv, similarity_json, **more)
    table = partial(measures_table, keep=order)
    return data_of(found, table, measures_tsv, measures_json, **more)


def relations(file: str, options: Options) -> int:
    """Score every head on every relation of a treebank; answers the exit status.

    A sentence that the model cannot take is named and left out.
    """
    with _report(options, {}) as report:
        sentences = read_treebank(file)
        source = open_source(options.origin, "self")
        study = TreebankStudy()
        with report.counted(lambda: len(sentences)) as advance:
            for sentence in sentences:
                advance(1)
                try:
                    text = Text("0", sentence.text)
                    found = attend_one(source, text, options.choice, "self")
                    study.add(sentence, found)
                except InputError as error:
                    report.skip(None, InputError(f"the sentence at {sentence.where}: {error}"))
                    continue
                for note in found.provenance.notes:
                    report.hold(note)
        if not study.sentences:
            raise InputError(f"'{file}' holds no sentence that could be used")
        result = study.report()
        for note in result.notes:
            report.say(note)
        report.add(data_of(result, treebank_table, treebank_tsv, treebank_json))
        report.finish(f"{study.sentences} sentences")
    return report.status


def read_treebank(file: str) -> list[Sentence]:
    """The sentences of a file, all of which are read before a model loads; "-" is stdin."""
    if file == "-":
        return list(read_sentences(sys.stdin.buffer, "stdin"))
    return list(read_sentences(io.BytesIO(read_bytes(Path(file))), f"'{file}'"))
