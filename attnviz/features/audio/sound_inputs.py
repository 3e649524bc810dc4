"""The samples of a recording as a speech model takes them: features and masks by their names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from attnviz.core.attention_map import Token
from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.load import devices
from attnviz.models.hugging_face.loaded_model import input_names, placed_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIDE = "recording"  # the side of keys, and of an encoder's queries
SOUNDS = ("input_features", "input_values", "inputs", "audio_mel")
"""Names under which a model takes a recording."""
MASK = re.compile(r"(input_)?(features?|values|audio)_(attention_)?mask")
PADDING = "audio_mel_mask"
"""A mask that marks padding; any other marks what is no padding."""
WHOLE_FRAMES = ("nemotron3_5_transcribe_audio",)
"""Types that take no part of a frame: their processor, and no extractor, pads the spectrogram."""
PARALLEL = "asr_encoder"
"""The encoder for words, of a model that has another one for speakers beside it."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRecording:
    """A recording as the encoder reads it."""

    features: dict[str, Any]  # tensors by input name
    output: Any  # the encoder's
    tokens: tuple[Token, ...]  # without padding
    places: list[int]  # the positions of these tokens among all
    count: int  # all tokens, padding too; of CLAP the spectrogram's columns without it


def sound_inputs(
    model: Any, extractor: Any, samples: NDArray[np.float32], rate: int
) -> dict[str, Any]:
    """What a model takes of the samples of a recording, as its extractor makes it."""
    names = input_names(model)
    # Some encoders ask by a name of their own for the mask of what is no padding.
    masks = [name for name in names if MASK.fullmatch(name)]
    options = {"return_attention_mask": True} if masks or PADDING in names else {}
    with devices.library_errors("the feature extractor in the model's folder fails"):
        rows = dict(extractor([samples], sampling_rate=rate, return_tensors="pt", **options))
    own = next((rows[name] for name in rows if MASK.fullmatch(name)), None)
    mask = rows.get("attention_mask", own)
    every = {**rows, **{name: rows.get(name, mask) for name in masks}}
    if PADDING in names:
        every |= {"audio_mel": rows.get("input_features"), PADDING: mask == 0}
    if "attention_mask" in inspect.signature(model.forward).parameters:
        if getattr(own, "dtype", None) == torch.bool:  # Gemma's, whose extractor names it so
            every.setdefault("attention_mask", own)
    elif masks:
        every.pop("attention_mask", None)  # the mask goes by its own name
    inputs = {name: row for name, row in every.items() if name in names and row is not None}
    if model.config.model_type in WHOLE_FRAMES:
        inputs = _in_whole_frames(inputs, model.config.subsampling_factor)
    return dict(placed_inputs(model, inputs))


def _in_whole_frames(inputs: dict[str, Any], many: int) -> dict[str, Any]:
    """A spectrogram with silence behind it, and its mask, up to a multiple of so many columns."""
    from torch.nn.functional import pad

    behind = -next(iter(inputs.values())).shape[1] % many
    return {name: pad(row, (0,) * (2 * row.ndim - 3) + (behind,)) for name, row in inputs.items()}


def inputs_of_part(model: Any, part: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a model hands to a part of it.

    Raises:
        UsageError: it hands it one chunk of the recording after the other.
    """
    calls = list[dict[str, Any]]()
    names = [*inspect.signature(part.forward).parameters]

    def look(_part: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append({**dict(zip(names, args, strict=False)), **kwargs})

    hook = part.register_forward_pre_hook(look, with_kwargs=True)
    try:
        model(**inputs)
    finally:
        hook.remove()
    if len(calls) != 1:
        raise UsageError("the model hears this recording in chunks: choose fewer --seconds")
    return calls[0]


@contextmanager
def watch_frames(part: Any, lengths: set[int]) -> Iterator[None]:
    """Add how many frames leave the last layer of a conformer, which leaves some out behind it."""
    layers = getattr(part, "conformer", None)
    if layers is None:
        yield
        return
    hook = layers[-1].register_forward_hook(
        lambda _part, _args, output: lengths.add(output.shape[1])
    )
    try:
        yield
    finally:
        hook.remove()


def has_class_token(part: Any, count: int, states: Any) -> bool:
    """Whether a token without a time stands before the frames that attend (PE Audio)."""
    holds = any("class_embedding" in name for name, _ in part.named_parameters())
    return holds and states is not None and count == states.shape[1] + 1
