"""The parts that all pictures share: the frame of title, colour bar and notes, and the file.

Pictures are laid out in whole pixels at 200 to the inch, so that each weight covers as many pixels
as its neighbour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from threading import RLock
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image

from attnviz.core.errors import OutputError, UsageError
from attnviz.core.options.look import Width
from attnviz.core.records import dataclass, replace
from attnviz.renderers.colors import FAINT, INK, NO_VALUE, Color, Limits, shades
from attnviz.renderers.figures.fonts import DPI, Typeface, can_embed, font_share
from attnviz.renderers.look import look_option, reading_notes
from attnviz.renderers.printable import printable, shorten

TITLE_SIZE, TEXT_SIZE, NOTE_SIZE, SMALLEST = 9.0, 7.5, 6.5, 6.0
LINE = 1.25  # the height of a line of text as a multiple of the font size
_EDGE, _EDGE_IN_PAPER = 20, 6
_BAR_GAP, _BAR_WIDTH, _BAR_TICK = 26, 24, 10
_NARROWEST, _SHORTEST = 600, 180
COLUMNS: dict[Width, int] = {"single": 85, "double": 178}  # widths of columns in millimetres
_LEAST_SHARE = 0.1
# A title may repeat a whole text: longer ones are cut.
_MOST_CELLS = 300
# The same picture has the same bytes on every day.
_METADATA = {
    ".png": ("Software", "Description", ""),
    ".svg": ("Creator", "Description", "Date"),
    ".pdf": ("Creator", "Subject", "CreationDate"),
}
_SETTINGS: Any = {"svg.hashsalt": "attnviz", "svg.fonttype": "path"}

_ONE = RLock()  # the settings are those of the whole process: threads take turns


@contextmanager
def own_settings() -> Iterator[None]:
    """Draw with matplotlib's defaults, not the reader's settings, which may read texts as TeX."""
    with _ONE, mpl.rc_context():
        mpl.rcdefaults()
        yield


@dataclass(frozen=True, slots=True)
class Fit:
    """The width of a picture in pixels (0: as needed), and the factor by which its sides shrink."""

    width: int = 0
    share: float = 1.0


FREE = Fit()


class TooWide(Exception):  # noqa: N818 - no error: the next try has shorter sides
    """The drawing fits the width only if its sides shrink to this share."""

    def __init__(self, share: float) -> None:
        self.share = share


def fit_width(draw: Callable[..., Figure], subject: Any, **words: Any) -> Figure:
    """A picture as wide as the column that --style width names; text keeps its size.

    Raises:
        OutputError: its labels leave no room.
    """
    width: Width | None = look_option("width")
    if width is None:
        return draw(subject, **words)
    fit = Fit(_pixels_of(width))
    while fit.share > _LEAST_SHARE:
        try:
            return draw(subject, **words, fit=fit)
        except TooWide as error:
            fit = replace(fit, share=fit.share * min(error.share, 0.97))
    raise no_room("the labels leave the picture no room")


def page_width(usual: int, edge: int) -> int:
    """Pixels between the margins of a page: the usual number, or what --style width leaves."""
    width: Width | None = look_option("width")
    return usual if width is None else _pixels_of(width) - 2 * edge


def no_room(what: str) -> OutputError:
    """The error if something does not fit the width of the picture."""
    width: Width | None = look_option("width")
    if width is None:
        return OutputError(what)
    wider = "choose --style width=double" if width == "single" else "leave width out"
    return OutputError(f"{what} in {COLUMNS[width]} mm (width={width}): {wider}")


def _pixels_of(width: Width) -> int:
    return int(COLUMNS[width] / 25.4 * DPI)


@dataclass(frozen=True, slots=True)
class Frame:
    """The texts and scale around a picture; `left`, `top`, `right` are pixels for its labels."""

    title: str
    subtitle: str
    notes: tuple[str, ...]
    unit: str
    limits: Limits
    face: Typeface
    left: int = 0
    top: int = 0
    right: int = 0
    fit: Fit = FREE
    table: NDArray[np.uint8] | None = None  # the bar's colours if they are not the scale's
    beyond: tuple[bool, bool] = (False, False)  # whether weights lie below the scale, and above it
    ticks: Mapping[float, str] | None = None  # of the bar, if they are no even steps


def points(size: float) -> float:
    return size * font_share() * DPI / 72


def size_of(pixels: float) -> float:
    """The size in points of a text that so many pixels hold, before the style changes it."""
    return pixels / points(1)


def line_height(size: float) -> float:
    """Pixels from one line of text to the next."""
    return points(LINE * size)


def ink(color: Color) -> tuple[float, float, float]:
    """A colour for matplotlib, channels from 0 to 1."""
    red, green, blue = color
    return red / 255, green / 255, blue / 255


def colormap(limits: Limits, table: NDArray[np.uint8] | None = None) -> Colormap:
    """The colours of a scale for matplotlib: white below it, grey for NaN."""
    colors = (shades(limits) if table is None else table) / 255.0
    table_map = ListedColormap(colors, name=look_option("cmap") or "attnviz")
    return table_map.with_extremes(under="white", bad=ink(NO_VALUE))


def frame_image(image: NDArray[Any], width: int, height: int, frame: Frame) -> tuple[Figure, Axes]:
    """A figure with one image of exactly the given size in pixels, its frame, and its axes.

    The image holds values, shape (rows, columns), or colours, shape (rows, columns, 3). A note
    counts the characters that no font draws.
    """
    face, limits = frame.face, frame.limits
    edge = _EDGE_IN_PAPER if frame.fit.width else _EDGE
    bar_height = max(height, _SHORTEST)
    ticks, unit = _bar_words(frame, bar_height)
    tick_room = max(face.width(tick, NOTE_SIZE) for tick in ticks.values())
    unit_room = line_height(NOTE_SIZE) * (unit.count("\n") + 1)
    bar_room = _BAR_GAP + _BAR_WIDTH + _BAR_TICK + tick_room + 14 + unit_room
    full = edge + frame.left + width + max(bar_room, frame.right) + edge
    full_width = frame.fit.width or max(_NARROWEST, int(np.ceil(full)))
    if full > full_width:
        raise TooWide(1 - (full - full_width) / width)
    left = edge + frame.left
    if frame.fit.width:
        left += int(full_width - full) // 2
    room = full_width - 2 * edge
    above = title_paragraphs(face, frame.title, frame.subtitle, room)
    below = note_paragraphs(face, (*frame.notes, *missing_font_note(face)), room)
    top = edge + height_of(above) + (12 if above else 0) + frame.top
    bottom = height_of(below) + 16 + edge if below else _EDGE
    full_height = top + bar_height + bottom

    page = blank_page(full_width, full_height)
    axes = page.axes(left, top, width, height)
    draw_image(axes, image, limits)
    page.stack(above, edge, edge, face, axes)
    page.stack(below, edge, top + bar_height + 16, face)

    bar_axes = page.axes(left + width + _BAR_GAP, top, _BAR_WIDTH, bar_height)
    scale: Any = axes.images[0]
    if np.ndim(image) == 3:  # colours already
        scale = ScalarMappable(Normalize(*limits), colormap(limits, frame.table))
    bar = page.figure.colorbar(scale, cax=bar_axes)
    style_bar(bar, ticks, face)
    if bar.solids is not None:
        bar.solids.set_edgecolor("face")  # else viewers of .pdf show gaps
    looks: dict[str, Any] = {"va": "center", "multialignment": "center", "parse_math": False}
    bar.set_label(unit, fontproperties=face.font(NOTE_SIZE), color=ink(FAINT), rotation=90, **looks)
    across = _BAR_WIDTH + _BAR_TICK + tick_room + 14 + unit_room / 2
    bar_axes.yaxis.set_label_coords(across / _BAR_WIDTH, 0.5)
    return page.figure, axes


def style_bar(bar: Colorbar, ticks: Mapping[float, str], face: Typeface) -> None:
    """Write the ticks of a colour bar, in a thin frame."""
    font, faint = face.font(NOTE_SIZE), ink(FAINT)
    bar.set_ticks(list(ticks), labels=list(ticks.values()), fontproperties=font)
    bar.outline.set(linewidth=0.5, edgecolor=ink((190, 190, 190)))
    bar.ax.tick_params(axis="y", length=2.5, width=0.5, pad=2, color=faint, labelcolor=faint)
    bar.ax.set_label("colour bar")


def write(
    where: Axes | Figure,
    place: tuple[float, float],
    text: str,
    face: Typeface,
    size: float,
    color: Color = INK,
    *,
    bold: bool = False,
    **looks: Any,
) -> None:
    """Write drawable words; `looks` are matplotlib's options of a text."""
    looks |= words(face, size, color, bold=bold)
    where.text(*place, text, **looks)


