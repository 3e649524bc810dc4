"""What reads a type's pictures, sounds and texts: its processor, fitted to a small copy by trial.

No name of a family is in it. transformers' own tables say which classes read a type; a class's
signature says of which parts it is made; numbers that the configuration has under the same name
are taken from it; and what an error asks for is given.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.errors import first_line
from tests.families.by_hand import PROCESSORS, READS_WITH, SEES_WITH
from tests.families.copies import NotBuiltError
from tests.families.types_of import find_type, reads_films
from tests.families.words import NAMES as WORDS
from tests.families.words import make_tokenizer, marks_of

SECONDS = 1.0  # of a sound
TEXT = "The red car"
SIDES = (224, 64, 128, 32, 256, 384, 512)  # of pictures, in pixels, tried in turn
MOST = 24  # corrections that an error may ask for
MEL = ("num_mel_bins", "n_mels", "mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "num_mels", "spectrogram_bins", "in_channels")  # fmt: skip  # noqa: E501
"""Names of the number of bands of a spectrogram."""
MISMATCH = re.compile(r"tokens\D{0,30}?(\d+).{0,30}?features\D{0,30}?(\d+)")
NAMED = re.compile(r"tokenizer(?:\.|, \")(\w+_token)\b")
LACKS = re.compile(
    r"has no attribute '?(\w+?)(_id|_ids)?'?$|tokenizer does not have an? `(\w+)` defined"
)


def picture_of(side: int = 96) -> Any:
    """A picture with something in it."""
    from PIL import Image

    rows, columns = np.mgrid[0:side, 0:side]
    colours = [rows * 2 % 256, columns * 2 % 256, (rows // 16 + columns // 16) % 2 * 255]
    return Image.fromarray(np.stack(colours, axis=-1).astype(np.uint8))


def film_of(frames: int) -> list[Any]:
    """Pictures that all differ."""
    return [picture_of().rotate(10 * number) for number in range(frames)]


def frames_in(config: Any) -> int:
    """How many frames a model reads; 4 where it does not say."""
    return int(value_in(config, "num_frames", "frames_per_clip") or 4)


def sound_of(rate: int) -> Any:
    """A tone that rises, with noise."""
    times = np.arange(int(SECONDS * rate)) / rate
    noise = np.random.default_rng(0).normal(scale=0.01, size=len(times))
    return (0.3 * np.sin(2 * np.pi * (200 + 300 * times) * times) + noise).astype(np.float32)


def numbers_of(config: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a configuration by name, those of its parts for pictures and sounds first."""
    parts = [value for value in vars(config).values() if hasattr(value, "model_type")]
    parts.sort(key=lambda one: "text" in str(one.model_type))
    own = [(name, value) for name, value in vars(config).items() if value not in parts]
    yield from own
    for part in parts:
        yield from numbers_of(part)


def value_in(config: Any, *names: str) -> Any:
    """The first value of a configuration under one of these names, None without one."""
    every = [*numbers_of(config)]
    return next((v for name in names for key, v in every if key == name and v is not None), None)


def class_in(table: str, name: str, config: Any) -> Any:
    """The class that transformers' table names for a type, or for another type of its module.

    Raises:
        NotBuiltError: it needs a package that is not there.
    """
    room, attribute = {
        "processor": ("processing_auto", "PROCESSOR_MAPPING_NAMES"),
        "image": ("image_processing_auto", "IMAGE_PROCESSOR_MAPPING_NAMES"),
        "feature": ("feature_extraction_auto", "FEATURE_EXTRACTOR_MAPPING_NAMES"),
        "video": ("video_processing_auto", "VIDEO_PROCESSOR_MAPPING_NAMES"),
    }[table]
    names = vars(import_module(f"transformers.models.auto.{room}"))[attribute]
    found = names.get(name) or next(
        (names[one] for one in names if one in relatives(name, config)), None
    )
    if found is None and table == "feature":
        module = type(config).__module__.split(".")[-2]
        found = next((names[one] for one in names if _module_of(one) == module), None)
    if isinstance(found, dict):
        found = found.get("pil") or found.get("torchvision")
    return None if found is None else _import(found)


