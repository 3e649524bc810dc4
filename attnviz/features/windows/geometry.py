"""Which pixel of a picture each number of a model's input was made of.

A processor resizes, cuts, pads, tiles or packs a picture. It reads four more pictures of the same
size: a black and a white one, between which padding does not change, and two ramps, whose grey
says the row or the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.features.windows.places import PixelPlaces

if TYPE_CHECKING:
    from PIL.Image import Image

LEAST = 1e-3  # of the largest change: a smaller one is padding


def trace_processor(
    read: Callable[[Image], Mapping[str, Any]], picture: Image
) -> dict[str, PixelPlaces]:
    """The places of each input of numbers that follows from the picture's pixels, by name.

    Args:
        read: the inputs of a picture, as tensors.
        picture: the picture whose size is meant.
    """
    from PIL import Image

    width, height = picture.size
    down = (np.arange(height) + 0.5)[:, None] * np.ones((1, width)) * (255 / height)
    across = np.ones((height, 1)) * (np.arange(width) + 0.5)[None] * (255 / width)
    flat = [np.full((height, width), grey, np.float64) for grey in (0, 255)]
    pictures = [
        Image.fromarray(np.repeat(np.round(grey)[..., None], 3, axis=2).astype(np.uint8))
        for grey in (*flat, down, across)
    ]
    black, white, rows, columns = map(read, pictures)
    places = {}
    for name, low in black.items():
        high, down_there, across_there = white[name], rows[name], columns[name]
        if not getattr(low, "is_floating_point", bool)():
            continue
        if name == NUMBERED:
            places[name] = _places_by_number(low, (height, width))
            continue
        if not low.shape == high.shape == down_there.shape == across_there.shape:
            continue
        span = high - low
        inside = span.abs() > LEAST * span.abs().max()
        if bool(inside.any()):
            places[name] = _places(low, span, inside, (down_there, across_there), (height, width))
    return places


NUMBERED = "flattened_patches"
"""Packed patches whose first two numbers are their row and column, from 1 (0: padding)."""


def _places_by_number(values: Any, sides: tuple[int, int]) -> PixelPlaces:
    """The places of patches that say them."""
    import torch

    numbers = values[..., :2]
    counts = numbers.reshape(-1, 2).amax(0)
    row, column = (
        ((numbers[..., axis] - 0.5) * side / counts[axis])[..., None].expand(values.shape)
        for axis, side in enumerate(sides)
    )
    inside = (numbers[..., :1] > 0).float().expand(values.shape)
    zero = torch.zeros((1,) * values.ndim).expand(values.shape)
    return PixelPlaces(inside, row * inside, column * inside, zero, zero)


def _places(
    low: Any, span: Any, inside: Any, ramps: tuple[Any, Any], sides: tuple[int, int]
) -> PixelPlaces:
    import torch

    share = torch.where(inside, span, 1)
    row, column = (
        torch.where(inside, (ramp - low) / share * side, 0)
        for ramp, side in zip(ramps, sides, strict=True)
    )
    if low.ndim >= 4 and min(low.shape[-2:]) > 1:  # rows and columns of pixels
        row = _on_a_line(row, inside, -2)
        column = _on_a_line(column, inside, -1)
    zero = torch.zeros((1,) * low.ndim).expand(low.shape)
    return PixelPlaces(inside.float(), row.float(), column.float(), zero, zero)


def _on_a_line(there: Any, inside: Any, axis: int) -> Any:
    """PixelPlaces that grow evenly along an axis, in place of greys that were rounded."""
    import torch

    flat, within_picture = (
        there.reshape(-1, *there.shape[-2:]),
        inside.reshape(-1, *there.shape[-2:]),
    )
    result = torch.zeros_like(flat)
    numbers = torch.arange(there.shape[axis], dtype=torch.float64)
    grid = numbers[:, None] if axis == -2 else numbers[None]
    grid = grid.expand(there.shape[-2:])
    for place, (values, within) in enumerate(zip(flat, within_picture, strict=True)):
        if not bool(within.any()):
            continue
        x, y = grid[within], values[within].double()
        spread = ((x - x.mean()) ** 2).sum()
        slope = ((x - x.mean()) * (y - y.mean())).sum() / spread if spread > 0 else 0.0
        line = y.mean() + slope * (grid - x.mean())
        result[place] = torch.where(within, line, 0).float()
    return result.reshape(there.shape)


def pixel_places(pixels: Any) -> PixelPlaces:
    """The places of pixels that are the picture's own, (pictures, 3, height, width)."""
    import torch

    height, width = pixels.shape[-2:]
    rows = (torch.arange(height) + 0.5).view(-1, 1).expand(pixels.shape)
    columns = (torch.arange(width) + 0.5).expand(pixels.shape)
    one = torch.ones((1,) * pixels.ndim).expand(pixels.shape)
    zero = torch.zeros((1,) * pixels.ndim).expand(pixels.shape)
    return PixelPlaces(one, rows, columns, zero, zero)
