"""A vision checkpoint that numpy runs: its attention over patches, without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import isqrt, prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import DECISION, Attention, check_finite
from attnviz.core.errors import ModelError
from attnviz.core.lens_inputs import ValueVectors
from attnviz.core.options import Origin
from attnviz.core.query import Picture, Query
from attnviz.mechanisms.arrays import softmax
from attnviz.models.hugging_face.capture.capture import Captured
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.light_model import (
    MOST_TOKENS,
    ROUTE,
    LightCheckpoint,
    WholeModel,
    describe_light,
    open_checkpoint,
    value_vectors,
)
from attnviz.models.hugging_face.load.checkpoint import read_json
from attnviz.models.hugging_face.load.tasks import describe_classes
from attnviz.models.hugging_face.vision.pictures import MOST_PIXELS, SIDE
from attnviz.models.hugging_face.vision.vision import VisionModel
from attnviz.models.light.architectures import PATCHES
from attnviz.models.light.network import (
    Attended,
    Shape,
    UnknownArchitecture,
    Weights,
    embed_patches,
    linear_map,
    run_layers,
)
from attnviz.models.light.weights import CheckpointWeights, StoredWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from attnviz.models.hugging_face.experiment import ModelExperiment

CLASSIFIER = "ForImageClassification"
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": {"resample": 2, "do_center_crop": None},
    "BitImageProcessor": {"resample": 3},
}
"""The processors that are known, and their settings where a file leaves them out."""
SWITCHES = ("do_center_crop", "do_convert_rgb", "do_normalize", "do_rescale", "do_resize")
SETTINGS = ("crop_size", "image_mean", "image_std", "resample", "rescale_factor", "size")


class LightProcessor(SimpleNamespace):
    """What `pixels` and `seen_box` ask of a processor of transformers that uses Pillow."""

    def __call__(self, picture: Image, **changes: Any) -> dict[str, NDArray[np.float32]]:
        """The numbers of a picture, resized, cut and normalised in this order."""
        size, (width, height) = changes.get("size", self.size), picture.size
        wanted = size.get("width"), size.get("height")
        if shortest := size.get("shortest_edge"):
            long = int(shortest * max(width, height) / min(width, height))
            wanted = (shortest, long) if width <= height else (long, shortest)
        found = np.asarray(picture.resize(wanted, self.resample))
        if changes.get("do_center_crop", self.do_center_crop):
            high, wide = self.crop_size["height"], self.crop_size["width"]
            top, left = (found.shape[0] - high) // 2, (found.shape[1] - wide) // 2
            found = found[top : top + high, left : left + wide]
        if self.do_rescale:
            found = found.astype(np.float64) * self.rescale_factor
        found = found.astype(np.float32)
        if self.do_normalize:
            mean, spread = np.asarray([self.image_mean, self.image_std], np.float32)
            found = (found - mean) / spread
        return {"pixel_values": found.transpose(2, 0, 1)[None]}


def load_light_processor(folder: Path) -> LightProcessor:
    """The processor in a folder.

    Raises:
        UnknownArchitecture: transformers may make other pixels of a picture.
    """
    if find_spec("torchvision") or (folder / "processor_config.json").is_file():
        raise UnknownArchitecture("torchvision or a processor of other inputs reads its pictures")
    try:
        given = dict(read_json(folder / "preprocessor_config.json"))
    except (ModelError, OSError, TypeError, ValueError) as error:
        raise UnknownArchitecture("its image processor cannot be read") from error
    named = str(given.pop("image_processor_type", "nothing known"))
    if (usual := PROCESSORS.get(named.removesuffix("Fast"))) is None:
        raise UnknownArchitecture(f"its pictures are read by {named}")
    if unknown := given.keys() - {*SWITCHES, *SETTINGS}:
        raise UnknownArchitecture(f"its image processor has the key '{min(unknown)}'")
    found = LightProcessor(**{"crop_size": None, "do_convert_rgb": None, **usual, **given})
    try:
        size, crop = found.size, found.crop_size if found.do_center_crop else {}
        floats = [found.rescale_factor, *found.image_mean, *found.image_std]
        known = (
            {getattr(found, name) for name in SWITCHES} <= {True, False, None}
            and found.do_resize
            and size.keys() in ({"height", "width"}, {"shortest_edge"})
            and crop.keys() == ({"height", "width"} if found.do_center_crop else set())
            and all(type(one) is int and 0 < one <= MOST_PIXELS for one in size.values())
            and all(type(one) is int and 0 < one <= min(size.values()) for one in crop.values())
            and [type(one) in (int, float) for one in floats] == [True] * 7
            and all(found.image_std)
            and found.resample in range(6)
        )
    except (AttributeError, TypeError):
        known = False
    if not known:
        raise UnknownArchitecture("its image processor has settings that are not known")
    return found


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


def resize_positions(learned: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
    """Positions of a class token and a square of patches for another number of patches."""
    side, size = isqrt(learned.shape[1] - 1), learned.shape[2]
    square = learned[0, 1:].reshape(side, side, size)
    down = np.tensordot(cubic_weights(side, rows), square, 1)
    found = cubic_weights(side, columns) @ down
    return np.concatenate([learned[0, :1], found.reshape(-1, size)])[None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LightVisionModel(VisionModel):
    """A pretrained vision model that numpy runs."""

    whole: WholeModel
    kind: str  # the class of transformers
    shape: Shape
    weights: CheckpointWeights
    head: Weights | None  # of a classifier
    labels: tuple[str, ...]

    def _attend_one(self, query: Query) -> Attention:
        try:
            return self._run(self._read(query), [])
        except UnknownArchitecture as reason:
            found: Attention = self.whole(str(reason))._attend_one(query)
            return found

    def experiment(self, query: Query, wanted: str | None = None) -> ModelExperiment:
        """The model with a picture before it, to be run with parts of it switched off."""
        whole: VisionModel = self.whole("effects and gradients are torch's")
        return whole.experiment(query, wanted)

    def values(self, query: Query) -> ValueVectors:
        """The value vectors of each head at each patch."""
        seen = list[Attended]()
        try:
            attention = self._run(self._read(query), seen)
        except UnknownArchitecture as reason:
            found: ValueVectors = self.whole(str(reason)).values(query)
            return found
        return value_vectors(self.weights, self.shape, attention, seen)

    def _read(self, query: Query) -> EncodedQuery:
        picture = self._picture(query)
        if picture.image.mode != "RGB" or "transparency" in picture.image.info:
            raise UnknownArchitecture("the picture has not the colours red, green and blue alone")
        encoded = self._encode(picture)
        if any(side % self.shape.patch for side in encoded.inputs["pixel_values"].shape[2:]):
            raise UnknownArchitecture("its patches do not fill the picture")
        if len(encoded.tokens[SIDE]) > MOST_TOKENS:
            raise UnknownArchitecture(f"a picture has more than {MOST_TOKENS} tokens")
        return encoded

    def _inputs(self, picture: Picture) -> tuple[dict[str, Any], tuple[int, int]]:
        values = self._pixels(picture)
        return {"pixel_values": values}, self._grid(values)

    def _grid(self, values: NDArray[np.float32]) -> tuple[int, int]:
        return values.shape[2] // self.shape.patch, values.shape[3] // self.shape.patch

    def _count_tokens(self, inputs: dict[str, Any]) -> int:
        return 1 + prod(self._grid(inputs["pixel_values"]))

    def _run(self, encoded: EncodedQuery, seen: list[Attended]) -> Attention:
        """The maps and the decision of one pass; each attention is added to those seen."""

        def watch(one: Attended) -> Any:
            seen.append(one)
            return one.output

        shape, values = self.shape, encoded.inputs["pixel_values"]
        positions = self.weights[f"{PATCHES}.position_embeddings"]
        if self._grid(values) != (shape.patches, shape.patches):
            positions = resize_positions(positions, *self._grid(values))
        with np.errstate(all="ignore"):
            turned = values.transpose(0, 2, 3, 1)
            (inputs,) = embed_patches(self.weights, shape, turned, PATCHES, positions)
            states, own, _ = run_layers(self.weights, shape, inputs, watch=watch)
        names, heads = tuple(map(str, range(len(own)))), tuple(map(str, range(shape.heads)))
        weights = np.stack(own)
        check_finite(weights, "self", names, heads, "float32", "the attention")
        found = encoded.build_attention([Captured("self", names, weights, route=ROUTE)])
        if self.head is None:
            return found
        parts = [states[0], states[1:].mean(0)][
            : self.head["classifier.weight"].shape[1] // shape.size
        ]
        shares = softmax(linear_map(self.head, "classifier", np.concatenate(parts)[None])[0], None)
        facts = describe_classes(dict(zip(self.labels, shares.tolist(), strict=True)))
        made = found.with_maps(found.maps, settings=facts)
        return replace(made, decision=str(facts[DECISION]))


def open_light_vision(
    origin: Origin, name: str, load_whole: Callable[[], VisionModel], *, with_head: bool = False
) -> LightVisionModel:
    """A vision model that numpy runs, `load_whole` loads it for what numpy cannot do.

    Raises:
        UnknownArchitecture: why transformers has to load it.
        ModelError: it cannot be loaded at all.
    """
    needs = {"gradients and effects need torch": with_head}
    found = open_checkpoint(origin, name, needs, of_pictures=True)
    about, config = found.architecture, found.stored.config
    labels, head, kind = tuple[str, ...](), None, about.model
    if ((config.get("architectures") or ("",))[0]).endswith(CLASSIFIER):
        kind = about.model.removesuffix("Model") + CLASSIFIER
        labels, head = _classifier_of(found, 2 if about.shape.attention.scale else 1)
    return LightVisionModel(
        name=name,
        model=SimpleNamespace(
            config=SimpleNamespace(model_type=found.kind, patch_size=found.shape.patch),
            modules=tuple,  # so that it attends in no windows
        ),
        processor=load_light_processor(found.folder),
        provenance=describe_light(name, found, kind),
        whole=WholeModel(load_whole, origin.arithmetic == "light"),
        kind=kind,
        shape=found.shape,
        weights=found.weights,
        head=head,
        labels=labels,
    )


def _classifier_of(found: LightCheckpoint, parts: int) -> tuple[tuple[str, ...], Weights]:
    """The classes and the weights of a classifier that reads some states side by side."""
    config, head = found.stored.config, StoredWeights(found.stored.files)
    names = config.get("id2label") or {}
    labels = tuple(str(names.get(str(number))) for number in range(len(names)))
    sizes = [head.contents.get(f"classifier.{end}", {}).get("shape") for end in ("weight", "bias")]
    one = config.get("problem_type") in (None, "single_label_classification")
    width = parts * found.shape.size
    if not one or len(labels) < 2 or sizes != [[len(labels), width], [len(labels)]]:
        raise UnknownArchitecture("its classifier is not one of classes by their names")
    return labels, head
