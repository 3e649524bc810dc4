"""attnviz audio."""

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, MAP_PICTURES, ORIGIN, PLACES, with_options
from attnviz.cli.report import Report
from attnviz.core.options import Options, opt, rare
from attnviz.features.audio.request import TIME_FORMATS, RecordingRequest, report_recording


@with_options(
    *("model", "compute", "stream", "heads", "reduce", "special", "group", "long"),
    *PLACES,
    writes=("maps", "times", "scores"),
    rare=("picture",),
    draws=MAP_PICTURES,
)
def audio(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Recording: .wav, .flac, .ogg, .mp3, ….")
    ],
    text: str | None = opt(
        ORIGIN, "--text TEXT", "What is spoken; without it a model like Whisper writes it."
    ),
    language: str | None = opt(
        ORIGIN,
        "--language NAME",
        "Spoken language (en, french), if the model knows several; default: it decides.",
    ),
    task: str | None = rare(
        ORIGIN,
        "--task NAME",
        "Task for such a model: {choices} (into English).",
        choices=("transcribe", "translate"),
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
    against: str = rare(
        CHOICE,
        "--against SIDE",
        "Whether a row times the token that it predicts (output) or has read (input).",
        default="output",
        choices=("input", "output"),
    ),
    *,
    options: Options,
) -> None:
    """Show when a speech model listens: words over time, above a spectrogram, or time over itself.

    attnviz audio vowels.wav --model openai/whisper-tiny --heatmap look.png

    attnviz audio vowels.wav --model openai/whisper-tiny --text "Ah, ee, oh" -f textgrid

    attnviz audio vowels.wav --model openai/whisper-tiny --times vowels.tsv

    attnviz audio vowels.wav --model facebook/wav2vec2-base --layer 1 --grid heads.png
    """
    output = options.output
    formats = {output.format, (output.output or Path()).suffix.lower()[1:]}
    request = RecordingRequest(
        file=Path(file),
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
    request.check(options)
    with Report(options, request.kind) as report:
        report_recording(request, options, report)
