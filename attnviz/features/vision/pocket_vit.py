"""The shipped picture model as a source: it sees flat shapes and names the odd one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import DECISION, Attention, AttentionMap, Token
from attnviz.core.errors import UsageError
from attnviz.core.query import Query
from attnviz.core.registry import ANSWERS, STACK
from attnviz.core.tokens import patch_tokens
from attnviz.features.vision.architectures import VIT_ROW, embed_patches
from attnviz.features.vision.pictures import SIDE, over_patches, picture_of
from attnviz.mechanisms.arrays import Array, stack_layers, to_numpy
from attnviz.models.hugging_face.load.family import likeliest_class
from attnviz.models.light import architectures, network
from attnviz.models.pocket import card, stored, text

if TYPE_CHECKING:
    from PIL.Image import Image

    from attnviz.core.writers import WriterKind

FOLDER = card.CARDS["pocket-vit"]  # loads as ViTForImageClassification


def load_pocket_vit(
    *, device: str = "auto", dtype: str | None = None, folder: Path = FOLDER
) -> PicturePocket:
    """The small trained vision transformer that ships with the package."""
    return PicturePocket(folder, **stored.device_options(device, dtype))


EMBEDDINGS = "vit.embeddings"


def vision_shape(config: Mapping[str, Any]) -> network.Shape:
    """The shape that a configuration of ViT asks for, for weights with their head."""
    return architectures.with_prefix(VIT_ROW.shape_of(config), VIT_ROW.prefix)


class PicturePocket(stored.StoredModel):
    """The picture model, loaded.

    It squeezes a picture into a square. Its stream is "self", over a class token and patches. It
    names the shape of the object whose colour no other has.
    """

    answers = ANSWERS["pocket-vit"]

    name = "pocket-vit"
    sizes: network.Shape
    output = "classifier"
    decides = True
    streams = {"self": "vit.encoder.layer.{}.attention"}  # noqa: RUF012

    def __init__(self, folder: Path, **options: str) -> None:
        super().__init__(folder, **options)
        self.sizes, names = vision_shape(self.config), self.config["id2label"]
        self.labels = tuple(names[str(number)] for number in range(len(names)))

    def inputs(self, feed: NDArray[np.float32]) -> tuple[Array]:
        pixels = self.weights.convert(feed)[None]
        return (embed_patches(self.weights, self.sizes, pixels, EMBEDDINGS)[0],)

    def stacks(self, feed: NDArray[np.float32]) -> list[Any]:
        stack = STACK.load()
        whole, position = self.inputs(feed)[0], self.weights[f"{EMBEDDINGS}.position_embeddings"]
        embeddings: dict[WriterKind, Array] = {"embedding": whole - position[0]}
        return [stack(self.weights, self.sizes, "self", embeddings | {"position": position[0]})]

    def spell(self, number: int) -> str:
        return str(self.labels[number])

    def read(self, query: Query) -> tuple[NDArray[np.float32], Attention]:
        """A picture's pixels as the model takes them, and its maps with the decision."""
        picture, side, count = picture_of(query, self.name), self.sizes.side, self.sizes.patches
        if picture.size not in (None, (side, side)):
            raise UsageError(f"'{self.name}' reads {side} × {side} pixels: leave --image-size out")
        pixels = square_pixels(picture.image, side)
        states, layers = self.forward(self.weights, self.inputs(pixels))
        scores = to_numpy(self.scores(self.weights, states[:1]))[0].astype(np.float64)
        settings = likeliest_class(scores, self.labels) | {
            "pixels": f"{side} × {side}",
            "patches": f"{count} × {count}",
        }
        tokens = Token("[CLS]", special=True), *patch_tokens(count, count)
        names = tuple(map(str, range(self.sizes.layers)))
        item: AttentionMap = over_patches(names, stack_layers(layers["self"]), tokens, tokens)
        region = (0.0, 0.0, float(picture.image.width), float(picture.image.height))
        provenance = self.provenance(tuple(self.notes(pixels)), settings)
        decision = settings[DECISION]
        return pixels, Attention((item,), provenance, seen=region, decision=decision)

    def notes(self, pixels: NDArray[np.float32]) -> list[str]:
        """A note where a picture is no flat drawing: most of its neighbouring pixels differ."""
        share, least = flat_share(pixels), self.origin["limits"]["flat"]
        if share >= least:
            return []
        what = f"{share:.0%} of neighbouring pixels are alike, in flat drawings more than"
        return text.outside_note(f"the {SIDE}", self.name, [f"{what} {least:.0%}"])


def square_pixels(image: Image, side: int) -> NDArray[np.float32]:
    """Red, green and blue from −1 to 1 of a picture squeezed into a square, (side, side, 3)."""
    from PIL.Image import Resampling

    small = np.asarray(image.convert("RGB").resize((side, side), Resampling.BILINEAR))
    return small.astype(np.float32) / np.float32(127.5) - 1


def flat_share(pixels: NDArray[np.float32]) -> float:
    """The share of neighbouring pixels whose colours differ by less than 3 of 255 everywhere."""
    steps = (np.abs(np.diff(pixels, axis=axis)).max(-1) < 3 / 127.5 for axis in (0, 1))
    return float(np.mean([step.mean() for step in steps]))
