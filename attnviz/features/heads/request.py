"""Measures of each head in texts, its effect when it is off, and its score on relations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.analyses.masks import without_implied
from attnviz.core import attention_map, effects, notices, query, registry
from attnviz.core.errors import InputError, UsageError
from attnviz.core.measures import COPYING, EFFECT, PROBES, RETRIEVAL, TASK
from attnviz.core.options import Options
from attnviz.core.records import dataclass, replace
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.heads import table as tables
from attnviz.features.heads.similarity import SimilarityStudy
from attnviz.features.measures.study import HeadStudy, check_order
from attnviz.features.pruning.curve import EffectChunk, Instead
from attnviz.features.wiring.study import copying_of
from attnviz.features.writers.links import ArgumentStudy
from attnviz.models import Source
from attnviz.models.open import brings_tokens, check_origin, open_source
from attnviz.renderers.reports import Data, data_of, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.many_texts import AttendChunk, attend_all, engine_for
from attnviz.runs.pipeline import attend_one, check_choice, keep_scores, query_of
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_SCORES = (
    "scores before the softmax are not known here: the weights are no softmax of scaled products "
    "alone, or the model keeps its queries and keys to itself"
)
NOT_COMPARED = (
    "--similar and --picture scatter:FILE compare whole maps, and this text is read in blocks of "
    "rows: give one of at most 1,024 tokens"
)
REPEATED = tuple(name for name, entry in registry.MEASURES.items() if entry.repeated)
"""Measures of random words said twice, which a corpus does not hold."""


@dataclass(frozen=True, slots=True)
class HeadsRequest:
    """What is measured of heads, and shown; `attnviz.heads` explains most fields."""

    cross: bool = False
    role: str | None = None
    order: str = "role"
    effect: bool = False
    writes: bool = False  # find the tokens that each head argues for, and how far it copies
    probe: bool = False  # measure retrieval and few-shot tasks
    by: Instead = "zero"
    repeat: bool = True  # measure a second run over repeated random words, which induction needs
    similar: bool = False  # report which heads look alike instead
    # measure which heads look alike, for a report or a picture; None: of whole maps alone
    compares: bool | None = False
    scores: bool = False  # say where scores before the softmax are not known
    statistics: str = "measures"
    top: int | None = None
    frequencies: Path | None = None
    overview: bool = False  # every head is drawn, which takes texts
    curve: bool = False  # heads are switched off one after another
    atlas: bool = False  # keep texts with strong, usual and weak attention of each head
    archive: bool = False  # numbers are written as arrays, which a corpus has

    def __post_init__(self) -> None:
        check_order(self.order, self.role)
        if self.order == COPYING and not self.writes:
            raise UsageError("--sort copying needs attnviz heads --writes")
        if not self.effect and (self.order == EFFECT or self.by != "zero"):
            raise UsageError(
                f"{'--sort effect' if self.order == EFFECT else '--by'} needs --effect"
            )
        if self.curve and not self.effect:
            raise UsageError("--picture curve:FILE goes by the effects of heads: add --effect")
        if self.order in PROBES and not self.probe:
            raise UsageError(f"--sort {self.order} needs attnviz heads --probe")
        if self.probe and self.cross:
            raise UsageError("--probe reads single texts: leave --cross out")
        if self.similar and (self.role is not None or self.order != "role"):
            clash = "--sort" if self.role is None else "--role"
            raise UsageError(f"--similar compares all heads with one another: leave {clash} out")

    @property
    def command(self) -> registry.Command:
        return "cross" if self.cross else "self"

    def check(self, attention: attention_map.Attention) -> None:
        """Refuse a text whose weights were read in blocks where whole maps are compared."""
        if self.compares and attention.in_blocks:
            raise InputError(NOT_COMPARED)

    def reads_corpus(self, texts: TextInput) -> bool:
        """Whether heads are measured with intervals over texts, and whatever a corpus tells.

        Raises:
            UsageError: something is asked of a corpus, and something that is not measured over one.
        """
        corpus = {
            "--statistics": self.statistics != "measures",
            "--frequencies": self.frequencies is not None,
            "--picture curve:FILE": self.curve,
            "--atlas": self.atlas,
            "an .npz": self.archive,
            "a picture": bool(texts.pictures),
        }
        single = {
            "--similar": self.similar,
            "--picture scatter:FILE": bool(self.compares),
            "--writes": self.writes,
            "--probe": self.probe,
            f"--role {self.role}": self.role in REPEATED,
            f"--sort {self.order}": self.order in REPEATED,
        }
        one, other = ([name for name, on in of.items() if on] for of in (corpus, single))
        if one and other:
            raise UsageError(f"{one[0]} and {other[0]} contradict each other: give one of them")
        return bool(one) or (texts.several and not other)


def check_alone(option: str, others: Mapping[str, object]) -> None:
    """Refuse options that contradict one which shows something else of heads."""
    if flags := [name for name, value in others.items() if value]:
        raise UsageError(f"{option} shows something else of heads: leave {flags[0]} out")


def check_heads(options: Options, command: registry.Command) -> None:
    check_choice(options.choice, rows=True)
    check_origin(options.origin, command)


def chunks_of(request: HeadsRequest, options: Options, command: registry.Command) -> AttendChunk:
    """What attends to a chunk of texts whose heads are measured."""
    what = options.origin, options.choice, command, options.many.batch_size
    if request.effect:
        return EffectChunk(*what, measures=True, by=request.by)
    return AttendChunk(*what, measures=True)


def report_heads(
    request: HeadsRequest, texts: TextInput, options: Options, report: RunReport
) -> None:
    study, similarity, options = HeadStudy(), SimilarityStudy(), keep_scores(options)
    arguments = ArgumentStudy()
    writer = None
    if request.writes:
        writer = open_source(options.origin, request.command, with_head="exact")
    work = chunks_of(request, options, request.command)
    repeat = request.repeat and not request.cross and not brings_tokens(options.origin)
    with engine_for(options.many) as engine:
        outcomes = attend_all(work, chunks(texts.open(), work.size, ready=texts.ready), engine)
        for record, result in good_results(outcomes, report, texts.total):
            if writer is not None and isinstance(record, Text):
                arguments.add(writer.trace_writers(query_of(writer, record, request.command)))
            shares = without_implied(result)
            try:
                request.check(shares)
                study.add(shares, repeats=not repeat)
            except InputError as error:
                report.skip(record, error)
                continue
            for note in shares.provenance.notes:
                report.hold(note)
            if request.compares is not False and not shares.in_blocks:
                similarity.add(shares)
    if study.texts:
        # These texts are read as they are.
        origin = replace(options.origin, generate=None)
        alone = replace(options, origin=origin, choice=replace(options.choice, token_groups=None))
        if repeat:
            _add_repeated(replace(work, origin=alone.origin).open(), study, report, alone)
        if request.probe:
            _add_probes(study, report, alone)
        with_scores = replace(request, scores=options.origin.scores)
        report.add(_measures_data(study, similarity, with_scores, arguments, writer))
    report.finish(f"{study.texts} text{'s' if study.texts != 1 else ''}")


def _add_repeated(source: Source, study: HeadStudy, report: RunReport, options: Options) -> None:
    """Measure random words said twice, if the model can read them."""
    from attnviz.features.heads.probes import repeated_words

    text = repeated_words()
    try:
        study.add_repeated(attend_one(source, Text("0", text), options.choice, "self"))
    except InputError as error:
        report.say(f"no induction and duplicate scores: {error}")
        return
    words = text.split()
    report.say(
        f"induction and duplicate are measured on {len(words) // 2} random words, given twice "
        f"({' '.join(words[:3])} …); --no-repeat skips this"
    )


def _add_probes(study: HeadStudy, report: RunReport, options: Options) -> None:
    """Measure what heads do in texts with a needle and in few-shot prompts."""
    from attnviz.features.heads.probes import retrieval_scores, task_scores

    assert study.first is not None
    source = open_source(options.origin, "self", with_head="exact")
    if study.first.main.stream != "causal" or source.lacks("experiment"):
        raise UsageError("--probe needs a model that continues a text")

    def open_text(text: str) -> effects.Experiment:
        return open_experiment(source, query.Query(text), "all")

    try:
        values, even = retrieval_scores(lambda text: open_text(text).attention)
        study.add_values(RETRIEVAL, values, even)
        study.add_values(TASK, task_scores(open_text))
    except InputError as error:  # it reads short texts only
        report.say(f"no retrieval and function-vector scores: {error}")
        return
    report.say(
        "retrieval is measured on random words that hide a needle, with a question for it at the "
        "end; function-vector on prompts with examples (opposites, plurals, next numbers)"
    )


def _measures_data(
    study: HeadStudy,
    similarity: SimilarityStudy,
    request: HeadsRequest,
    arguments: ArgumentStudy,
    source: Source | None,
) -> Data:
    if source is not None and not source.lacks("head_weights"):
        try:
            study.add_values(COPYING, copying_of(source.head_weights()[0]))
        except UsageError:  # torch runs it
            notices.notify("copying is left out: it is known of models that numpy runs")
    if request.scores and not study.measures("score-std"):
        notices.notify(NO_SCORES)
    measures = study.report(request.order, request.role)
    measures = replace(measures, rows=measures.rows[: request.top])
    if request.role is not None and not measures.rows:
        notices.notify(f"no head has the role '{request.role}'")
    if request.writes:
        at = [effects.HeadAt(row.stream, row.layer, int(row.head)) for row in measures.rows]
        rows = zip(measures.rows, at, strict=True)
        measures = replace(
            measures, rows=tuple(replace(row, writes=arguments.arguments(one)) for row, one in rows)
        )

    def overview() -> Figure:
        return draw_by("attnviz.features.heads.picture:head_overview", study.report("layer"))

    def scatter() -> Figure:
        if not similarity.texts:
            raise InputError(NOT_COMPARED)
        return draw_by(
            "attnviz.features.heads.picture:head_plane",
            similarity.report(),
            study.report("layer").rows,
        )

    more: dict[str, Any] = {"figures": {"overview": overview, "scatter": scatter}}
    more["notes"] = measures.provenance.notes
    if request.similar:
        return data_of(similarity.report(), *tables.SIMILARITY, **more)
    table = partial(tables.measures_table, keep=request.order)
    return data_of(measures, table, tables.measures_tsv, tables.measures_json, **more)
