"""What every picture shares: its frame of title, colour bar and notes, and its bytes in a file.

A picture is laid out in whole pixels at 200 to the inch, so that each weight covers the same
number of them and no row comes out thicker than its neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from attnviz.renderers.colors import FAINT, INK, Color, Limits, shades
from attnviz.renderers.figures.fonts import DPI, Typeface
from attnviz.renderers.printable import printable, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

TITLE_SIZE, TEXT_SIZE, NOTE_SIZE = 9.0, 7.5, 6.5
LINE = 1.25
"""The height of a line of text, in sizes of its font."""
_EDGE = 20
_BAR_GAP, _BAR_WIDTH, _BAR_TICK = 26, 24, 10
_NARROWEST, _SHORTEST = 600, 180
# A title may repeat a whole text; what is longer ends in ….
_MOST_CELLS = 300
# The bytes may depend neither on the day nor on the reader's own settings.
_SETTINGS: Any = {
    "svg.hashsalt": "attnviz",
    "svg.fonttype": "path",
    "savefig.bbox": None,
    "savefig.transparent": False,
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a picture; room is counted in pixels.

    Attributes:
        title: what was run.
        subtitle: more on it, in smaller type; may be empty.
        notes: what a reader must know, at the foot.
        unit: what a colour means.
        limits: the values at the two ends of the colour scale.
        face: fonts that draw all of it.
        left: room for the labels of rows.
        top: room for the labels of columns.
        right: room that the labels of columns take beyond the picture's right edge.
    """

    title: str
    subtitle: str
    notes: tuple[str, ...]
    unit: str
    limits: Limits
    face: Typeface
    left: int
    top: int
    right: int = 0


def points(size: float) -> float:
    """Pixels of a length in points."""
    return size * DPI / 72


def ink(color: Color) -> tuple[float, float, float]:
    """A colour as matplotlib takes it, channels from 0 to 1."""
    red, green, blue = color
    return red / 255, green / 255, blue / 255


def framed(image: NDArray[Any], width: int, height: int, frame: Frame) -> tuple[Figure, Axes]:
    """A figure with one image of exactly the given size in pixels, and all that stands around it.

    Args:
        image: the values to draw, shape (rows, columns); below the limits is white.
        width: pixels the image takes, a multiple of its columns.
        height: pixels the image takes, a multiple of its rows.
        frame: what stands around it.

    Returns:
        the figure and the axes that hold the image, without ticks.
    """
    face, limits = frame.face, frame.limits
    bar_height = max(height, _SHORTEST)
    ticks, unit = _bar_words(frame, bar_height)
    tick_room = max(face.width(tick, NOTE_SIZE) for tick in ticks.values())
    unit_room = points(LINE * NOTE_SIZE) * (unit.count("\n") + 1)
    bar_room = _BAR_GAP + _BAR_WIDTH + _BAR_TICK + tick_room + 14 + unit_room
    full = _EDGE + frame.left + width + max(bar_room, frame.right) + _EDGE
    full_width = max(_NARROWEST, int(np.ceil(full)))

    head = [(frame.title, TITLE_SIZE, True, INK), (frame.subtitle, TEXT_SIZE, False, FAINT)]
    foot = [(note, NOTE_SIZE, False, FAINT) for note in frame.notes]
    room = full_width - 2 * _EDGE
    above = [paragraph(face, *words, room) for words in head if words[0]]
    below = [paragraph(face, *words, room) for words in foot]
    top = _EDGE + sum(item.height for item in above) + 12 + frame.top
    bottom = sum(item.height for item in below) + (16 if below else 0) + _EDGE
    full_height = top + bar_height + bottom

    page = blank_page(full_width, full_height)
    figure = page.figure
    axes = page.axes(_EDGE + frame.left, top, width, height)
    colormap = ListedColormap(shades(limits) / 255.0).with_extremes(under="white")
    _draw(axes, image, colormap, limits)
    page.stack(above, _EDGE, _EDGE, face)
    page.stack(below, _EDGE, top + bar_height + 16, face, gid="note")

    bar_left = _EDGE + frame.left + width + _BAR_GAP
    bar = page.axes(bar_left, top, _BAR_WIDTH, bar_height)
    ramp = np.linspace(limits[0], limits[1], 256)[:, None]
    _draw(bar, ramp, colormap, limits, extent=(0, 1, limits[0], limits[1]), origin="lower")
    bar.yaxis.tick_right()
    bar.set_yticks(list(ticks), list(ticks.values()), fontproperties=face.font(NOTE_SIZE))
    bar.tick_params(axis="y", length=2.5, width=0.5, pad=2, color=ink(FAINT), labelcolor=ink(FAINT))
    bar.set_label("colour bar")
    figure.text(
        (bar_left + _BAR_WIDTH + _BAR_TICK + tick_room + 14) / full_width,
        1 - (top + bar_height / 2) / full_height,
        unit,
        fontproperties=face.font(NOTE_SIZE),
        color=ink(FAINT),
        rotation=90,
        ha="left",
        va="center",
        multialignment="center",
        parse_math=False,
        gid="unit",
    )
    return figure, axes


