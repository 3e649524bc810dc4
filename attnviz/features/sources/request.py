"""Which passage or sentence of a context an answer was made from: read, asked and reported."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Token
from attnviz.core.effects import Experiment, Intervention
from attnviz.core.errors import AttnvizError, InputError, UnsupportedError, UsageError, first_line
from attnviz.core.options import Options
from attnviz.core.query import Query
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import split_sentences
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.measures.intervals import rank_correlation
from attnviz.features.sources import subsets, table
from attnviz.features.sources.report import SourcePart, SourcesReport
from attnviz.models import Source
from attnviz.models.open import is_shipped, open_source
from attnviz.renderers.reports import data_of
from attnviz.runs.readers import by_decoder
from attnviz.runs.reporting import RunReport
from attnviz.storage.matrices import read_text
from attnviz.storage.texts import check_text, read_conversations

Grouping = Literal["passages", "sentences", "messages"]
Without = Literal["hide", "remove"]
PRIVATE = 0xF0000  # the first of 65,534 characters that mean nothing
HOW: dict[Without, str] = {
    "hide": "its tokens are hidden in every layer and keep their places",
    "remove": "its text is deleted",
}


@dataclass(frozen=True, slots=True)
class SourcesRequest:
    """What is asked about a context; `attnviz.sources` explains each field."""

    context: tuple[Path, ...]
    question: str
    answer: str | None = None
    group: Grouping = "passages"
    without: Without = "hide"
    budget: int = 200
    fit: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of some files and the text that a model reads."""

    parts: tuple[tuple[str, str], ...]  # file and text of each part; between them stands `gap`
    gap: str
    question: str  # what follows the parts
    pair: bool  # whether the answer is the target of a pair
    roles: tuple[str, ...] = ()  # the speaker of each part; empty: no conversation
    # writes a conversation as the model reads it; None: it reads the text as it is
    render: Callable[[Sequence[Mapping[str, Any]]], str] | None = None

    def prompt(self, off: Sequence[int] = ()) -> str:
        """The text before the answer, without some parts."""
        own = [n for n in range(len(self.parts)) if n not in off]
        texts = [self.parts[n][1] for n in own]
        if self.render is None:
            return self.gap.join([*texts, self.question])
        if not self.roles:
            return self.render([turn("user", self.gap.join([*texts, self.question]))])
        turns = [turn(self.roles[n], self.parts[n][1]) for n in own]
        return self.render([*turns, turn("user", self.question)])

    def query(self, answer: str | None, off: Sequence[int] = ()) -> Query:
        if self.pair:
            return Query(self.prompt(off), answer, "cross")
        return Query(self.prompt(off) + (answer or ""), rendered=self.render is not None)

    def spans(self) -> list[tuple[int, int]]:
        """The characters of each part in the prompt.

        Raises:
            InputError: the chat template changes a part.
        """
        # A message may say what a template writes too ("user"): marks of its length show its place.
        marks = [chr(PRIVATE + n) * len(text) for n, (_, text) in enumerate(self.parts)]
        names = [name for name, _ in self.parts]
        with_marks = replace(self, parts=tuple(zip(names, marks, strict=True))).prompt()
        prompt, spans = self.prompt(), list[tuple[int, int]]()
        for number, (mark, (_, text)) in enumerate(zip(marks, self.parts, strict=True), 1):
            start = with_marks.find(mark)
            if start < 0 or prompt[start : start + len(text)] != text:
                raise InputError(f"the chat template changes part {number}: its place is unknown")
            spans.append((start, start + len(text)))
        return spans


def turn(role: str, content: str) -> dict[str, Any]:
    """A message as a chat template reads it."""
    return {"role": role, "content": content}


