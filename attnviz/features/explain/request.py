"""What decided the answers to texts: opened, searched and reported."""

from functools import partial

from attnviz.core.effects import Experiment, HeadOutputs, Intervention
from attnviz.core.errors import AttnvizError, UsageError, first_line
from attnviz.core.options import Options
from attnviz.core.query import Kind, Query
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import SourceKind
from attnviz.core.writers import WrittenText
from attnviz.features.experiments.texts import open_experiment, outputs_of_texts
from attnviz.features.explain import table as tables
from attnviz.features.explain.pair_score import PairScoreReport, score_data, score_pair
from attnviz.features.explain.patching import contrast_inputs
from attnviz.features.explain.report import AnswerReport, ContrastReport
from attnviz.features.explain.search import REFERENCE, explain_answer, reasons_of, sum_up
from attnviz.features.writers.links import follow_circuit
from attnviz.features.writers.page import PAGE_LINKS, why_page
from attnviz.models import Source
from attnviz.models.open import open_source
from attnviz.renderers.printable import printable_texts
from attnviz.renderers.reports import Data, data_of, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.readers import by_decoder, each_text, query_for
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.texts import Text, check_text


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What is asked about an answer."""

    output: str | None = None  # the output; None: the next token, masked word, class or last token
    against: str | None = None  # a choice that the answer is compared with
    contrast: str | None = None  # a text, in whose run parts of the first's restore the answer

    score: bool = False  # what carries the one score of a reranker
    page: bool = False  # whether each text has a page

    def __post_init__(self) -> None:
        if self.score and (self.contrast, self.against) != (None, None):
            raise UsageError("--score explains a score: leave --contrast and --against out")
        if self.score and self.page:
            raise UsageError("--score has no page: leave --html and --open out")
        if self.contrast is not None and self.against is not None:
            raise UsageError("--contrast and --against contradict each other: give one of them")


@dataclass(eq=False)
class Explainer:
    """A model whose answers are explained, and the mean outputs of its heads."""

    source: Source
    request: AnswerRequest
    others: TextInput | None
    kind: SourceKind = "self"  # what the texts are: a file's name only where an argument is one
    _outputs: dict[Kind, tuple[list[HeadOutputs], str]] = field(default_factory=dict)

    def explain(self, text: Text) -> tuple[AnswerReport, WrittenText | None]:
        """What decided the answer to a text, and what the model's parts wrote there."""
        answer, trace = self.explain_query(query_for(self.source, text, self.kind))
        return replace(answer, id=text.id), trace

    def explain_query(self, query: Query) -> tuple[AnswerReport, WrittenText | None]:
        """The same of a query."""
        source = self.source
        if source.lacks("experiment"):
            raise UsageError("nothing here predicts anything that could be explained")
        experiment, notes = self._open(query), list[str]()
        outputs, reference = self._replacing(query.kind, experiment)
        trace = None
        try:
            if self.request.page or not source.lacks("trace_writers"):
                trace = source.trace_writers(query)
        except AttnvizError as error:
            if self.request.page:
                raise
            notes.append(f"why heads look where they do is left out: {first_line(error)}")
        against = None
        if self.request.against is not None:
            against = find_choice(experiment, self.request.against)
        answer = explain_answer(
            *(experiment, outputs, trace), reference=reference, against=against, notes=notes
        )
        return answer, trace

    def _replacing(self, kind: Kind, experiment: Experiment) -> tuple[list[HeadOutputs], str]:
        """What heads that are off put out, and that in words."""
        if kind not in self._outputs:
            is_text = kind in ("self", "cross", "pair")
            self._outputs[kind] = self._read_outputs(kind, experiment) if is_text else ([], "")
        outputs, reference = self._outputs[kind]
        if outputs:
            return outputs, reference
        return [experiment.head_outputs()], "their mean over the positions of this input"

    def score(self, text: Text) -> PairScoreReport:
        """What carries the score of a pair."""
        if self.source.lacks("experiment"):
            raise UsageError("nothing here predicts anything that could be explained")
        query = query_for(self.source, text, self.kind)
        experiment = self._open(query)
        report = score_pair(experiment, *self._replacing(query.kind, experiment))
        return replace(report, id=text.id)

    def contrast(self, text: Text, other: str) -> ContrastReport:
        """Which heads and positions restore a text's answer in the run of another text."""
        check_text(other)
        second = replace(text, text=other)
        if self.source.lacks("experiment") or self.kind in ("picture", "recording"):
            raise UsageError("--contrast compares two texts before a model that predicts")
        first, after = (
            self._open(query_for(self.source, one, self.kind)) for one in (text, second)
        )
        return contrast_inputs(first, after, (text.text, other))

    def _open(self, query: Query) -> Experiment:
        if self.request.output == "all":
            return open_experiment(self.source, query, "all")
        return self.source.experiment(query, self.request.output)

    def _read_outputs(self, kind: Kind, like: Experiment) -> tuple[list[HeadOutputs], str]:
        if self.others is not None:
            outputs = outputs_of_texts(self.source, self.others)
            return outputs, f"their mean over {len(outputs)} texts of --reference"
        try:
            after = (*REFERENCE[1:], REFERENCE[0]) if kind == "pair" else [None] * len(REFERENCE)
            queries = [Query(*one, kind) for one in zip(REFERENCE, after, strict=True)]
            outputs = self.source.head_outputs(queries, like)
        except AttnvizError:  # it reads pairs, or masked words alone
            return [], ""
        what = "pairs of English sentences" if kind == "pair" else "English sentences"
        return outputs, f"their mean over {len(REFERENCE)} {what} (--reference: others)"