def words(face: Typeface, size: float, color: Color = INK, *, bold: bool = False) -> dict[str, Any]:
    """Matplotlib's options of a text in the house's fonts."""
    font = face.font(size, bold=bold)
    return {"fontproperties": font, "color": ink(color), "parse_math": False}


def missing_font_note(face: Typeface) -> tuple[str, ...]:
    """A note on the characters that no installed font draws; none if there is none."""
    count = len(face.missing)
    what, them = ("1 character", "it") if count == 1 else (f"{count} characters", "them")
    return (f"{what} shown as ‹code point›: no installed font draws {them}",) if count else ()


class ShownFigure(Figure):
    """A figure that a notebook shows as the value of a cell."""

    frames: Sequence[Figure] = ()  # the figures of its .gif; none: itself

    def _repr_png_(self) -> bytes:
        return figure_bytes(self, ".png")


def titled_figure(
    title: str, width: float, height: float, left: float, top: float, face: Typeface
) -> Figure:
    """A figure with a title; width, height and `left` in inches, `top` as a share of the height."""
    figure = ShownFigure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(
        left / width,
        top,
        face.wrap(face.drawable(title), TITLE_SIZE, (width - 2 * left) * DPI, bold=True),
        fontproperties=face.font(TITLE_SIZE, bold=True),
        color=ink(INK),
        va="top",
        parse_math=False,
    )
    return figure


