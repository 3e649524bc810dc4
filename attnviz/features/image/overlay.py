"""Attention drawn over the picture it attends to: one head, every head, or one tile per word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from attnviz.core.attention_map import Values
from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass
from attnviz.features.grid.picture import GridSide, name_tiles, tile_room, write_largest
from attnviz.features.vision.picture_files import read_picture
from attnviz.renderers.colors import GLOW, LABELLED, PAPER, Limits, colors_of, is_beyond, up_to
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.look import chosen_scale, chosen_table, look_option
from attnviz.renderers.printable import printable

_LONGEST = 700  # pixels of the longer side of a picture that stands alone
_WIDEST_GRID, _TALLEST_GRID = 1700, 2000
_LARGEST_TILE, _SMALLEST_TILE = 260, 24
_GAP, _GRID_GAP = 24, 6
_OPAQUE, _BEND = 0.9, 0.8  # opacity of the largest weight, and exponent for smaller ones
_TIMES = 10.0  # a look of so many times an even one is opaque, an even one transparent
MOST_IN_A_LINE = 8  # frames of a film, of which each has room to be seen
_PALE = 0.35  # what is left of a picture's contrast where the model does not see it
_NOTE = "colours as on the bar; the smaller a weight, the more of the picture shows through"
_EVEN = "bare: a patch with an even share, or less; covered: one with {:g} times as much, or more"
_OWN = "each picture on a scale of its own, up to its largest weight, which is written in it"
_SMOOTH = "weights are smoothed between the middles of patches"
_CUT = "pale: what the model's processor cuts off, so that the model does not see it"
_TILES = "each tile shows only the part of the picture that the model's processor leaves"


@dataclass(frozen=True, slots=True, eq=False)
class PictureCrop:
    """A picture, shape (height, width, 3), and the part of it that patches cover.

    `patch` is the querying patch: its row, its column, and the numbers of rows and columns.
    `region` is left, top, right and bottom of the part, as shares of the picture's sides, and
    `box` likewise of an object that was found in it.
    """

    pixels: NDArray[np.uint8]
    patch: tuple[int, int, int, int] | None = None
    blank: bool = False
    region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    box: tuple[float, float, float, float] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether patches leave more of the picture out than a hundredth."""
        left, top, right, bottom = self.region
        return (right - left) * (bottom - top) < 0.99

    def cut(self) -> PictureCrop:
        """The part alone that patches cover."""
        left, top, right, bottom = self.part_of(self.pixels)
        part = self.pixels[top:bottom, left:right]
        return PictureCrop(part, self.patch, self.blank, box=self.box)

    def part_of(self, picture: NDArray[np.uint8]) -> tuple[int, int, int, int]:
        """Left, top, right and bottom pixel of what is seen in a copy of another size."""
        if not self.is_cut:
            return 0, 0, picture.shape[1], picture.shape[0]
        sides = (picture.shape[1], picture.shape[0]) * 2
        left, top, right, bottom = (
            round(x * side) for x, side in zip(self.region, sides, strict=True)
        )
        return left, top, max(right, left + 1), max(bottom, top + 1)


