"""A vision model that can be asked for the attention of a picture over its patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.errors import AttentionError, ModelError, UsageError
from attnviz.hugging_face.border import running
from attnviz.hugging_face.capture import capture
from attnviz.hugging_face.extent import Extent
from attnviz.hugging_face.pictures import Box, pixels, seen_box
from attnviz.hugging_face.quiet import quiet
from attnviz.hugging_face.tasks import Task, listening, show_decision
from attnviz.hugging_face.windows import Windows, read_windows, windowed
from attnviz.patches import AVERAGE, check_patch, patch_name, patch_tokens

if TYPE_CHECKING:
    from PIL.Image import Image

    from attnviz.evidence import Explained, Transformed
    from attnviz.hugging_face.whole import Reading

SIDE = "picture"
"""What queries and keys are tokens of."""
ALL = "all"
"""Asked for instead of a patch: every query."""


@dataclass(frozen=True, slots=True, eq=False)
class VisionModel:
    """A pretrained model and its image processor, as a source of attention.

    Attributes:
        name: what it was asked for as.
        model: the transformers model, on its device, in evaluation mode.
        processor: its image processor.
        provenance: where it came from; what is made of it is added for each picture.
        task: what its head decides, if it has one that does.
    """

    name: str
    model: Any
    processor: Any
    provenance: Provenance
    task: Task | None = None

    def attend_image(
        self, picture: Image, patch: str | None = None, size: tuple[int, int] | None = None
    ) -> Attention:
        """A picture's attention over itself, patch by patch.

        Args:
            picture: in red, green and blue.
            patch: of a model with windows, the query: "ROW,COLUMN", or None for the mean over all.
                Other models give out every query.
            size: height and width to read it in; None: as the model was trained.

        Raises:
            UsageError: a size or a patch that the model does not have.
            ModelError: the model fails on this size.
            AttentionError: the architecture gives out no attention over patches.
        """
        with quiet():
            inputs = self.inputs(picture, size)
            rows, columns = self.grid(inputs["pixel_values"])
            with listening(self.model) as heard:
                if windowed(self.model):
                    maps = self.look_in_windows(inputs, patch)
                else:
                    maps = self.look(inputs, rows, columns)
        attention = Attention(maps, self.described(inputs, rows, columns))
        if self.task is None or not heard:
            return attention
        return show_decision(attention, self.task, heard[-1], ())

    def check_tokens(self, lens: str) -> None:
        """Refuse a lens that needs every token to see every other one.

        Raises:
            AttentionError: the model attends in windows.
        """
        if windowed(self.model):
            raise AttentionError(
                f"'{self.name}' attends in windows, where --lens {lens} has no whole to follow: "
                "use --lens raw"
            )

    def explain_image(
        self, picture: Image, wanted: str | None = None, size: tuple[int, int] | None = None
    ) -> Explained:
        """What the model decides about a picture, and how that hangs on each weight.

        Args:
            picture: in red, green and blue.
            wanted: a class by name or number; None: the likeliest.
            size: height and width to read it in; None: as the model was trained.

        Raises:
            ModelError: the model has no trained head, or fails on this size.
            AttentionError: the architecture hands out no weights that a gradient reaches.
            UsageError: no such class.
        """
        from attnviz.hugging_face.gradient import explain
        from attnviz.hugging_face.outputs import chosen_class, no_head

        if self.task is None:
            raise no_head(self.name, self.model)
        with quiet():
            reading = self.read(self.model, picture, size)
            return explain(
                reading, lambda logits: chosen_class(self.model.config, logits[0], wanted)
            )

    def transform_image(self, picture: Image, size: tuple[int, int] | None = None) -> Transformed:
        """What each head makes of each patch of a picture.

        Args:
            picture: in red, green and blue.
            size: height and width to read it in; None: as the model was trained.

        Raises:
            ModelError: the model fails on this size.
            AttentionError: the architecture keeps its values to itself.
        """
        from attnviz.hugging_face.norm import transform

        with quiet():
            return transform(self.read(self.tower, picture, size))

    def read(self, part: Any, picture: Image, size: tuple[int, int] | None) -> Reading:
        """A picture as the model, or its part for pictures, reads it with whole matrices."""
        from attnviz.hugging_face.twin import eager_twin
        from attnviz.hugging_face.whole import Reading

        inputs = self.inputs(picture, size)
        rows, columns = self.grid(inputs["pixel_values"])
        return Reading(
            eager_twin(part),
            inputs,
            {"self": (SIDE, SIDE)},
            {SIDE: self.tokens(inputs, rows, columns)},
            {},
            self.described(inputs, rows, columns),
            {},
            SIDE,
        )

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

    def look(self, inputs: dict[str, Any], rows: int, columns: int) -> tuple[AttentionMap, ...]:
        """Every token's attention over all tokens, special ones first."""
        tokens = self.tokens(inputs, rows, columns)
        sides = {"self": (len(tokens), len(tokens))}
        found = capture(self.tower, inputs, sides, extent=Extent(max_size=len(tokens)))
        return tuple(over_patches(item.layers, item.weights, tokens, tokens) for item in found)

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

    def look_in_windows(
        self, inputs: dict[str, Any], patch: str | None
    ) -> tuple[AttentionMap, ...]:
        """One query's attention in each layer, over the coarser patches of the later ones.

        Raises:
            UsageError: every query was asked for.
            AttentionError: the windows do not reach a kernel.
        """
        import torch

        if patch == ALL:
            raise UsageError(
                f"'{self.name}' attends in windows: choose one --patch, or none for the mean"
            )
        with running(self.model, "picture"), torch.inference_mode():
            layers = read_windows(self.model, inputs)
        if not layers:
            raise AttentionError(
                f"architecture '{self.model.config.model_type}' computes attention in windows by "
                "hand, where it cannot be read"
            )
        finest = layers[0]
        at = None if patch is None else check_patch(patch, finest.rows, finest.columns)
        query = AVERAGE if at is None else Token(patch_name(*at))
        named = [(str(number), layer) for number, layer in enumerate(layers)]
        maps = []
        for (rows, columns, _), run in groupby(named, key=lambda item: shape_of(item[1])):
            stage = list(run)
            weights = np.stack([look_of(layer, at, finest) for _, layer in stage])
            keys = patch_tokens(rows, columns)
            names = tuple(name for name, _ in stage)
            maps.append(over_patches(names, weights[:, :, None], (query,), keys))
        return tuple(maps)