def find_choice(experiment: Experiment, name: str) -> int:
    """The number of the choice of this name; a UsageError if there is none."""
    ((scores, *_),) = experiment.run([Intervention()])
    for number in range(len(scores)):
        if experiment.spell(number) == name:
            return number
    raise UsageError(f"--against '{name}' is none of the {len(scores):,} choices of the model")


def report_answers(
    request: AnswerRequest,
    texts: TextInput,
    kind: SourceKind,
    options: Options,
    report: RunReport,
    others: TextInput | None = None,
) -> None:
    """Report what decided the answer to one text, or which heads carry those to many."""
    origin = by_decoder(options.origin, report) if kind == "self" else options.origin
    explainer = Explainer(open_source(origin, kind, with_head="exact"), request, others, kind)
    if request.contrast is not None:
        other = request.contrast
        results = each_text(texts.open(), lambda text: explainer.contrast(text, other))
        for _, contrast in good_results(results, report, texts.total):
            report.add(_contrast_data(contrast))
        report.finish("texts")
        return
    if request.score:
        for _, pair in good_results(each_text(texts.open(), explainer.score), report, texts.total):
            report.add(score_data(pair))
        report.finish("texts")
        return
    answers, lines = list[AnswerReport](), list[str]()
    last: WrittenText | None = None
    for _, (answer, trace) in good_results(
        each_text(texts.open(), explainer.explain), report, texts.total
    ):
        for note in answer.notes:
            report.hold(note)
        answers.append(answer)
        lines.append(tables.answer_json(answer))
        last = trace
        if request.page and trace is not None and texts.several:
            report.add_page(partial(_answer_page, answer, trace))
    if len(answers) == 1 and not texts.several:
        report.add(_answer_data(answers[0], last, verbose=options.output.verbose))
    elif answers:
        several = sum_up(answers)
        report.add(data_of(several, *tables.ANSWERS, lines=lambda: "".join(lines)))
    report.finish(f"{len(answers)} text{'s' if len(answers) != 1 else ''}")


def _contrast_data(contrast: ContrastReport) -> Data:
    draw = partial(draw_by, "attnviz.features.explain.picture:contrast_picture", contrast)

    def page(command: str) -> str:
        from attnviz.features.explain.picture import contrast_page
        from attnviz.renderers.figures.figure import figure_bytes

        lines = tables.contrast_lines(contrast)
        return contrast_page(contrast, lines, figure_bytes(draw(), ".svg"), command)

    notes = contrast.notes
    return data_of(contrast, *tables.CONTRAST, figures={"plot": draw}, page=page, notes=notes)


def _answer_data(answer: AnswerReport, trace: WrittenText | None, *, verbose: bool) -> Data:
    table = partial(tables.answer_table, verbose=verbose)
    page = partial(_answer_page, answer, trace) if trace is not None else None
    return data_of(answer, table, tables.answer_tsv, tables.answer_json, page=page)


def _answer_page(answer: AnswerReport, trace: WrittenText, command: str) -> str:
    links = [claim.why for claim in answer.heads]
    if answer.idle:  # the page alone says why it looks there
        links.append(reasons_of(trace, answer.idle.at, answer.idle.link))
    reports = [one for one in links if one is not None]
    room = PAGE_LINKS - len(reports)
    more = follow_circuit(trace, reports[0], room)[1:] if reports else []
    sentences = [printable_texts(one.document()) for one in tables.sentences_of(answer)]
    return why_page([*reports, *more], trace.attention, command, sentences)
