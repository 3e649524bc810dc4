"""Attention on the picture that it looks at: one head beside the picture, or every head at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.renderers.colors import INK, LABELLED, PAPER, Limits, colors_of, limits_of
from attnviz.renderers.figures.figure import (
    LINE,
    TEXT_SIZE,
    Frame,
    framed,
    ink,
    missing_note,
    points,
)
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.printable import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_LONGEST = 700
"""Pixels of the longer side of a picture that stands alone."""
_WIDEST_GRID, _TALLEST_GRID = 1700, 2000
_LARGEST_TILE, _SMALLEST_TILE = 260, 24
_GAP, _GRID_GAP = 24, 6
_SHOWS_THROUGH = 0.35
"""How much of the picture is left under the colours: enough to know where one is."""
_LUMINANCE = (0.2126, 0.7152, 0.0722)
_NOTE = "colours as on the bar, over the picture in grey"
_NAME_CELLS = 18


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The part of a picture that patches cover.

    Attributes:
        pixels: red, green and blue from 0 to 255, shape (height, width, 3).
        outlined: the patch that looks, if one does: its row and column, and how many there are.
    """

    pixels: NDArray[np.uint8]
    outlined: tuple[int, int, int, int] | None = None


def overlay(
    seen: Seen, weights: NDArray[np.float32], *, title: str, subtitle: str = "", unit: str
) -> Figure:
    """One head's attention over the picture, the picture itself beside it.

    Each patch has the colour of its weight, on a scale from 0 to 1, or to the next round number
    where none reaches a half; nothing is smoothed.

    Args:
        seen: the picture.
        weights: shares, shape (rows, columns) of patches.
        title: what was run.
        subtitle: more on it.
        unit: what a colour means.
    """
    limits = limits_of(weights, "share")
    face = typeface([title, subtitle, unit])
    picture = resized(seen.pixels, _LONGEST)
    height, width = picture.shape[:2]
    gap = np.full((height, _GAP, 3), 255, dtype=np.uint8)
    both = np.concatenate([picture, gap, blended(picture, weights, limits)], axis=1)
    frame = Frame(
        title=title,
        subtitle=subtitle,
        notes=(_NOTE, *missing_note(face)),
        unit=unit,
        limits=limits,
        face=face,
        left=0,
        top=0,
    )
    figure, axes = _pictured(both, frame)
    if seen.outlined is not None:
        for left in (0, width + _GAP):
            _outline(axes, seen.outlined, (height, width), (0, left), 1.3)
    return figure