def pair(size: Any) -> tuple[int, int]:
    """One size for both sides as two."""
    return (size, size) if isinstance(size, int) else tuple(size)


def special_tokens(kind: str, count: int) -> tuple[Token, ...]:
    """What stands before the patches: a class token, then DeiT's teacher or DINO's registers."""
    second = "[DIST]" if kind == "deit" else "[REG 0]"
    names = ["[CLS]", second, *(f"[REG {number}]" for number in range(1, count))]
    return tuple(Token(name, special=True) for name in names[:count])


def shape_of(layer: Windows) -> tuple[int, int, int]:
    """What layers that can be stacked agree in: patches down, across, and heads."""
    return layer.rows, layer.columns, layer.weights.shape[1]


def look_of(layer: Windows, at: tuple[int, int] | None, finest: Windows) -> Any:
    """What a patch of the finest layer attends to in another, shape (heads, patches)."""
    if at is None:
        return layer.mean()
    row = at[0] * layer.rows // finest.rows
    column = at[1] * layer.columns // finest.columns
    return layer.row(row * layer.columns + column)


def over_patches(
    layers: Sequence[str], weights: Any, queries: tuple[Token, ...], keys: tuple[Token, ...]
) -> AttentionMap:
    """Weights with their tokens."""
    return AttentionMap(
        "self", queries, keys, weights, layers=tuple(layers), query_side=SIDE, key_side=SIDE
    )


def load_vision_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    allow_code: bool = False,
    device_map: str | None = None,
) -> VisionModel:
    """A pretrained vision model, or one with a vision tower, ready to be shown pictures.

    Args:
        name: a folder, or a model's id on the hub (looked for in the local cache first).
        device: "auto" (the fastest there is), "cpu", "cuda" or "mps".
        dtype: the precision to compute in; None: as `load_model` chooses.
        revision: a branch, a tag or a commit of a hub model.
        allow_pickle: whether weights may come from a pickle, which can hide code.
        allow_code: whether Python code that comes with the model may run.
        device_map: how to spread a large model over devices.

    Raises:
        UsageError: a device, precision or revision that does not exist.
        ModelError: the model or its processor cannot be found or loaded, or reads no pictures.
    """
    from attnviz.hugging_face.loading import Terms, load_parts
    from attnviz.hugging_face.parts import model_kind
    from attnviz.hugging_face.pictures import load_processor

    terms = Terms(device, dtype, revision, allow_pickle, allow_code, device_map)
    parts = load_parts(name, terms, load_processor, model_kind)
    model = parts.model
    if model.main_input_name != "pixel_values" and not hasattr(model, "vision_model"):
        raise ModelError(
            f"'{name}' ({model.config.model_type}) reads no pictures: it asks for "
            f"'{model.main_input_name}'"
        )
    return VisionModel(name, model, parts.reader, parts.provenance, parts.task)