def read_parts(request: SourcesRequest) -> tuple[list[tuple[str, str]], list[str]]:
    """The context's passages (blank lines between) or messages (JSON), with files and roles."""
    parts, roles = list[tuple[str, str]](), list[str]()
    for path in request.context:
        text = read_text(path)
        if request.group == "messages":
            for conversation in read_conversations(text, f"'{path}'"):
                for one in conversation.messages:
                    content = check_text(one.content.strip(), f"content of a message in '{path}'")
                    parts.append((f"{path.name}, {one.role}", content))
                    roles.append(one.role.strip())
            continue
        for block in text.replace("\r\n", "\n").split("\n\n"):
            some = [block.strip()]
            if request.group == "sentences":
                some = [one.text for one in split_sentences(block)]
            parts += [(path.name, " ".join(one.split())) for one in some if one.strip()]
    if not parts:
        raise InputError(f"'{request.context[0]}' holds no text")
    for _, text in parts:
        check_text(text)
    check_text(request.question)
    if request.answer is not None:
        check_text(request.answer, "answer")
    return parts, roles


def report_sources(request: SourcesRequest, options: Options, report: RunReport) -> SourcesReport:
    (parts, roles), origin = read_parts(request), options.origin
    if request.group == "messages" and not origin.chat:
        raise UsageError("--group messages reads a conversation: add --chat")
    origin = by_decoder(origin, report)
    source = open_source(origin, "self", with_head="exact")
    pair = not _continues(source)
    if pair and getattr(source, "family", "") == "encoder-only":
        raise UsageError(
            "sources explains an answer that a model writes, and an encoder writes none: name a "
            "model that continues a text or translates, such as --model pocket-lm"
        )
    if pair:
        source = open_source(origin, "cross", with_head="exact")
    # The shipped models have no token for line breaks.
    line = pair or request.group == "sentences" or is_shipped(origin)
    render = source.render if origin.chat else None
    gap = " " if line else "\n\n"
    context = Context(tuple(parts), gap, request.question, pair, tuple(roles), render)
    result = _measure(request, source, context, report)
    for note in result.notes:
        report.hold(note)

    def page(command: str) -> str:
        return table.sources_page(result, command)

    report.add(data_of(result, *table.SOURCES, page=page))
    report.finish(f"{result.runs} runs")
    return result


def check_support(report: SourcesReport, least: float | None) -> None:
    pairs = zip(report.sentences, report.support, strict=True)
    weak = [text for text, most in pairs if least is not None and not most >= least]
    if weak:
        raise UnsupportedError(
            f"{len(weak)} of {len(report.sentences)} sentences have no source with {least:g} nats: "
            f"'{weak[0]}'"
        )


def _continues(source: Source) -> bool:
    """Whether a model continues a text; otherwise it writes the target of a pair."""
    with suppress(AttnvizError):
        item = open_experiment(source, Query("a b")).attention.main
        return item.stream == "causal"
    return False


