"""A vision checkpoint that numpy runs: its attention over patches, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import isqrt
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert

from attnviz.core.attention_map import DECISION, Attention
from attnviz.core.errors import ModelError
from attnviz.core.lens_inputs import ValueVectors
from attnviz.core.options import Origin
from attnviz.core.query import Picture, Query
from attnviz.core.records import dataclass, replace
from attnviz.core.writers import WrittenText
from attnviz.features.vision.architectures import VISION_ARCHITECTURES, embed_patches
from attnviz.features.vision.pictures import MOST_PIXELS
from attnviz.features.vision.vision_model import VisionModel
from attnviz.models.hugging_face import light_model, light_opening
from attnviz.models.hugging_face.load.checkpoint import read_json
from attnviz.models.hugging_face.load.family import likeliest_class
from attnviz.models.light import network, vectors
from attnviz.models.light.architecture import PATCHES
from attnviz.models.light.weights import StoredWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image


CLASSIFIER = "ForImageClassification"
Side = Annotated[int, Meta(ge=1, le=MOST_PIXELS)]


class LightProcessor(Struct, forbid_unknown_fields=True):
    """What `pixels` and `seen_box` ask of a processor of transformers that uses Pillow."""

    image_processor_type: Annotated[str, Meta(pattern="^(ViT|Bit)ImageProcessor(Fast)?$")]
    do_resize: bool
    do_rescale: bool
    do_normalize: bool
    rescale_factor: float
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]
    size: dict[str, Side]
    crop_size: dict[str, Side] | None = None
    do_center_crop: bool | UnsetType | None = UNSET
    do_convert_rgb: bool | None = None
    resample: Annotated[int, Meta(ge=0, le=5)] = -1  # left out

    def __call__(self, picture: Image, **changes: Any) -> dict[str, NDArray[np.float32]]:
        """The numbers of a picture, resized, cut and normalised in this order."""
        size, (width, height) = changes.get("size", self.size), picture.size
        new_size = size.get("width"), size.get("height")
        if shortest := size.get("shortest_edge"):
            long = int(shortest * max(width, height) / min(width, height))
            new_size = (shortest, long) if width <= height else (long, shortest)
        pixels = np.asarray(picture.resize(new_size, self.resample))
        if self.crop_size and changes.get("do_center_crop", self.do_center_crop):
            high, wide = self.crop_size["height"], self.crop_size["width"]
            top, left = (pixels.shape[0] - high) // 2, (pixels.shape[1] - wide) // 2
            pixels = pixels[top : top + high, left : left + wide]
        if self.do_rescale:
            pixels = pixels.astype(np.float64) * self.rescale_factor
        pixels = pixels.astype(np.float32)
        if self.do_normalize:
            mean, spread = np.asarray([self.image_mean, self.image_std], np.float32)
            pixels = (pixels - mean) / spread
        return {"pixel_values": pixels.transpose(2, 0, 1)[None]}


def load_light_processor(folder: Path) -> LightProcessor:
    """The processor in a folder.

    Raises:
        UnknownArchitecture: transformers may make other pixels of a picture.
    """
    if find_spec("torchvision") or (folder / "processor_config.json").is_file():
        raise network.UnknownArchitecture(
            "torchvision or a processor of other inputs reads its pictures"
        )
    try:
        reader = convert(read_json(folder / "preprocessor_config.json"), LightProcessor)
    except (ModelError, OSError, ValidationError) as error:
        raise network.UnknownArchitecture(f"its image processor is not known: {error}") from error
    cuts = reader.image_processor_type.startswith("Bit")  # what its class does by itself
    reader.do_center_crop = cuts if reader.do_center_crop is UNSET else reader.do_center_crop
    reader.resample = (3 if cuts else 2) if reader.resample < 0 else reader.resample
    crop = (reader.crop_size or {}) if reader.do_center_crop else {}
    if (
        not (reader.do_resize and all(reader.image_std))
        or reader.size.keys() not in ({"height", "width"}, {"shortest_edge"})
        or crop.keys() != ({"height", "width"} if reader.do_center_crop else set())
        or max(crop.values(), default=0) > min(reader.size.values())
    ):
        raise network.UnknownArchitecture("its image processor has sizes that are not known")
    return reader


def cubic_weights(before: int, after: int) -> NDArray[np.float32]:
    """How each of some numbers in a row mixes those of another, cubically, (after, before).

    Keys 1981 with a = −0.75; numbers repeat beyond the ends.
    """
    places = (np.arange(after) + 0.5) * (before / after) - 0.5
    first = np.floor(places).astype(int)
    weights = np.zeros((after, before), np.float32)
    for step in (-1, 0, 1, 2):
        far = abs(places - first - step)
        near, beyond = (1.25 * far - 2.25) * far**2 + 1, ((3.75 - 0.75 * far) * far - 6) * far + 3
        sources = np.clip(first + step, 0, before - 1)
        np.add.at(weights, (np.arange(after), sources), np.where(far <= 1, near, beyond))
    return weights


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LightVisionModel(VisionModel, network.Network):
    """A pretrained vision model that numpy runs."""

    whole: light_model.WholeModel[VisionModel]
    kind: str  # the class of transformers
    sizes: network.Shape
    streams: Mapping[str, str]
    weights: network.Weights
    head: network.Weights | None  # of a classifier
    labels: tuple[str, ...]

    def _attend_one(self, query: Query) -> Attention:
        try:
            return self._run(query, None)
        except network.UnknownArchitecture as reason:
            return self.whole(str(reason))._attend_one(query)

    def experiment(self, query: Query, target: str | None = None) -> Any:
        """The model with a picture before it, to be run with parts of it switched off."""
        return self.whole("effects and gradients are torch's").experiment(query, target)

    def trace_writers(self, query: Query) -> WrittenText:
        """A picture with what each part of the model writes."""
        return self.whole("what is written of pictures is torch's").trace_writers(query)

    def values(self, query: Query) -> ValueVectors:
        """The value vectors of each head at each patch."""
        record = network.Record()
        try:
            return vectors.value_vectors(self, self._run(query, record), record)
        except network.UnknownArchitecture as reason:
            return self.whole(str(reason)).values(query)

    def _inputs(self, picture: Picture) -> tuple[dict[str, Any], tuple[int, int]]:
        if picture.image.mode != "RGB" or "transparency" in picture.image.info:
            raise network.UnknownArchitecture(
                "the picture is not of the colours red, green and blue alone"
            )
        values = self._pixels(picture)
        (rows, row), (columns, column) = (divmod(n, self.sizes.patch) for n in values.shape[2:])
        if row or column or rows * columns >= light_model.MOST_TOKENS:
            many = f"the picture has more than {light_model.MOST_TOKENS} tokens"
            raise network.UnknownArchitecture("patches do not fill it" if row or column else many)
        return {"pixel_values": values}, (rows, columns)

    def _count_tokens(self, inputs: dict[str, Any]) -> int:
        return 1 + int(inputs["pixel_values"][0, 0].size) // self.sizes.patch**2

    def _run(self, query: Query, record: network.Record | None) -> Attention:
        """The maps and the decision of one pass; each attention is added to those seen."""
        encoding = self.encode(self.picture(query))
        inputs = self.inputs(encoding.inputs["pixel_values"])
        with np.errstate(all="ignore"):
            states, layers = self.forward(self.weights, inputs, record)
        attention = encoding.build_attention([light_model.capture_layers("self", layers["self"])])
        if self.head is None:
            return attention
        scores = self.scores(self.head, states)[0]
        result = attention.with_maps(attention.maps, settings=likeliest_class(scores, self.labels))
        return replace(result, decision=str(result.provenance.settings[DECISION]))

    def inputs(self, feed: NDArray[np.float32]) -> network.Stacks:
        values, shape = feed.transpose(0, 2, 3, 1), self.sizes
        rows, columns = (side // shape.patch for side in values.shape[1:3])
        positions = self.weights[f"{PATCHES}.position_embeddings"]
        if (rows, columns) != (shape.patches, shape.patches):
            edge, size = isqrt(positions.shape[1] - 1), positions.shape[2]
            square = positions[0, 1:].reshape(edge, edge, size)
            down = np.tensordot(cubic_weights(edge, rows), square, 1)
            grid = cubic_weights(edge, columns) @ down
            positions = np.concatenate([positions[0, :1], grid.reshape(-1, size)])[None]
        return (embed_patches(self.weights, shape, values, PATCHES, positions)[0],)

    def scores(self, weights: network.Weights, states: Any) -> Any:
        width = weights["classifier.weight"].shape[1]
        both = np.concatenate([states[0], states[1:].mean(0)])  # ViT reads the class token alone
        return network.linear_map(weights, "classifier", both[None, :width])


def open_light_vision(
    origin: Origin, name: str, load_whole: Callable[[], VisionModel], *, with_head: bool = False
) -> LightVisionModel:
    """A vision model that numpy runs, `load_whole` loads it for what numpy cannot do."""
    needs = {light_model.GRADIENTS: with_head}
    light = light_opening.open_checkpoint(origin, name, needs, rows=VISION_ARCHITECTURES)
    about, config = light.architecture, light.checkpoint.config
    labels, head, kind = tuple[str, ...](), None, about.model
    if str((config.get("architectures") or ("",))[0]).endswith(CLASSIFIER):
        kind = about.model.removesuffix("Model") + CLASSIFIER
        labels, head = _classifier_of(light, 2 if about.shape.attention.scale else 1)
    return LightVisionModel(
        name=name,
        model=SimpleNamespace(
            config=SimpleNamespace(model_type=config["model_type"], patch_size=light.shape.patch),
            modules=tuple,  # so that it attends in no windows
        ),
        processor=load_light_processor(light.folder),
        provenance=light_opening.describe_light(name, light, kind),
        whole=light_model.WholeModel(load_whole, origin.arithmetic == "light"),
        kind=kind,
        sizes=light.shape,
        streams={"self": f"{light.shape.layer}.{light.shape.attention.name}"},
        weights=light.weights,
        head=head,
        labels=labels,
    )


def _classifier_of(
    light: light_opening.LightCheckpoint, parts: int
) -> tuple[tuple[str, ...], network.Weights]:
    """The classes and the weights of a classifier that reads some states side by side."""
    config, head = light.checkpoint.config, StoredWeights(light.checkpoint.files)
    names = config.get("id2label") or {}
    labels = tuple(str(names.get(str(number), "")) for number in range(len(names)))
    sizes = [head.contents.get(f"classifier.{end}", {}).get("shape") for end in ("weight", "bias")]
    one = config.get("problem_type") in (None, "single_label_classification")
    width = parts * light.shape.size
    if (
        not one
        or len(labels) < 2
        or not all(labels)
        or sizes != [[len(labels), width], [len(labels)]]
    ):
        raise network.UnknownArchitecture("its classifier is not one of classes by their names")
    return labels, head
