"""The model types of the installed transformers: what each reads, and the class that is built."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from tests.families.by_hand import NO_TEXT

HEADS = {
    "text": ("CAUSAL_LM", "MASKED_LM"),
    "pair": ("SEQ_TO_SEQ_CAUSAL_LM",),
    "picture-text": ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM"),
    "audio": ("SPEECH_SEQ_2_SEQ", "CTC"),
    "picture": ("TEXT_RECOGNITION",),
}
"""By kind: the tables of classes that are asked before that of plain models."""
SPOKEN = ("TEXT_TO_SPECTROGRAM", "TEXT_TO_WAVEFORM", "SPEECH_SEQ_2_SEQ")
HEARD = ("SPEECH_SEQ_2_SEQ", "MULTIMODAL_LM", "CTC", "AUDIO_CLASSIFICATION")
"""Tables of classes that make sound, and of those that a sound is given to."""
KINDS = ("text", "pair", "picture", "picture-text", "audio", "video", "other", "part")


@dataclass(frozen=True)
class ModelType:
    """A model type."""

    name: str
    kind: str  # one of KINDS; "part": it has no class of its own
    made_by: Any = None  # the class of transformers
    reason: str = ""  # why the class cannot be had, or what else it reads


def all_types() -> list[str]:
    """The names of all types, sorted."""
    from transformers import CONFIG_MAPPING

    return sorted(CONFIG_MAPPING)


@cache
def _tables() -> dict[str, Any]:
    """transformers' tables of classes by name, that of plain models first."""
    from transformers.models.auto import modeling_auto as auto

    names = [name for name in dir(auto) if name.startswith("MODEL") and name.endswith("_MAPPING")]
    names.sort(key=lambda name: (name != "MODEL_MAPPING", name))
    return {name: getattr(auto, name) for name in names}


def _class_in(table: Any, config: Any) -> Any:
    """The first class of a configuration in a table, None where it has none."""
    try:
        if config not in table:
            return None
        found = table[config]
    except TypeError:  # a configuration that is no key
        return None
    return found[0] if isinstance(found, tuple | list) else found


@cache
def find_type(name: str) -> ModelType:
    """What a type reads, and its class."""
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[name]
        plain = [found for table in _tables().values() if (found := _class_in(table, config))]
        if not plain:
            return ModelType(name, "part")
        kind, reason = kind_and_reason(plain[0], config)
        tables = (_tables()[f"MODEL_FOR_{table}_MAPPING"] for table in HEADS.get(kind, ()))
        made = (found for table in tables if (found := _class_in(table, config)))
        return ModelType(name, kind, next(made, plain[0]), reason)
    except (ImportError, ValueError, AttributeError) as error:
        said = NEEDS.match(str(error).strip())
        reason = f"its {said[1]} needs {said[2]}" if said else "transformers has no class for it"
        return ModelType(name, "other", reason=reason)


def kind_and_reason(made_by: Any, config: Any) -> tuple[str, str]:
    """What a class reads, and of one that reads something else, what."""
    kind = kind_of(made_by, config)
    if named_in(SPOKEN, config) or (kind == "audio" and writes_from_text(made_by)):
        if not hears(made_by, config):
            return "other", "it makes sound and hears no recording"
        kind = "audio"
    needs = needed_inputs(made_by)
    if needs & HALVES and "grid_thw" not in needs:  # else a tower of packed patches
        return "other", "it is a half of a codec"
    return kind, asked_by(made_by) if kind == "other" else ""


NEEDS = re.compile(r"(\w+) requires the (\w+) library")


def named_in(tables: tuple[str, ...], config: Any) -> bool:
    """Whether one of these tables has a class of a configuration."""
    return any(_class_in(_tables()[f"MODEL_FOR_{one}_MAPPING"], config) for one in tables)


def hears(made_by: Any, config: Any) -> bool:
    """Whether a sound is given to a class, and not as the sample of a voice alone."""
    named = made_by.input_modalities
    sounds = {*SOUNDS} & {*_inputs(made_by)} or "audio" in (
        [named] if isinstance(named, str) else named
    )
    return bool(sounds) and named_in(HEARD, config)


def writes_from_text(made_by: Any) -> bool:
    """Whether a class writes, and names texts alone as what it reads."""
    from transformers import GenerationMixin

    text = made_by.main_input_name == "input_ids" and made_by.input_modalities in (
        "text",
        ("text",),
    )
    return bool(text and issubclass(made_by, GenerationMixin))