@dataclass(frozen=True, slots=True)
class Overlaying:
    """How weights are drawn over pictures.

    Attributes:
        scale: "even": relative to an even look over the picture's patches; "own": up to its own
            largest weight; "shared": one scale for all. scale= comes first, and signed values,
            which have no even look, have own scales.
        smooth: interpolate weights between patches.
        film: of all frames of a film, the mean share of a patch, which an even look is then, and
            the largest; (0, 0): those of each picture.
    """

    scale: Literal["even", "own", "shared"] = "even"
    smooth: bool = False
    film: tuple[float, float] = (0.0, 0.0)

    def way(self, values: Values) -> str:
        """The scale in force; "0-0.1" where scale= names its ends."""
        default = "own" if values == "signed" and self.scale == "even" else self.scale
        return str(look_option("scale") or default)

    def notes(self, crops: Sequence[PictureCrop], values: Values, *, several: bool) -> list[str]:
        """How to read the picture."""
        blank, way = any(crop.blank for crop in crops), self.way(values)
        conditions = {
            _NOTE: not blank and way != "even",
            _EVEN.format(_TIMES): not blank and way == "even",
            _OWN: several and way == "own",
            _SMOOTH: self.smooth,
            _TILES if several else _CUT: any(crop.is_cut for crop in crops),
        }
        notes = [note for note, holds in conditions.items() if holds]
        return ["; ".join(notes)] if notes else []

    def levels(self, weights: NDArray[np.float32], values: Values) -> NDArray[np.float32]:
        """What one picture's weights are on the scale of all."""
        match self.way(values):
            case "even":
                return np.log10(np.maximum(times_even(weights, self.film[0]), 1))
            case "own":
                return weights / (float(np.nanmax(np.abs(weights))) or 1)
        return weights

    def scale_of(self, weights: Sequence[NDArray[np.float32]], values: Values, unit: str) -> _Scale:
        """The scale of several pictures."""
        match self.way(values):
            case "even":
                tops = [float(times_even(one, self.film[0]).max()) for one in weights]
                top = max([*tops, self.film[1] / self.film[0] if self.film[0] else 0])
                beyond = False, top > _TIMES * 1.001
                what = "film" if self.film[0] else "picture"
                return _Scale((0.0, 1.0), f"times an even share of the {what}", _TICKS, beyond)
            case "own":
                ends = (-1.0 if values == "signed" else 0.0), 1.0
                return _Scale(ends, "share of the picture's largest weight")
        every = np.concatenate([one[np.isfinite(one)] for one in weights])
        limits = chosen_scale(signed=values == "signed")
        limits = limits or up_to(float(np.abs(every).max(initial=0)), values)
        return _Scale(limits, unit, None, is_beyond(every, limits))


class _Scale(NamedTuple):
    """The ends of what is drawn, the words under its bar, its ticks if they are not even steps."""

    limits: Limits
    unit: str
    ticks: Mapping[float, str] | None = None
    beyond: tuple[bool, bool] = (False, False)


_TICKS = {math.log10(number): f"{number}" for number in (1, 2, 5, 10)}


def times_even(weights: NDArray[np.float32], mean: float = 0.0) -> NDArray[np.float32]:
    """Shares of a picture's patches relative to a mean, by default theirs: 1 for an even look."""
    mean = mean or float(weights.mean())
    return weights / mean if mean else np.zeros_like(weights)


PLAIN = Overlaying()


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
    face = typeface([title, subtitle, unit])
    picture = resize(crop.pixels, int(_LONGEST * fit.share))
    height, width, _ = picture.shape
    if how.way(values) == "own":  # weights on the bar, not shares of the largest
        top = float(np.nanmax(np.abs(weights))) or 1.0
        scale = _Scale((-top if values == "signed" else 0.0, top), unit)
        levels = weights
    else:
        scale, levels = how.scale_of([weights], values, unit), how.levels(weights, values)
    drawing = _Drawing(scale.limits, how.smooth, crop.blank, _opacity(scale))
    over = drawing.over(crop, picture, levels)
    gap = np.full((height, _GAP, 3), 255, dtype=np.uint8)
    both = over if crop.blank else np.concatenate([picture, gap, over], axis=1)
    notes = how.notes([crop], values, several=False)
    frame = _frame(title, subtitle, notes, scale, face, fit, blank=crop.blank)
    figure, axes = sheet.frame_image(both, both.shape[1], height, frame)
    axes.spines[:].set_visible(False)
    for left in (0, width + _GAP):
        _draw_frames(axes, crop, picture, (0, left), 1.3)
    return figure


