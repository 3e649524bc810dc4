"""attnviz audio."""

from pathlib import Path
from typing import Any, Literal

from attnviz.commands.arguments import InMemoryInput, Positive
from attnviz.commands.command import CHOICE, MAP_PICTURES, ORIGIN, PLACES, Run, command
from attnviz.commands.findings import Findings
from attnviz.core.errors import UsageError
from attnviz.core.options import Origin
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.audio.request import TIME_FORMATS, RecordingRequest, report_recording
from attnviz.runs.pipeline import Result


@command(
    *("model", "compute", "generate", "stream", "heads", "reduce", "special", "group", "long"),
    *PLACES,
    writes=("maps", "times", "scores"),
    rare=("picture", "language"),
    draws=MAP_PICTURES,
)
def audio(
    file: InMemoryInput = arg(
        "Recording: .wav, .flac, .ogg, .mp3, ….",
        "FILE",
        default=...,
        shell=str,
        python="the recording: .wav, .flac, .ogg, .mp3, …; or samples in memory, an array of "
        "floats from -1 to 1 or of integers, (samples,) or with channels on its shorter axis.",
    ),
    *,
    sampling_rate: Positive | None = None,
    text: str | None = opt(
        ORIGIN,
        "--text TEXT",
        "What is spoken (without it a model like Whisper writes it), or a prompt for a model that "
        "reads sound and text.",
    ),
    language: str | None = opt(
        ORIGIN,
        "--language NAME",
        "Spoken language (en, french), if the model knows several; default: it decides.",
    ),
    task: Literal["transcribe", "translate"] | None = rare(
        ORIGIN,
        "--task NAME",
        "Task for such a model: {choices} (into English).",
    ),
    start: float = opt(
        ORIGIN, "--start SECONDS", "Where in the recording to begin.", default=0.0, min=0
    ),
    seconds: int = opt(
        ORIGIN,
        "--seconds SECONDS",
        "How many seconds to read at most; Whisper reads 30, AST 10.",
        default=30,
        min=1,
        max=3600,
    ),
    word_times: bool = opt(
        CHOICE, "--word-times", "When each word is spoken, by the heads that the model names."
    ),
    times: Path | None = rare(
        CHOICE,
        "--times FILE",
        "True times of words (.tsv: word, start, end; .TextGrid; .vtt), to see how heads err.",
    ),
    timing_heads: str | None = rare(
        CHOICE, "--timing-heads WHICH", "Heads that time the words: 2.0,3.1."
    ),
    against: Literal["input", "output"] = rare(
        CHOICE,
        "--against SIDE",
        "Whether a row times the token that it predicts (output) or has read (input).",
        default="output",
    ),
    **options: Any,
) -> "Result | Findings":
    """Show when a speech model listens: words over time, above a spectrogram, or time over itself.

    attnviz audio vowels.wav --model openai/whisper-tiny --heatmap look.png

    attnviz audio vowels.wav --model openai/whisper-tiny --text "Ah, ee, oh" -f textgrid

    attnviz audio vowels.wav --model openai/whisper-tiny --times vowels.tsv

    attnviz audio vowels.wav --model facebook/wav2vec2-base --layer 1 --grid heads.png

    Args:
        sampling_rate: how many samples of an array are a second.

    Returns:
        The attention; or the times of words, or the errors of heads.
    """
    in_memory = not isinstance(file, str | Path)
    if in_memory is not (sampling_rate is not None):
        raise UsageError("sampling_rate= is for an array of samples: give both, or a file")
    run = Run("audio", options, top=Origin().top)
    how, output = run.options, run.options.output
    formats = {output.format, (output.output or Path()).suffix.lower()[1:]}
    request = RecordingRequest(
        file=Path("recording" if in_memory else file),
        sound=None if sampling_rate is None else (file, sampling_rate),
        text=text,
        language=language,
        task=task,
        start=start,
        seconds=seconds,
        word_times=word_times or not formats.isdisjoint(TIME_FORMATS),
        times=times,
        timing_heads=timing_heads,
        against=against,
    )
    request.check(how)
    with run.report(request.kind) as report:
        report_recording(request, how, report)
    return run.attention if request.kind == "maps" else run.result