def overlay_grid(
    seen: Seen,
    weights: NDArray[np.float32],
    *,
    layers: tuple[str, ...],
    heads: tuple[str, ...],
    title: str,
    subtitle: str = "",
    unit: str,
) -> Figure:
    """Every head of every layer over the picture, on one scale.

    Args:
        seen: the picture.
        weights: shares, shape (layers, heads, rows, columns); NaN where a layer has fewer heads.
        layers: a name for each layer, from top to bottom.
        heads: a name for each head, from left to right.
        title: what was run.
        subtitle: more on it.
        unit: what a colour means.
    """
    limits = limits_of(weights[np.isfinite(weights)], "share")
    face = typeface([title, subtitle, unit, *layers, *heads])
    down, across = len(layers), len(heads)
    room = min(_WIDEST_GRID // across - _GRID_GAP, _LARGEST_TILE)
    height, width = seen.pixels.shape[:2]
    room = min(room, int((_TALLEST_GRID // down - _GRID_GAP) * max(width / height, 1)))
    tile = resized(seen.pixels, max(room, _SMALLEST_TILE))
    high, wide = tile.shape[0] + _GRID_GAP, tile.shape[1] + _GRID_GAP
    image = np.full((down * high - _GRID_GAP, across * wide - _GRID_GAP, 3), 255, dtype=np.uint8)
    for layer, row in enumerate(weights):
        for head, patches in enumerate(row):
            if np.isfinite(patches).all():
                top, left = layer * high, head * wide
                image[top : top + tile.shape[0], left : left + tile.shape[1]] = blended(
                    tile, patches, limits
                )
    side_names = [shorten(face.drawable(name), _NAME_CELLS) for name in layers]
    name_room = int(points(LINE * TEXT_SIZE)) + 8
    frame = Frame(
        title=title,
        subtitle=subtitle,
        notes=(_NOTE, *missing_note(face)),
        unit=unit,
        limits=limits,
        face=face,
        left=int(max(face.width(name, TEXT_SIZE) for name in side_names)) + 14 + name_room,
        top=2 * name_room,
    )
    figure, axes = _pictured(image, frame)
    middles = [
        np.arange(count) * step + (step - _GRID_GAP) / 2
        for count, step in ((down, high), (across, wide))
    ]
    top_names = [shorten(face.drawable(name), _NAME_CELLS) for name in heads]
    _name_tiles(axes, middles[0], side_names, middles[1], top_names, face)
    if seen.outlined is not None:
        for layer, head in np.argwhere(np.isfinite(weights).all(axis=(2, 3))):
            corner = (layer * high, head * wide)
            _outline(axes, seen.outlined, tile.shape[:2], corner, 0.6)
    return figure


def blended(
    picture: NDArray[np.uint8], weights: NDArray[np.float32], limits: Limits
) -> NDArray[np.uint8]:
    """The picture in grey under the colours of its patches' weights."""
    rows = np.arange(picture.shape[0]) * weights.shape[0] // picture.shape[0]
    columns = np.arange(picture.shape[1]) * weights.shape[1] // picture.shape[1]
    colors = colors_of(weights, limits)[rows[:, None], columns]
    grey = (picture @ np.array(_LUMINANCE))[..., None]
    mixed: NDArray[np.uint8] = np.rint(
        (1 - _SHOWS_THROUGH) * colors + _SHOWS_THROUGH * grey
    ).astype(np.uint8)
    return mixed


def resized(picture: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    """The picture with its longer side of that many pixels."""
    from PIL import Image

    height, width = picture.shape[:2]
    scale = longest / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _pictured(image: NDArray[np.uint8], frame: Frame) -> tuple[Figure, Axes]:
    """The frame around a picture, each of whose pixels is one of the figure's."""
    height, width = image.shape[:2]
    figure, axes = framed(np.zeros((1, 1), dtype=np.float32), width, height, frame)
    axes.images[0].remove()
    axes.imshow(image, aspect="auto", interpolation="nearest")
    axes.spines[:].set_visible(False)
    return figure, axes


def _outline(
    axes: Axes,
    patch: tuple[int, int, int, int],
    size: tuple[int, ...],
    corner: tuple[int, int],
    line: float,
) -> None:
    """A frame around the patch that looks, orange on white, to be seen on any ground."""
    from matplotlib.patches import Rectangle

    row, column, rows, columns = patch
    high, wide = size[0] / rows, size[1] / columns
    place = (corner[1] + column * wide - 0.5, corner[0] + row * high - 0.5)
    looks: dict[str, Any] = {"fill": False, "gid": "looking patch"}
    for color, width in ((ink(PAPER), 2 * line), (ink(LABELLED), line)):
        axes.add_patch(Rectangle(place, wide, high, edgecolor=color, linewidth=width, **looks))


def _name_tiles(
    axes: Axes,
    rows: NDArray[np.float64],
    layers: list[str],
    columns: NDArray[np.float64],
    heads: list[str],
    face: Typeface,
) -> None:
    """Names of layers on the left, of heads on top."""
    font = face.font(TEXT_SIZE)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_yticks(rows, layers, fontproperties=font, parse_math=False)
    axes.set_xticks(columns, heads, fontproperties=font, parse_math=False)
    axes.tick_params(length=0, pad=3, labelcolor=ink(INK))
    axes.set_ylabel("layer", fontproperties=font, color=ink(INK), labelpad=3)
    axes.set_xlabel("head", fontproperties=font, color=ink(INK), labelpad=3)
