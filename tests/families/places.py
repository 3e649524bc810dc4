"""The inputs that a reader makes for a model, with as many places as a picture has features."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import isqrt
from typing import Any

import torch

from attnviz.features.audio.sound_inputs import sound_inputs
from attnviz.features.vision.pictures import part_inputs
from tests.families.readers import MISMATCH, TEXT, Reader, picture_of, sound_of
from tests.families.sights import inputs_of_part, read_sight
from tests.families.types_of import part_that_runs
from tests.families.words import parts_of

TEMPLATE = (
    "{% for message in messages %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}MARK{% endif %}"
    "{% endfor %}{% endfor %}"
)


def run(reader: Reader, model: Any, mark: str) -> Reader:
    """Run a model on what its reader reads, and put right the number of places for a picture."""
    mark = mark or _mark_in(model.config, reader)
    own = getattr(reader.made, "image_token", mark)
    inputs, error = _attempt(reader, model, mark)
    if error is not None:
        wrong = MISMATCH.search(str(error))
        try:
            inputs = _corrected(reader, model, mark, error)
        except Exception as other:
            if not (mark and wrong and wrong[1] == "1" and MISMATCH.search(str(other))):
                raise
            mark *= int(wrong[2])  # a template may hold them all
            inputs, left = _attempt(reader, model, mark)
            if left is not None:
                raise error from None
    if reader.tokenizer is not None and mark != own:
        reader = replace(reader, template=TEMPLATE.replace("MARK", mark))
        reader.made.chat_template = reader.template
    reader.last = inputs
    return reader


def _mark_in(config: Any, reader: Reader) -> str:
    """The token of pictures that a configuration names, where a processor names none."""
    numbers = (getattr(config, one, None) for one in PLACES)
    number = next((one for one in numbers if one is not None), None)
    named = getattr(reader.made, "image_token", getattr(reader.tokenizer, "image_token", None))
    if reader.tokenizer is None or named or not isinstance(number, int):
        return ""
    return str(reader.tokenizer.convert_ids_to_tokens(number))


def _attempt(reader: Reader, model: Any, mark: str) -> tuple[dict[str, Any], Exception | None]:
    """The inputs that a reader makes, and why the model does not run on them."""
    inputs = inputs_of(reader, model, mark)
    try:
        with torch.no_grad():
            part_that_runs(model, inputs)(**inputs)
    except (ValueError, RuntimeError, IndexError, AssertionError, AttributeError) as error:
        return inputs, error
    return inputs, None


def _corrected(reader: Reader, model: Any, mark: str, error: Exception) -> dict[str, Any]:
    """The inputs with as many places as there are features, by the first change that does it."""
    inputs, _ = _attempt(reader, model, mark)
    wrong = MISMATCH.search(str(error))
    number, many = run_of(inputs["input_ids"][0].tolist()) if "input_ids" in inputs else (0, 0)
    if many and (int(wrong[1]) == 0 or many == int(wrong[2]) if wrong else _unnamed(model.config)):
        set_place(model.config, number)
        follow(model)
        inputs, again = _attempt(reader, model, mark)
        if again is None:
            return inputs
        error, wrong = again, MISMATCH.search(str(again))
    if not wrong:
        raise error
    there, found = int(wrong[1]), int(wrong[2])
    width = getattr(model.config.get_text_config(), "hidden_size", None) or 1
    for wanted in (found // width, found) if found % width == 0 else (found,):
        changed = _changed(reader, model, mark, there, wanted)  # some count numbers of features
        if changed is not None:
            return changed
    raise error


def _unnamed(config: Any) -> bool:
    return any(getattr(one, name, 0) is None for one in parts_of(config) for name in PLACES)


def _changed(
    reader: Reader, model: Any, mark: str, there: int, wanted: int
) -> dict[str, Any] | None:
    """The inputs after the first change of numbers that lets the model run; None: none does."""
    owners = list({id(one): one for one in (reader.made, reader.part)}.values())
    first = [dict(vars(one)) for one in owners]
    for values in changes(owners, there, wanted):
        for one in owners:
            put_rows(one, reader, there, wanted)
            vars(one).update({k: v for k, v in values.items() if hasattr(one, k)})
        try:
            inputs, left = _attempt(reader, model, mark)
        except Exception as other:  # a processor may not work with a number at all
            left = other
        if left is None:
            return inputs
        for one, before in zip(owners, first, strict=True):
            vars(one).update(before)
    return None


def changes(owners: list[Any], there: int, wanted: int) -> Iterator[dict[str, int]]:
    """Numbers that may say how many places there are, with what they would have to be."""
    numbers = {
        name: value
        for one in reversed(owners)  # the whole's own number counts
        for name, value in vars(one).items()
        if isinstance(value, int) and not isinstance(value, bool)
    }
    counts = [name for name in numbers if COUNTS.search(name)]
    others = [name for name in numbers if name not in counts and not name.endswith("_id")]
    yield {name: wanted for name in counts if numbers[name] == there}  # and rows of marks
    yield from ({name: wanted} for name in counts)
    shifted = ((name, numbers[name] + wanted - there) for name in counts)
    yield from ({name: value} for name, value in shifted if value >= 0)
    yield from ({name: wanted} for name in others if numbers[name] == there)
    root = isqrt(wanted)
    yield from ({name: root} for name in others if root * root == wanted and numbers[name] > 1)
    same = isqrt(there) / root if root else 0
    if there and same and isqrt(there) ** 2 == there and root * root == wanted:
        yield from ({name: round(numbers[name] / same)} for name in others if numbers[name] > 1)


def put_rows(owner: Any, reader: Reader, there: int, wanted: int) -> None:
    """Put as many marks as wanted into rows of marks that a processor made before."""
    for name, value in vars(owner).items():
        for each in [*reader.marks, *reader.named.values()] if isinstance(value, str) else ():
            if there > 1 and value.count(each) == there:
                setattr(owner, name, value.replace(each * there, each * wanted))


def run_of(ids: list[int]) -> tuple[int, int]:
    """The number that stands most often in a row, and how often."""
    runs = [(number, len([*same])) for number, same in groupby(ids)]
    return max(runs, key=lambda one: one[1])


def set_place(config: Any, number: int) -> None:
    """Say which token stands for a part of a picture."""
    for one in parts_of(config):
        for name in PLACES:
            if hasattr(one, name):
                setattr(one, name, number)


PLACES = ("image_token_id", "image_token_index", "image_patch_id", "visual_token_id")


def follow(model: Any) -> None:
    """Tell the parts of a model which number stands for a picture, where they keep it."""
    for part in model.modules():
        for name in PLACES:
            number = getattr(model.config, name, None)
            if isinstance(vars(part).get(name), int) and isinstance(number, int):
                setattr(part, name, number)


COUNTS = re.compile(r"seq_length|num_.*tokens|token.*length|seq_len|num_image|num_quer|per_image")
"""Names of how many tokens a picture or a sound has."""


def inputs_of(reader: Reader, model: Any, mark: str) -> dict[str, Any]:
    """What a model reads, as its processor makes it."""
    names = {*takes(model)}
    read = _read(reader, model, mark)
    if reader.alone:
        return inputs_of_part(model, read)
    inputs = part_inputs(
        getattr(model, "thinker", model),
        {name: value for name, value in read.items() if name != "labels"},
    )
    if not inputs and len(read):
        first = next(iter(read.values()))
        inputs = {model.main_input_name: first}
    own = next(model.parameters()).dtype
    inputs = {
        name: value.to(own) if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    if "decoder_input_ids" in names and model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[1, 20, 21, 22]])
    elif "input_ids" in names and "input_ids" not in inputs:
        ids = torch.tensor([[1, 20, 21, 22]])
        inputs |= {"input_ids": ids}
        if "attention_mask" not in inputs:
            inputs["attention_mask"] = torch.ones_like(ids)
    return inputs


def _read(reader: Reader, model: Any, mark: str) -> Any:
    """What a reader makes of a sound, a picture or a text with one."""
    names = {*takes(model)}
    rate = getattr(reader.part, "sampling_rate", None)
    audio = getattr(reader.made, "feature_extractor", None)
    rate = rate or getattr(audio, "sampling_rate", None)
    if hasattr(reader.made, "visual_prompt_prefix"):  # it reads pages, or queries
        return reader.made.process_images([picture_of()])
    if reader.tokenizer is not None and (reader.kind != "audio" or "input_ids" in names):
        given: dict[str, Any] = {"text": f"{mark}{TEXT}"}
        if "mm_token_type_ids" in names:
            given["return_mm_token_type_ids"] = True
        if reader.kind == "audio":
            given["audio"] = sound_of(rate or 16_000)
            given["sampling_rate"] = rate
        else:
            given["images"] = picture_of()
        return reader.made(**given, return_tensors="pt")
    if not hasattr(reader.part, "sampling_rate"):
        return read_sight(reader, model)
    return sound_inputs(model, reader.part, sound_of(rate), rate)


def takes(model: Any) -> set[str]:
    """The inputs that a model takes by name."""
    return {*inspect.signature(getattr(model, "thinker", model).forward).parameters}
