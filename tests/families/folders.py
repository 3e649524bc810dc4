"""`python -m tests.families.folders TYPE DEST`: a small copy of a type that reads more than texts.

The folder is what a checkpoint of a user holds: the configuration, random weights, and the files of
the processor. Sizes and numbers of tokens are fitted by trial: the copy reads a picture, a sound,
and a text by its processor, and what it says is wrong is set right.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch

from attnviz.core.errors import first_line
from attnviz.features.models.shrink import SmallCopy
from attnviz.features.models.shrink import _without as without
from tests.families.by_hand import AFTER
from tests.families.copies import (
    FEW,
    Copy,
    NotBuiltError,
    build,
    copy_by_hand,
    first_config,
    run_on,
    widened,
)
from tests.families.places import follow, run, takes
from tests.families.readers import (
    MISMATCH,
    SIDES,
    Reader,
    make_reader,
    named_for,
    plain_reader,
    value_in,
)
from tests.families.sizes import small_sizes
from tests.families.small_pictures import SMALL_PICTURES
from tests.families.texts import set_start
from tests.families.types_of import ModelType, find_type, needed_inputs
from tests.families.words import LEAST, fit_ids, make_tokenizer, parts_of

STARTS = (("boi", "eoi"), ("vision_start", "vision_end"), ("image_start", "image_end"), ("im_start", "im_end"), ("audio_bos", "audio_eos"), ("begin_image", "end_image"))  # fmt: skip  # noqa: E501
"""Names of tokens before and after the places of a picture or a sound."""


def make_folder(name: str, folder: Path) -> tuple[Copy, Reader]:
    """A small copy of a type with what reads its inputs, saved as a checkpoint.

    Raises:
        NotBuiltError: there is none; the message says why.
    """
    copy, reader = make_with_reader(name)
    save(copy, reader, folder)
    return copy, reader


def make_with_reader(name: str) -> tuple[Copy, Reader]:
    """The copy, and its reader with the inputs that it ran on."""
    kind = find_type(name)
    found: list[Reader] = []

    def example(model: Any) -> dict[str, Any]:
        found[:] = [fit_reader(name, kind.kind, model)]
        return found[0].last

    if name in SMALL_PICTURES:
        copy = copy_by_hand(kind, example, SMALL_PICTURES[name])
        return copy, found[0]
    reason: NotBuiltError | None = None
    for values in first_values(name):
        try:
            copy = make_copy(kind, example, values)
        except NotBuiltError as error:
            reason = reason or error
            if not values and not (LIBRARY.search(str(error)) or widths_differ(str(error))):
                break
            continue
        example(copy.model)
        return copy, found[0]
    assert reason is not None
    raise reason


def make_copy(
    kind: ModelType, example: Callable[[Any], dict[str, Any]], values: Mapping[str, Any]
) -> Copy:
    """A small copy that runs on an example; larger ones are tried while they fail differently."""
    if kind.made_by is None:
        raise NotBuiltError(kind.reason or "it has no class of its own")
    reasons = list[str]()

    def run(model: Any) -> None:
        run_on(model, example(model))

    sections = 0
    for way in (*NAMED, *(TRIALS if kind.kind in ("picture", "video") else ())):
        try:
            config = first_config(kind.name) if not values else type_of(kind.name)(**values)
            config = small_config(config, way, sections, lambda one: build(kind.made_by, one), run)
            torch.manual_seed(0)
            model = build(kind.made_by, config)
            with torch.no_grad():
                run(model)
            return Copy(kind, widened(model))
        except NotBuiltError as error:
            reasons.append(str(error))
        except Exception as error:  # transformers raises anything for sizes that do not fit
            reasons.append(f"{type(error).__name__}: {first_line(error)}")
        if wrong := SECTIONS.search(reasons[-1]):
            sections = int(wrong[1])
    raise NotBuiltError(reasons[0])


OWN_SIDE = 128  # pixels along the side of a picture where a model names none


def small_config(
    config: Any,
    way: str | int,
    sections: int,
    made: Callable[[Any], Any],
    run: Callable[[Any], Any],
) -> Any:
    """A configuration with small sizes, found in one of the ways."""
    for one in parts_of(config):
        if (getattr(one, "vocab_size", LEAST) or 0) < LEAST:
            one.vocab_size = 2 * LEAST  # the tokenizer of the trials holds every byte
    if isinstance(way, int):
        return SmallCopy(made, config, run).shrink(way).config
    if way == "turned" and not sections:
        raise NotBuiltError("no model asks for sections")
    return named_sizes(config, sections, pictures=way == "as they are")


NAMED = ("by name", "turned", "as they are")
"""How sizes are found: by their names, with sections of rotary positions, pictures as they are."""
TRIALS = FEW[1:3]
"""By trial with so many parameters at most, which takes a minute and helps towers alone."""
SECTIONS = re.compile(r"split_sizes to sum exactly to (\d+)")


def named_sizes(config: Any, sections: int = 0, *, pictures: bool = False) -> Any:
    """A configuration with small sizes by their names; of pictures too, or not."""
    numbers = json.loads(json.dumps(config.to_dict(), default=str), object_hook=without)
    small = small_sizes(numbers, sections, pictures=pictures)
    for name, value in AFTER.get(config.model_type, {}).items():
        small[name] = {**small[name], **value} if isinstance(value, dict) else value
    return type(config).from_dict(small)


LIBRARY = re.compile(r"timm|[Bb]ackbone")
BACKBONE = {"model_type": "resnet", "hidden_sizes": [32, 32, 64, 64], "embedding_size": 32, "depths": [1, 1, 1, 1]}  # fmt: skip  # noqa: E501
"""A backbone that transformers builds by itself, in place of one that needs a package."""
WIDTHS = ("out_hidden_size", "hidden_size", "text_hidden_size", "projection_dim", "output_dim", "projector_hidden_size", "output_hidden_size", "lm_hidden_size", "output_size")  # fmt: skip  # noqa: E501
"""Names of the width of what a part for pictures gives to the part for texts."""


def type_of(name: str) -> Any:
    """The class of a type's configurations."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[name]