def _module_of(name: str) -> str:
    """The module of transformers that holds a type."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    return model_type_to_module_name(name)


def relatives(name: str, config: Any) -> list[str]:
    """The types whose configurations stand in the same module of transformers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    module = type(config).__module__.split(".")[-2]
    inside = [one.model_type for one in vars(config).values() if hasattr(one, "model_type")]
    readers = (one for one in (name, module, *inside) if one in PROCESSOR_MAPPING_NAMES)
    whole = next(readers, None)
    like = module
    with suppress(NotBuiltError):  # a processor that needs a package is no relative
        if whole:
            like = _import(PROCESSOR_MAPPING_NAMES[whole]).__module__.split(".")[-2]
    own = {
        one
        for one, kind in CONFIG_MAPPING_NAMES.items()
        if one.replace("-", "_") == module or kind == type(config).__name__
    }
    return [module, like, *own, *inside, name.removesuffix("_vision_model").removesuffix("_model")]


def _import(found: str) -> Any:
    import transformers

    kind = getattr(transformers, found)
    if "dummy" in getattr(kind, "__module__", "") or hasattr(kind, "_backends"):
        raise NotBuiltError(f"its {found} needs {', '.join(kind._backends)}")
    return kind


@dataclass
class Reader:
    """A processor, or one part of one, that is fitted to a model by trial."""

    name: str
    kind: str  # what the type reads
    made: Any  # the processor, or its only part
    part: Any  # its part for pictures or sounds
    marks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    template: str = ""  # the chat template that it needs
    stands_in: str = ""  # what it stands in for
    alone: bool = False  # whether only the part of a model that reads pictures is run
    last: dict[str, Any] = field(default_factory=dict)  # the inputs that worked

    @property
    def tokenizer(self) -> Any:
        return getattr(self.made, "tokenizer", None)


def make_reader(name: str, kind: str, config: Any, named: Mapping[str, str] = {}) -> Reader:
    """The processor of a type; `named` are special tokens that its tokenizer has by name."""
    alone = kind in ("picture", "video")
    try:
        whole = None if alone else processor_of(name, config)
        if whole is not None and hasattr(whole, "get_attributes"):
            return _make_whole(name, kind, config, whole, dict(named))
    except NotBuiltError:
        if kind != "audio" or not is_tower(name):
            raise
    if kind in ("audio", "other"):
        part = _feature_extractor(name, config)
        return Reader(name, kind, part, part)
    stands_in = ""
    try:
        made_by = class_in("image", name, config)
    except NotBuiltError as error:
        made_by, stands_in = None, str(error)
    if made_by is None:
        return plain_reader(name, kind, config, stands_in)
    part = fitted(made_by, config, **PROCESSORS.get(name, {}))
    return Reader(name, kind, part, part)


def processor_of(name: str, config: Any) -> Any:
    """The class of the processor that a type's checkpoints name, or transformers' table."""
    own = READS_WITH.get(name, "")
    return _import(own) if own.endswith("Processor") else class_in("processor", name, config)


def is_tower(name: str) -> bool:
    """Whether a type reads no text."""
    takes = inspect.signature(find_type(name).made_by.forward).parameters
    return not {"input_ids", "decoder_input_ids"} & {*takes}


def plain_reader(name: str, kind: str, config: Any, stands_in: str = "") -> Reader:
    """A plain processor in place of a type's own."""
    part = fitted(_stand_in(name, kind), config)
    return Reader(name, kind, part, part, stands_in=stands_in)


def _stand_in(name: str, kind: str) -> Any:
    """A plain class of processors: that of packed patches where a model asks for their grid."""
    import transformers

    made_by = find_type(name).made_by
    takes = inspect.signature(made_by.forward).parameters
    found = [one for name, one in STAND_INS.items() if name in takes]
    first = "VideoMAE" if kind == "video" and reads_films(made_by) else [*found, "ViT"][0]
    return getattr(transformers, f"{first}ImageProcessorPil")


