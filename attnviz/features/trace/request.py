"""Which sentences of a reasoning carry it: read, asked of a model, and reported.

The measures are those of thought anchors (Bogdan, Macar, Nanda and Conmy 2025, arXiv 2506.19143).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options
from attnviz.core.records import dataclass, replace
from attnviz.features.trace import anchors, resampling, table
from attnviz.features.trace.sentences import Transcript, find_file, read_transcript
from attnviz.models.open import check_torch, is_shipped, loading_of, name_of
from attnviz.renderers.reports import Data, data_of
from attnviz.runs.journal import RunJournal, checksum_of, run_options
from attnviz.runs.readers import by_decoder
from attnviz.runs.reporting import RunReport
from attnviz.storage.matrices import read_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.features.trace.passes import SentencePasses
    from attnviz.models.hugging_face.text_model import HuggingFaceModel

FEWEST = 6  # sentences of which receiver heads can be told
OUTSTANDING = 1.5  # standard deviations above the mean from which on a score is marked
LINKS = 3  # sentences that one is linked with at most


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What is asked about a reasoning; `attnviz.sources` explains each field."""

    texts: tuple[str | Path, ...]
    context: tuple[Path, ...] = ()
    answer: str | None = None
    temperature: float = 1.0
    control_depth: bool = False
    resample: int = 0
    pattern: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise UsageError(f"--temperature {self.temperature:g} is out of range: above 0")
        if self.resample == 1:
            raise UsageError("--resample 1 compares nothing: write 10 or more")


def report_trace(
    request: TraceRequest, options: Options, report: RunReport
) -> list[anchors.TraceReport]:
    """Report on each transcript; of several, receiver heads are chosen by their mean kurtosis."""
    if len(request.texts) > 1 and request.resample:
        raise UsageError("--resample continues one text: give one FILE")
    resampling.read_pattern(request.pattern)
    rollouts = resampling.Rollouts(_journal(request, options))
    source = _open(options, report)
    reader = partial(_read, request, options, source)
    readings, together = [reader(text) for text in request.texts], list[Any]()
    if len(readings) > 1:
        for own in readings:
            together.append(anchors.kurtosis(own.passes(request).vertical))
            own.forget()
    results = list[anchors.TraceReport]()
    for own in readings:
        one = own.passes(request)
        kurtoses = together or [anchors.kurtosis(one.vertical)]
        result = _measure(request, own, kurtoses, report)
        resamplings, notes = list[anchors.Resampling | None](), list[str]()
        if request.resample:
            resamplings, notes = _resample(request, options, own, rollouts, report)
        result = replace(
            result,
            sentences=tuple(
                replace(sentence, resampling=one)
                for sentence, one in zip_longest(result.sentences, resamplings)
            ),
            notes=(*result.notes, *notes),
        )
        own.forget()
        report.add(_data(result))
        results.append(result)
    report.finish(f"{sum(one.passes for one in results):.0f} passes")
    return results


def _open(options: Options, report: RunReport) -> HuggingFaceModel:
    """The model that continues texts, on torch."""
    origin = by_decoder(options.origin, report)
    check_torch(origin, "transcripts")
    if origin.mechanism or origin.weights or origin.qk:
        raise UsageError("--of output asks a model that continues texts: --model ID_OR_FOLDER")
    from attnviz.models.hugging_face.text_model import load_model

    name: Any = None if is_shipped(origin) else name_of(origin)
    if name is None:
        if origin.model != "pocket-lm":
            raise UsageError(f"'{origin.model}' continues no text: name --model pocket-lm")
        from attnviz.features.pocket_lm.language_model import FOLDER as name  # noqa: N811 - a place
    more: dict[str, Any] = {"chat": origin.chat, "with_head": True, **loading_of(origin)}
    source = load_model(str(name) if isinstance(name, Path) else name, **more)
    if isinstance(name, Path):
        source = replace(source, provenance=replace(source.provenance, model=str(origin.model)))
    if source.family != "decoder-only" or not source.can_generate:
        raise UsageError(
            f"'{source.name}' ({source.family}) continues no text: name a model that does"
        )
    if options.origin.generate:
        source = replace(source, max_new_tokens=options.origin.generate)
    return source


class ReadTranscript:
    """A transcript as a model reads it."""

    def __init__(self, source: HuggingFaceModel, transcript: Transcript, read: Any) -> None:
        self.source, self.transcript, self.read = source, transcript, read
        self.sentences = transcript.sentences()
        if len(self.sentences) < 2:
            count = f"{len(self.sentences)} sentence{'s' if not self.sentences else ''}"
            where = f" in '{transcript.name}'" if transcript.name else ""
            raise InputError(f"the reasoning{where} has {count}: give two or more")
        self._passes: SentencePasses | None = None

    def passes(self, request: TraceRequest) -> SentencePasses:
        if self._passes is None:
            from attnviz.features.trace.passes import SentencePasses

            depth = request.control_depth
            self._passes = SentencePasses(
                self.source, self.read, self.sentences, control_depth=depth
            )
        return self._passes

    def forget(self) -> None:
        self._passes = None

    def rows_of(self, span: tuple[int, int] | None) -> list[int]:
        """The rows that predict the tokens of some characters."""
        if span is None:
            return []
        first, stop = span
        return [
            place - 1
            for place, token in enumerate(self.read.tokens)
            if place and first <= token.start < stop and token.end > token.start
        ]


