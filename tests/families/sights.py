"""What the processor of a small copy makes of a picture or a film, and what takes it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from attnviz.core.errors import AttnvizError
from attnviz.features.vision.pictures import inputs_of, part_inputs
from attnviz.features.vision.vision_model import readers_of
from tests.families.readers import Reader, film_of, frames_in, picture_of
from tests.families.types_of import asks_more, reads_films


def read_sight(reader: Reader, model: Any) -> Any:
    """What a processor makes of a film where a model reads films alone, or of a picture."""
    if reader.kind != "video" or not reads_films(type(model)):
        return read_picture(reader.part)
    values = reader.part(film_of(frames_in(model.config)), return_tensors="pt")["pixel_values"]
    word = model.main_input_name
    word = word if word.startswith("pixel") else "pixel_values"
    return {word: values[None] if values.ndim == 4 else values}


def read_picture(part: Any) -> Any:
    """What a processor makes of a picture; of a pair, or of a picture and an example."""
    picture = picture_of()
    if "prompt_images" in inspect.signature(part.preprocess).parameters:
        mask = picture.convert("L")
        return part(picture, prompt_images=picture, prompt_masks=mask, return_tensors="pt")
    try:
        return inputs_of(part, picture, None)
    except AttnvizError as error:
        if "of a pair" not in str(error):
            raise
        return part([[picture, picture.rotate(20)]], return_tensors="pt")


def inputs_of_part(model: Any, read: Mapping[str, Any]) -> dict[str, Any]:
    """What the first part for pictures takes that asks for nothing else; empty: there is none."""
    for _, part in readers_of(model):
        own = part_inputs(part, read)
        if part is not model and not asks_more(part, own):
            return own
    return {}