def asked_by(made_by: Any) -> str:
    """What a class reads that is no text, picture, film or sound by itself."""
    takes, main = _inputs(made_by), made_by.main_input_name
    needs = needed_inputs(made_by) - USUAL or {main if main in takes else takes[1]}
    if needs <= USUAL:
        return "it reads the states of another model"
    return f"it asks for {', '.join(sorted(needs))}"


PICTURES = ("pixel_values", "pixel_values_videos", "flattened_patches")
SOUNDS = ("input_features", "input_values")
HALVES = {"latents", "hidden_states"}
OBJECTS = ("image_pixel_values", "image_patches", "bbox", "image")
DETECTED = ("visual_feats", "visual_embeds")  # what another model has found in a picture
READS = ("image", "picture-text"), ("video", "video"), ("audio", "audio")
"""The kinds of what reads texts and more, by the first modality that it names."""
USUAL = {"input_ids", "attention_mask", "decoder_input_ids"}


def kind_of(made_by: Any, config: Any) -> str:
    """What a class reads, by the modalities and the inputs that it names."""
    named = made_by.input_modalities
    reads = {named} if isinstance(named, str) else {*named}
    main, takes = made_by.main_input_name, _inputs(made_by)
    if main in PICTURES and not ("input_ids" in takes and main not in takes):
        film = any(hasattr(config, name) for name in ("num_frames", "frames_per_clip"))
        only = reads - {"text"} == {"video"} or main == "pixel_values_videos" or film
        return "video" if only else "picture"
    if main in SOUNDS or (reads == {"audio"} and main != "inputs_embeds"):
        return "audio"
    if main != "input_ids" or "input_ids" not in takes:  # maybe the tower of a model of texts
        return "picture" if {"grid_thw", "pixel_values"} & {*takes} else "other"
    if not {*PICTURES, *SOUNDS, *OBJECTS, *DETECTED} & {*takes} and reads & {"text"}:
        reads = {"text"}  # the half that reads texts
    more = [kind for one, kind in READS if one in reads]
    if "image" in reads and (reads == {"image"} or compares(made_by, config)):
        parts = getattr(config, "sub_configs", {}).values()  # a text in a pass of its own, or none
        more = ["video" if any(hasattr(one, "num_frames") for one in parts) else "picture"]
    if {*DETECTED} & {*takes} and not {*PICTURES, *OBJECTS} & {*takes}:
        more = ["other"]
    if more or {*SOUNDS} & {*takes}:
        return (*more, "audio")[0]
    if needed_inputs(made_by) - USUAL or config.model_type in NO_TEXT:
        return "other"
    both = getattr(config, "is_encoder_decoder", False) or "decoder_input_ids" in takes
    return "pair" if both else "text"


def compares(made_by: Any, config: Any) -> bool:
    """Whether a class only compares a text with a picture, which no pass reads together."""
    given = get_type_hints(made_by.forward).get("return")
    outputs = [one for one in (*get_args(given), given) if inspect.isclass(one)]
    both = any("logits_per_text" in getattr(one, "__annotations__", {}) for one in outputs)
    return both and not named_in(HEADS["picture-text"], config)


def _inputs(made_by: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(made_by.forward).parameters)


def needed_inputs(made_by: Any) -> set[str]:
    """The inputs without which a class does not run."""
    takes = inspect.signature(made_by.forward).parameters
    empty, plain = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = {name for name, one in takes.items() if one.default is empty and one.kind is plain}
    return needed - {"self"}


def part_that_runs(model: Any, inputs: Mapping[str, Any]) -> Any:
    """A model, or where it asks for more than these inputs its first part for pictures."""
    from attnviz.features.vision.vision_model import readers_of

    if (thinker := getattr(model, "thinker", None)) is not None:
        return thinker  # which hears, and writes what another part speaks
    parts = (part for _, part in readers_of(model)) if asks_more(model, inputs) else ()
    return next((part for part in parts if not asks_more(part, inputs)), model)


def asks_more(part: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether a part of a model cannot run without further inputs, or reads texts as well."""
    return not needed_inputs(type(part)) | ({"input_ids"} & {*_inputs(type(part))}) <= {*inputs}


def reads_films(made_by: Any) -> bool:
    """Whether a class reads films, and in one pass."""
    takes = {*_inputs(made_by)}
    beside = "pixel_values_videos" in takes or compares(made_by, made_by.config_class)
    return beside or not {"inference_session", "input_ids"} & takes
