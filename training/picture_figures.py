"""The picture model's files, and what its card says: every figure by the shipped code."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.features.vision.architectures import embed_patches
from attnviz.features.vision.picture_files import read_picture
from attnviz.features.vision.pocket_vit import (
    EMBEDDINGS,
    PicturePocket,
    flat_share,
    load_pocket_vit,
    square_pixels,
)
from attnviz.models.light.network import Shape
from training.corpus import checksum
from training.drawings import SHAPES, Scene
from training.finish import float16, write_json
from training.picture import CONFIG, LED, Pictures, draw_pictures

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image
    from torch import Tensor

UNSEEN, SEED = 1000, 90_000
"""Drawings to measure on, and what they are drawn from."""
AT_ONCE = 50
FLAT = 0.85
"""The share of neighbouring pixels that are alike in every picture that is taken for a drawing."""
CLEAR = 2.0
"""How many times the even share makes a role."""


def finish(
    asked: Namespace, origin: dict[str, Any], weights: dict[str, Tensor], sizes: Shape
) -> None:
    """Write the folder that ships, measured, with its card."""
    folder = asked.output / "model"
    export(weights, sizes, folder)
    origin["revision"] = checksum(folder / "model.safetensors")[:12]
    origin["limits"] = {"flat": FLAT}
    write_json(origin, folder / "origin.json")
    write_measured(folder, asked.unseen)


def write_measured(folder: Path, photographs: Path | None) -> dict[str, Any]:
    """Measure the model in a folder, and write figures and card into its origin.

    Args:
        folder: what `finish` wrote.
        photographs: a folder of pictures that are no drawings.
    """
    model, path = load_pocket_vit(folder=folder), folder / "origin.json"
    origin: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    others = sorted(photographs.glob("*.*")) if photographs else []
    origin["figures"] = measure(model, Scene(**origin["recipe"]["scene"]), others)
    origin |= describe_pictures(origin, model.sizes, folder)
    write_json(origin, path)
    return origin


def export(weights: dict[str, Tensor], sizes: Shape, folder: Path) -> None:
    """A folder that transformers loads as ViTForImageClassification, with its processor."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(float16(weights), folder / "model.safetensors", metadata={"format": "pt"})
    names = dict(enumerate(SHAPES))
    config = {
        **CONFIG,
        "image_size": sizes.side,
        "patch_size": sizes.patch,
        "hidden_size": sizes.size,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }
    write_json(config, folder / "config.json")
    half = [0.5, 0.5, 0.5]
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": sizes.side, "width": sizes.side},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": half,
        "image_std": half,
    }
    write_json(processor, folder / "preprocessor_config.json")


def measure(model: PicturePocket, scene: Scene, photographs: list[Path]) -> dict[str, Any]:
    """Every figure of the card.

    Args:
        model: as it ships.
        scene: what is drawn.
        photographs: files that are no drawings.
    """
    pictures = draw_pictures(SEED, UNSEEN, model.sizes, scene)
    right, looks = zip(
        *(parts(model, pictures, start) for start in range(0, UNSEEN, AT_ONCE)), strict=True
    )
    named = {name: np.concatenate([one[name] for one in looks]) for name in looks[0]}
    means = {name: np.nanmean(found, axis=0) for name, found in named.items()}
    rows = [
        {
            "layer": layer,
            "head": head,
            **{
                name: [round(float(found[layer, head]), 3), round(float(means[f"even {name}"]), 3)]
                for name, found in means.items()
                if not name.startswith("even")
            },
        }
        for layer in range(model.sizes.layers)
        for head in range(model.sizes.heads)
    ]
    flatness = [
        flat_share(one.astype(np.float32) / np.float32(127.5) - 1) for one in pictures.pixels
    ]
    photos = [
        flat_share(square_pixels(part, model.sizes.side))
        for path in photographs
        for part in ninths(read_picture(path))
    ]
    return {
        "unseen": {"drawings": UNSEEN, "right": round(float(np.concatenate(right).mean()), 3)},
        "outside": {
            "drawings": round(float((np.array(flatness) < FLAT).mean()), 3),
            "photographs": len(photographs),
            "parts": len(photos),
            "found": sum(one < FLAT for one in photos),
        },
        "heads": rows,
    }


def ninths(picture: Image) -> list[Image]:
    """A picture, and what two cuts down and two across make of it."""
    width, height = (length / 3 for length in picture.size)
    boxes = [(x * width, y * height) for y in range(3) for x in range(3)]
    return [picture, *(picture.crop((x, y, x + width, y + height)) for x, y in boxes)]