def _frame(
    title: str,
    subtitle: str,
    notes: Sequence[str],
    scale: _Scale,
    face: Typeface,
    fit: sheet.Fit,
    room: tuple[int, int] = (0, 0),
    *,
    blank: bool = False,
) -> sheet.Frame:
    words = title, subtitle, tuple(notes), scale.unit, scale.limits, face, *room
    looks: dict[str, Any] = {"ticks": scale.ticks, "beyond": scale.beyond}
    return sheet.Frame(*words, fit=fit, table=_table(scale.limits, blank=blank), **looks)


def _opacity(scale: _Scale) -> float:
    return 1.0 if scale.ticks else _OPAQUE


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
    notes, crop = how.notes([crop], values, several=True), crop.cut()
    there = np.isfinite(weights).any(axis=(2, 3))
    scale = how.scale_of(list(weights[there]), values, unit)
    face = typeface([title, subtitle, scale.unit, *layers, *heads])
    room = min(int(_WIDEST_GRID * fit.share) // len(heads) - _GRID_GAP, _LARGEST_TILE)
    height, width = crop.pixels.shape[:2]
    room = min(room, int((_TALLEST_GRID // len(layers) - _GRID_GAP) * max(width / height, 1)))
    tile = resize(crop.pixels, max(room, _SMALLEST_TILE))
    down = GridSide(len(layers), 1, 1, tile.shape[0], _GRID_GAP)
    across = GridSide(len(heads), 1, 1, tile.shape[1], _GRID_GAP)
    high, wide = tile.shape[0] + _GRID_GAP, tile.shape[1] + _GRID_GAP
    tiles = [
        _Tile(layer * high, head * wide, tile, weights[layer, head], crop)
        for layer, head in np.argwhere(there).tolist()
    ]
    drawing = _Drawing(scale.limits, how.smooth, crop.blank, _opacity(scale))
    image = _paste_tiles((down.pixels, across.pixels), tiles, drawing, how, values)
    place = tile_room(layers, face)
    frame = _frame(title, subtitle, notes, scale, face, fit, place, blank=crop.blank)
    figure, axes = sheet.frame_image(image, across.pixels, down.pixels, frame)
    _write_largest(axes, tiles, tile.shape[1], how, values, face)
    name_tiles(axes, down, layers, across, heads, face)
    axes.xaxis.label.set_text(columns)
    for one in tiles:
        _draw_frames(axes, crop, tile, (one.top, one.left), 0.6)
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
    flat = [(crop.cut(), shares) for row in tiles for crop, shares in row]
    scale = how.scale_of([shares for _, shares in flat], "share", unit)
    face = typeface([title, subtitle, scale.unit, *words, *columns])
    in_rows, line = len(columns) > 1, int(sheet.line_height(sheet.TEXT_SIZE)) + 8
    across = _in_a_line(len(columns)) if in_rows else min(len(flat), max(4, isqrt(2 * len(flat))))
    room = (
        min(int(_WIDEST_GRID * fit.share) // across, 3 * _TALLEST_GRID * across // len(flat)) - _GAP
    )
    side = max(min(room, _LARGEST_TILE), 2 * _SMALLEST_TILE)
    small = [resize(crop.pixels, side) for crop, _ in flat]
    wide = max(picture.shape[1] for picture in small) + _GAP

    def cut(name: str, room: int) -> str:
        first, *more = face.wrap(face.drawable(printable(name)), sheet.TEXT_SIZE, room).split("\n")
        return f"{first}…" if more else first

    one_line = in_rows and across == len(columns)
    lines = _lines_of(len(words), len(columns), across)
    left_names = {line[0]: cut(words[line[0] // len(columns)], _LARGEST_TILE) for line in lines}
    if not in_rows:
        left_names = {}
    names = [cut(name, wide - _GRID_GAP) for name in (columns if in_rows else words)]
    placed_tiles, top_names, bottom = list[_Tile](), list[str](), 0
    for number, places in enumerate(lines):
        top = bottom if one_line and number else bottom + line
        top += _GRID_GAP if in_rows and not one_line and number else 0
        for column, place in enumerate(places):
            crop, shares = flat[place]
            placed_tiles.append(_Tile(top, column * wide, small[place], shares, crop))
            is_named = not (one_line and number)
            top_names.append(names[place % len(names)] if is_named else "")
        bottom = top + max(small[place].shape[0] for place in places) + _GRID_GAP
    beside = max(
        (face.width(name, sheet.TEXT_SIZE) + 14 for name in left_names.values()), default=0
    )
    drawing = _Drawing(scale.limits, how.smooth, blank=False, opaque=_opacity(scale))
    size = bottom - _GRID_GAP, across * wide - _GAP
    image = _paste_tiles(size, placed_tiles, drawing, how, "share")
    notes = how.notes([crop for row in tiles for crop, _ in row], "share", several=True)
    frame = _frame(title, subtitle, notes, scale, face, fit, (int(beside), 0))
    figure, axes = sheet.frame_image(image, image.shape[1], image.shape[0], frame)
    _write_largest(axes, placed_tiles, wide, how, "share", face)
    axes.spines[:].set_visible(False)
    looks: dict[str, Any] = {"gid": "word", "clip_on": False}
    for one, name in zip(placed_tiles, top_names, strict=True):
        if name:
            corner = one.left - 0.5, one.top - 6
            sheet.write(axes, corner, name, face, sheet.TEXT_SIZE, va="bottom", **looks)
        _draw_frames(axes, one.crop, one.picture, (one.top, one.left), 0.8)
    for places, name in zip(lines, left_names.values(), strict=bool(left_names)):
        one = placed_tiles[places[0]]
        middle = -10.0, one.top + one.picture.shape[0] / 2
        sheet.write(axes, middle, name, face, sheet.TEXT_SIZE, ha="right", va="center", **looks)
    return figure


def _in_a_line(count: int) -> int:
    """How many of so many tiles stand in each line, in lines of about equal length."""
    return -(-count // -(-count // MOST_IN_A_LINE))


def _lines_of(words: int, columns: int, across: int) -> list[range]:
    """The tiles of each line; a word with several tiles begins a line."""
    ends = [words * columns] if columns == 1 else range(columns, words * columns + 1, columns)
    starts = [end - (columns if columns > 1 else end) for end in ends]
    return [
        range(first, min(first + across, end))
        for start, end in zip(starts, ends, strict=True)
        for first in range(start, end, across)
    ]


class _Tile(NamedTuple):
    """A picture with its weights, and the place of its upper left corner."""

    top: int
    left: int
    picture: NDArray[np.uint8]
    weights: NDArray[np.float32]
    crop: PictureCrop


class _Drawing(NamedTuple):
    """How levels become colours over pictures."""

    limits: Limits
    smooth: bool
    blank: bool
    opaque: float

    def over(
        self, crop: PictureCrop, picture: NDArray[np.uint8], levels: NDArray[np.float32]
    ) -> NDArray[np.uint8]:
        """A copy of the crop's picture under its levels, pale where the model does not see it."""
        left, top, right, bottom = crop.part_of(picture)
        pale = 255 - _PALE * (255.0 - picture)
        pixels: NDArray[np.uint8] = np.rint(pale).astype(np.uint8)
        how: dict[str, Any] = {"smooth": self.smooth, "blank": self.blank, "opaque": self.opaque}
        part = picture[top:bottom, left:right]
        pixels[top:bottom, left:right] = blend(part, levels, self.limits, **how)
        return pixels


def _paste_tiles(
    size: tuple[int, int],
    tiles: Sequence[_Tile],
    drawing: _Drawing,
    how: Overlaying,
    values: Values,
) -> NDArray[np.uint8]:
    """A white image with each picture under the colours of its weights."""
    image = np.full((*size, 3), 255, dtype=np.uint8)
    for one in tiles:
        high, wide = one.picture.shape[:2]
        levels = how.levels(one.weights, values)
        image[one.top : one.top + high, one.left : one.left + wide] = drawing.over(
            one.crop, one.picture, levels
        )
    return image


def _table(limits: Limits, *, blank: bool = False) -> NDArray[np.uint8] | None:
    """The colours over a picture, on which the blues of shares would hardly be visible."""
    if limits[0] < 0 or blank:
        return None
    table = chosen_table(signed=False)
    return GLOW if table is None else table


def _write_largest(
    axes: Axes, tiles: Sequence[_Tile], width: int, how: Overlaying, values: Values, face: Typeface
) -> None:
    """Write the largest weight of each picture, where scales are own, or as times an even look."""
    way = how.way(values)
    if way in ("even", "own") and look_option("values") != "no":
        corners = [(one.left, one.top + one.picture.shape[0]) for one in tiles]
        largest = [
            float(
                times_even(one.weights, how.film[0]).max()
                if way == "even"
                else np.nanmax(abs(one.weights))
            )
            for one in tiles
        ]
        write_largest(axes, corners, largest, width, face, "×" if way == "even" else "")


def blend(
    picture: NDArray[np.uint8],
    weights: NDArray[np.float32],
    limits: Limits,
    *,
    smooth: bool = False,
    blank: bool = False,
    opaque: float = _OPAQUE,
) -> NDArray[np.uint8]:
    """The picture under the colours of its patches' weights; a weight of 0 is transparent.

    A patch without a value is grey. A `blank` picture leaves the colours opaque.
    """
    height, width = picture.shape[:2]
    if smooth:
        image = Image.fromarray(np.nan_to_num(weights).astype(np.float32))
        values = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))
        # Beside a large weight the curve swings below 0, which would be drawn as its size.
        values = np.clip(values, np.nanmin(weights), np.nanmax(weights))
    else:
        rows = np.arange(height) * weights.shape[0] // height
        columns = np.arange(width) * weights.shape[1] // width
        values = weights[rows[:, None], columns]
    if blank:
        return colors_of(values, limits)
    size = np.clip(np.abs(values) / max(map(abs, limits)), 0, 1)
    cover = np.where(np.isnan(size), opaque, opaque * np.nan_to_num(size) ** _BEND)[..., None]
    colors = colors_of(values, limits, _table(limits))
    pixels: NDArray[np.uint8] = np.rint((1 - cover) * picture + cover * colors).astype(np.uint8)
    return pixels


def resize(picture: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    """The picture with its longer side resized to so many pixels."""
    height, width = picture.shape[:2]
    scale = longest / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


def _draw_frames(
    axes: Axes,
    crop: PictureCrop,
    picture: NDArray[np.uint8],
    corner: tuple[int, int],
    line: float,
) -> None:
    """Frames around the querying patch and the object of a copy of the picture at this corner."""
    left, top, right, bottom = crop.part_of(picture)
    boxes = dict[str, tuple[float, ...]]()
    if crop.patch is not None:
        row, column, rows, columns = crop.patch
        high, wide = (bottom - top) / rows, (right - left) / columns
        boxes["looking patch"] = left + column * wide, top + row * high, wide, high
    if crop.box is not None:
        sides = (picture.shape[1] - 1, picture.shape[0] - 1) * 2
        ends = [min(max(x, 0.0), 1.0) * side for x, side in zip(crop.box, sides, strict=True)]
        boxes["object"] = ends[0] + 0.5, ends[1] + 0.5, ends[2] - ends[0], ends[3] - ends[1]
    for name, (across, down, wide, high) in boxes.items():
        place = corner[1] + across - 0.5, corner[0] + down - 0.5
        for color, width in ((sheet.ink(PAPER), 2 * line), (sheet.ink(LABELLED), line)):
            looks: dict[str, Any] = {"fill": False, "gid": name, "edgecolor": color}
            axes.add_patch(Rectangle(place, wide, high, linewidth=width, **looks))
