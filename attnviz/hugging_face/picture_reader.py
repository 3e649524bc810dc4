"""A vision model and its image processor, as far as they read pictures: pixels, patches, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnviz.attention_map import AttentionMap, Provenance, Token
from attnviz.errors import AttentionError, UsageError
from attnviz.hugging_face.border import running
from attnviz.hugging_face.pictures import Box, pixels, seen_box
from attnviz.patches import patch_tokens

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = "picture"
"""What queries and keys are tokens of."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PictureReader:
    """A pretrained vision model, or one with a vision tower.

    Attributes:
        name: what it was asked for as.
        model: the transformers model, on its device, in evaluation mode.
        processor: its image processor.
        provenance: where it came from; what is made of it is added for each picture.
    """

    name: str
    model: Any
    processor: Any
    provenance: Provenance

    def seen(self, picture: Image, size: tuple[int, int] | None = None) -> Box:
        """The part of the picture that the patches cover, in its own pixels."""
        return seen_box(self.processor, picture, size)

    @property
    def tower(self) -> Any:
        """The part of the model that reads pictures; of CLIP and its kin one of two."""
        return getattr(self.model, "vision_model", None) or self.model

    @property
    def config(self) -> Any:
        """The configuration of that part."""
        return getattr(self.model.config, "vision_config", None) or self.model.config

    def inputs(self, picture: Image, size: tuple[int, int] | None) -> dict[str, Any]:
        """The picture as the model takes it.

        Raises:
            UsageError: patches do not fit into the size evenly.
        """
        import inspect

        high, wide = self.patch_size
        if size is not None and (size[0] % high or size[1] % wide):
            raise UsageError(
                f"--image-size {size[0]}x{size[1]} is no multiple of '{self.name}'s patches of "
                f"{high} × {wide} pixels"
            )
        values = pixels(self.processor, picture, size)
        values = values.to(self.model.device, self.model.dtype)
        found: dict[str, Any] = {"pixel_values": values}
        trained = getattr(self.config, "image_size", None)
        takes = inspect.signature(self.tower.forward).parameters
        if "interpolate_pos_encoding" in takes and pair(trained) != tuple(values.shape[-2:]):
            found["interpolate_pos_encoding"] = True
        return found

    @property
    def patch_size(self) -> tuple[int, int]:
        """Height and width of a patch in pixels.

        Raises:
            AttentionError: the model has no patches of one size.
        """
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
        """What the model makes of a picture: special tokens, then the patches.

        Raises:
            AttentionError: it makes something else.
        """
        length = self.length(inputs)
        if length - rows * columns not in self.special_counts:
            raise AttentionError(
                f"'{self.name}' ({self.model.config.model_type}) makes {length} tokens of "
                f"{rows} × {columns} patches: its attention cannot be put back into the picture"
            )
        marks = special_tokens(self.model.config.model_type, length - rows * columns)
        return *marks, *patch_tokens(rows, columns)

    def described(self, inputs: dict[str, Any], rows: int, columns: int) -> Provenance:
        """Where attention over a picture of this size comes from."""
        height, width = inputs["pixel_values"].shape[-2:]
        settings = {"pixels": f"{height} × {width}", "patches": f"{rows} × {columns}"}
        settings = {**self.provenance.settings, **settings}
        return replace(self.provenance, settings=settings)

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


def special_tokens(kind: str, count: int) -> tuple[Token, ...]:
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