STAND_INS = {"grid_thw": "Qwen2VL", "image_grid_thw": "Qwen2VL", "target_sizes": "MiniCPMV4_6"}
"""Plain processors that make what a model asks for by this name."""


def _feature_extractor(name: str, config: Any) -> Any:
    import transformers

    if READS_WITH.get(name, "").endswith("Extractor"):
        return fitted(getattr(transformers, READS_WITH[name]), config)
    made_by = class_in("feature", name, config)
    if made_by is None:
        waves = ("conv_kernel", "conv_stride", "upsampling_ratios", "downsampling_ratios")
        raw = value_in(config, *waves) is not None or value_in(config, *MEL) is None
        found = "Wav2Vec2FeatureExtractor" if raw else "WhisperFeatureExtractor"
        made_by = getattr(transformers, found)
    return fitted(made_by, config, **PROCESSORS.get(name, {}))


def fitted(made_by: Any, config: Any, **given: Any) -> Any:
    """A part of a processor, with the numbers that the configuration has by the same names."""
    taken = dict(given)
    names = {*inspect.signature(made_by.__init__).parameters}
    names |= {name for name in dir(made_by) if not name.startswith("_")}
    names -= {"size", "model_type", "name_or_path", "dtype"}
    taken |= {
        name: value
        for name, value in reversed([*numbers_of(config)])
        if name in names and name not in given and isinstance(value, int | float | list | tuple)
    }
    bands = value_in(config, *MEL[:4])
    if "feature_size" in names and isinstance(bands, int) and bands > 1:
        taken["feature_size"] = bands
    if "merge_size" in names and (side := value_in(config, "spatial_merge_size")):
        taken["merge_size"] = side
    if "samples_per_token" in names and (steps := value_in(config, "patch_sizes")):
        taken["samples_per_token"] = prod(steps)
    for drop in ({}, *([one] for one in taken)):
        try:
            return made_by(**{name: value for name, value in taken.items() if name not in drop})
        except (TypeError, ValueError, AttributeError):
            continue
    return made_by(**given)


def _parts_of(attributes: list[str], name: str, config: Any, whole: Any) -> dict[str, Any]:
    """The parts of a processor that read pictures and sounds."""
    parts, room = {}, whole.__module__.split(".")[-2]
    for attribute in attributes:
        if "tokenizer" in attribute:
            continue
        if "image" in attribute:
            found = _import(SEES_WITH[name]) if name in SEES_WITH else None
            found = found or class_in("image", name, config) or class_in("image", room, config)
            if found is None:
                raise NotBuiltError("transformers names no image processor for it")
            parts[attribute] = fitted(found, config, **PROCESSORS.get(name, {}))
            for one in ("image_seq_length", "image_seq_len"):
                if getattr(parts[attribute], one, 1) is None:
                    setattr(parts[attribute], one, 1)
        elif "video" in attribute:
            found = class_in("video", name, config) or class_in("video", room, config)
            if found is not None:
                parts[attribute] = fitted(found, config)
                if hasattr(found, "draw_on_frames"):  # with a font that transformers lacks
                    parts[attribute].draw_on_frames = False
        else:
            parts[attribute] = _feature_extractor(name, config)
    return parts