def _read(
    request: TraceRequest, options: Options, source: HuggingFaceModel, what: str | Path
) -> ReadTranscript:
    from attnviz.models.hugging_face.inputs.generation import continue_prompt
    from attnviz.models.hugging_face.inputs.tokenization import tokenize

    own = options.origin.generate is not None
    path = find_file(what)
    is_chat = options.origin.chat or (path is not None and path.suffix in (".json", ".jsonl"))
    context = "\n\n".join(read_text(file).strip() for file in request.context)
    transcript = read_transcript(what, context, source.render if is_chat else None, own=own)
    read = tokenize(source.tokenizer, transcript.text, has_marks=transcript.rendered)
    if own:
        text, read, *_ = continue_prompt(source, transcript.text, read)
        transcript = replace(transcript, text=text)
    if source.limit is not None and len(read.ids) > source.limit:
        raise InputError(
            f"the text is {len(read.ids):,} tokens long and '{source.name}' reads at most "
            f"{source.limit:,}: shorten it"
        )
    return ReadTranscript(source, transcript, read)


def _measure(
    request: TraceRequest,
    own: ReadTranscript,
    kurtoses: Sequence[anchors.Numbers],
    report: RunReport,
) -> anchors.TraceReport:
    """Each sentence's receiver score, and what hiding it changes."""
    passes, count = own.passes(request), len(own.sentences)
    heads = anchors.receivers(kurtoses)
    means = np.mean(np.array(kurtoses), axis=0)
    looks = np.array([passes.vertical[place] for place in heads])
    scores = anchors.mean_of(looks, axis=0) if heads else np.full(count, np.nan)
    starts = [stop if passes.remembers else 0 for _, stop in passes.spans if stop < passes.count]
    rows = len(starts) * passes.count - sum(starts)
    report.say(
        f"each of {count} sentences is now hidden: about {rows / passes.count:,.1f} passes of "
        f"{passes.count:,} tokens, {(rows + passes.tokens_run) / passes.count:,.1f} with the first "
        "and a check of it"
    )
    logs, sizes, of_answer = np.full((count, count), np.nan), list[float](), list[float | None]()
    answer_rows = own.rows_of(own.transcript.answer)
    from attnviz.features.trace.passes import log_kl

    with report.progress(lambda: count) as advance:
        for number in range(count):
            resamplings = passes.effects(number, request.temperature)
            logs[:, number] = log_kl(resamplings, passes.spans, number)
            later = resamplings[passes.spans[number][1] : passes.spans[-1][1]]
            sizes.append(float(later.mean()) if len(later) else math.nan)
            of_answer.append(float(resamplings[answer_rows].mean()) if answer_rows else None)
            advance(1)
    ran = passes.tokens_run / passes.count
    notes = list[str]()
    links = anchors.against_others(logs)
    effects = anchors.mean_of(links, axis=0)
    marks = [_outstanding(values) for values in (scores, effects)]
    if count < FEWEST:
        notes.append(f"receiver heads need {FEWEST} sentences or more, and here are {count}")
    if not passes.remembers:
        notes.append(
            "this model cannot go on from its keys and values: each pass is of the whole text"
        )
    title = own.source.provenance.title
    name = own.transcript.name
    return anchors.TraceReport(
        caption=" · ".join([title, *([name] if name else []), f"{count} sentences"]),
        name=name,
        tokens=passes.count,
        prompt_tokens=passes.spans[0][0],
        answer=own.transcript.text[slice(*own.transcript.answer)].strip()
        if own.transcript.answer
        else "",
        right=_right(request, own),
        sentences=tuple(
            anchors.TracedSentence(
                number=number + 1,
                text=" ".join(one.text.split()),
                tokens=passes.spans[number][1] - passes.spans[number][0],
                receiver=float(scores[number]),
                effect=float(effects[number]),
                kl=sizes[number],
                answer_kl=of_answer[number],
                marks=tuple(
                    name
                    for name, out in zip(("receiver", "effect"), marks, strict=True)
                    if out[number]
                ),
                needs=_largest(links[number]),
                changes=_largest(links[:, number]),
                resampling=None,
            )
            for number, one in enumerate(own.sentences)
        ),
        heads=tuple(
            anchors.ReceiverHead(passes.layers[layer], head, float(means[layer, head]))
            for layer, head in heads
        ),
        log_kl=tuple(tuple(row[:number].tolist()) for number, row in enumerate(logs)),
        temperature=request.temperature,
        control_depth=request.control_depth,
        passes=round(ran, 2),
        resamples=request.resample,
        notes=(*own.source.provenance.notes, *notes),
        provenance=own.source.provenance,
    )


