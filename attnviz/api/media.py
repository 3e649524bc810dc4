"""Pictures and recordings in front of models that see and hear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Unpack

from attnviz.api.arguments import Positive, public, read_options
from attnviz.api.collected import CollectedReport, Findings, collecting
from attnviz.api.options import AudioOptions, ImageOptions
from attnviz.core.errors import UsageError, choose, in_short
from attnviz.core.options import LENS_NAMES, Choice, Origin, PictureScale
from attnviz.runs.picture_looks import PictureRequest, look_at_pictures
from attnviz.runs.pictures import ALL
from attnviz.runs.pipeline import Result, as_result
from attnviz.runs.recordings import RecordingRequest, report_recording
from attnviz.runs.reporting import hold_notes


@public
def image(
    file: str,
    more: Sequence[str | Path] = (),
    *,
    patch: str | None = None,
    image_size: str | None = None,
    text: str | None = None,
    video: bool = False,
    token: str | None = None,
    lens: str = "raw",
    scale: PictureScale = "own",
    smooth: bool = False,
    **options: Unpack[ImageOptions],
) -> Result:
    """Where in a picture a vision model looks, patch by patch.

    Args:
        file: the picture: .png, .jpg, .webp, ….
        more: further pictures, with a text.
        patch: the patch that looks, "row,column" from "0,0" at the upper left, or "all"; None: the
            class token, else the mean over patches.
        image_size: pixels to read the picture in: "384", or "HEIGHTxWIDTH".
        text: what is read with the pictures, by a model like LLaVA: its tokens look.
        video: the frames of an animated picture, or all pictures in order, are a video.
        token: the token of the text that looks, from 0, or "all".
        lens: what to make of the weights first.
        scale: colours up to the largest weight of each picture, or of all.
        smooth: smooth weights between patches in pictures.
        options: those of `attnviz image`, by name.

    Returns:
        The attention; `.picture("overlay")` and `.picture("grid")` lie over the picture.
    """
    choose(lens, [name for name in LENS_NAMES if name != ALL], "lens")
    if not isinstance(more, list | tuple) or not all(isinstance(one, str | Path) for one in more):
        raise UsageError(f"more={in_short(more)} is no list of pictures")
    asked = PictureRequest(
        files=tuple(map(Path, (file, *more))),
        patch=patch,
        image_size=image_size,
        text=text,
        video=video,
        token=token,
        lens=lens,
        scale=scale,
        smooth=smooth,
    )
    how = read_options(options)
    asked.check(how)
    with collecting("image", "maps", how) as report:
        item = look_at_pictures(asked, how)
        hold_notes(item.attention, report)
        report.add(item)
    return _only_result(report)


@public
def audio(
    file: str,
    *,
    text: str | None = None,
    language: str | None = None,
    task: Literal["transcribe", "translate"] | None = None,
    start: float = 0.0,
    seconds: Positive = 30,
    word_times: bool = False,
    times: Path | None = None,
    heads: str | None = None,
    against: Literal["input", "output"] = "output",
    **options: Unpack[AudioOptions],
) -> Result | Findings:
    """When a speech model listens, and when each word is spoken.

    Args:
        file: the recording: .wav, .flac, .ogg, .mp3, ….
        text: what is spoken; None: a model like Whisper writes it.
        language: the language that is spoken, for models that know several.
        task: what such a model is to do: "transcribe", or "translate" into English.
        start: the second to begin at.
        seconds: how much to hear at most; Whisper hears 30, AST 10.
        word_times: when each word is spoken, by the heads that the model names.
        times: a file of true times (.tsv, .TextGrid, .vtt): how far each head errs.
        heads: the heads that time words: "2.0,3.1".
        against: a row times the token that it predicts ("output") or has read ("input").
        options: those of `attnviz audio`, by name.

    Returns:
        The attention; or the times of words, or the errors of heads.
    """
    if not 0 <= start < 1e6:
        raise UsageError(f"start={start} is no second of a recording")
    if seconds > 3600:
        raise UsageError(f"seconds={seconds} is out of range: 1 to 3600")
    asked = RecordingRequest(
        file=Path(file),
        text=text,
        language=language,
        task=task,
        start=start,
        seconds=seconds,
        word_times=word_times,
        times=times,
        timing_heads=heads,
        against=against,
    )
    how = read_options(options, top=Origin().top)
    asked.check(how)
    with collecting("audio", asked.kind, how) as report:
        report_recording(asked, how, report)
    return _only_result(report) if asked.kind == "maps" else report.found


def _only_result(report: CollectedReport) -> Result:
    (item,) = report.found.items
    found = item.attention
    made = found if isinstance(found, Result) else as_result(found, Choice())
    return replace(made, item=item)
