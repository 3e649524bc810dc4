"""The attention of a text or of many, of a picture, of a recording."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Unpack

from attnviz.api import arguments
from attnviz.api.collected import CollectedReport, Findings, collect
from attnviz.core.errors import AttnvizError, UsageError, choose, in_short
from attnviz.core.options import LENS_NAMES, Choice, Options, Origin
from attnviz.core.registry import Command
from attnviz.models.lens import needs_head
from attnviz.models.open import brings_tokens, check_origin, check_pair
from attnviz.runs.engines import open_engine
from attnviz.runs.head_measures import keep_scores
from attnviz.runs.many_texts import AttendChunk, attend_all, close_sources, source_for
from attnviz.runs.pictures import ALL, PictureRequest, look_at_pictures
from attnviz.runs.pipeline import (
    AttentionRequest,
    Result,
    as_result,
    attend_one,
    check_choice,
    check_kept,
)
from attnviz.features.audio.request import RecordingRequest, report_recording
from attnviz.runs.reporting import hold_notes
from attnviz.storage.texts import Text, check_text, chunks


@arguments.public
def attend(
    text: arguments.Sentence | arguments.Conversation,
    target: arguments.Sentence | None = None,
    *,
    pair: arguments.Sentence | None = None,
    **options: Unpack[arguments.AttendOptions],
) -> Result:
    """The attention of a text over itself or, with a target, of the target over the text.

    Args:
        text: the text; with a target, the source whose tokens are the keys; or a conversation, a
            list of messages with `role` and `content`.
        target: the text whose tokens are the queries.
        pair: the second text of a sentence pair, which a model reads as one sequence.
        options: those of the shell, by name; `model` may be a model of transformers with its
            `tokenizer` (it is left as it is), and `command` "cross" lets the model write the
            target itself.

    Returns:
        `.weights` (layers, heads, queries, keys), `.tokens`, `.maps`, `.heatmap()`, `.grid()`,
        `.page()`, `.save()`, `.select()`.

    Raises:
        AttnvizError: what the shell would say in one line.
    """
    if arguments.is_conversation(text) and target is pair is None:
        command, request = _read_request({"chat": True, **options}, "self")
        return _attend_text(
            request.origin, command, arguments.conversation_of(text), request.choice
        )
    for what, value in (("text", text), ("target", target), ("pair", pair)):
        if not isinstance(value, str) and (value is not None or what == "text"):
            kind = type(value).__name__
            raise UsageError(f"the {what} is of type {kind}: attend_many takes several texts")
    assert isinstance(text, str)
    command, request = _read_request(options, "self" if target is None else "cross")
    if pair is not None:
        if target is not None or command != "self":
            raise UsageError("pair= is the second text of one sequence: leave target, command out")
        check_pair(request.origin)
        target = check_text(pair, "second text")
    if not brings_tokens(request.origin):
        check_text(text)
        if target is not None:
            check_text(target, "target")
    return _attend_text(request.origin, command, Text("0", text, target), request.choice)


def _attend_text(origin: Origin, command: Command, text: Text, choice: Choice) -> Result:
    with arguments.in_evaluation(origin.model):
        source = source_for(origin, command, with_head=needs_head(choice.lens) or origin.keep_qk)
        result = attend_one(source, text, choice, command)
    return replace(result, again=AttentionRequest(origin, command, text, _attend_text))


@arguments.public
def attend_many(
    texts: arguments.Texts,
    *,
    batch_size: arguments.Positive | None = None,
    workers: arguments.Positive | None = None,
    **options: Unpack[arguments.AttendOptions],
) -> Iterator[Result | AttnvizError]:
    """The attention of each text or pair in order; an error stands in the place of its text.

    Args:
        texts: texts, or pairs of a source and its target; they are read together.
        batch_size: how many texts the model reads at once at most; None: as many as fit.
        workers: how many processes share the work.
        options: those of `attend`.
    """
    records = arguments.records_of(texts)
    pairs = any(isinstance(record, Text) and record.target is not None for record in records)
    command, request = _read_request(options, "cross" if pairs else "self")
    origin = request.origin
    work = AttendChunk(origin, request.choice, command, batch_size)

    def read_results() -> Iterator[Result | AttnvizError]:
        with open_engine("local", workers) as engine:
            results = attend_all(work, chunks(iter(records)), engine)
            while True:
                with arguments.in_evaluation(
                    origin.model
                ):  # between two results the model is its owner's
                    record, outcome = next(results, (None, None))
                if outcome is None:
                    return
                if isinstance(outcome, Result) and isinstance(record, Text):
                    outcome = replace(
                        outcome, again=AttentionRequest(origin, command, record, _attend_text)
                    )
                yield outcome

    return read_results()


def unload() -> None:
    """Let go of the models that stay loaded between calls: the last two at most."""
    close_sources()


def _read_request(options: arguments.AttendOptions, usual: Command) -> tuple[Command, Options]:
    command: Command = options.get("command") or usual
    request = keep_scores(arguments.read_options(options, top=Origin().top))
    check_choice(request.choice)
    check_origin(request.origin, command)
    check_kept(request.origin, request.choice)
    return command, request


@arguments.public
def image(
    file: arguments.InMemoryInput,
    more: Sequence[arguments.InMemoryInput] = (),
    *,
    patch: str | None = None,
    image_size: str | None = None,
    text: str | None = None,
    video: bool = False,
    token: str | None = None,
    lens: str = "raw",
    smooth: bool = False,
    **options: Unpack[arguments.ImageOptions],
) -> Result:
    """Where in a picture a vision model looks, patch by patch.

    Args:
        file: the picture: .png, .jpg, .webp, …; or one in memory, of Pillow, or an array (height,
            width) or (height, width, channels) of 8 or 16 bits, or of floats from 0 to 1.
        more: further pictures, with a text.
        patch: the patch that looks, "row,column" from "0,0" at the upper left, or "all"; None: the
            class token, else the mean over patches.
        image_size: pixels to read the picture in: "384", or "HEIGHTxWIDTH".
        text: what is read with the pictures, by a model like LLaVA, or a caption: its tokens look.
        video: the frames of an animated picture, or all pictures in order, are a video.
        token: the token of the text that looks, from 0, or "all".
        lens: what to make of the weights first.
        smooth: smooth weights between patches in pictures.
        options: those of `attnviz image`, by name.

    Returns:
        The attention; `.picture("overlay")` and `.picture("grid")` lie over the picture.
    """
    choose(lens, [name for name in LENS_NAMES if name != ALL], "lens")
    if not isinstance(more, list | tuple):
        raise UsageError(f"more={in_short(more)} is no list of pictures")
    request = PictureRequest(
        files=tuple(Path(one) if isinstance(one, str) else one for one in (file, *more)),
        patch=patch,
        image_size=image_size,
        text=text,
        video=video,
        token=token,
        lens=lens,
        smooth=smooth,
    )
    how = arguments.read_options(options)
    request.check(how)
    with collect("image", "maps", how) as report:
        item = look_at_pictures(request, request.read(), how)
        hold_notes(item.attention, report)
        report.add(item)
    return _only_result(report)


@arguments.public
def audio(
    file: arguments.InMemoryInput,
    *,
    sampling_rate: arguments.Positive | None = None,
    text: str | None = None,
    language: str | None = None,
    task: Literal["transcribe", "translate"] | None = None,
    start: float = 0.0,
    seconds: arguments.Positive = 30,
    word_times: bool = False,
    times: Path | None = None,
    timing_heads: str | None = None,
    against: Literal["input", "output"] = "output",
    **options: Unpack[arguments.AudioOptions],
) -> Result | Findings:
    """When a speech model listens, and when each word is spoken.

    Args:
        file: the recording: .wav, .flac, .ogg, .mp3, …; or samples in memory, an array of floats
            from -1 to 1 or of integers, (samples,) or with channels on its shorter axis.
        sampling_rate: how many samples of an array are a second.
        text: what is spoken; None: a model like Whisper writes it.
        language: the language that is spoken, for models that know several.
        task: what such a model is to do: "transcribe", or "translate" into English.
        start: the second to begin at.
        seconds: how much to hear at most; Whisper hears 30, AST 10.
        word_times: when each word is spoken, by the heads that the model names.
        times: a file of true times (.tsv, .TextGrid, .vtt): how far each head errs.
        timing_heads: the heads that time words: "2.0,3.1".
        against: a row times the token that it predicts ("output") or has read ("input").
        options: those of `attnviz audio`, by name.

    Returns:
        The attention; or the times of words, or the errors of heads.
    """
    if not 0 <= start < 1e6:
        raise UsageError(f"start={start} is no second of a recording")
    if seconds > 3600:
        raise UsageError(f"seconds={seconds} is out of range: 1 to 3600")
    in_memory = not isinstance(file, str | Path)
    if in_memory is not (sampling_rate is not None):
        raise UsageError("sampling_rate= is for an array of samples: give both, or a file")
    request = RecordingRequest(
        file=Path("recording" if in_memory else file),
        sound=(file, sampling_rate) if sampling_rate is not None else None,
        text=text,
        language=language,
        task=task,
        start=start,
        seconds=seconds,
        word_times=word_times,
        times=times,
        timing_heads=timing_heads,
        against=against,
    )
    how = arguments.read_options(options, top=Origin().top)
    request.check(how)
    with collect("audio", request.kind, how) as report:
        report_recording(request, how, report)
    return _only_result(report) if request.kind == "maps" else report.findings


def _only_result(report: CollectedReport) -> Result:
    (item,) = report.findings.items
    attention = item.attention
    result = attention if isinstance(attention, Result) else as_result(attention, Choice())
    return replace(result, item=item)
