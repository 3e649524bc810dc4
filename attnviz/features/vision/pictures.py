"""A picture as the input of a vision model: its pixels, and the part of it that is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.errors import ModelError, UsageError, is_number
from attnviz.core.query import Picture, Query
from attnviz.models.hugging_face.load.devices import library_errors
from attnviz.models.hugging_face.loaded_model import input_names

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]  # left, top, right, bottom in the picture's pixels


def picture_of(query: Query, name: str) -> Picture:
    """The picture of a query to the model of that name; a UsageError without one."""
    if query.picture is None:
        raise UsageError(f"'{name}' reads pictures, not texts: give it a picture")
    return query.picture


def parse_size(text: str) -> tuple[int, int]:
    """Height and width in pixels of "384" or "224x336"."""
    parts = text.lower().split("x")
    if not 1 <= len(parts) <= 2 or not all(is_number(part) and int(part) for part in parts):
        raise UsageError(f"--image-size '{text}' is no size: write 384 or HEIGHTxWIDTH (224x336)")
    return int(parts[0]), int(parts[-1])


def load_processor(folder: Path, name: str) -> Any:
    """The image processor of a model, which resizes and normalises pictures."""
    import transformers

    own = "preprocessor_config.json", "processor_config.json"
    if not any((folder / file).is_file() for file in own):
        if (folder / "video_preprocessor_config.json").is_file():
            films: Any = transformers.AutoVideoProcessor
            with library_errors(f"the video processor of '{name}' cannot be loaded"):
                return films.from_pretrained(folder, local_files_only=True)
        raise ModelError(
            f"'{name}' has no image processor (preprocessor_config.json), which says how to "
            "resize and normalise a picture"
        )
    auto: Any = transformers.AutoImageProcessor
    with library_errors(f"the image processor of '{name}' cannot be loaded"):
        return auto.from_pretrained(folder, local_files_only=True)


def pixels(processor: Any, picture: Image, size: tuple[int, int] | None) -> Any:
    """The picture as a tensor of shape (1, 3, height, width)."""
    return inputs_of(processor, picture, size)["pixel_values"]


def inputs_of(processor: Any, picture: Image, size: tuple[int, int] | None) -> Any:
    """All that a processor makes of a picture, by name."""
    options: dict[str, Any] = {}
    if size is not None:
        options = {"size": {"height": size[0], "width": size[1]}, "do_center_crop": False}
    else:
        check_picture_sides(processor)
    for name in required_extras(processor):
        options[name] = EXTRAS[name][0](picture)
    try:
        with library_errors("the image processor in the model's folder fails"):
            return processor(picture, return_tensors="pt", **options)
    except ModelError as error:
        if "pair of" not in str(error):
            raise
        raise ModelError(
            "the model matches the two pictures of a pair, and one picture is given: read a model "
            "of single pictures"
        ) from error


def _grey_trimap(picture: Image) -> Image:
    from PIL import Image

    return Image.new("L", picture.size, 128)


EXTRAS: dict[str, tuple[Callable[[Image], Any], str]] = {
    "boxes": (lambda picture: [[[0, 0, *picture.size]]], "the whole picture"),
    "trimaps": (_grey_trimap, "grey: it says nothing about any pixel"),
}
"""What some processors require beside a picture: how it is made, and what it says."""


def required_extras(processor: Any) -> list[str]:
    """What a processor asks for beside a picture, of what can be given."""
    takes = signature(getattr(processor, "preprocess", processor)).parameters
    return [name for name in EXTRAS if name in takes and takes[name].default is Parameter.empty]


PIXELS = ("pixel_values", "flattened_patches")
"""What processors call a picture."""
TOWER = {"hidden_states": "pixel_values"}  # of a tower whose patches are packed, its first input
PACKED = {name: f"image_{name}" for name in ("grid_thw", "grid_hw", "merge_sizes")} | {
    "pixel_position_ids": "image_position_ids"
}
"""Inputs of a tower of packed patches, by the name under which processors make them."""


def part_inputs(part: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What a part takes of a processor's batch, under the part's names."""
    takes = signature(part.forward).parameters
    other = PACKED | (TOWER if PACKED.keys() & takes else {})
    names = {name: name if name in batch else other.get(name, name) for name in takes}
    return {name: batch[own] for name, own in names.items() if own in batch}


def missing_in(part: Any, inputs: Mapping[str, Any]) -> list[str]:
    """What a part asks for beside these inputs."""
    takes = signature(getattr(part, "forward", part)).parameters.values()
    by_name = (one for one in takes if one.kind is Parameter.POSITIONAL_OR_KEYWORD)
    needs = [one.name for one in by_name if one.default is Parameter.empty]
    return [name for name in needs if name not in inputs]


def takes_pixels(part: Any) -> bool:
    """Whether a part of a model reads a picture."""
    takes = input_names(part)
    return bool({*PIXELS} & takes) or {"hidden_states", "grid_thw"} <= takes


MOST_PIXELS = 1 << 14  # longest side that a processor may ask for; --image-size may be larger


def check_picture_sides(processor: Any) -> None:
    """Refuse a processor whose pictures would fill the memory or have no size.

    Where patches are merged as Qwen's are, its edges count the pixels of the whole picture.
    """
    areas = ("_edge", "_pixels") if hasattr(processor, "merge_size") else ("_pixels",)
    for name in ("size", "crop_size"):
        for side, number in dict(getattr(processor, name, None) or {}).items():
            most = MOST_PIXELS**2 if side.endswith(areas) else MOST_PIXELS
            whole = isinstance(number, int) and not isinstance(number, bool)
            if number is not None and not (whole and 0 < number <= most):
                raise ModelError(
                    f"the image processor in the model's folder says '{name}' '{side}' {number!r}: "
                    f"1 to {most:,} pixels are allowed"
                )


def seen_box(processor: Any, picture: Image, size: tuple[int, int] | None) -> Box:
    """The box of the picture that the model sees: all of it, or the middle."""
    width, height = picture.size
    if size is not None or not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    crop = dict(processor.crop_size)
    sides = {side for side, number in dict(processor.size).items() if number}
    if not {"height", "width"} <= crop.keys() or not ("shortest_edge" in sides or "width" in sides):
        raise ModelError("the image processor in the model's folder does not say what it cuts out")
    new_size = _resized_size(processor.size, width, height)
    across, down = crop["width"] / new_size[0], crop["height"] / new_size[1]
    return (
        (1 - across) / 2 * width,
        (1 - down) / 2 * height,
        (1 + across) / 2 * width,
        (1 + down) / 2 * height,
    )


def _resized_size(size: Mapping[str, Any], width: int, height: int) -> tuple[int, int]:
    """Width and height after resizing, before the middle is cut out."""
    shortest = dict(size).get("shortest_edge")
    if shortest:
        scale = shortest / min(width, height)
        return int(width * scale), int(height * scale)
    return size["width"], size["height"]


SIDE = "picture"  # the side of queries and keys
CAPTIONER = "vision-encoder-decoder"  # the type of a model that is an encoder and a decoder


def special_names(kind: str, count: int) -> list[str]:
    """The tokens before the patches: a class token, then DeiT's teacher or DINO's registers."""
    second = "[DIST]" if kind == "deit" else "[REG 0]"
    return ["[CLS]", second, *(f"[REG {number}]" for number in range(1, count))][:count]


def pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def over_patches(
    layers: Sequence[str], weights: Any, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> AttentionMap:
    """Weights with their tokens."""
    return AttentionMap(
        "self", queries, keys, weights, layers=tuple(layers), query_side=SIDE, key_side=SIDE
    )
