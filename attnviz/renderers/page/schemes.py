"""Colour maps that a reader of the page can choose from, on light ground and on dark."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np

from attnviz.renderers.colors import SHADES, SIGNED_SHADES, even_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Anchors as lightness, chroma, hue in degrees; all fall or rise evenly in lightness.
_BLUES_ON_DARK = (
    (0.215, 0.012, 262.0),
    (0.45, 0.115, 260.0),
    (0.70, 0.12, 245.0),
    (0.97, 0.03, 215.0),
)
_GREYS = ((0.970, 0.0, 0.0), (0.22, 0.0, 0.0))
_GREYS_ON_DARK = ((0.215, 0.004, 262.0), (0.97, 0.0, 262.0))
_SUNSET = ((0.975, 0.020, 95.0), (0.80, 0.115, 60.0), (0.55, 0.17, 15.0), (0.25, 0.10, 300.0))
_SUNSET_ON_DARK = (
    (0.215, 0.03, 290.0),
    (0.45, 0.15, 345.0),
    (0.72, 0.15, 50.0),
    (0.97, 0.06, 100.0),
)
_UP_ON_DARK = ((0.215, 0.0, 262.0), *_BLUES_ON_DARK[1:3], (0.92, 0.05, 225.0))
_DOWN_ON_DARK = ((0.215, 0.0, 50.0), (0.45, 0.11, 45.0), (0.70, 0.13, 58.0), (0.92, 0.07, 80.0))


def schemes() -> dict[str, dict[str, str]]:
    """Name → {"light", "dark", "light_signed", "dark_signed"} → 256 or 257 colours in base64."""
    dark_signed = np.concatenate(
        [even_path(_DOWN_ON_DARK, 129)[:0:-1], even_path(_UP_ON_DARK, 129)]
    )
    signed = {"light_signed": _bytes(SIGNED_SHADES), "dark_signed": _bytes(dark_signed)}
    shares = {
        "blue": (SHADES, even_path(_BLUES_ON_DARK, 256)),
        "sunset": (even_path(_SUNSET, 256), even_path(_SUNSET_ON_DARK, 256)),
        "grey": (even_path(_GREYS, 256), even_path(_GREYS_ON_DARK, 256)),
    }
    return {
        name: {"light": _bytes(light), "dark": _bytes(dark), **signed}
        for name, (light, dark) in shares.items()
    }


def _bytes(colors: NDArray[np.uint8]) -> str:
    return base64.b64encode(colors.tobytes()).decode("ascii")
