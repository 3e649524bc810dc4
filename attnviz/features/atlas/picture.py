"""A corpus in one picture: where heads look, what layers attend to, measures with intervals."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.measures import HeadRow, Meaning, about_effects, mass_note
from attnviz.core.records import dataclass
from attnviz.features.corpus.results import CorpusReport, StreamReport
from attnviz.renderers.colors import (
    FAINT,
    INK,
    NO_ROLE,
    ROLE_COLORS,
    Color,
    color_of,
    ink_on,
    role_color,
    round_up,
)
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Box, Canvas, full_canvas
from attnviz.renderers.figures.fonts import DPI, typeface
from attnviz.renderers.printable import printable, two_digits

_GAP, _WIDTH, _LEGEND = 44, 1560, 300
_NAMES = 70  # pixels beside the heads for the names of layers
_HOW = (
    "each head: its attention between words by position, key minus query (height: square root of "
    "the share; the outermost bars: all beyond); the strip: the classes of its keys"
)


@sheet.own_settings()
def corpus_overview(report: CorpusReport) -> Figure:
    """The first stream of a corpus of at least one text."""
    stream = report.streams[0]
    size = f"{report.texts:,} texts · {stream.tokens:,} tokens"
    notes = _notes(report)
    words = [report.caption, size, _HOW, *notes, *stream.layers, *stream.heads]
    face = typeface([*words, *_CLASS_NAMES.values(), "−+"])
    width = sheet.page_width(_WIDTH, EDGE)
    head = [
        *sheet.title_paragraphs(face, report.caption, size, width),
        sheet.paragraph(face, _HOW, sheet.NOTE_SIZE, False, FAINT, width),
    ]
    foot = sheet.note_paragraphs(face, notes, width)
    names = int(2 * sheet.line_height(sheet.NOTE_SIZE)) + 16
    top = EDGE + sheet.height_of(head) + names
    profiles = Profiles(stream, EDGE + _NAMES, top, width - _NAMES)
    middle = top + profiles.height + _GAP
    beside = _LEGEND + _GAP if width >= 3 * _LEGEND else 0
    across = width - _NAMES - beside
    bars = ClassBars(stream, EDGE + _NAMES + 30, middle, across - 30)
    below = 0 if beside else bars.height + _GAP
    legend = RoleLegend(stream, EDGE + (width - _LEGEND if beside else 0), middle + below)
    lower = middle + max(bars.height, below + legend.height) + _GAP
    plots = MeasurePlots(stream, EDGE + 40, lower, width - 40)
    canvas = full_canvas(face, width, head, foot, lower + plots.height)
    for part in (profiles, bars, legend, plots):
        part.draw(canvas)
    return canvas.figure


def _notes(report: CorpusReport) -> list[str]:
    others = ", ".join(stream.stream for stream in report.streams)
    notes = (
        f"measures: heads in the order of their means; dark: {report.interval}; pale: one standard "
        "deviation between texts; dashed: uniform attention",
        mass_note(report.streams[0].measures),
        about_effects(report.provenance),
        f"stream {report.streams[0].stream} of {others}" if len(report.streams) > 1 else "",
        f"{report.failed:,} texts could not be read" if report.failed else "",
    )
    return [note for note in (*notes, *report.notes) if note]


def _class_colors(classes: Sequence[str]) -> list[Color]:
    """A colour for each class of keys: the more frequent the words, the darker."""
    ranks = [name for name in classes if name.startswith("rank")] + ["rarer"]
    colors: dict[str, Color] = {
        "special": ROLE_COLORS["special-token"],
        "punctuation": ROLE_COLORS["punctuation"],
        "other": (200, 200, 200),
    }
    for place, name in enumerate(ranks):
        colors[name] = color_of(0.86 - 0.64 * place / (len(ranks) - 1))
    return [colors[name] for name in classes]


def _share_boxes(
    shares: NDArray[np.float64], left: float, top: float, width: float, height: float
) -> list[Box]:
    """A strip divided by shares, each edge on a whole pixel."""
    ends = np.rint(np.concatenate([[0], shares.cumsum()]) * width) + left
    return [(start, top, end - start, height) for start, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the picture and its place in pixels."""

    stream: StreamReport
    left: int
    top: int
    width: int = 0


