"""The function of Python: when a speech model listens."""

from pathlib import Path
from typing import Literal, Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect, only_result
from attnviz.core.errors import UsageError
from attnviz.core.options import Origin
from attnviz.features.audio.request import RecordingRequest, report_recording
from attnviz.runs.pipeline import Result


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
    return only_result(report) if request.kind == "maps" else report.findings
