"""Speech models that attend in windows: each window's map at its place in the recording.

Frames, or patches of the spectrogram, are traced through the model as those of a picture are.
Links between windows do not exist: they are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttentionError, ModelError
from attnviz.features.audio.sound_inputs import SIDE, EncodedRecording
from attnviz.features.windows.layers import read_layers
from attnviz.features.windows.maps import read_picture
from attnviz.features.windows.places import PixelPlaces
from attnviz.models.hugging_face.capture.capture import Captured
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load import devices


def over_frames(
    source: Any,
    heard: EncodedRecording,
    axes: dict[str, tuple[str, str]],
    first: AttentionError,
) -> Attention:
    """Frames over frames, where each attends in a window.

    Raises:
        AttentionError: `first`, where they do not.
    """
    part, side = source.listener, next(iter(axes.values()))[0]
    name, where = sound_places(part, heard.features, int(source.extractor.feature_size))
    try:
        with devices.running_errors(part, side):
            reader, _ = read_layers(part, heard.features, {name: where}, None)
    except (AttentionError, ModelError):
        raise first from None
    whole = [layer.whole for layer in reader.layers if layer.whole is not None]
    shapes = {layer.shape for layer in whole}
    if len(whole) < len(reader.layers) or reader.skipped or len(shapes) != 1:
        raise first
    ((heads, count, _),) = shapes
    if count != heard.count:
        raise first
    cells = np.ix_(range(len(whole)), range(heads), heard.places, heard.places)
    weights = np.stack(whole)[cells]
    rows, keys = np.nonzero(weights.any((0, 1)))
    before, behind = max(0, int((rows - keys).max())), max(0, int((keys - rows).max()))
    note = (
        f"each frame attends in a window, at most {before} frames before it and {behind} behind "
        "it; frames outside of the window are not attended, and their weights are 0"
    )
    route = f"{part.config._attn_implementation}, frames traced"
    item = Captured(next(iter(axes)), tuple(map(str, range(len(whole)))), weights, route=route)
    tokens = {side: heard.tokens}
    about = Attention((), source.provenance).with_maps((), notes=[note])
    encoding = EncodedQuery(part, heard.features, tokens, axes, about)
    return encoding.build_attention([item])


def sound_places(part: Any, features: dict[str, Any], bands: int) -> tuple[str, PixelPlaces]:
    """The name of a recording's numbers, and their places: time across, the highest band first."""
    name = part.main_input_name
    values = features[name]
    axes = range(values.ndim)
    down = max((axis for axis in axes if values.shape[axis] == bands), default=None)
    across = max(axis for axis in axes if axis != down)

    def along(axis: int | None) -> Any:
        shape = [1] * values.ndim
        if axis is None:
            return torch.zeros(shape).expand(values.shape)
        shape[axis] = values.shape[axis]
        return (torch.arange(values.shape[axis]) + 0.5).view(shape).expand(values.shape)

    row = along(down) if down is None else values.shape[down] - along(down)
    one = torch.ones([1] * values.ndim).expand(values.shape)
    return name, PixelPlaces(one, row, along(across), along(None), along(None)).map(
        lambda field: field.to(values.device)
    )


def over_patches(source: Any, heard: EncodedRecording) -> Attention:
    """The mean row of each layer's patches of a spectrogram, which attend in windows."""
    part = source.listener
    name, where = sound_places(part, heard.features, int(source.extractor.feature_size))
    # What stands behind the recording is no place of it.
    inside = (where.column < heard.count).float()
    where = where.map(lambda field: field * inside)
    with devices.running_errors(part, SIDE):
        reading = read_picture(
            part, heard.features, {name: where}, name=source.name, patch=None, what=SIDE
        )
    rows, wide = reading.grid
    step = heard.count * source.extractor.hop_length / source.rate / wide
    settings = {
        "patches": f"{rows} bands, the highest first, × {wide} of {step:.3g} s",
        "attention": f"{part.config._attn_implementation}, patches traced",
    }
    notes = [*reading.notes]
    if heard.count < heard.features[name].shape[-2]:
        how = "repeats it" if "repeat" in str(source.extractor.padding) else "adds silence"
        notes.append(f"its extractor {how} behind the recording, which counts as padding here")
    return Attention((), source.provenance).with_maps(reading.maps, notes=notes, settings=settings)