def _measure(
    request: SourcesRequest, source: Source, context: Context, report: RunReport
) -> SourcesReport:
    answer, is_own = request.answer, request.answer is None
    if answer is None:
        answer = _write(source, context)
    elif not context.pair and context.render is None and answer[:1].strip():
        answer = f" {answer}"
    sentences = split_sentences(answer)
    if not sentences:
        raise InputError("the model writes no answer: give --answer TEXT")
    trial = _open(source, context, answer, sentences)
    (rows,) = trial.experiment.run([Intervention()])
    full = trial.of_sentences(rows)

    def remove(groups: Sequence[subsets.Group]) -> NDArray[np.float64]:
        scores = []
        for group in groups:
            other = _open(source, context, answer, sentences, group)
            scores.append(other.of_sentences(next(iter(other.experiment.run([Intervention()])))))
            trial.runs += 1
        return np.array(scores)

    count = len(context.parts)
    leave_out = trial.score if request.without == "hide" else remove
    runs = min(request.budget, count) + request.fit
    report.say(f"the model now runs {runs} times, each time without some part")
    effects = subsets.effects_of_parts(
        subsets.leave_out_parts(count, leave_out, full, request.budget), count
    )
    item, outputs = trial.experiment.attention.main, trial.experiment.outputs
    answer_rows = sorted({outputs[output].row for output in trial.sentences})
    shares = subsets.attention_to(item, answer_rows, trial.places).reshape(count, -1)
    estimates = {"attention": shares.mean(axis=1)}
    notes = list[str]()
    try:
        estimates["effect lens"] = _gradient_estimate(trial)
    except AttnvizError as error:
        notes.append(f"the estimate by gradients is left out: {first_line(error)}")
    if request.fit:
        estimates["heads"] = subsets.fit_heads(shares, trial.score, float(full.sum()), request.fit)
    exact = np.array([effect for effect, *_ in effects])
    attention = trial.experiment.attention
    return SourcesReport(
        caption=f"{attention.provenance.title} · {count} {request.group}",
        question=context.question,
        sentences=tuple(one.text for one in sentences),
        support=tuple(_largest([own[n] for _, own, _ in effects]) for n in range(len(sentences))),
        written=is_own,
        log_p=float(full.sum()),
        parts=tuple(
            SourcePart(
                number=number + 1,
                file=file,
                text=text,
                tokens=len(trial.places[number]),
                effect=effect,
                of_sentences=tuple(own.tolist()),
                group=tuple(n + 1 for n in group) if len(group) > 1 else (),
                estimates={name: float(values[number]) for name, values in estimates.items()},
            )
            for number, ((file, text), (effect, own, group)) in enumerate(
                zip(context.parts, effects, strict=True)
            )
        ),
        how=HOW[request.without],
        agreement={name: rank_correlation(values, exact) for name, values in estimates.items()},
        runs=trial.runs,
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
    )


def _largest(values: Sequence[float]) -> float:
    return max((float(one) for one in values if not math.isnan(one)), default=math.nan)


def _write(source: Source, context: Context) -> str:
    """The answer that the model writes."""
    experiment = source.experiment(context.query(None), None)
    if context.pair:
        return experiment.attention.target or ""
    answer = experiment.write(Intervention())
    if answer is None:
        raise UsageError("the model writes nothing: give --answer TEXT")
    return answer


def _open(
    source: Source, context: Context, answer: str, spans: Sequence[Token], off: Sequence[int] = ()
) -> subsets.HiddenParts:
    """An experiment on the answer after the context, with only the answer's outputs."""
    experiment: Experiment = open_experiment(source, context.query(answer, off))
    attention = experiment.attention
    side = attention.main.key_side
    keys, queries = attention.main.key_tokens, attention.main.query_tokens
    start = 0 if context.pair else len(context.prompt(off))
    sentences = dict[int, int]()
    for output, one in enumerate(experiment.outputs):
        token = queries[one.position] if one.position is not None else None
        if token is None or token.special or token.end <= start:
            continue
        place = token.end - start
        number = sum(span.start < place for span in spans) - 1
        sentences[output] = max(number, 0)
    if not sentences:
        raise InputError("the model predicts no token of the answer")
    places = [
        [n for n, key in enumerate(keys) if not key.special and key.start < end and key.end > first]
        for first, end in context.spans()
    ]
    return subsets.HiddenParts(experiment, side, places, sentences)


def _gradient_estimate(trial: subsets.HiddenParts) -> NDArray[np.float64]:
    """The first-order effect of each part's columns, summed over heads and rows."""
    experiment, item = trial.experiment, trial.experiment.attention.main
    every = experiment.outputs
    experiment.outputs = tuple(every[output] for output in trial.sentences)
    try:
        slopes = experiment.gradients()[0]
    finally:
        experiment.outputs = every
    heads = (one.reshape(-1, *one.shape[-2:]) for one in (item.weights, slopes))
    # Head by head, so that no product of all maps is in memory.
    parts = ((own * slope).sum(0, dtype=np.float64) for own, slope in zip(*heads, strict=True))
    columns = np.sum([*parts], axis=0)
    return np.array([columns[list(own)].sum() for own in trial.places])
