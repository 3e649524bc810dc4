"""Which model answers for a recording, and the file of one as a query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.core import errors, options, query
from attnviz.models.open import check_torch, is_shipped, loading_of, name_of, region_of

if TYPE_CHECKING:
    from attnviz.features.audio.audio_model import AudioModel
    from attnviz.models import WithHead

SECONDS = 30  # seconds of a recording that are read


def check_speech(origin: options.Origin) -> None:
    """Refuse the models inside: none of them reads speech."""
    if is_shipped(origin):
        raise errors.UsageError(
            "a recording needs a speech model: --model ID_OR_FOLDER (Whisper, wav2vec 2.0, …)"
        )


def open_speech_model(origin: options.Origin, *, with_head: WithHead = False) -> AudioModel:
    """The speech model of a request, with the head that it has."""
    check_speech(origin)
    check_torch(origin, "recordings")
    from attnviz.features.audio.audio_model import load_audio_model

    source = load_audio_model(name_of(origin), **loading_of(origin))
    return replace(source, region=region_of(origin))


def query_of_recording(path: Path, text: str = "") -> query.Query:
    """The query for the file of a recording, and what is spoken if that is known."""
    from attnviz.features.audio.recordings import read_recording

    return query.Query(text, kind="recording", recording=read_recording(path, 0.0, SECONDS))
