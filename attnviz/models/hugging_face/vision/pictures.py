"""Pictures as a vision model sees them: pixels, patches and tokens, and which part is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import AttentionError, ModelError, UsageError, is_number
from attnviz.core.query import Picture, Query
from attnviz.core.tokens import patch_tokens
from attnviz.models.hugging_face.load.errors import foreign, running
from attnviz.models.hugging_face.model import input_names

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of a picture, in its own pixels."""


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
    """What resizes and normalises pictures for a model."""
    import transformers

    if not any(
        (folder / file).is_file() for file in ("preprocessor_config.json", "processor_config.json")
    ):
        raise ModelError(
            f"'{name}' has no image processor (preprocessor_config.json): it is not known how to "
            "resize and normalise a picture for it"
        )
    auto: Any = transformers.AutoImageProcessor
    with foreign(f"the image processor of '{name}' cannot be loaded"):
        return auto.from_pretrained(folder, local_files_only=True)


def pixels(processor: Any, picture: Image, size: tuple[int, int] | None) -> Any:
    """The picture as the model takes it, a tensor of shape (1, 3, height, width)."""
    wanted: dict[str, Any] = {}
    if size is not None:
        wanted = {"size": {"height": size[0], "width": size[1]}, "do_center_crop": False}
    else:
        check_sides(processor)
    with foreign("the image processor in the model's folder fails"):
        return processor(picture, return_tensors="pt", **wanted)["pixel_values"]


MOST_PIXELS = 1 << 14
"""The longest side that an image processor may make by itself; `--image-size` may ask for more."""


def check_sides(processor: Any) -> None:
    """Refuse a processor whose pictures would fill the memory, or have no size."""
    for name in ("size", "crop_size"):
        for side, number in dict(getattr(processor, name, None) or {}).items():
            whole = isinstance(number, int) and not isinstance(number, bool)
            if number is not None and not (whole and 0 < number <= MOST_PIXELS):
                raise ModelError(
                    f"the image processor in the model's folder says '{name}' '{side}' {number!r}: "
                    f"1 to {MOST_PIXELS:,} pixels are allowed"
                )


def seen_box(processor: Any, picture: Image, size: tuple[int, int] | None) -> Box:
    """The part of a picture that the model sees: all of it, or what is left of its middle."""
    width, height = picture.size
    if size is not None or not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    crop = dict(processor.crop_size)
    named = {side for side, number in dict(processor.size).items() if number}
    if not {"height", "width"} <= crop.keys() or not ("shortest_edge" in named or "width" in named):
        raise ModelError("the image processor in the model's folder does not say what it cuts out")
    resized = _resized_size(processor.size, width, height)
    across, down = crop["width"] / resized[0], crop["height"] / resized[1]
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


SIDE = "picture"
"""What queries and keys are tokens of."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PictureReader:
    """A pretrained vision model, or one with a vision tower."""

    name: str  # what it was asked for as
    model: Any  # on its device, in evaluation mode
    processor: Any  # its image processor
    provenance: Provenance  # what is made of the model is added for each picture

    @property
    def tower(self) -> Any:
        """The part of the model that reads pictures; of CLIP-like models one of two."""
        return getattr(self.model, "vision_model", None) or self.model

    @property
    def config(self) -> Any:
        """The configuration of that part."""
        return getattr(self.model.config, "vision_config", None) or self.model.config

    def inputs(self, picture: Picture) -> dict[str, Any]:
        """The picture as the model takes it."""
        size = picture.size
        high, wide = self.patch_size
        if size is not None and (size[0] % high or size[1] % wide):
            raise UsageError(
                f"--image-size {size[0]}x{size[1]} is no multiple of '{self.name}'s patches of "
                f"{high} × {wide} pixels"
            )
        values = pixels(self.processor, picture.image, size).to(self.model.device, self.model.dtype)
        found: dict[str, Any] = {"pixel_values": values}
        trained = getattr(self.config, "image_size", None)
        takes = input_names(self.tower)
        if "interpolate_pos_encoding" in takes and pair(trained) != tuple(values.shape[-2:]):
            found["interpolate_pos_encoding"] = True
        return found

    @property
    def patch_size(self) -> tuple[int, int]:
        """Height and width of a patch in pixels."""
        size = getattr(self.config, "patch_size", None)
        if size is None or (not isinstance(size, int) and len(size) != 2):
            raise AttentionError(
                f"'{self.name}' ({self.model.config.model_type}) does not cut pictures into "
                "patches of one size: its attention cannot be put back into the picture"
            )
        return pair(size)

    def grid(self, values: Any) -> tuple[int, int]:
        """How many patches a picture has from top to bottom and from left to right."""
        high, wide = self.patch_size
        height, width = values.shape[-2:]
        return -(-height // high), -(-width // wide)

    def tokens(self, inputs: dict[str, Any], rows: int, columns: int) -> tuple[Token, ...]:
        """What the model makes of a picture: special tokens, then the patches."""
        length = self.length(inputs)
        if length - rows * columns not in self.special_counts:
            raise AttentionError(
                f"'{self.name}' ({self.model.config.model_type}) makes {length} tokens of "
                f"{rows} × {columns} patches: its attention cannot be put back into the picture"
            )
        marks = _special_tokens(self.model.config.model_type, length - rows * columns)
        return *marks, *patch_tokens(rows, columns)

    def without_maps(
        self, picture: Picture, inputs: dict[str, Any], rows: int, columns: int
    ) -> Attention:
        """What is known of a picture's attention but for its maps."""
        height, width = inputs["pixel_values"].shape[-2:]
        settings = {"pixels": f"{height} × {width}", "patches": f"{rows} × {columns}"}
        provenance = replace(self.provenance, settings={**self.provenance.settings, **settings})
        seen = seen_box(self.processor, picture.image, picture.size)
        return Attention((), provenance, seen=seen)

    def length(self, inputs: dict[str, Any]) -> int:
        """How many tokens the model makes of a picture, 0 where they are none in a row."""
        import torch

        # What a model keeps from inference mode (BEiT its places) no gradient could go through.
        with running(self.model, "picture"), torch.no_grad():
            output = self.tower(**inputs, output_hidden_states=True)
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            hidden = (getattr(output, "hidden_states", None) or (torch.empty(0),))[-1]
        return int(hidden.shape[1]) if hidden.ndim == 3 else 0

    @property
    def special_counts(self) -> set[int]:
        """How many special tokens may stand before the patches; others have them elsewhere."""
        registers = int(getattr(self.config, "num_register_tokens", None) or 0)
        distilled = {2} if self.model.config.model_type == "deit" else set[int]()
        return {0, 1, 1 + registers} | distilled


def pair(size: Any) -> tuple[int, int]:
    """One size for both sides as two."""
    return (size, size) if isinstance(size, int) else tuple(size)


def _special_tokens(kind: str, count: int) -> tuple[Token, ...]:
    """What stands before the patches: a class token, then DeiT's teacher or DINO's registers."""
    second = "[DIST]" if kind == "deit" else "[REG 0]"
    names = ["[CLS]", second, *(f"[REG {number}]" for number in range(1, count))]
    return tuple(Token(name, special=True) for name in names[:count])


def over_patches(
    layers: Sequence[str], weights: Any, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> AttentionMap:
    """Weights with their tokens."""
    return AttentionMap(
        "self", queries, keys, weights, layers=tuple(layers), query_side=SIDE, key_side=SIDE
    )
