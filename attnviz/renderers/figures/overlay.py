"""Attention drawn over the picture it attends to: one head, every head, or one tile per word."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from attnviz.core.attention_map import Values
from attnviz.core.errors import UsageError
from attnviz.core.options import PictureScale
from attnviz.renderers.colors import GLOW, LABELLED, PAPER, Limits, colors_of, limits_of
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.figures.grid import GridSide, name_tiles, tile_room, write_largest
from attnviz.renderers.look import chosen_scale, chosen_table, look_option
from attnviz.renderers.printable import printable
from attnviz.storage.pictures import read_picture

_LONGEST = 700  # pixels of the longer side of a picture that stands alone
_WIDEST_GRID, _TALLEST_GRID = 1700, 2000
_LARGEST_TILE, _SMALLEST_TILE = 260, 24
_GAP, _GRID_GAP = 24, 6
_OPAQUE, _BEND = 0.9, 0.8  # opacity of the largest weight, and exponent for smaller ones
_NOTE = "colours as on the bar; the smaller a weight, the more of the picture shows through"
_OWN = "each picture on a scale of its own, up to its largest weight, which is written in it"
_SMOOTH = "weights are smoothed between the middles of patches"


@dataclass(frozen=True, slots=True, eq=False)
class PictureCrop:
    """The part of a picture that patches cover, shape (height, width, 3).

    `patch` is the querying patch: its row, its column, and the numbers of rows and columns.
    """

    pixels: NDArray[np.uint8]
    patch: tuple[int, int, int, int] | None = None
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Overlaying:
    """How weights are drawn over pictures."""

    scale: PictureScale = "own"  # "own": up to its own largest weight; "shared": one scale for all
    smooth: bool = False  # interpolate weights between patches

    @property
    def own(self) -> bool:
        """True where each picture has its own scale."""
        return (look_option("scale") or self.scale) == "own"

    def notes(self, *, several: bool, blank: bool = False) -> tuple[str, ...]:
        """How to read the picture."""
        own = several and self.own
        conditions = {_NOTE: not blank, _OWN: own, _SMOOTH: self.smooth}
        notes = [note for note, holds in conditions.items() if holds]
        return ("; ".join(notes),) if notes else ()

    def scale_of(
        self, weights: NDArray[np.float32], values: Values, unit: str
    ) -> tuple[Limits, str]:
        """The scale of several pictures and its unit."""
        if not self.own:
            return _limits_of(weights, values), unit
        return (-1.0 if values == "signed" else 0.0, 1.0), "share of the picture's largest weight"


PLAIN = Overlaying()


def _limits_of(weights: NDArray[np.float32], values: Values) -> Limits:
    return chosen_scale(signed=values == "signed") or limits_of(weights, values)


def picture_crop(picture: Any) -> PictureCrop:
    """A picture from a file, an image or an array of bytes; None: a blank square.

    Raises:
        UsageError: the array is not a picture.
    """
    if picture is None:
        return PictureCrop(np.full((64, 64, 3), 255, np.uint8), blank=True)
    if isinstance(picture, np.ndarray) and (picture.dtype != np.uint8 or picture.shape[2:] != (3,)):
        raise UsageError(
            f"picture= needs bytes of shape (height, width, 3), not {picture.dtype} of "
            f"{picture.shape}"
        )
    if isinstance(picture, str | PathLike):
        picture = read_picture(Path(picture))
    elif isinstance(picture, Image.Image):
        picture = picture.convert("RGB")
    return PictureCrop(np.asarray(picture))


@sheet.own_settings()
def overlay(
    crop: PictureCrop,
    weights: NDArray[np.float32],
    *,
    title: str,
    subtitle: str = "",
    unit: str,
    values: Values = "share",
    how: Overlaying = PLAIN,
    fit: sheet.Fit = sheet.FREE,
) -> Figure:
    """The picture, and beside it the picture under a head's weights, shape (rows, columns)."""
    limits = _limits_of(weights, values)
    if look_option("scale") == "own":
        top = float(np.nanmax(np.abs(weights))) or 1.0
        limits = (-top if values == "signed" else 0.0), top
    face = typeface([title, subtitle, unit])
    picture = resize(crop.pixels, int(_LONGEST * fit.share))
    height, width = picture.shape[:2]
    gap = np.full((height, _GAP, 3), 255, dtype=np.uint8)
    over = blend(picture, weights, limits, smooth=how.smooth, blank=crop.blank)
    both = over if crop.blank else np.concatenate([picture, gap, over], axis=1)
    notes = how.notes(several=False, blank=crop.blank)
    table = _table(limits, blank=crop.blank)
    frame = sheet.Frame(title, subtitle, notes, unit, limits, face, fit=fit, table=table)
    figure, axes = sheet.frame_image(both, both.shape[1], height, frame)
    axes.spines[:].set_visible(False)
    if crop.patch is not None:
        for left in (0, width + _GAP):
            _outline(axes, crop.patch, (height, width), (0, left), 1.3)
    return figure


