"""Pictures as a vision model sees them: read, resized, and which part of them is seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.errors import InputError, ModelError, UsageError
from attnviz.hugging_face.border import first_line

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of a picture, in its own pixels."""


def read_picture(path: Path) -> Image:
    """A picture from a file, upright, in red, green and blue; what is transparent is white.

    Raises:
        InputError: there is no such file, or it is no picture.
    """
    from PIL import Image, ImageOps

    if not path.is_file():
        what = "is a folder, not a picture" if path.is_dir() else "does not exist"
        raise InputError(f"'{path}' {what}")
    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened)
            layers = upright.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"'{path}' cannot be read as a picture: {first_line(error)}") from error
    ground = Image.new("RGBA", layers.size, "white")
    return Image.alpha_composite(ground, layers).convert("RGB")


def parse_size(text: str) -> tuple[int, int]:
    """Height and width in pixels of "384" or "224x336".

    Raises:
        UsageError: it is neither.
    """
    parts = text.lower().split("x")
    if not 1 <= len(parts) <= 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--image-size '{text}' is no size: write 384 or HEIGHTxWIDTH (224x336)")
    return int(parts[0]), int(parts[-1])


def load_processor(folder: Path, name: str) -> Any:
    """What resizes and normalises pictures for a model.

    Raises:
        ModelError: the model's folder has none.
    """
    import transformers

    if not any((folder / file).is_file() for file in PROCESSORS):
        raise ModelError(
            f"'{name}' has no image processor (preprocessor_config.json): it is not known how to "
            "resize and normalise a picture for it"
        )
    auto: Any = transformers.AutoImageProcessor
    return auto.from_pretrained(folder, local_files_only=True)


PROCESSORS = ("preprocessor_config.json", "processor_config.json")


def pixels(processor: Any, picture: Image, size: tuple[int, int] | None) -> Any:
    """The picture as the model takes it, a tensor of shape (1, 3, height, width)."""
    wanted: dict[str, Any] = {}
    if size is not None:
        wanted = {"size": {"height": size[0], "width": size[1]}, "do_center_crop": False}
    return processor(picture, return_tensors="pt", **wanted)["pixel_values"]


def seen_box(processor: Any, picture: Image, size: tuple[int, int] | None) -> Box:
    """The part of a picture that the model sees: all of it, or what is left of its middle.

    Args:
        processor: an image processor.
        picture: the picture as read.
        size: height and width that were asked for, which leave nothing out.
    """
    width, height = picture.size
    if size is not None or not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    resized = resized_size(processor.size, width, height)
    crop = processor.crop_size
    seen = []
    for full, scaled, kept in (
        (width, resized[0], crop["width"]), (height, resized[1], crop["height"])
    ):  # fmt: skip
        share = kept / scaled
        seen.append(((1 - share) / 2 * full, (1 + share) / 2 * full))
    (left, right), (top, bottom) = seen
    return left, top, right, bottom


def resized_size(size: Mapping[str, Any], width: int, height: int) -> tuple[int, int]:
    """Width and height after resizing, before the middle is cut out."""
    shortest = dict(size).get("shortest_edge")
    if shortest:
        scale = shortest / min(width, height)
        return int(width * scale), int(height * scale)
    return size["width"], size["height"]
