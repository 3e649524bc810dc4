"""The frame of a lesson's curves: a title, panels side by side, and lines named where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attnviz.renderers.colors import FAINT, INK, LABELLED, Color, color_of
from attnviz.renderers.figure import NOTE_SIZE, TEXT_SIZE, TITLE_SIZE, ink
from attnviz.renderers.fonts import DPI, Typeface, typeface

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = color_of(0.75), LABELLED
"""One way of doing it, and the other."""


def panels(
    title: str, names: Sequence[tuple[str, str, str]]
) -> tuple[Figure, list[Axes], Typeface]:
    """A figure with a panel for each name.

    Args:
        title: of the whole.
        names: for each panel what it shows, and the words along x and y.
    """
    face = typeface([title])
    figure = Figure(figsize=(3.9 * len(names), 3.3), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    room = (3.9 * len(names) - 0.3) * DPI
    figure.text(
        0.15 / (3.9 * len(names)),
        0.965,
        face.wrap(face.drawable(title), TITLE_SIZE, room, bold=True),
        fontproperties=face.font(TITLE_SIZE, bold=True),
        color=ink(INK),
        va="top",
        parse_math=False,
    )
    found = []
    for number, (heading, along, up) in enumerate(names):
        left = (number + 0.15) / len(names)
        axes = figure.add_axes((left, 0.14, 0.78 / len(names), 0.69))
        axes.set_title(
            heading, fontproperties=face.font(TEXT_SIZE, bold=True), color=ink(INK), loc="left"
        )
        axes.set_xlabel(along, fontproperties=face.font(TEXT_SIZE), color=ink(FAINT))
        axes.set_ylabel(up, fontproperties=face.font(TEXT_SIZE), color=ink(FAINT))
        axes.tick_params(
            labelsize=NOTE_SIZE, colors=ink(FAINT), width=0.5, length=2.5, which="both"
        )
        axes.grid(color=(0.92, 0.92, 0.92), linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(linewidth=0.5, color=ink(FAINT))
        found.append(axes)
    return figure, found, face


def line(
    axes: Axes, x: Sequence[float], y: Sequence[float], name: str, color: Color, face: Typeface
) -> None:
    """A curve with a dot at each number."""
    axes.plot(x, y, color=ink(color), linewidth=1.4, marker="o", markersize=3.2, label=name)
    axes.legend(prop=face.font(TEXT_SIZE), frameon=False, labelcolor="linecolor", handlelength=1.4)
