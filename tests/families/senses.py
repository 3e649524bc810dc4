"""Types that read pictures or sounds: small folders, and `attnviz image` and `attnviz audio`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.core.errors import AttnvizError
from tests.families.copies import Copy
from tests.families.folders import fit_reader, make_with_reader
from tests.families.folders import save as save_folder
from tests.families.readers import SECONDS, TEXT, film_of, frames_in, picture_of, sound_of
from tests.families.rows import Reading

RATE = 16_000


def make(name: str) -> Copy:
    """A small copy that its own processor can feed."""
    return make_with_reader(name)[0]


def example(model: Any) -> dict[str, Any]:
    """What the processor of a copy makes of a picture, a sound or a text."""
    return _reader(model).last


def _reader(model: Any) -> Any:
    from tests.families.types_of import find_type

    name = str(model.config.model_type)
    return fit_reader(name, find_type(name).kind, model)


def save(copy: Copy, folder: Path) -> None:
    """Save a copy with its processor."""
    save_folder(copy, _reader(copy.model), folder)


def read_picture(copy: Copy, folder: Path) -> Reading:
    """Every row of a picture's map; where a model attends in windows, the mean row."""
    import attnviz

    options: dict[str, Any] = {"model": str(folder), "device": "cpu"}
    try:
        shown = attnviz.image(picture_of(), patch="all", **options)
    except AttnvizError as error:
        if "--patch" not in str(error):
            raise
        return Reading(attnviz.image(picture_of(), **options), {})
    return Reading(shown, _pixels(folder))


def _pixels(folder: Path) -> dict[str, Any]:
    """What the processor of a folder makes, and the model takes."""
    from attnviz.features.vision import pictures
    from attnviz.features.vision.vision_model import load_picture_model

    source: Any = load_picture_model(str(folder), device="cpu")
    made = pictures.inputs_of(source.processor, picture_of(), None)
    return pictures.part_inputs(source.model, made)


def read_film(copy: Copy, folder: Path) -> Reading:
    """Every row of a film's maps, step by step; compared are all steps beside each other."""
    import attnviz
    from attnviz.features.vision.vision_model import load_picture_model

    first, *others = film_of(frames_in(copy.config))
    options: dict[str, Any] = {"model": str(folder), "device": "cpu", "video": True}
    try:
        shown = attnviz.image(first, others, patch="all", **options)
    except AttnvizError as error:
        if "single pictures" not in str(error):
            raise
        return read_picture(copy, folder)
    steps = [one for one in shown.maps if one.stream.startswith("video-to-")]
    if not steps:
        return Reading(shown, {})
    source: Any = load_picture_model(str(folder), device="cpu")
    word = source.model.main_input_name
    values = source.processor([first, *others], return_tensors="pt")["pixel_values"]
    joined = np.concatenate([one.weights for one in steps], axis=-1)
    whole = replace(steps[0], stream="self", key_tokens=steps[0].query_tokens, weights=joined)
    return Reading(shown, {word: values[None] if values.ndim == 4 else values}, (whole,))


def read_picture_text(copy: Copy, folder: Path) -> Reading:
    """A text behind a picture."""
    import attnviz

    shown = attnviz.image(picture_of(), text=TEXT, token="all", model=str(folder), device="cpu")
    inputs, cells = _sequence(folder)
    return Reading(shown, inputs, tuple(one for one in shown.maps if one.stream in cells), cells)


def _sequence(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a model was given of a picture and a text, and where in it the cells of each map are."""
    from attnviz.core.query import Picture
    from attnviz.features.picture_text.source import load_picture_text_model
    from attnviz.models.hugging_face.inputs.generation import start_token
    from attnviz.models.hugging_face.loaded_model import input_names

    source = load_picture_text_model(str(folder), device="cpu")
    picture = Picture(picture_of())
    reading = source.read(picture, TEXT)
    if "decoder_input_ids" in reading.inputs:
        return {}, {}
    sight = source.sight_of(reading, picture)
    inputs = dict(reading.inputs)
    if source.model.config.is_encoder_decoder and "decoder_input_ids" in input_names(source.model):
        inputs["decoder_input_ids"] = torch.tensor([[start_token(source.model)]])
    if sight.queries:
        return inputs, {"text-to-queries": sight.places}
    return inputs, {f"text-to-{one.name}": [*one.cells.flat] for one in sight.sheets}


def read_sound(copy: Copy, folder: Path) -> Reading:
    """A text over a sound, or a sound over itself."""
    import attnviz
    from attnviz.core.query import Recording
    from attnviz.features.audio.audio_text import STREAM, load_audio_text_model, placeholder_of

    options: dict[str, Any] = {"model": str(folder), "device": "cpu", "sampling_rate": RATE}
    text = ""
    try:
        shown = attnviz.audio(sound_of(RATE), **options)
    except AttnvizError as error:
        if "--text" not in str(error):
            raise
        shown = attnviz.audio(sound_of(RATE), text=(text := TEXT), **options)
    if [one.stream for one in shown.maps] != [STREAM]:
        return _frames(copy, folder, shown, text)
    source = load_audio_text_model(str(folder), device="cpu")
    inputs = source.read(source.cut(Recording(sound_of(RATE), RATE, 0.0, SECONDS)), TEXT).inputs
    heard = len(shown.maps[0].key_tokens)
    ids = inputs["input_ids"][0].numpy()
    places = np.flatnonzero(ids == placeholder_of(source.model.config))[:heard]
    return Reading(shown, inputs, cells={STREAM: [*map(int, places)]})


def _frames(copy: Copy, folder: Path, shown: Any, text: str) -> Reading:
    """A reading of frames, or of a text over them, with what the model was given."""
    from attnviz.core.query import Query, Recording
    from attnviz.features.audio.audio_model import load_audio_model

    if "traced" in shown.provenance.settings["attention"]:  # windows, and no map of all frames
        return Reading(shown, {})
    source = load_audio_model(str(folder), device="cpu")
    recording = Recording(sound_of(RATE), RATE, 0.0, SECONDS)
    heard, _ = source.encode_recording(recording, source.cut(recording))
    inputs, places = dict(heard.features), heard.places
    if not source.writes:
        parts, own = copy.model.named_modules(), type(source.listener)
        path = (name for name, part in parts if type(part) is own)
        cells = {one.stream: places for one in shown.maps}
        return Reading(shown, inputs, cells=cells, asking=cells, part=next(path, None))
    ids = source.target(Query(text, kind="recording", recording=recording), heard).ids
    inputs["decoder_input_ids"] = torch.tensor([ids])
    return Reading(shown, inputs, cells={"cross": places}, part="")