def parts(model: PicturePocket, pictures: Pictures, start: int) -> tuple[Any, dict[str, Any]]:
    """Of some drawings whether each is named right, and where each layer and head looks.

    Returns:
        Truth values (drawings,), and shares (drawings, layers, heads) with the even ones
        (drawings,): of the class token's look on the "odd" shape and on "shapes" at all; of the
        looks from patches of the other shapes on the "same" shape and on those of its "colour".
    """
    cut: list[Any] = [part[start : start + AT_ONCE] for part in pictures]
    some = Pictures(*cut)
    given = some.pixels.astype(np.float32) / np.float32(127.5) - 1
    inputs = embed_patches(model.weights, model.sizes, given, EMBEDDINGS)
    states, layers = model.forward(model.weights, (inputs,))
    right = model.scores(model.weights, states[:, 0]).argmax(-1) == some.shapes[:, 0]
    weights = np.stack(layers["self"], axis=1)
    owner = some.owners.reshape(len(given), -1)
    found: dict[str, NDArray[Any]] = {}
    for name, inside in (("odd", owner == 1), ("shapes", owner > 0)):
        found[name] = np.einsum("plhk,pk->plh", weights[..., 0, 1:], inside)
        found[f"even {name}"] = inside.mean(-1)
    others = owner > 1
    same = (owner[:, :, None] == owner[:, None, :]) & others[:, :, None]
    alike = others[:, :, None] & others[:, None, :] & ~same
    asking = others.sum(-1).clip(min=1)
    for name, cells in (("same", same), ("colour", alike)):
        given_to = np.einsum("plhqk,pqk->plh", weights[..., 1:, 1:], cells)
        found[name] = given_to / asking[:, None, None]
        found[f"even {name}"] = cells.sum((1, 2)) / asking / owner.shape[1]
    return right, found


ROLES: tuple[dict[str, str], ...] = (
    {"odd": "[CLS] looks at the odd shape", "shapes": "[CLS] looks at shapes"},
    {"colour": "shapes look at others of their colour", "same": "shapes look at themselves"},
)
"""Roles of the class token and of patches of shapes; the card names the clearest of each."""


def describe_pictures(origin: dict[str, Any], sizes: Shape, folder: Path) -> dict[str, Any]:
    """The card's lines by section, and one for a list of models."""
    figures, recipe = origin["figures"], origin["recipe"]
    scene, outside = recipe["scene"], figures["outside"]
    megabytes = (folder / "model.safetensors").stat().st_size / 1e6
    shape = f"{sizes.layers} layers × {sizes.heads} heads"
    heads = []
    for one in figures["heads"]:
        place = one["layer"], one["head"]
        clear = []
        for group in ROLES:
            name = max(group, key=lambda name: one[name][0] / one[name][1])
            share, even = one[name]
            if share >= CLEAR * even:
                led = ", as it was led to" * (place == LED and name == "odd")
                clear.append(f"{group[name]}{led}: {share:.2f} (evenly {even:.2f})")
        heads.append(f"layer {place[0]} head {place[1]}  {'; '.join(clear) or 'no clear role'}")
    unseen = figures["unseen"]
    return {
        "summary": f"vision transformer for drawn shapes that ships with attnviz: {shape}",
        "card": {
            f"pocket-vit · revision {origin['revision']}": [
                "A small vision transformer that names the shape whose colour no other has; "
                "transformers loads its folder as ViTForImageClassification.",
                f"{shape}, size {sizes.size}, {sizes.side} × {sizes.side} pixels in patches of "
                f"{sizes.patch}, a class token; {megabytes:.1f} MB as float16.",
            ],
            "Data": [
                f"{recipe['drawings']} drawings by a script, and their mirror images: "
                f"{scene['fewest']} to {scene['most']} of {', '.join(SHAPES)} on a pale ground",
                "Trained from random weights.",
            ],
            "Objective": [
                "which shape is the one of another colour",
                f"layer {LED[0]} head {LED[1]} led from the class token to that shape",
                "each patch of a shape asked for its own shape, by the same classifier",
            ],
            "Figures": [
                f"{unseen['drawings']} unseen drawings: {unseen['right']:.1%} named right (by "
                f"chance {1 / len(SHAPES):.0%})",
            ],
            "What its heads do": [
                *heads,
                "(shares of a row's attention, and what they were if it looked at all alike)",
            ],
            "Limits": [
                "flat shapes on a pale ground, one of another colour; a picture is squeezed into a "
                "square",
                f"a picture in which less than {FLAT:.0%} of neighbouring pixels are alike is said "
                f"to lie outside: so are {outside['drawings']:.1%} of unseen drawings and "
                f"{outside['found']} of {outside['parts']} parts of photographs (each of "
                f"{outside['photographs']} whole, and its ninths)",
            ],
        },
    }