@sheet.own_settings()
def overlay_grid(  # noqa: PLR0913 - all of them by name
    crop: PictureCrop,
    weights: NDArray[np.float32],
    *,
    layers: tuple[str, ...],
    heads: tuple[str, ...],
    title: str,
    subtitle: str = "",
    unit: str,
    values: Values = "share",
    columns: str = "head",
    how: Overlaying = PLAIN,
    fit: sheet.Fit = sheet.FREE,
) -> Figure:
    """Every head of every layer over the picture.

    Weights have the shape (layers, heads, rows, columns), NaN where a layer has fewer heads.
    `columns` names the second axis.
    """
    limits, unit = how.scale_of(weights[np.isfinite(weights)], values, unit)
    face = typeface([title, subtitle, unit, *layers, *heads])
    room = min(int(_WIDEST_GRID * fit.share) // len(heads) - _GRID_GAP, _LARGEST_TILE)
    height, width = crop.pixels.shape[:2]
    room = min(room, int((_TALLEST_GRID // len(layers) - _GRID_GAP) * max(width / height, 1)))
    tile = resize(crop.pixels, max(room, _SMALLEST_TILE))
    down = GridSide(len(layers), 1, 1, tile.shape[0], _GRID_GAP)
    across = GridSide(len(heads), 1, 1, tile.shape[1], _GRID_GAP)
    high, wide = tile.shape[0] + _GRID_GAP, tile.shape[1] + _GRID_GAP
    there = np.isfinite(weights).any(axis=(2, 3))
    tiles = [
        _Tile(layer * high, head * wide, tile, weights[layer, head])
        for layer, head in np.argwhere(there).tolist()
    ]
    image = _paste_tiles((down.pixels, across.pixels), tiles, limits, how, blank=crop.blank)
    notes, place = how.notes(several=True, blank=crop.blank), tile_room(layers, face)
    table = _table(limits, blank=crop.blank)
    frame = sheet.Frame(title, subtitle, notes, unit, limits, face, *place, fit=fit, table=table)
    figure, axes = sheet.frame_image(image, across.pixels, down.pixels, frame)
    _write_largest(axes, tiles, tile.shape[1], how, face)
    name_tiles(axes, down, layers, across, heads, face)
    axes.xaxis.label.set_text(columns)
    if crop.patch is not None:
        for one in tiles:
            _outline(axes, crop.patch, tile.shape[:2], (one.top, one.left), 0.6)
    return figure


@sheet.own_settings()
def contact_sheet(
    tiles: Sequence[Sequence[tuple[PictureCrop, NDArray[np.float32]]]],
    words: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    subtitle: str = "",
    unit: str,
    how: Overlaying = PLAIN,
    fit: sheet.Fit = sheet.FREE,
) -> Figure:
    """A small overlay for each word, under its word.

    A word has one tile or one for each of `columns`: part of a picture, and shares, shape (rows,
    columns). With several, each word is a row with its name on the left.
    """
    flat = [tile for row in tiles for tile in row]
    every = np.concatenate([shares.ravel() for _, shares in flat])
    limits, unit = how.scale_of(every, "share", unit)
    face = typeface([title, subtitle, unit, *words, *columns])
    in_rows, line = len(columns) > 1, int(sheet.line_height(sheet.TEXT_SIZE)) + 8
    across = len(columns) if in_rows else min(len(flat), max(4, isqrt(2 * len(flat))))
    room = (
        min(int(_WIDEST_GRID * fit.share) // across, 3 * _TALLEST_GRID * across // len(flat)) - _GAP
    )
    side = max(min(room, _LARGEST_TILE), 2 * _SMALLEST_TILE)
    small = [resize(crop.pixels, side) for crop, _ in flat]
    wide = max(picture.shape[1] for picture in small) + _GAP

    def cut(name: str, room: int) -> str:
        first, *more = face.wrap(face.drawable(printable(name)), sheet.TEXT_SIZE, room).split("\n")
        return f"{first}…" if more else first

    left_names = [cut(word, _LARGEST_TILE) for word in words] if in_rows else []
    top_names = [cut(name, wide - _GRID_GAP) for name in (columns if in_rows else words)]
    tops, bottom = list[int](), 0
    for first in range(0, len(flat), across):
        tops.append(bottom if in_rows and first else bottom + line)
        high = max(picture.shape[0] for picture in small[first : first + across])
        bottom = tops[-1] + high + _GRID_GAP
    beside = max((face.width(name, sheet.TEXT_SIZE) + 14 for name in left_names), default=0)
    placed_tiles = [
        _Tile(tops[n // across], n % across * wide, picture, shares)
        for n, (picture, (_, shares)) in enumerate(zip(small, flat, strict=True))
    ]
    image = _paste_tiles((bottom - _GRID_GAP, across * wide - _GAP), placed_tiles, limits, how)
    notes = how.notes(several=True)
    frame = sheet.Frame(
        title, subtitle, notes, unit, limits, face, int(beside), fit=fit, table=_table(limits)
    )
    figure, axes = sheet.frame_image(image, image.shape[1], image.shape[0], frame)
    _write_largest(axes, placed_tiles, wide, how, face)
    axes.spines[:].set_visible(False)
    looks: dict[str, Any] = {"gid": "word", "clip_on": False}
    for one, name in zip(placed_tiles, top_names, strict=False):
        sheet.write(
            axes, (one.left - 0.5, one.top - 6), name, face, sheet.TEXT_SIZE, va="bottom", **looks
        )
    for top, name, picture in zip(tops, left_names, small[::across], strict=bool(left_names)):
        middle = top + picture.shape[0] / 2
        sheet.write(
            axes, (-10, middle), name, face, sheet.TEXT_SIZE, ha="right", va="center", **looks
        )
    return figure


class _Tile(NamedTuple):
    """A picture with its weights, and the place of its upper left corner."""

    top: int
    left: int
    picture: NDArray[np.uint8]
    weights: NDArray[np.float32]

    @property
    def largest(self) -> float:
        """The weight furthest from 0."""
        return float(np.nanmax(np.abs(self.weights)))


def _paste_tiles(
    size: tuple[int, int],
    tiles: Sequence[_Tile],
    limits: Limits,
    how: Overlaying,
    *,
    blank: bool = False,
) -> NDArray[np.uint8]:
    """A white image with each picture under the colours of its weights."""
    image = np.full((*size, 3), 255, dtype=np.uint8)
    for one in tiles:
        weights = one.weights / (one.largest or 1) if how.own else one.weights
        high, wide = one.picture.shape[:2]
        image[one.top : one.top + high, one.left : one.left + wide] = blend(
            one.picture, weights, limits, smooth=how.smooth, blank=blank
        )
    return image


def _table(limits: Limits, *, blank: bool = False) -> NDArray[np.uint8] | None:
    """The colours over a picture, on which the blues of shares would hardly be visible."""
    if limits[0] < 0 or blank:
        return None
    table = chosen_table(signed=False)
    return GLOW if table is None else table


def _write_largest(
    axes: Axes, tiles: Sequence[_Tile], width: int, how: Overlaying, face: Typeface
) -> None:
    if how.own and look_option("values") != "no":
        corners = [(one.left, one.top + one.picture.shape[0]) for one in tiles]
        write_largest(axes, corners, [one.largest for one in tiles], width, face)


def blend(
    picture: NDArray[np.uint8],
    weights: NDArray[np.float32],
    limits: Limits,
    *,
    smooth: bool = False,
    blank: bool = False,
) -> NDArray[np.uint8]:
    """The picture under the colours of its patches' weights; a weight of 0 is transparent.

    A patch without a value is grey. A `blank` picture leaves the colours opaque.
    """
    height, width = picture.shape[:2]
    if smooth:
        image = Image.fromarray(np.nan_to_num(weights).astype(np.float32))
        values = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
    else:
        rows = np.arange(height) * weights.shape[0] // height
        columns = np.arange(width) * weights.shape[1] // width
        values = weights[rows[:, None], columns]
    if blank:
        return colors_of(values, limits)
    size = np.clip(np.abs(values) / max(map(abs, limits)), 0, 1)
    cover = np.where(np.isnan(size), _OPAQUE, _OPAQUE * np.nan_to_num(size) ** _BEND)[..., None]
    colors = colors_of(values, limits, _table(limits))
    pixels: NDArray[np.uint8] = np.rint((1 - cover) * picture + cover * colors).astype(np.uint8)
    return pixels


def resize(picture: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    """The picture with its longer side resized to so many pixels."""
    height, width = picture.shape[:2]
    scale = longest / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _outline(
    axes: Axes, patch: tuple[int, ...], size: tuple[int, ...], corner: tuple[int, int], line: float
) -> None:
    row, column, rows, columns = patch
    high, wide = size[0] / rows, size[1] / columns
    place = (corner[1] + column * wide - 0.5, corner[0] + row * high - 0.5)
    looks: dict[str, Any] = {"fill": False, "gid": "looking patch"}
    for color, width in ((sheet.ink(PAPER), 2 * line), (sheet.ink(LABELLED), line)):
        axes.add_patch(Rectangle(place, wide, high, edgecolor=color, linewidth=width, **looks))
