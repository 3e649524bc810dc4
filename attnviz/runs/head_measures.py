"""What each head does in some texts, or on the relations of a treebank: measured and reported."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.analyses.heads import HeadStudy, check_order
from attnviz.analyses.masks import without_implied
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.analyses.treebank import TreebankStudy
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import EFFECT
from attnviz.core.options import Options
from attnviz.core.registry import Command
from attnviz.models import Source
from attnviz.models.open import brings_tokens, check_origin, open_source
from attnviz.renderers.data.heads import measures_json, measures_tsv
from attnviz.renderers.reports import Data, data_of
from attnviz.renderers.text.heads import (
    measures_table,
    similarity_json,
    similarity_table,
    similarity_tsv,
    treebank_json,
    treebank_table,
    treebank_tsv,
)
from attnviz.runs.effects import EffectChunk, Instead
from attnviz.runs.inputs import TextInput
from attnviz.runs.many_texts import AttendChunk, attend_all, engine_for
from attnviz.runs.pipeline import attend_one, check_choice
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.storage.documents import dump_json
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class HeadsRequest:
    """Which measures of heads are wanted, and in which order.

    Attributes:
        repeat: measure a second run over repeated random words, which induction needs.
        similar: report which heads look alike instead.
        compares: measure which heads look alike, for a report or a picture.
    """

    cross: bool = False
    role: str | None = None
    order: str = "role"
    effect: bool = False
    by: Instead = "zero"
    repeat: bool = True
    similar: bool = False
    compares: bool = False

    def __post_init__(self) -> None:
        check_order(self.order, self.role)
        check_effect(self.order, self.by, effect=self.effect)
        if self.similar and (self.role is not None or self.order != "role"):
            raise UsageError(
                "--similar compares all heads with one another: leave out --role, --sort"
            )

    @property
    def command(self) -> Command:
        """The command whose models can read the texts."""
        return "cross" if self.cross else "self"


def check_effect(order: str, by: Instead, *, effect: bool) -> None:
    """Refuse what only effects know where they are not asked for."""
    if not effect and (order == EFFECT or by != "zero"):
        raise UsageError(f"{'--sort effect' if order == EFFECT else '--by'} needs --effect")


def check_heads(options: Options, command: Command) -> None:
    """Refuse what contradicts itself before a model loads."""
    check_choice(options.choice)
    check_origin(options.origin, command)


def report_heads(
    asked: HeadsRequest, texts: TextInput, options: Options, report: RunReport
) -> None:
    """Measure every head in each text, and report the means."""
    study, similarity = HeadStudy(), SimilarityStudy()
    what = options.origin, options.choice, asked.command, options.many.batch_size
    work = EffectChunk(*what, asked.by) if asked.effect else AttendChunk(*what)
    repeat = asked.repeat and not asked.cross and not brings_tokens(options.origin)
    with engine_for(options.many) as engine:
        found = attend_all(work, chunks(texts.records, work.size, ready=texts.ready), engine)
        for record, result in good_results(found, report, texts.total):
            shares = without_implied(result)
            try:
                study.add(shares, repeats=not repeat)
            except InputError as error:
                report.skip(record, error)
                continue
            for note in shares.provenance.notes:
                report.hold(note)
            if asked.compares:
                similarity.add(shares)
    if study.texts and repeat:
        _add_repeated(work.open(), study, report, options)
    if study.texts:
        if asked.role is not None and not study.report(asked.order, asked.role).rows:
            report.say(f"no head has the role '{asked.role}'")
        report.add(_measures_data(study, similarity, asked))
    report.finish(f"{study.texts} text{'s' if study.texts != 1 else ''}")


def _add_repeated(source: Source, study: HeadStudy, report: RunReport, options: Options) -> None:
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


def _measures_data(study: HeadStudy, similarity: SimilarityStudy, asked: HeadsRequest) -> Data:
    found = study.report(asked.order, asked.role)

    def overview() -> Figure:
        from attnviz.renderers.figures.head_overview import head_overview

        return head_overview(study.report("layer"))

    def scatter() -> Figure:
        from attnviz.renderers.figures.head_plane import head_plane

        return head_plane(similarity.report(), study.report("layer").rows)

    about = dump_json(asdict(found.provenance))
    more: dict[str, Any] = {"figures": {"overview": overview, "scatter": scatter}, "about": about}
    if asked.similar:
        alike = similarity.report()
        return data_of(alike, similarity_table, similarity_tsv, similarity_json, **more)
    table = partial(measures_table, keep=asked.order)
    return data_of(found, table, measures_tsv, measures_json, **more)


def report_relations(file: str, options: Options, report: RunReport) -> None:
    """Score every head on every relation of a treebank; "-" reads it from stdin.

    A sentence that the model cannot take is named and left out.
    """
    sentences = read_treebank(file)
    source = open_source(options.origin, "self")
    study = TreebankStudy()

    def results() -> Iterator[tuple[None, Sentence | InputError]]:
        for sentence in sentences:
            try:
                found = attend_one(source, Text("0", sentence.text), options.choice, "self")
                study.add(sentence, found)
            except InputError as error:
                yield None, InputError(f"the sentence at {sentence.where}: {error}")
                continue
            for note in found.provenance.notes:
                report.hold(note)
            yield None, sentence

    done = sum(1 for _ in good_results(results(), report, lambda: len(sentences)))
    if not done:
        raise InputError(f"'{file}' holds no sentence that could be used")
    result = study.report()
    for note in result.notes:
        report.say(note)
    report.add(data_of(result, treebank_table, treebank_tsv, treebank_json))
    report.finish(f"{done} sentences")


def read_treebank(file: str) -> list[Sentence]:
    """The sentences of a file, all of which are read before a model loads."""
    if file == "-":
        return list(read_sentences(sys.stdin.buffer, "stdin"))
    return list(read_sentences(io.BytesIO(read_bytes(Path(file))), f"'{file}'"))