def figure_bytes(
    figure: Figure, suffix: str, provenance: str = "", dpi: float | None = None
) -> bytes:
    """The figure as .png, .svg, .pdf or .gif, always the same bytes; provenance is metadata."""
    if suffix == ".gif":
        return _gif_bytes(getattr(figure, "frames", ()) or [figure])
    creator, about, date = _METADATA[suffix]
    metadata: dict[str, str | None] = {creator: "attnviz"}
    if provenance:
        metadata[about] = "\n".join(map(printable, provenance.splitlines()))
    if date:
        metadata[date] = None  # matplotlib writes the date otherwise
    settings, buffer = dict(_SETTINGS), BytesIO()
    if suffix == ".pdf":
        # Journals refuse Type 3; matplotlib garbles fonts with other outlines (CJK) as Type 42.
        families = {name for text in figure.findobj(Text) for name in text.get_fontfamily()}
        settings["pdf.fonttype"] = 42 if can_embed(families) else 3
        _check_epoch()
    with own_settings(), mpl.rc_context(settings):
        options: Any = {"format": suffix.removeprefix("."), "dpi": dpi or "figure"}
        figure.savefig(buffer, **options, metadata=metadata)
    return buffer.getvalue()


def _check_epoch() -> None:
    """Refuse what matplotlib cannot read, though the date is left out of the picture."""
    name = "SOURCE_DATE_EPOCH"
    try:
        datetime.fromtimestamp(int(os.environ.get(name) or 0), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{name} '{os.environ[name]}' is no time in seconds: unset it") from error


def overlap_area(one: Sequence[float], other: Sequence[float]) -> float:
    """The common area of two boxes, each given as its low and its high corner."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def _gif_bytes(frames: Sequence[Figure]) -> bytes:
    """A .gif of frames, three a second, the last for longer."""
    images = [Image.open(BytesIO(figure_bytes(one, ".png"))).convert("RGB") for one in frames]
    size = max(one.width for one in images), max(one.height for one in images)
    pages = [Image.new("RGB", size, "white") for _ in images]
    for page, image in zip(pages, images, strict=True):
        page.paste(image)
    buffer = BytesIO()
    times = [*[330] * (len(pages) - 1), 1500]
    pages[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=pages[1:],
        duration=times,
        loop=0,
        comment=b"attnviz",
    )
    return buffer.getvalue()


def _bar_words(frame: Frame, height: int) -> tuple[dict[float, str], str]:
    """The colour bar's ticks with their texts, and its unit wrapped to the height."""
    low, high = frame.limits
    # The steps whose size has the fewest digits: 0.1, 0.2, not 0.125; 0 is one of them.
    choices = (4, 6) if low < 0 else (5, 4, 6, 3, 7)
    steps = min(choices, key=lambda n: len(f"{(high - low) / n:.6g}")) if height >= 300 else 2
    places = np.linspace(low, high, steps + 1)
    places[np.abs(places) < 1e-9 * (high - low)] = 0
    ticks = bar_ticks(frame.ticks or places.tolist(), frame.beyond)
    return ticks, frame.face.wrap(frame.face.drawable(frame.unit), NOTE_SIZE, height)


def bar_ticks(
    places: Mapping[float, str] | Sequence[float], beyond: tuple[bool, bool]
) -> dict[float, str]:
    """The ticks of a bar, whose ends say where weights lie beyond them ("> 0.02")."""
    is_named = isinstance(places, Mapping)
    ticks = {
        one: places[one] if is_named else f"{one:.3g}".replace("-", "−")  # type: ignore[call-overload]
        for one in places
    }
    for end, sign, is_beyond in zip((min(ticks), max(ticks)), "<>", beyond, strict=True):
        if is_beyond:
            ticks[end] = f"{sign} {ticks[end]}"
    return ticks


def draw_image(axes: Axes, image: NDArray[Any], limits: Limits, **how: Any) -> None:
    """Draw an image on a scale, in a thin frame without ticks; `how` are options of imshow."""
    # Images are float32, in which −0.4 lies just below the limit −0.4 and would be white.
    low = min(limits[0], float(np.float32(limits[0])))
    how = {"cmap": colormap(limits), "vmin": low, "vmax": limits[1], "aspect": "auto", **how}
    axes.imshow(image, interpolation="nearest", **how)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(linewidth=0.5, color=ink((190, 190, 190)))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph in lines, with its looks and its height in pixels."""

    text: str
    size: float
    bold: bool
    color: Color
    height: int


def paragraph(
    face: Typeface, text: str, size: float, bold: bool, color: Color, room: int
) -> Paragraph:
    """The paragraph in lines that fit the room; a very long text is cut."""
    words = face.drawable(shorten(printable(text), _MOST_CELLS))
    lines = face.wrap(words, size, room, bold=bold)
    height = line_height(size) * (lines.count("\n") + 1)
    return Paragraph(lines, size, bold, color, int(np.ceil(height)) + 4)


def title_paragraphs(face: Typeface, title: str, subtitle: str, room: int) -> list[Paragraph]:
    """The title, or that of the style, and the subtitle in paragraphs; none with title=no."""
    if look_option("no_title"):
        return []
    own = look_option("title")
    title = title if own is None else own
    looks = [(title, TITLE_SIZE, True, INK)]
    looks += ((text, TEXT_SIZE, False, FAINT) for text in subtitle.split("\n"))
    return [paragraph(face, *look, room) for look in looks if look[0]]


def note_paragraphs(face: Typeface, notes: Iterable[str], room: int) -> list[Paragraph]:
    """The notes below a picture: its own, then those on how to read its data."""
    every = dict.fromkeys((*notes, *reading_notes()))
    return [paragraph(face, note, NOTE_SIZE, False, FAINT, room) for note in every]


def height_of(paragraphs: Iterable[Paragraph]) -> int:
    """Pixels that paragraphs take below one another."""
    return sum(item.height for item in paragraphs)


def flow_lines(widths: Iterable[float], room: float) -> list[tuple[float, int]]:
    """The start and the line of several items that are set in lines of this width."""
    places, across, line = list[tuple[float, int]](), 0.0, 0
    for wide in widths:
        if across and across + wide > room:
            across, line = 0.0, line + 1
        places.append((across, line))
        across += wide
    return places


def blank_page(width: int, height: int) -> Page:
    """A white figure of that many pixels, at 200 to the inch; a style may have more."""
    size = width / DPI, height / DPI
    figure = ShownFigure(figsize=size, dpi=look_option("dpi") or DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return Page(figure, width, height)


@dataclass(frozen=True, slots=True)
class Page:
    """A figure with pixel coordinates from its upper left corner."""

    figure: Figure
    width: int
    height: int

    def axes(self, left: int, top: int, width: int, height: int) -> Axes:
        """New axes over exactly these pixels."""
        bottom = self.height - top - height
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def stack(
        self,
        paragraphs: list[Paragraph],
        left: int,
        top: int,
        face: Typeface,
        title_axes: Axes | None = None,
    ) -> None:
        """Write paragraphs below one another; a bold one is the title of `title_axes`."""
        for item in paragraphs:
            x, y = left / self.width, 1 - top / self.height
            looks: dict[str, Any] = {"va": "top", "linespacing": LINE}
            if title_axes is not None and item.bold:
                box = title_axes.get_position()
                looks |= {"ha": "left", "pad": 0, "x": (x - box.x0) / box.width}
                looks |= {"fontproperties": face.font(item.size, bold=True), "parse_math": False}
                y = (y - box.y0) / box.height
                title_axes.set_title(item.text, y=y, color=ink(item.color), **looks)
            else:
                gid = "note" if title_axes is None else "head"
                looks |= {"bold": item.bold, "gid": gid}
                write(self.figure, (x, y), item.text, face, item.size, item.color, **looks)
            top += item.height
