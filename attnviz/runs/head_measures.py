"""Measures of each head in texts, its effect when it is off, and its score on relations."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.effects.ablation import each_part, replacements
from attnviz.analyses.effects.links import effects_of
from attnviz.analyses.effects.probes import gives_order
from attnviz.analyses.heads import HeadStudy, check_order
from attnviz.analyses.masks import without_implied
from attnviz.analyses.similarity import SimilarityStudy
from attnviz.analyses.treebank import TreebankStudy
from attnviz.analyses.why import ArgumentStudy, copying_of
from attnviz.core.attention_map import Attention
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.effects import (
    HOW,
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    PruneCurve,
    log_probabilities,
)
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.measures import COPYING, EFFECT, PROBES, RETRIEVAL, TASK, about_effects
from attnviz.core.notices import notify
from attnviz.core.options import Options
from attnviz.core.query import Query
from attnviz.core.registry import MEASURES, Command
from attnviz.models import Experimenting, Source, SupportsWriters
from attnviz.models.lens import open_experiment, written_of
from attnviz.models.open import brings_tokens, check_origin, open_source
from attnviz.renderers.reports import Data, data_of, draw_by
from attnviz.renderers.text import head_tables as tables
from attnviz.runs.engines.shards import Engine
from attnviz.runs.inputs import TextInput
from attnviz.runs.many_texts import (
    AttendChunk,
    Chunk,
    Outcome,
    Record,
    attend_all,
    chunk_name,
    engine_for,
    with_shards,
)
from attnviz.runs.pipeline import (
    Result,
    attend_chunk,
    attend_one,
    check_choice,
    query_of,
    result_of,
)
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.conllu import Sentence, read_sentences
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import Text, chunks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Instead = Literal["zero", "mean"]  # what heads put out that are off
POINTS = 24  # steps of a curve from no head to all
SHUFFLES = 5  # orders by chance
CURVE_TEXTS = 100  # texts that a curve is drawn of at most
NO_SCORES = (
    "scores before the softmax are not known here: the weights are no softmax of scaled products "
    "alone, or the model keeps its queries and keys to itself"
)
NOT_COMPARED = (
    "--similar and --picture scatter:FILE compare whole maps, and this text is read in blocks of "
    "rows: give one of at most 1,024 tokens"
)
REPEATED = tuple(name for name, entry in MEASURES.items() if entry.repeated)
"""Measures of random words said twice, which a corpus does not hold."""
ENOUGH = 10  # texts that are split into those that give the order and those of the curve


@dataclass(frozen=True, slots=True)
class EffectChunk(AttendChunk):
    """The attention of a chunk, with the exact effect of each selected head."""

    by: Instead = "zero"
    size: ClassVar[int] = 16  # a text takes long, and workers share out chunks

    def open(self) -> Source:
        return self.source_for(self.command, with_head="exact")

    def __call__(self, chunk: Chunk) -> Iterator[Outcome]:
        """The result of each record, or why it has none, made when it is asked for."""
        for record, outcome in zip(chunk, AttendChunk.__call__(self, chunk), strict=True):
            if isinstance(outcome, AttnvizError):
                yield outcome
            else:
                yield result_of(record, partial(self._with_effects, outcome))

    def _with_effects(self, result: Result, text: Text) -> Result:
        if result.in_blocks:
            length = len(result.in_blocks[0].key_tokens)
            count = sum(len(item.layers) * len(item.heads) for item in result.maps)
            raise InputError(
                f"--effect needs a pass for each of {count:,} heads, too long for a text of "
                f"{length:,} tokens: give one of at most 1,024, or leave --effect out"
            )
        experiment, outputs, instead = self.experiment(text)
        places = {
            (item.stream, at, n) for item in result.maps for at in item.layers for n in item.heads
        }
        heads = {
            name: change
            for _, change in each_part(experiment.attention, "heads")
            for at in change.heads
            if (name := (at.stream, at.layer, str(at.head))) in places
        }
        effects = effects_of(experiment, [*heads.values()], instead).sum(axis=1)
        meaning = f"log p of {outputs}, with the head minus without it (off: {HOW[self.by]})"
        before = result.provenance
        provenance = replace(
            before,
            notes=tuple(dict.fromkeys((*before.notes, *experiment.attention.provenance.notes))),
            settings={**before.settings, "effect": meaning},
        )
        of_heads = dict(zip(heads, effects.tolist(), strict=True))
        return replace(result, provenance=provenance, effects=of_heads)

    def experiment(self, text: Text) -> tuple[Experiment, str, HeadOutputs | None]:
        """An experiment on a text, its outputs in words, and what replaces heads that are off.

        The outputs are all tokens that the model predicts from earlier ones, else a single one.
        """
        source = self.open()
        experiment = open_experiment(source, query_of(source, text, self.command))
        output, outputs = experiment.outputs[0], "the likeliest output"
        if output.row == output.position:
            outputs = "its last word where it is masked"
        elif output.position is not None:
            outputs = f"every token of the {experiment.attention.main.query_side}"
        if self.by == "zero":
            return experiment, outputs, None
        own = [experiment.head_outputs()]
        return experiment, outputs, replacements(self.by, own, experiment.attention)


@dataclass(frozen=True, slots=True)
class PruneChunk:
    """The losses of a chunk while heads are switched off in some orders; it can be pickled."""

    work: EffectChunk
    orders: Sequence[Sequence[HeadAt]]
    off: Sequence[int]

    def __call__(self, chunk: Chunk) -> list[tuple[NDArray[np.float64], int]]:
        """The losses, (orders, points), and the count of outputs of each text that can be read."""
        points = [tuple(order[:count]) for order in self.orders for count in self.off]
        # With no head or all heads off, all orders are the same.
        same = {frozenset(heads): Intervention(heads) for heads in points}
        results = []
        for record in chunk:
            if not isinstance(record, Text):
                continue
            try:
                experiment, _, instead = self.work.experiment(record)
            except InputError:  # its effects failed too, and a note said so
                continue
            losses = -log_probabilities(experiment, list(same.values()), instead).sum(axis=1)
            of_change = dict(zip(same, losses.tolist(), strict=True))
            table = np.array([of_change[frozenset(heads)] for heads in points])
            shape = len(self.orders), len(self.off)
            results.append((table.reshape(shape), len(experiment.outputs)))
        return results


def keep_for_curve(records: Iterable[Record], store: list[Record]) -> Iterator[Record]:
    """The records; those that a pruning curve may need are also added to `store`."""
    for number, record in enumerate(records):
        if len(store) < ENOUGH // 2 + CURVE_TEXTS and (number < ENOUGH or not gives_order(number)):
            store.append(record)
        yield record


def curve_of(
    work: EffectChunk,
    records: Sequence[Record],
    report: CorpusReport,
    orders_of: Callable[..., tuple[Mapping[str, tuple[HeadAt, ...]], int]],
    engine: Engine,
) -> PruneCurve:
    """The loss per output as heads are switched off: by effect, by confidence and by chance.

    From `ENOUGH` texts on, half of them give the order, and up to `CURVE_TEXTS` others the losses.
    `orders_of` returns the orders by that half or by all texts, and the count of these texts.

    Raises:
        InputError: no text is left for the curve.
    """
    half = report.texts >= ENOUGH
    if half:  # of the first ones both halves were kept
        first = [record for place, record in enumerate(records[:ENOUGH]) if not gives_order(place)]
        records = [*first, *records[ENOUGH:]]
    by, texts = orders_of(half=half)
    names, orders = [*by], [*by.values()]
    heads = sorted(orders[0], key=lambda at: (at.stream, at.layer, at.head))
    for seed in range(SHUFFLES):
        order = np.random.default_rng(seed).permutation(len(heads))
        names.append("chance")
        orders.append(tuple(heads[place] for place in order))
    steps = np.linspace(0, len(heads), min(POINTS, len(heads)) + 1)
    off = tuple(np.unique(steps.round().astype(int)).tolist())
    task = PruneChunk(work, orders, off)
    losses, outputs, read = np.zeros((len(orders), len(off))), 0, 0
    for _, results in with_shards(
        task, chunks(records[:CURVE_TEXTS], work.size), engine, chunk_name
    ):
        if isinstance(results, AttnvizError):
            raise results
        for table, count in results:
            losses += table
            outputs += count
            read += 1
    if not outputs:
        raise InputError("no text is left to draw the curve of")
    how = f"order of {texts} texts, loss of {read} others"
    if not half:
        how = (
            f"order and loss of the same {read} texts: the order by effect looks better than it is"
        )
    about = about_effects(report.provenance)
    losses /= outputs
    return PruneCurve(report.caption, tuple(names), tuple(orders), off, losses, how, about)


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
        check_effect(self.order, self.by, effect=self.effect, writes=self.writes)
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
    def command(self) -> Command:
        return "cross" if self.cross else "self"

    def check(self, attention: Attention) -> None:
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


def keep_scores(options: Options) -> Options:
    """The options with which sources keep what scores are measured of, where these are wanted."""
    origin = options.origin
    return replace(options, origin=replace(origin, keep_qk=origin.scores or origin.keep_qk))


def check_effect(order: str, by: Instead, *, effect: bool, writes: bool = False) -> None:
    if order == COPYING and not writes:
        raise UsageError("--sort copying needs attnviz heads --writes")
    if not effect and (order == EFFECT or by != "zero"):
        raise UsageError(f"{'--sort effect' if order == EFFECT else '--by'} needs --effect")


def check_alone(option: str, others: Mapping[str, object]) -> None:
    """Refuse options that contradict one which shows something else of heads."""
    if flags := [name for name, value in others.items() if value]:
        raise UsageError(f"{option} shows something else of heads: leave {flags[0]} out")


def check_heads(options: Options, command: Command) -> None:
    check_choice(options.choice, rows=True)
    check_origin(options.origin, command)


def chunks_of(request: HeadsRequest, options: Options, command: Command) -> AttendChunk:
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
                arguments.add(written_of(writer, query_of(writer, record, request.command)))
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
    from attnviz.analyses.measures.shares import repeated_words

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
    from attnviz.analyses.effects.probes import retrieval_scores, task_scores

    assert study.first is not None
    source = open_source(options.origin, "self", with_head="exact")
    if study.first.main.stream != "causal" or not isinstance(source, Experimenting):
        raise UsageError("--probe needs a model that continues a text")

    def open_text(text: str) -> Experiment:
        return open_experiment(source, Query(text), "all")

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
    if isinstance(source, SupportsWriters):
        try:
            study.add_values(COPYING, copying_of(source.head_weights()[0]))
        except UsageError:  # torch runs it
            notify("copying is left out: it is known of models that numpy runs")
    if request.scores and not study.measures("score-std"):
        notify(NO_SCORES)
    measures = study.report(request.order, request.role)
    measures = replace(measures, rows=measures.rows[: request.top])
    if request.role is not None and not measures.rows:
        notify(f"no head has the role '{request.role}'")
    if request.writes:
        at = [HeadAt(row.stream, row.layer, int(row.head)) for row in measures.rows]
        rows = zip(measures.rows, at, strict=True)
        measures = replace(
            measures, rows=tuple(replace(row, writes=arguments.arguments(one)) for row, one in rows)
        )

    def overview() -> Figure:
        return draw_by("head_overview:head_overview", study.report("layer"))

    def scatter() -> Figure:
        if not similarity.texts:
            raise InputError(NOT_COMPARED)
        return draw_by("head_overview:head_plane", similarity.report(), study.report("layer").rows)

    more: dict[str, Any] = {"figures": {"overview": overview, "scatter": scatter}}
    more["notes"] = measures.provenance.notes
    if request.similar:
        return data_of(similarity.report(), *tables.SIMILARITY, **more)
    table = partial(tables.measures_table, keep=request.order)
    return data_of(measures, table, tables.measures_tsv, tables.measures_json, **more)


def report_relations(file: str, options: Options, report: RunReport) -> None:
    """Score heads on a treebank's relations ("-": stdin); bad sentences are named and left out."""
    # All sentences are read before a model loads.
    stdin = file == "-"
    lines = sys.stdin.buffer if stdin else io.BytesIO(read_bytes(Path(file)))
    sentences = list(read_sentences(lines, "stdin" if stdin else f"'{file}'"))
    source = open_source(options.origin, "self")
    study = TreebankStudy()

    texts = [Text("0", one.text, where=f"the sentence at {one.where}") for one in sentences]

    def add(sentence: Sentence, result: Result, _: Text) -> Result:
        study.add(sentence, result)
        for note in result.provenance.notes:
            report.hold(note)
        return result

    def results() -> Iterator[tuple[None, Result | AttnvizError]]:
        rest = iter(sentences)
        for chunk in chunks(texts):
            outcomes = attend_chunk(source, chunk, options.choice, "self", options.many.batch_size)
            for text, sentence, one in zip(chunk, rest, outcomes, strict=False):
                if not isinstance(one, AttnvizError):
                    one = result_of(text, partial(add, sentence, one))
                yield None, one

    count = sum(1 for _ in good_results(results(), report, lambda: len(sentences)))
    if not count:
        raise InputError(f"'{file}' holds no sentence that could be used")
    result = study.report()
    for note in result.notes:
        report.say(note)
    report.add(data_of(result, *tables.TREEBANK))
    report.finish(f"{count} sentences")