class Profiles(_Part):
    """Every head as a small picture of where it looks and at what; layers down, heads across."""

    _LOWEST, _HIGHEST, _WIDEST, _PANEL, _SPACE = 24, 124, 400, 1240, 9
    _GROUND: Color = (242, 244, 247)

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a head, with the gap after it."""
        across = min(self.width // len(self.stream.heads), self._WIDEST)
        down = max(min(self._HIGHEST, self._PANEL // len(self.stream.layers), across), self._LOWEST)
        return across, down

    @property
    def height(self) -> int:
        return self.cell[1] * len(self.stream.layers) + int(sheet.line_height(sheet.SMALLEST)) + 6

    def draw(self, canvas: Canvas) -> None:
        rows = {(row.layer, row.head): row for row in self.stream.rows}
        places = list(np.ndindex(len(self.stream.layers), len(self.stream.heads)))
        boxes = [self._box(*place) for place in places]
        middles = [[(x + w / 2, y), (x + w / 2, y + h)] for x, y, w, h in boxes]
        canvas.boxes(boxes, self._GROUND, "ground", zorder=0.2)
        canvas.strokes(np.array(middles), (215, 219, 225), 0.5, zorder=0.4)
        for layer, head in places:
            row = rows[self.stream.layers[layer], self.stream.heads[head]]
            self._draw_head(canvas, layer, head, row)
        self._write_names(canvas)

    def _box(self, layer: int, head: int) -> Box:
        across, down = self.cell
        gap = self._SPACE if min(across, down) >= 40 else 3
        return self.left + head * across, self.top + layer * down, across - gap, down - gap

    def _draw_head(self, canvas: Canvas, layer: int, head: int, row: HeadRow) -> None:
        left, top, width, height = self._box(layer, head)
        shares = np.clip(self.stream.offset_shares[:, layer, head], 0, 1)
        strip = max(round(height * 0.12), 3)
        room = height - strip - 2
        edges = np.rint(left + np.linspace(0, width, len(shares) + 1))
        # Most shares are small: their square roots can still be told apart.
        heights = np.rint(np.sqrt(shares) * room)
        bars = [
            (edges[place], top + room - tall, edges[place + 1] - edges[place], tall)
            for place, tall in enumerate(heights)
            if tall
        ]
        canvas.boxes(bars, role_color(row), f"positions {row.layer} {row.head}")
        of_classes = self.stream.class_shares[:, layer, head]
        parts = _share_boxes(of_classes, left, top + height - strip, width, strip)
        canvas.boxes(parts, _class_colors(self.stream.classes), f"classes {row.layer} {row.head}")
        if row.roles and width >= 70 and height >= 44:
            share = two_digits(row.roles[0].share)
            high = top + sheet.points(0.85 * sheet.SMALLEST)
            canvas.text(left + width - 5, high, share, sheet.SMALLEST, FAINT, align="right")

    def _write_names(self, canvas: Canvas) -> None:
        across, down = self.cell
        names = self.stream.layers, self.stream.heads
        canvas.name_heads(names, (self.left, self.top), (across, down), self._SPACE)
        if across < 110:
            return
        low = self.top + len(self.stream.layers) * down + sheet.points(0.5 * sheet.SMALLEST)
        first = f"{self.stream.offsets[0]}".replace("-", "−")
        last = f"+{self.stream.offsets[-1]}"
        for head in range(len(self.stream.heads)):
            left, _, width, _ = self._box(0, head)
            for at, text, align in ((0, first, "left"), (0.5, "0", "center"), (1, last, "right")):
                canvas.text(left + at * width, low, text, sheet.SMALLEST, FAINT, align=align)


class MeasurePlots(_Part):
    """For each measure all heads in the order of their means, each with its interval and spread."""

    _PLOT, _SPACE, _NARROWEST = 128, 64, 260
    _RULE: Color = (205, 210, 217)

    @property
    def _columns(self) -> int:
        return max(min(self.width // self._NARROWEST, 4), 1)

    @property
    def height(self) -> int:
        return -(-len(self.stream.measures) // self._columns) * self._pitch

    @property
    def _pitch(self) -> int:
        return self._PLOT + int(sheet.line_height(sheet.TEXT_SIZE)) + 34

    def draw(self, canvas: Canvas) -> None:
        span, line = (self.width + self._SPACE) / self._columns, sheet.line_height(sheet.TEXT_SIZE)
        for place, meaning in enumerate(self.stream.measures):
            row, column = divmod(place, self._columns)
            left, top = self.left + column * span, self.top + row * self._pitch + line + 8
            chart = canvas.chart((left, top, span - self._SPACE, self._PLOT))
            chart.set_title(meaning.name, loc="left", **sheet.words(canvas.face, sheet.TEXT_SIZE))
            unit = "" if meaning.unit == "share" else meaning.unit
            small = sheet.words(canvas.face, sheet.SMALLEST, FAINT)
            chart.set_title(unit, loc="right", **small)
            floor, roof = self._plot(chart, place, meaning, span - self._SPACE)
            ticks = [*dict.fromkeys((floor, max(floor, 0.0), roof))]
            names = [f"{value:.3g}".replace("-", "−") for value in ticks]
            chart.set_yticks(ticks, names, **small)
            chart.grid(axis="y", color=sheet.ink(self._RULE), linewidth=0.5, clip_on=False)

    def _plot(self, chart: Axes, place: int, meaning: Meaning, width: float) -> tuple[float, float]:
        """Draw the heads; answers the ends of the scale."""
        stream = self.stream
        arrays = (stream.mean, stream.deviation, stream.low, stream.high, stream.uniform)
        mean, deviation, low, high, uniform = (array[place].ravel() for array in arrays)
        order = np.argsort(mean, kind="stable")
        order = order[np.isfinite(mean[order])]
        margin = np.nan_to_num(deviation)
        highest = max(float(np.nanmax(np.concatenate([mean + margin, uniform]))), 0.0)
        roof = 1.0 if meaning.unit == "share" and highest > 0.5 else round_up(highest)
        lowest = float(np.nanmin(mean - margin)) if np.nanmin(mean) < 0 else 0.0
        floor = -round_up(-lowest) if lowest < 0 else 0.0
        rows = {(row.layer, row.head): row for row in stream.rows}
        colors = [role_color(rows[at]) for at in product(stream.layers, stream.heads)]
        dark = [sheet.ink(colors[head]) for head in order.tolist()]
        x = np.arange(len(order)) + 0.5
        thick = min(max(72 / DPI * width / max(len(order), 1) * 0.8, 0.4), 4.0)
        spread = np.nan_to_num(deviation[order])
        chart.vlines(
            x, mean[order] - spread, mean[order] + spread, dark, linewidth=thick, alpha=0.4
        )
        # Each end is extended by 1.5 pixels, so that an interval without length is visible.
        more = 1.5 * (roof - floor) / self._PLOT
        ends = np.where(np.isfinite([low, high]), [low, high], mean)[:, order]
        chart.vlines(x, ends[0] - more, ends[1] + more, dark, linewidth=thick)
        across = [0, *x, len(order)]
        even = np.pad(uniform[order], 1, mode="edge")
        look: dict[str, Any] = {"linestyle": (0, (4, 3)), "clip_on": False}
        chart.plot(across, even, color=sheet.ink(INK), linewidth=0.6, **look)
        chart.set(xlim=(0, len(order)), ylim=(floor, roof), xticks=[])
        return floor, roof


_CLASS_NAMES = {
    "special": "special tokens",
    "rank 1-10": "10 most frequent words",
    "rank 11-100": "to rank 100",
    "rank 101-1000": "to 1,000",
    "rank 1001-10000": "to 10,000",
    "rarer": "rarer words",
}


class ClassBars(_Part):
    """A bar for each layer, and one for uniform attention, divided by the classes of keys."""

    @property
    def _bar(self) -> int:
        return max(min(22, 300 // (len(self.stream.layers) + 1)), 5)

    @property
    def height(self) -> int:
        words = sheet.line_height(sheet.TEXT_SIZE) + 2 * sheet.line_height(sheet.NOTE_SIZE) + 12
        return int(words + (self._bar + 4) * (len(self.stream.layers) + 1) + 8)

    def draw(self, canvas: Canvas) -> None:
        line = sheet.line_height(sheet.NOTE_SIZE)
        y = self.top + sheet.points(0.6 * sheet.TEXT_SIZE)
        canvas.text(self.left, y, "attention by class of key", sheet.TEXT_SIZE, INK)
        self._draw_legend(canvas, y + 1.2 * line, line)
        start = y + 3.2 * line
        step = self._bar + 4
        names = [*self.stream.layers, "uniform"]
        even = self.stream.class_even.mean(axis=(1, 2))
        shares = [*self.stream.class_shares.mean(axis=-1).T, even]
        thin = max(math.ceil(line / step), 1)
        for place, (name, of_layer) in enumerate(zip(names, shares, strict=True)):
            last = place == len(names) - 1
            top = start + place * step + (6 if last else 0)
            if place % thin == 0 or last:
                middle = top + self._bar / 2
                canvas.text(self.left - 10, middle, name, sheet.NOTE_SIZE, FAINT, align="right")
            self._draw_bar(canvas, top, of_layer)

    def _draw_bar(self, canvas: Canvas, top: float, shares: NDArray[np.float64]) -> None:
        boxes = _share_boxes(shares, self.left, top, self.width, self._bar)
        colors = _class_colors(self.stream.classes)
        canvas.boxes(boxes, colors, "class shares")
        if self._bar < sheet.points(1.1 * sheet.SMALLEST):
            return
        for (left, _, width, _), color, share in zip(boxes, colors, shares, strict=True):
            text = f"{share:.0%}"
            if width > canvas.face.width(text, sheet.SMALLEST) + 8:
                middle = left + width / 2, top + self._bar / 2
                canvas.text(*middle, text, sheet.SMALLEST, ink_on(color), align="center")

    def _draw_legend(self, canvas: Canvas, y: float, line: float) -> None:
        side, classes = line * 0.62, self.stream.classes
        rows = zip(classes, _class_colors(classes), self.stream.class_even, strict=True)
        entries = [(name, color) for name, color, even in rows if even.any()]
        texts = [_CLASS_NAMES.get(name, name) for name, _ in entries]
        widths = (side + 30 + canvas.face.width(text, sheet.NOTE_SIZE) for text in texts)
        places = sheet.flow_lines(widths, self.width)
        for (name, color), text, (across, down) in zip(entries, texts, places, strict=True):
            x, middle = self.left + across, y + down * line
            canvas.boxes([(x, middle - side / 2, side, side)], color, f"legend {name}")
            canvas.text(x + side + 8, middle, text, sheet.NOTE_SIZE, FAINT)


class RoleLegend(_Part):
    """The roles that heads have, and how many heads have each."""

    @property
    def entries(self) -> list[tuple[str, Color, int]]:
        """Role, colour and number of heads, the most frequent first."""
        clearest = [row.roles[0] for row in self.stream.rows if row.roles]
        counts = Counter((printable(role.label), ROLE_COLORS[role.name]) for role in clearest)
        entries = sorted(
            ((*role, count) for role, count in counts.items()), key=lambda one: (-one[2], one[0])
        )
        others = len(self.stream.rows) - len(clearest)
        return [*entries, ("no clear role", NO_ROLE, others)] if others else entries

    @property
    def height(self) -> int:
        return int(sheet.line_height(sheet.TEXT_SIZE) * (1 + len(self.entries)) + 12)

    def draw(self, canvas: Canvas) -> None:
        y = self.top + sheet.points(0.6 * sheet.TEXT_SIZE)
        canvas.text(self.left, y, "heads by role", sheet.TEXT_SIZE, INK)
        line = sheet.line_height(sheet.TEXT_SIZE)
        for place, (name, color, count) in enumerate(self.entries, 1):
            middle = y + place * line + 4
            canvas.boxes([(self.left, middle - 8, 26, 16)], color, f"legend {name}")
            canvas.text(self.left + 38, middle, f"{name}  {count}", sheet.NOTE_SIZE, INK)
