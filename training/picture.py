"""The picture model's recipe: drawings in which the shape of a colour of its own is to be named.

To find it a model has to compare colours all over the picture, then to look at one place. One head
of the last layer is led there: the class token's, to the patches of the odd shape. Every patch of a
shape is asked for its shape as well, so that it gathers what belongs to it.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attnviz.features.vision.architectures import embed_patches
from attnviz.features.vision.pocket_vit import EMBEDDINGS, vision_shape
from attnviz.models.light.network import Shape, linear_map, run_layers
from training.batches import IGNORED
from training.drawings import SHAPES, Scene, draw, of_patches
from training.finish import origin_of
from training.loop import Reporter, Run
from training.stages import follow, settings_of, start

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

CONFIG: dict[str, Any] = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "image_size": 80,
    "patch_size": 8,
    "num_channels": 3,
    "hidden_size": 96,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "dtype": "float16",
}
"""What ships, as transformers configures it."""
LED = (3, 0)
"""The layer and head whose class token is led to the odd shape."""
LED_SHARE, PATCHES_SHARE = 0.2, 0.5


@dataclass(frozen=True, slots=True)
class Recipe:
    """How pictures are made.

    Attributes:
        scene: what is drawn.
        drawings: how many, each shown mirrored or not.
    """

    scene: Scene = field(default_factory=Scene)
    drawings: int = 12_000


class Pictures(NamedTuple):
    """A batch.

    Attributes:
        pixels: bytes of shape (pictures, side, side, 3).
        shapes: which one each is, the odd one first, IGNORED behind the last; shape (pictures,
            most).
        owners: what each patch belongs to, shape (pictures, rows, columns).
    """

    pixels: NDArray[np.uint8]
    shapes: NDArray[np.int64]
    owners: NDArray[np.uint8]


class PictureLosses(NamedTuple):
    """In nats: what training follows, then the means of its parts."""

    total: Tensor
    shape: Tensor
    led: Tensor
    patches: Tensor


def draw_pictures(seed: int, count: int, sizes: Shape, scene: Scene) -> Pictures:
    """So many drawings, the same for the same seed."""
    random = np.random.default_rng(seed)
    found = [draw(random, sizes.side, scene) for _ in range(count)]
    return Pictures(
        np.stack([one.pixels for one in found]),
        np.array([one.shapes + [IGNORED] * (scene.most - len(one.shapes)) for one in found]),
        np.stack([of_patches(one.owner, sizes.patch) for one in found]),
    )


def batches(pictures: Pictures, seed: int, first: int, count: int) -> Iterator[Pictures]:
    """Batches without end, mirrored at random, the same for a seed wherever one starts."""
    while True:
        random = np.random.default_rng([seed, first])
        some = random.integers(len(pictures.shapes), size=count)
        mirrored = random.random() < 0.5

        pixels, owners = (
            part[some][:, :, :: 1 - 2 * mirrored].copy()
            for part in (pictures.pixels, pictures.owners)
        )
        yield Pictures(pixels, pictures.shapes[some], owners)
        first += 1


def losses(weights: dict[str, Tensor], sizes: Shape, batch: Pictures) -> PictureLosses:
    """Every loss of one batch, by the same forward pass that answers the command line."""
    device = weights["classifier.weight"].device
    pixels, expected, owners = (torch.from_numpy(part).to(device) for part in batch)
    embedded = embed_patches(weights, sizes, pixels / 127.5 - 1, EMBEDDINGS)
    states, shares, _ = run_layers(weights, sizes, embedded)
    scores, owner = linear_map(weights, "classifier", states).float(), owners.flatten(1).long()
    shape = cross_entropy(scores[:, 0], expected[:, 0])
    own = torch.where(owner > 0, expected.gather(1, (owner - 1).clamp(min=0)), IGNORED)
    patches = cross_entropy(scores[:, 1:].flatten(0, 1), own.flatten(), ignore_index=IGNORED)
    layer, head = LED
    look = shares[layer][:, head, 0, 1:].float()
    led = -torch.log((look * (owner == 1)).sum(-1) + 1e-6).mean()
    total = shape + LED_SHARE * led + PATCHES_SHARE * patches
    return PictureLosses(total, shape, led, patches)


def train(asked: Namespace, sizes: Shape | None = None, recipe: Recipe | None = None) -> None:
    """Train as the command line asks; None: the sizes and the recipe of what ships."""
    asked.output.mkdir(parents=True, exist_ok=True)
    sizes, recipe, settings = sizes or vision_shape(CONFIG), recipe or Recipe(), settings_of(asked)
    found = torch.compile(losses) if settings.compiled else losses
    run = Run(
        settings,
        start(asked.start_from, sizes, settings, first_weights),
        lambda weights, batch: found(weights, sizes, batch),
    )
    if asked.resume:
        run.resume(asked.output)
    with Reporter(settings, run.step) as reporter:
        reporter.note(f"drawing {recipe.drawings} pictures")
        pictures = draw_pictures(settings.seed, recipe.drawings, sizes, recipe.scene)
        source = batches(pictures, settings.seed, run.step, settings.pieces)
        if not follow(run, source, reporter, asked):
            return
    from training.picture_figures import finish

    finish(asked, origin_of(asked, settings, recipe), run.weights, sizes)


def shapes(sizes: Shape) -> dict[str, tuple[int, ...]]:
    """The shape of every learned array by name."""
    size, inner, patch = sizes.size, sizes.inner, sizes.patch
    found: dict[str, tuple[int, ...]] = {
        "vit.embeddings.cls_token": (1, 1, size),
        "vit.embeddings.position_embeddings": (1, 1 + sizes.patches**2, size),
        "vit.embeddings.patch_embeddings.projection.weight": (size, 3, patch, patch),
        "vit.embeddings.patch_embeddings.projection.bias": (size,),
    }

    def maps(name: str, outputs: int, inputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)

    for layer in (f"vit.encoder.layer.{number}" for number in range(sizes.layers)):
        for part in ("attention.query", "attention.key", "attention.value", "output.dense"):
            maps(f"{layer}.attention.{part}", size, size)
        maps(f"{layer}.intermediate.dense", inner, size)
        maps(f"{layer}.output.dense", size, inner)
        for norm in ("layernorm_before", "layernorm_after"):
            found |= dict.fromkeys((f"{layer}.{norm}.weight", f"{layer}.{norm}.bias"), (size,))
    found |= dict.fromkeys(("vit.layernorm.weight", "vit.layernorm.bias"), (size,))
    maps("classifier", len(SHAPES), size)
    return found


def first_weights(sizes: Shape, seed: int) -> dict[str, Tensor]:
    """Weights before any training: small normal ones, zero biases, norms that change nothing."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(sizes).items():
        if len(shape) > 1:
            inputs = int(np.prod(shape[1:])) if len(shape) != 3 else 2500
            weights[name] = torch.randn(shape, generator=generator) * inputs**-0.5
        else:
            weights[name] = torch.full(shape, float("norm" in name and name.endswith("weight")))
    return weights