def notes_of(figure: Figure) -> tuple[str, ...]:
    """The notes at a figure's foot, each on one line, for whoever cannot see the picture."""
    return tuple(
        text.get_text().replace("\n", " ") for text in figure.texts if text.get_gid() == "note"
    )


def missing_note(face: Typeface) -> tuple[str, ...]:
    """A note on the characters that no installed font draws; none where all are drawn."""
    if not face.missing:
        return ()
    count = len(face.missing)
    what = "1 character" if count == 1 else f"{count} characters"
    return (
        f"{what} shown as ‹code point›: no installed font draws {'it' if count == 1 else 'them'}",
    )


def figure_bytes(figure: Figure, suffix: str, provenance: str = "") -> bytes:
    """The figure as a file's content; the same figure gives the same bytes again.

    Args:
        figure: what to draw.
        suffix: ".png" (200 pixels to the inch), ".svg" or ".pdf".
        provenance: where the numbers came from, kept in the file's metadata; may be empty.
    """
    told = "\n".join(map(printable, provenance.splitlines())) or None
    metadata: dict[str, dict[str, str | None]] = {
        ".png": {"Software": "attnviz", "Description": told},
        ".svg": {"Creator": "attnviz", "Date": None, "Description": told},
        ".pdf": {"Creator": "attnviz", "CreationDate": None, "Subject": told},
    }
    kept = {
        name: text
        for name, text in metadata[suffix].items()
        if text is not None or name.endswith("Date")
    }
    buffer = BytesIO()
    with mpl.rc_context(_SETTINGS):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=DPI, metadata=kept)
    return buffer.getvalue()


def _bar_words(frame: Frame, height: int) -> tuple[dict[float, str], str]:
    """The colour bar's ticks with their texts, and its unit in as many lines as it needs."""
    low, high = frame.limits
    places = np.linspace(low, high, 5 if height >= 300 else 3)
    ticks = {float(place): f"{place:.3g}".replace("-", "−") for place in places}
    unit = frame.unit
    if (low, high) != (0.0, 1.0):
        unit += f", scale {ticks[float(low)]} to {ticks[float(high)]}"
    return ticks, frame.face.wrap(frame.face.drawable(unit), NOTE_SIZE, height)


def _draw(axes: Axes, image: NDArray[Any], colormap: Colormap, limits: Limits, **how: Any) -> None:
    """Put one image on bare axes, each value as it is, without smoothing between neighbours."""
    axes.imshow(
        image,
        cmap=colormap,
        vmin=limits[0],
        vmax=limits[1],
        aspect="auto",
        interpolation="nearest",
        **how,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(linewidth=0.5, color=ink((190, 190, 190)))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph ready to be placed: its lines, its looks, its height in pixels."""

    text: str
    size: float
    bold: bool
    color: Color
    height: int


def paragraph(
    face: Typeface, text: str, size: float, bold: bool, color: Color, room: int
) -> Paragraph:
    """The paragraph in lines that fit the room, cut where it is very long."""
    shown = face.drawable(shorten(printable(text), _MOST_CELLS))
    lines = face.wrap(shown, size, room, bold=bold)
    height = points(LINE * size) * (lines.count("\n") + 1)
    return Paragraph(lines, size, bold, color, int(np.ceil(height)) + 4)


def blank_page(width: int, height: int) -> Page:
    """A white figure of that many pixels."""
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return Page(figure, width, height)


@dataclass(frozen=True, slots=True)
class Page:
    """A figure that is filled by pixel, counted from its upper left corner."""

    figure: Figure
    width: int
    height: int

    def axes(self, left: int, top: int, width: int, height: int) -> Axes:
        """Axes over exactly these pixels."""
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def stack(
        self, paragraphs: list[Paragraph], left: int, top: int, face: Typeface, gid: str = "head"
    ) -> None:
        """Paragraphs below one another."""
        for item in paragraphs:
            self.figure.text(
                left / self.width,
                1 - top / self.height,
                item.text,
                fontproperties=face.font(item.size, bold=item.bold),
                color=ink(item.color),
                ha="left",
                va="top",
                linespacing=LINE,
                parse_math=False,
                gid=gid,
            )
            top += item.height


def strongest(weights: NDArray[np.float32], rows: int, columns: int) -> NDArray[np.float32]:
    """The weight furthest from 0 in each block, so that a thin line survives being made small.

    Args:
        weights: shape (…, queries, keys).
        rows: queries to a block, at least 1; the last block may hold fewer.
        columns: keys to a block, likewise.

    Returns:
        Shape (…, ⌈queries / rows⌉, ⌈keys / columns⌉).
    """
    highest = _by_block(np.maximum, weights, rows, columns)
    if float(weights.min()) >= 0:
        return highest
    lowest = _by_block(np.minimum, weights, rows, columns)
    return np.where(-lowest > highest, lowest, highest)


def _by_block(
    function: np.ufunc, weights: NDArray[np.float32], rows: int, columns: int
) -> NDArray[np.float32]:
    for axis, length in ((-1, columns), (-2, rows)):
        if length > 1:
            starts = np.arange(0, weights.shape[axis], length)
            weights = function.reduceat(weights, starts, axis=axis)
    return weights
