"""Which model answers for a recording, and the file of one as a query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.core import errors, options, query
from attnviz.models.open import check_torch, is_shipped, loading_of, name_of, region_of

if TYPE_CHECKING:
    from attnviz.features.audio.audio_model import AudioModel
    from attnviz.features.audio.audio_text import AudioTextModel
    from attnviz.models import WithHead

SECONDS = 30  # seconds of a recording that are read


def check_speech(origin: options.Origin) -> None:
    """Refuse the models inside: none of them reads speech."""
    if is_shipped(origin):
        raise errors.UsageError(
            "a recording needs a speech model: --model ID_OR_FOLDER (Whisper, wav2vec 2.0, …)"
        )


def open_speech_model(
    origin: options.Origin, *, with_head: WithHead = False
) -> AudioModel | AudioTextModel:
    """The speech model of a request, with the head that it has."""
    check_speech(origin)
    check_torch(origin, "recordings")
    from attnviz.features.audio.audio_model import load_audio_model
    from attnviz.features.audio.audio_text import load_audio_text_model, reads_sound_and_text

    name = name_of(origin)
    if reads_sound_and_text(name, allow_code=origin.allow_code):
        return load_audio_text_model(name, origin.generate, **loading_of(origin))
    if origin.generate is not None:
        raise errors.UsageError(
            "--generate is for models that read a text beside the recording: this one writes what "
            "is spoken where --text is left out"
        )
    source = load_audio_model(name, **loading_of(origin))
    return replace(source, region=region_of(origin))


def query_of_recording(path: Path, text: str = "") -> query.Query:
    """The query for the file of a recording, and what is spoken if that is known."""
    from attnviz.features.audio.recordings import read_recording

    return query.Query(text, kind="recording", recording=read_recording(path, 0.0, SECONDS))
