"""Pixels and a page for the terminal: half blocks in colour, shades without."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

from attnviz.attention_map import AttentionMap
from attnviz.renderers.colors import Limits, color_of, limits_of
from attnviz.renderers.matrix import NEGATIVE_SHADES, SHADE_STEPS, SHADES
from attnviz.renderers.numerals import two_digits
from attnviz.renderers.printable import printable

UPPER = "▀"
GAP = "│"
"""What stands for NaN where there is no colour to leave out."""
RAMP_WIDTH = 16
# Of the 16 colours: light to dark where the scale goes up, and warm where it goes below 0.
_SHARES = ("bright_white", "bright_cyan", "bright_blue", "blue", "black")
_NEGATIVE = ("bright_white", "bright_yellow", "yellow", "bright_red", "red")
# Of the 256: chosen by hand, since the nearest of them to a smooth scale jump in hue.
_SHARES_256 = (231, 189, 153, 111, 68, 32, 26, 25, 18, 17)
_NEGATIVE_256 = (231, 230, 223, 215, 208, 172, 166, 130, 94, 52)


def painted(image: NDArray[np.float32], limits: Limits, colors: str | None) -> list[Text]:
    """An image as lines of text, a column a pixel.

    Args:
        image: values, NaN for a gap, shape (rows, columns).
        limits: the values at the two ends of the scale.
        colors: as in `Display`; with colours a line holds two rows of pixels, else one.

    Returns:
        ⌈rows / 2⌉ lines in colour, or a line a row in shades.
    """
    if colors is None:
        return [Text("".join(_shade(value, limits) for value in row)) for row in image.tolist()]
    if len(image) % 2:
        image = np.concatenate([image, np.full((1, image.shape[1]), np.nan, dtype=image.dtype)])
    lines = []
    for upper, lower in zip(image[::2].tolist(), image[1::2].tolist(), strict=True):
        line = Text()
        for above, below in zip(upper, lower, strict=True):
            line.append(*_half_block(_ink(above, limits, colors), _ink(below, limits, colors)))
        lines.append(line)
    return lines


def legend(item: AttentionMap, colors: str | None, limits: Limits) -> Text:
    """The scale: a ramp where colours run smoothly, else each step and where it begins."""
    text = Text(style="dim")
    if colors in ("truecolor", "256"):
        text.append(f"{two_digits(limits[0]) if limits[0] else '0'} ")
        for value in np.linspace(*limits, RAMP_WIDTH).tolist():
            text.append(" ", style=Style(bgcolor=_ink(value, limits, colors)))
        return text.append(f" {two_digits(limits[1])} {printable(item.unit)}")
    signs = (-1, 1) if limits[0] < 0 else (1,)
    for sign in signs:
        for step in SHADE_STEPS:
            value = sign * step * limits[1]
            if colors is None:
                text.append(_shade(value, limits))
            else:
                text.append("  ", style=Style(bgcolor=_ink(value, limits, colors)))
            text.append(f" {'from' if sign > 0 else 'to'} {two_digits(value)}  ")
    return text.append(printable(item.unit))


def scale_of(item: AttentionMap) -> Limits:
    """The limits that all of a map is shown on."""
    return limits_of(item.weights, item.values)


def _level(value: float, limits: Limits) -> int:
    return sum(abs(value) >= step * limits[1] for step in SHADE_STEPS)


def _shade(value: float, limits: Limits) -> str:
    if value != value:
        return GAP
    return (NEGATIVE_SHADES if value < 0 else SHADES)[_level(value, limits)]


def _ink(value: float, limits: Limits, colors: str) -> str | None:
    """A colour's name; None for a gap."""
    if value != value:
        return None
    if colors == "standard":
        return (_NEGATIVE if value < 0 else _SHARES)[_level(value, limits)]
    if colors == "256":
        ramp = _NEGATIVE_256 if value < 0 else _SHARES_256
        return f"color({ramp[min(round(abs(value) / limits[1] * 9), 9)]})"
    red, green, blue = color_of(value, limits)
    return f"#{red:02x}{green:02x}{blue:02x}"


@lru_cache(maxsize=4096)
def _half_block(above: str | None, below: str | None) -> tuple[str, Style | str]:
    """One cell that shows two pixels."""
    if above is None and below is None:
        return " ", ""
    if above is None:
        return "▄", Style(color=below)
    return UPPER, Style(color=above, bgcolor=Color.parse(below) if below else None)
