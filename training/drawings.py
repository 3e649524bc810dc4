"""Drawings of flat shapes on a pale ground in which one shape has a colour of its own."""

from __future__ import annotations

from colorsys import hsv_to_rgb
from dataclasses import dataclass
from math import cos, pi, sin
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

Points = list[tuple[float, float]]
FINE = 2
"""Drawn this many times as large and scaled down, so that edges come out smooth."""
ARM = 0.34


def star(points: int, inner: float, turn: float = -pi / 2) -> Points:
    """Corners that lie by turns on the unit circle and on an inner one."""
    steps = range(2 * points)
    return [
        (r * cos(turn + pi * n / points), r * sin(turn + pi * n / points))
        for n, r in ((n, (1.0, inner)[n % 2]) for n in steps)
    ]


def polygon(corners: int, turn: float = -pi / 2) -> Points:
    """Corners that lie evenly on the unit circle."""
    steps = range(corners)
    return [(cos(turn + 2 * pi * n / corners), sin(turn + 2 * pi * n / corners)) for n in steps]


SHAPES: dict[str, Points] = {
    "circle": polygon(40),
    "square": polygon(4, pi / 4),
    "triangle": polygon(3),
    "star": star(5, 0.42),
    "cross": [
        *((-ARM, -1.0), (ARM, -1.0), (ARM, -ARM), (1.0, -ARM), (1.0, ARM), (ARM, ARM)),
        *((ARM, 1.0), (-ARM, 1.0), (-ARM, ARM), (-1.0, ARM), (-1.0, -ARM), (-ARM, -ARM)),
    ],
    "moon": [
        *((cos(t), sin(t)) for t in np.linspace(pi / 3, 5 * pi / 3, 24)),
        *((0.5 + 0.87 * cos(t), 0.87 * sin(t)) for t in np.linspace(3 * pi / 2, pi / 2, 20)),
    ],
}
"""The corners of each shape, in a circle of radius 1."""


@dataclass(frozen=True, slots=True)
class Scene:
    """How drawings are made.

    Attributes:
        fewest: shapes in a drawing at least; so `most`.
        smallest: the radius of a shape at least, as a share of the picture's side; so `largest`.
        ground: the chance that a band of another pale colour lies at the bottom.
        apart: hue between the odd colour and the others' at least, of 1.
        similar: by how much the hue of the others differs among them, at most.
    """

    fewest: int = 3
    most: int = 6
    smallest: float = 0.11
    largest: float = 0.18
    ground: float = 0.5
    apart: float = 0.2
    similar: float = 0.025


class Drawing(NamedTuple):
    """A picture, which shape is the odd one, and where each shape is.

    Attributes:
        pixels: bytes of shape (side, side, 3).
        shapes: the number in `SHAPES` of each, the odd one's first.
        owner: what each pixel belongs to: 0 to the ground, 1 to the odd shape, then to the others;
            shape (side, side).
    """

    pixels: NDArray[np.uint8]
    shapes: list[int]
    owner: NDArray[np.uint8]


def draw(random: Generator, side: int, scene: Scene) -> Drawing:
    """One drawing of so many pixels a side."""
    size, names = side * FINE, list(SHAPES)
    places = spread(random, int(random.integers(scene.fewest, scene.most + 1)), scene)
    shapes = [names[number] for number in random.integers(len(names), size=len(places))]
    common = random.random()
    odd = common + scene.apart + (1 - 2 * scene.apart) * random.random()
    picture, owner = Image.new("RGB", (size, size), pale(random)), Image.new("L", (size, size))
    pens = [ImageDraw.Draw(layer) for layer in (picture, owner)]
    if random.random() < scene.ground:
        pens[0].rectangle((0, size * random.uniform(0.55, 0.85), size, size), fill=pale(random))
    for number, (name, (x, y, radius)) in enumerate(zip(shapes, places, strict=True), start=1):
        hue = common + random.uniform(-1, 1) * scene.similar if number > 1 else odd
        fills = color(hue % 1, random.uniform(0.5, 0.85), random.uniform(0.45, 0.85))
        turn = random.uniform(-0.4, 0.4)
        corners = place_shape(SHAPES[name], x * size, y * size, radius * size, turn)
        pens[0].polygon(corners, fill=fills)
        pens[1].polygon(corners, fill=number)
    small = picture.resize((side, side), Image.Resampling.BOX)
    where = owner.resize((side, side), Image.Resampling.NEAREST)
    return Drawing(np.array(small), list(map(names.index, shapes)), np.array(where))


def of_patches(owner: NDArray[np.uint8], patch: int, least: float = 0.2) -> NDArray[np.uint8]:
    """What most of each patch's shapes belongs to, 0 where they cover less than a share of it.

    Args:
        owner: of pixels, shape (side, side).
        patch: pixels of a patch's side.
        least: the share.

    Returns:
        Shape (rows, columns).
    """
    rows, columns = (length // patch for length in owner.shape)
    tiles = owner.reshape(rows, patch, columns, patch)
    covered = np.stack([(tiles == n).mean((1, 3)) for n in range(1, int(owner.max()) + 1)])
    found = np.where(covered.max(0) >= least, covered.argmax(0) + 1, 0)
    return found.astype(np.uint8)


def spread(random: Generator, count: int, scene: Scene) -> list[tuple[float, float, float]]:
    """Middles and radii of shapes that do not touch, as shares of the picture's side."""
    found: list[tuple[float, float, float]] = []
    while len(found) < count:
        radius = random.uniform(scene.smallest, scene.largest)
        for _ in range(200):
            x, y = random.uniform(radius + 0.01, 0.99 - radius, 2)
            if all(np.hypot(x - a, y - b) > radius + r + 0.01 for a, b, r in found):
                found.append((x, y, radius))
                break
        else:
            found.clear()
    return found


def place_shape(corners: Points, x: float, y: float, radius: float, turn: float) -> Points:
    """A shape's corners, turned, where it lies."""
    c, s = radius * cos(turn), radius * sin(turn)
    return [(x + a * c - b * s, y + a * s + b * c) for a, b in corners]


def pale(random: Generator) -> tuple[int, ...]:
    """A colour for the ground."""
    return color(random.random(), random.uniform(0, 0.14), random.uniform(0.84, 1))


def color(hue: float, saturation: float, value: float) -> tuple[int, ...]:
    """Red, green and blue, 0 to 255."""
    return tuple(round(255 * part) for part in hsv_to_rgb(hue, saturation, value))
