"""A vision model that can be asked for the attention of a picture over its patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import AttentionError, ModelError
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.extent import Region
from attnviz.models.hugging_face.capture.maps import with_routes
from attnviz.models.hugging_face.load.errors import quiet
from attnviz.models.hugging_face.load.tasks import Task, listening, show_decision
from attnviz.models.hugging_face.vision.pictures import SIDE, PictureReader, over_patches
from attnviz.models.hugging_face.vision.windows import window_maps, windowed

if TYPE_CHECKING:
    from PIL.Image import Image

    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
    from attnviz.models.hugging_face.eager import EagerInputs


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VisionModel(PictureReader):
    """A pretrained model and its image processor, as a source of attention.

    Attributes:
        task: what its head decides, if it has one that does.

    Those of `PictureReader` come before it.
    """

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
            described = self.described(inputs, rows, columns)
            with listening(self.model) as heard:
                if windowed(self.model):
                    maps = window_maps(self, inputs, patch)
                    routes = [f"{self.model.config._attn_implementation}, probed"]
                else:
                    maps, routes = self.look(inputs, rows, columns)
        attention = Attention(maps, with_routes(described, routes))
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
    ) -> AttentionGradients:
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
        from attnviz.models.hugging_face.gradient import chosen_class, gradients_of, no_head

        if self.task is None:
            raise no_head(self.name, self.model)
        with quiet():
            eager = self.read(self.model, picture, size)
            return gradients_of(
                eager, lambda logits: chosen_class(self.model.config, logits[0], wanted)
            )

    def transform_image(self, picture: Image, size: tuple[int, int] | None = None) -> ValueVectors:
        """What each head makes of each patch of a picture.

        Args:
            picture: in red, green and blue.
            size: height and width to read it in; None: as the model was trained.

        Raises:
            ModelError: the model fails on this size.
            AttentionError: the architecture keeps its values to itself.
        """
        from attnviz.models.hugging_face.norm import value_vectors

        with quiet():
            return value_vectors(self.read(self.tower, picture, size))

    def read(self, part: Any, picture: Image, size: tuple[int, int] | None) -> EagerInputs:
        """A picture as the model, or its part for pictures, reads it with whole matrices."""
        from attnviz.models.hugging_face.capture.kernel import eager_twin
        from attnviz.models.hugging_face.eager import EagerInputs
        from attnviz.models.hugging_face.inputs.encoding import EncodedQuery

        inputs = self.inputs(picture, size)
        rows, columns = self.grid(inputs["pixel_values"])
        attention = Attention((), self.described(inputs, rows, columns))
        tokens = {SIDE: self.tokens(inputs, rows, columns)}
        encoded = EncodedQuery(part, inputs, tokens, {"self": (SIDE, SIDE)}, attention)
        return EagerInputs(eager_twin(part), inputs, encoded, SIDE)

    def look(
        self, inputs: dict[str, Any], rows: int, columns: int
    ) -> tuple[tuple[AttentionMap, ...], list[str]]:
        """Every token's attention over all tokens, special ones first, and how it was had."""
        tokens = self.tokens(inputs, rows, columns)
        sides = {"self": (len(tokens), len(tokens))}
        found = capture(self.tower, inputs, sides, extent=Region(max_size=len(tokens)))
        maps = tuple(over_patches(item.layers, item.weights, tokens, tokens) for item in found)
        return maps, [item.route for item in found]


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
    from attnviz.models.hugging_face.load.loading import LoadOptions, load_parts
    from attnviz.models.hugging_face.load.parts import model_kind
    from attnviz.models.hugging_face.vision.pictures import load_processor

    terms = LoadOptions(device, dtype, revision, allow_pickle, allow_code, device_map)
    parts = load_parts(name, terms, load_processor, model_kind)
    model = parts.model
    if model.main_input_name != "pixel_values" and not hasattr(model, "vision_model"):
        raise ModelError(
            f"'{name}' ({model.config.model_type}) reads no pictures: it asks for "
            f"'{model.main_input_name}'"
        )
    return VisionModel(
        name=name,
        model=model,
        processor=parts.reader,
        provenance=parts.provenance,
        task=parts.task,
    )
