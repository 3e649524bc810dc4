"""A picture drawn by pixel: boxes, strokes and words on one surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from attnviz.renderers.colors import Color
from attnviz.renderers.figures.figure import ink
from attnviz.renderers.figures.fonts import Typeface

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

Box = tuple[float, float, float, float]
"""Left, top, width and height."""


class Canvas:
    """Axes whose coordinates are pixels, counted from the upper left corner."""

    def __init__(self, axes: Axes, width: int, height: int, face: Typeface) -> None:
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        self.axes, self.face = axes, face

    def boxes(
        self, boxes: Sequence[Box], colors: Sequence[Color] | Color, label: str, **looks: Any
    ) -> None:
        """Filled rectangles in one colour or one each, without edges."""
        if not boxes:
            return
        left, top, width, height = np.array(boxes, dtype=float).T
        right, bottom = left + width, top + height
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        vertices = np.array(corners).transpose(2, 0, 1)
        each = [colors] * len(boxes) if isinstance(colors[0], int) else colors
        faces = [ink(color) for color in each]  # type: ignore[arg-type]
        looks = {"linewidths": 0, "antialiaseds": False, "label": label, **looks}
        self.axes.add_collection(PolyCollection(list(vertices), facecolors=faces, **looks))

    def strokes(
        self, ends: NDArray[np.float64], colors: Sequence[Color] | Color, width: float, **looks: Any
    ) -> None:
        """Straight lines."""
        each = [colors] if isinstance(colors[0], int) else colors
        shown = [ink(color) for color in each]  # type: ignore[arg-type]
        looks = {"capstyle": "butt", **looks}
        self.axes.add_collection(
            LineCollection(list(ends), colors=shown, linewidths=width, **looks)
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        color: Color,
        *,
        align: str = "left",
        bold: bool = False,
    ) -> float:
        """Words, centred on a height; answers how wide they are."""
        shown = self.face.drawable(text)
        self.axes.text(
            x,
            y,
            shown,
            fontproperties=self.face.font(size, bold=bold),
            color=ink(color),
            ha=align,
            va="center_baseline",
            parse_math=False,
        )
        return self.face.width(shown, size, bold=bold)