def widths_differ(reason: str) -> bool:
    """Whether as many features as tokens are of another width."""
    wrong = MISMATCH.search(reason)
    return bool(wrong) and wrong[1] == wrong[2] if wrong else "masked_scatter" in reason


def first_values(name: str) -> Iterator[dict[str, Any]]:
    """Values for a configuration: the defaults, then what a checkpoint says in their place."""
    yield {}
    try:
        config = first_config(name)
    except Exception:  # some types have no default
        return
    if hasattr(config, "backbone_config") or hasattr(config, "use_timm_backbone"):
        for more in (
            {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
            {},
        ):
            yield {**more, "backbone_config": dict(BACKBONE)}
    width = getattr(config.get_text_config(), "hidden_size", None)
    for part in ("vision_config", "audio_config"):
        own = getattr(config, part, None)
        for one in WIDTHS if own is not None and width else ():
            if getattr(own, one, width) != width:
                yield {part: {**own.to_dict(), one: width}}
                yield {one: width}


def save(copy: Copy, reader: Reader, folder: Path) -> None:
    """Save a copy with the files of its processor."""
    copy.model.save_pretrained(folder)
    if hasattr(copy.model, "speaker_map"):  # its voices stand in a file of their own
        torch.save(copy.model.speaker_map, folder / "spk_dict.pt")
    if reader.tokenizer is not None or not needs_words(copy.model):
        reader.made.save_pretrained(folder)
    else:
        reader.made.save_pretrained(folder)
        words = make_tokenizer([], {})
        words.save_pretrained(folder)


def needs_words(model: Any) -> bool:
    """Whether a model writes, or reads, texts."""
    return bool({"decoder_input_ids", "input_ids"} & {*takes(model)})


def fit_reader(name: str, kind: str, model: Any, named: Mapping[str, str] = {}) -> Reader:
    """The reader of a model, fitted until the model runs on what it reads; or a plain one."""
    reader = reader_of(name, kind, model, named)
    try:
        return fitted_to(model, reader, named)
    except NotBuiltError as error:
        if kind != "picture" or reader.stands_in or reader.tokenizer is not None:
            raise
        try:
            return fitted_to(model, plain_reader(name, kind, model.config), named)
        except NotBuiltError:
            raise error from None


def fitted_to(model: Any, reader: Reader, named: Mapping[str, str]) -> Reader:
    """A reader that is fitted until the model runs on what it reads."""
    name, kind = reader.name, reader.kind
    fit_numbers(reader, model)
    reasons = list[str]()
    for alone in (False, True) if kind in ("picture", "video") else (False,):
        reader.alone, before = alone, len(reasons)
        for side, mark in product(sides_of(reader, model.config), [*marks_for(reader)]):
            set_side(reader, side)
            try:
                return run(reader, model, mark)
            except Exception as error:  # a processor or a model raises anything for what is wrong
                if more := named_for(error, reader.marks, {**named, **reader.named}):
                    return fit_reader(name, kind, model, more)
                reasons.append(f"{type(error).__name__}: {first_line(error)}")
                if reasons[before:].count(reasons[-1]) > 2:
                    break
    if reader.tokenizer is None and MISMATCH.search(reasons[0]):
        raise NotBuiltError("transformers has no processor that reads its pictures with a text")
    if kind == "audio" and "pixel_values_videos" in takes(model) and not needs_words(model):
        raise NotBuiltError("it reads a film with its sound, and no sound alone")
    first = f"{reader.stands_in}; with a plain one: " if reader.stands_in else ""
    raise NotBuiltError(first + reasons[0])


def fit_numbers(reader: Reader, model: Any) -> None:
    """Give a model the numbers of its special tokens."""
    words = reader.tokenizer
    if words is None and needs_words(model):
        words = make_tokenizer([], {})
    if words is not None:
        fit_ids(model.config, reader.made if reader.tokenizer is not None else words)
        follow(model)
        if model.config.is_encoder_decoder:
            set_start(model.config)
        if (generation := getattr(model, "generation_config", None)) is not None:
            fit_generation(generation, model.config)


def reader_of(name: str, kind: str, model: Any, named: Mapping[str, str]) -> Reader:
    """The processor, or where there is none, or a needless one, its only part."""
    if kind == "picture" and any("input_ids" in one for one in needed_inputs(type(model))):
        return make_reader(name, "picture-text", model.config, named)
    if kind == "picture" and "input_ids" in takes(model):
        try:
            return make_reader(name, "picture-text", model.config, named)
        except NotBuiltError:
            return make_reader(name, kind, model.config, named)
    return make_reader(name, kind, model.config, named)


def fit_generation(generation: Any, config: Any) -> None:
    """The same numbers of special tokens for writing."""
    text = config.get_text_config()
    for one in ("pad", "bos", "eos", "decoder_start"):
        setattr(generation, f"{one}_token_id", getattr(text, f"{one}_token_id", None))


def sides_of(reader: Reader, config: Any) -> Iterator[Any]:
    """Sizes of a picture in pixels: the model's, the processor's, others. None: as it is."""
    if not hasattr(reader.part, "size"):
        yield None
        return
    own = value_in(config, "image_size", "crop_size")
    own = OWN_SIDE if own is None and reader.kind in ("picture", "video") else own
    yield own
    if own is not None:
        yield None
    yield from (side for side in SIDES if side != own)


def set_side(reader: Reader, side: Any) -> None:
    """Set a processor's size, in whichever form it has it."""
    if side is None:
        return
    high, wide = (side, side) if isinstance(side, int) else (int(side[0]), int(side[-1]))
    numbers = {"scale_resolution": high, "image_size": high, "max_patches": 64}
    for name in numbers.keys() & vars(reader.part).keys():
        setattr(reader.part, name, numbers[name])
    for name in ("size", "crop_size", "pad_size", "max_image_size"):
        own = getattr(reader.part, name, None) or 0
        if isinstance(own, int | float):
            continue
        keys = {key for key, value in dict(own).items() if value is not None}
        if {"height", "width"} <= keys:
            new = {"height": high, "width": wide}
        elif keys == {"shortest_edge", "longest_edge"}:
            pixels = (own["shortest_edge"] or 0) > 2048
            new = (
                {"shortest_edge": high * wide // 4, "longest_edge": high * wide}
                if pixels
                else {"shortest_edge": min(high, wide), "longest_edge": max(high, wide)}
            )
        elif {"max_height", "max_width"} <= keys:
            new = {"max_height": high, "max_width": wide}
        else:
            new = dict.fromkeys(keys, min(high, wide))
        setattr(reader.part, name, type(own)(**new) if not isinstance(own, dict) else new)
        if name == "size" and hasattr(reader.part, "min_pixels"):
            reader.part.min_pixels, reader.part.max_pixels = high * wide // 4, high * wide


def marks_for(reader: Reader) -> Iterator[str]:
    """What stands in a prompt for a picture or a sound."""
    if reader.tokenizer is None:
        yield ""
        return
    whole, words = reader.made, reader.tokenizer
    what = "audio" if reader.kind == "audio" else "image"

    def token(name: str) -> str:
        own = getattr(whole, f"{name}_token", None) or getattr(words, f"{name}_token", None)
        near = [one for one in reader.marks if name in one]
        return own if isinstance(own, str) else near[0] if near else ""

    one = token(what)
    yield one
    for begin, end in STARTS:
        if token(begin) and token(end):
            yield token(begin) + one + token(end)
    for begin, _ in STARTS:
        if token(begin):
            yield token(begin)
    if one:
        yield ""
    yield from (mark for mark in reader.marks if what in mark.lower() and mark != one)


def main() -> None:
    """Make one folder."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        copy, reader = make_folder(name, folder)
    except NotBuiltError as error:
        raise SystemExit(f"{name}: not built: {error}") from error
    shapes = {one: list(getattr(value, "shape", ())) for one, value in reader.last.items()}
    print(
        json.dumps(
            {
                "type": name,
                "class": type(copy.model).__name__,
                "inputs": shapes,
                "template": reader.template,
                "stands in": reader.stands_in,
            }
        )
    )


if __name__ == "__main__":
    main()
