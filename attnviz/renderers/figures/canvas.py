"""A picture drawn by pixel: boxes, lines and words on one surface."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from attnviz.renderers.colors import FAINT, INK, Color
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.fonts import DPI, Typeface, typeface

Box = tuple[float, float, float, float]  # left, top, width and height
EDGE = 24  # pixels of margin around a page
RULE: Color = (226, 229, 234)


class Canvas:
    """Axes whose coordinates are pixels, counted from the upper left corner."""

    def __init__(self, axes: Axes, width: int, height: int, face: Typeface) -> None:
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        self.axes, self.face = axes, face

    @property
    def figure(self) -> Figure:
        return cast("Figure", self.axes.figure)

    def boxes(
        self, boxes: Sequence[Box], colors: Sequence[Color] | Color, label: str, **looks: Any
    ) -> None:
        """Draw filled rectangles without edges, in one colour or one each."""
        if not boxes:
            return
        left, top, width, height = np.array(boxes, dtype=float).T
        right, bottom = left + width, top + height
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        vertices = np.array(corners).transpose(2, 0, 1)
        each = [colors] * len(boxes) if isinstance(colors[0], int) else colors
        faces = [sheet.ink(color) for color in each]  # type: ignore[arg-type]
        looks = {"linewidths": 0, "antialiaseds": False, "label": label, **looks}
        self.axes.add_collection(PolyCollection(list(vertices), facecolors=faces, **looks))

    def strokes(
        self, ends: NDArray[np.float64], colors: Sequence[Color] | Color, width: float, **looks: Any
    ) -> None:
        each = [colors] if isinstance(colors[0], int) else colors
        inks = [sheet.ink(color) for color in each]  # type: ignore[arg-type]
        looks = {"capstyle": "butt", **looks}
        lines = LineCollection(list(ends), colors=inks, linewidths=width, **looks)
        self.axes.add_collection(lines)

    def curve(
        self, start: tuple[float, float], end: tuple[float, float], color: Color, **looks: Any
    ) -> None:
        """Draw a line that leaves and arrives level."""
        middle = (start[0] + end[0]) / 2
        path = Path(
            [start, (middle, start[1]), (middle, end[1]), end],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        edge = sheet.ink(color)
        self.axes.add_patch(PathPatch(path, facecolor="none", edgecolor=edge, **looks))

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
        """Write words, vertically centred on y; returns their width."""
        words = self.face.drawable(text)
        looks: dict[str, Any] = {"bold": bold, "ha": align, "va": "center_baseline"}
        sheet.write(self.axes, (x, y), words, self.face, size, color, **looks)
        return self.face.width(words, size, bold=bold)

    def chart(self, box: Box) -> Axes:
        """The axes of a chart over these pixels of the page."""
        width, height = self.figure.get_size_inches() * DPI
        left, top, wide, tall = box
        place = left / width, 1 - (top + tall) / height, wide / width, tall / height
        return in_house_style(self.figure.add_axes(place, facecolor="none"), self.face)

    def name_heads(
        self,
        names: tuple[Sequence[str], Sequence[str]],
        corner: tuple[float, float],
        cell: tuple[float, float],
        gap: float = 0,
    ) -> None:
        """Write layers beside a grid of heads and heads above it, thinned to fit."""
        (layers, heads), (left, top), (width, height) = names, corner, cell
        self.name_layers(layers, corner, height, sheet.NOTE_SIZE, gap)
        widest = max(self.face.width(name, sheet.NOTE_SIZE) for name in heads) + 10
        above = top - sheet.points(0.7 * sheet.NOTE_SIZE)
        step = math.ceil(widest / width)
        for place, name in list(enumerate(heads))[::step]:
            middle = left + (place + 0.5) * width - gap / 2
            self.text(middle, above, name, sheet.NOTE_SIZE, FAINT, align="center")
        self.text(left - 10, above, "layer", sheet.NOTE_SIZE, INK, align="right")
        middle = left + width * len(heads) / 2
        higher = above - sheet.line_height(sheet.NOTE_SIZE)
        self.text(middle, higher, "head", sheet.NOTE_SIZE, INK, align="center")

    def name_layers(
        self,
        layers: Sequence[str],
        corner: tuple[float, float],
        height: float,
        size: float,
        gap: float = 0,
    ) -> None:
        """Write layers beside a grid, thinned to fit."""
        step = math.ceil(sheet.line_height(size) / height)
        for place, name in list(enumerate(layers))[::step]:
            middle = corner[1] + (place + 0.5) * height - gap / 2
            self.text(corner[0] - 10, middle, name, size, FAINT, align="right")


def full_canvas(
    face: Typeface,
    width: int,
    head: list[sheet.Paragraph],
    foot: list[sheet.Paragraph],
    bottom: int,
) -> Canvas:
    """A page under a heading, `width` between its margins, with notes from `bottom` on."""
    height, full = bottom + sheet.height_of(foot) + EDGE, width + 2 * EDGE
    page = sheet.blank_page(full, height)
    canvas = Canvas(page.axes(0, 0, full, height), full, height, face)
    page.stack(head, EDGE, EDGE, face, canvas.axes)
    page.stack(foot, EDGE, bottom, face)
    return canvas


def page_with_room(
    title: str,
    reading: str,
    texts: Sequence[str],
    notes: Sequence[str],
    room: tuple[float, float],
    gap: float = EDGE,
) -> tuple[Canvas, float]:
    """A page with space for a drawing of this size, and the top of that space."""
    face, width = typeface([title, *texts, *notes]), int(room[0])
    head = sheet.title_paragraphs(face, title, reading, width)
    foot = sheet.note_paragraphs(face, [*notes, *sheet.missing_font_note(face)], width)
    top = EDGE + sheet.height_of(head) + gap
    return full_canvas(face, width, head, foot, int(top + room[1])), top


def chart_page(
    title: str,
    reading: str,
    texts: Sequence[str],
    notes: Sequence[str],
    room: tuple[float, float],
    **shape: Any,
) -> tuple[Typeface, NDArray[Any]]:
    """Charts under a heading, (rows, columns) as `shape` has them, and the typeface of their words.

    Names of axes, legends and labels take their room from what the charts have.
    """
    canvas, top = page_with_room(title, reading, texts, notes, (room[0], room[1] + EDGE))
    width, height = canvas.figure.get_size_inches() * DPI
    place = EDGE / width, 1 - (top + room[1]) / height, 1 - 2 * EDGE / width, room[1] / height
    canvas.figure.set_layout_engine("constrained", rect=place, w_pad=0, h_pad=0.06)
    charts: NDArray[Any] = canvas.figure.subplots(squeeze=False, **shape)
    for chart in charts.flat:
        in_house_style(chart, canvas.face)
    return canvas.face, charts


def in_house_style(chart: Axes, face: Typeface) -> Axes:
    """Without a frame and ticks, the names of ticks faint and small."""
    font, faint = face.font(sheet.NOTE_SIZE), sheet.ink(FAINT)
    looks: dict[str, Any] = {"labelcolor": faint, "labelsize": font.get_size_in_points()}
    chart.spines[:].set_visible(False)
    chart.set_axisbelow(True)
    chart.tick_params(which="both", length=0, pad=4, labelfontfamily=font.get_family(), **looks)
    return chart