def _outstanding(values: anchors.Numbers) -> list[bool]:
    """Which scores lie far above the mean."""
    there = values[np.isfinite(values)]
    if len(there) < 2 or not there.std():
        return [False] * len(values)
    return [bool(one >= there.mean() + OUTSTANDING * there.std()) for one in values]


def _largest(values: anchors.Numbers) -> tuple[int, ...]:
    """The numbers of the largest positive values, the largest first."""
    order = sorted((-value, place + 1) for place, value in enumerate(values) if value > 0)
    return tuple(place for _, place in order[:LINKS])


def _right(request: TraceRequest, own: ReadTranscript) -> str:
    """The answer that counts as right: the one that was given, else the transcript's own."""
    words = own.transcript.text[own.transcript.prompt :]
    return request.answer or resampling.final_answer(
        words, resampling.read_pattern(request.pattern)
    )


def _resample(
    request: TraceRequest,
    options: Options,
    own: ReadTranscript,
    rollouts: resampling.Rollouts,
    report: RunReport,
) -> tuple[list[anchors.Resampling | None], list[str]]:
    """What each sentence's continuations say, and notes."""
    passes, text = own.passes(request), own.transcript.text
    pattern, right = resampling.read_pattern(request.pattern), _right(request, own)
    count, many = len(own.sentences), request.resample
    if rollouts.journal is not None:
        old = rollouts.journal.read()
        rollouts.restore(rollouts.journal.resume(old, report.say, resume=options.many.resume))
    starts = [passes.spans[number][0] for number in range(count)] + [passes.spans[-1][1]]
    room = own.source.limit or 1 << 20
    most = [min(max(2 * (passes.count - start), 64), room - start) for start in starts]
    rest = [number for number in range(count + 1) if number not in rollouts.texts]
    there = f"; {count + 1 - len(rest)} × {many} are there" if rollouts.texts else ""
    report.say(
        f"now written: {len(rest)} × {many} continuations, "
        f"{many * sum(most[number] for number in rest):,} tokens at most{there}"
    )

    def draw(number: int) -> list[str]:
        if not starts[number]:  # nothing stands before it that a model could go on from
            return []
        seed = request.seed * 1_000_003 + 1009 * number
        return passes.continuations(starts[number], many, most[number], request.temperature, seed)

    try:
        with report.progress(lambda: len(rest)) as advance:
            for number in rest:
                rollouts.write([number], draw)
                advance(1)
    except BaseException:
        rollouts.leave()
        if rollouts.journal is not None:
            rollouts.journal.say_left(report.say)
        raise
    meaning, name = resampling.meaning_of(passes.meaning)
    ends = [one.start for one in own.sentences] + [own.sentences[-1].end]
    answers = [
        [
            resampling.final_answer(text[own.transcript.prompt : end] + more, pattern)
            for more in rollouts.texts[number]
        ]
        for number, end in enumerate(ends)
    ]
    resamplings = [
        resampling.compare(
            own.sentences[number].text,
            rollouts.texts[number],
            (answers[number], answers[number + 1]),
            right,
            meaning,
        )
        if rollouts.texts[number]
        else None
        for number in range(count)
    ]
    if rollouts.journal is not None:
        rollouts.journal.remove()
    none = sum(one == resampling.NO_ANSWER for some in answers for one in some)
    notes = [
        f"sentences are compared by {name}: another meaning is a cosine under {resampling.ALIKE}"
    ]
    if not starts[0]:
        notes.append("sentence 1 is not written again (–): a model needs a token before it")
    if none:
        notes.append(f"{none} of {sum(map(len, answers))} continuations give no answer")
    return resamplings, notes


def _journal(request: TraceRequest, options: Options) -> RunJournal | None:
    """The journal beside the data file; None: continuations of this run are not kept."""
    if not request.resample and options.many.resume:
        raise UsageError("--resume continues the continuations of --resample N: add it")
    output, path = options.output.output, find_file(request.texts[0])
    if not request.resample or output is None or path is None:
        if options.many.resume:
            raise UsageError("--resume continues an interrupted run: give FILE, and -o FILE")
        return None
    settings = run_options("sources --of output", options, path)
    own = (request.resample, request.temperature, request.seed, request.answer, request.pattern)
    names = ("--resample", "--temperature", "--seed", "--answer", "--pattern")
    settings |= {name: str(value) for name, value in zip(names, own, strict=True)}
    settings["--context"] = checksum_of(*(read_text(one).encode() for one in request.context))
    return RunJournal(output, settings, resampling.SECONDS)


def _data(report: anchors.TraceReport) -> Data:
    def plot() -> Figure:
        from attnviz.features.trace.picture import triangle

        return triangle(report)

    def page(command: str) -> str:
        from attnviz.features.trace.picture import trace_page
        from attnviz.renderers.figures.figure import figure_bytes

        return trace_page(report, figure_bytes(plot(), ".svg"), command)

    return data_of(
        *(report, table.trace_table, table.trace_tsv, table.trace_json),
        figures={"plot": plot},
        page=page,
        notes=report.notes,
    )