def _make_whole(name: str, kind: str, config: Any, made_by: Any, named: dict[str, str]) -> Reader:
    from transformers.utils.import_utils import is_torchvision_available

    from attnviz.features.picture_text.source import without_videos

    marks = _marks_for(made_by, kind)
    named = all_named(made_by, marks, named)
    attributes = made_by.get_attributes()
    if "video_processor" in attributes and not is_torchvision_available():
        made_by = without_videos(made_by)
        attributes = made_by.get_attributes()
    parts = _parts_of(attributes, name, config, made_by)
    images = [one for key, one in parts.items() if "image" in key]
    part = next(iter([*images, *parts.values()] if kind != "audio" else parts.values()), None)
    more = {
        one: value
        for one in inspect.signature(made_by.__init__).parameters
        if one not in attributes
        and one not in ("self", "args", "kwargs", "chat_template")
        and (value := value_in(config, one, *ALIKE.get(one, ()))) is not None
    }
    reason: Exception | None = None
    for _ in range(MOST):
        words = {a: make_tokenizer(marks, named) for a in attributes if "tokenizer" in a}
        try:
            made = made_by(**parts, **words, **more)
            if new := unknown_marks(made):
                marks += new
                continue
            _count_places(made, config)
            _wrap_token(made, Path(inspect.getfile(made_by)).read_text(encoding="utf-8"))
            return Reader(name, kind, made, part, marks, named)
        except KeyError as error:  # a token that its class looks up by its spelling
            reason = error
            if not isinstance(error.args[0], str) or error.args[0] in marks:
                break
            marks.append(error.args[0])
        except AttributeError as error:
            reason = error
            if not (more_named := named_for(error, marks, named)):
                break
            named = more_named
        except TypeError as error:
            reason = error
            if not more:
                break
            more = {}
    raise NotBuiltError(
        f"its {made_by.__name__}: {type(reason).__name__}: {first_line(reason)}"
    ) from reason


def _marks_for(made_by: Any, kind: str) -> list[str]:
    """The special tokens of a class, with one for pictures where its chat template names it."""
    marks = marks_of(made_by)
    named = kind != "picture-text" or any("im" in one.lower() for one in marks)
    return marks if named else [*marks, "<image>"]


ALIKE = {"img_size": ("image_size",)}
"""Other names of the same number."""


def all_named(made_by: Any, marks: list[str], named: dict[str, str]) -> dict[str, str]:
    """The special tokens with those that the file of a class asks a tokenizer for by name."""
    for lacking in NAMED.findall(Path(inspect.getfile(made_by)).read_text(encoding="utf-8")):
        named = named_by(lacking, marks, named)
    return named


def unknown_marks(made: Any) -> list[str]:
    """The tokens that a processor names and its tokenizer does not know."""
    words = getattr(made, "tokenizer", None)
    known = words.get_vocab() if words is not None else {}
    named = (value for name, value in vars(made).items() if name.endswith("_token"))
    return [one for one in named if isinstance(one, str) and one and one not in known]


def _wrap_token(made: Any, source: str) -> None:
    """Make the token for a picture an object where its class asks for one."""
    from transformers import AddedToken

    token = getattr(made, "image_token", None)
    if isinstance(token, str) and ".image_token.content" in source:
        made.image_token = AddedToken(token, normalized=False, special=True)


def _count_places(made: Any, config: Any) -> None:
    """Say how many places a picture has, where nothing says it, as many as patches."""
    side, patch = value_in(config, "image_size"), value_in(config, "patch_size")
    for name in ("num_image_tokens", "image_seq_length"):
        if getattr(made, name, 0) is None and isinstance(side, int) and isinstance(patch, int):
            setattr(made, name, (side // patch) ** 2)


def named_for(error: Exception, marks: list[str], named: Mapping[str, str]) -> dict[str, str]:
    """The special tokens with the one that an error asks a tokenizer for; empty: for none."""
    lacks = LACKS.search(str(error))
    if not isinstance(error, AttributeError | ValueError) or not lacks:
        return {}
    if "token" not in (lacks[1] or lacks[3]):
        return {}
    more = named_by(lacks[1] or lacks[3], marks, named)
    return {} if more == named else more


def named_by(lacking: str, marks: list[str], named: Mapping[str, str]) -> dict[str, str]:
    """The special tokens with one more, by the name under which a tokenizer has it."""
    token = lacking if lacking.endswith("token") else f"{lacking}_token"
    stem = token.removesuffix("_token")
    if token in named or stem in WORDS or stem.startswith("add_"):
        return dict(named)
    likely = [one for one in marks if stem in one and one not in named.values()]
    return {**named, token: likely[0] if likely else f"<{stem}>"}
