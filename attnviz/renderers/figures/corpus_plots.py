"""Of a corpus: every measure with its intervals, attention by class of key, and the roles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from attnviz.core.corpus_report import StreamReport
from attnviz.core.measures import Meaning
from attnviz.renderers.colors import (
    FAINT,
    INK,
    NO_ROLE,
    ROLE_COLORS,
    Color,
    ink_on,
    role_color,
    round_up,
)
from attnviz.renderers.figures.canvas import Box, Canvas
from attnviz.renderers.figures.corpus_profiles import SMALL, class_colors
from attnviz.renderers.figures.figure import NOTE_SIZE, TEXT_SIZE, in_lines, line_height, points

_LINE_COLOR: Color = (205, 210, 217)


@dataclass(frozen=True, slots=True)
class MeasurePlots:
    """For each measure all heads in the order of their means, each with its interval and spread."""

    stream: StreamReport
    left: int
    top: int
    width: int
    columns: int = 4

    _PLOT = 128
    _GAP = 64

    @property
    def height(self) -> int:
        """Of all plots."""
        return -(-len(self.stream.measures) // self.columns) * self._pitch

    @property
    def _pitch(self) -> int:
        return self._PLOT + int(line_height(TEXT_SIZE)) + 34

    def draw(self, canvas: Canvas) -> None:
        """One after the other."""
        span = (self.width + self._GAP) / self.columns
        for place, meaning in enumerate(self.stream.measures):
            left = self.left + (place % self.columns) * span
            top = self.top + (place // self.columns) * self._pitch
            self._plot(canvas, place, meaning, (left, top, span - self._GAP))

    def _plot(
        self, canvas: Canvas, place: int, meaning: Meaning, at: tuple[float, float, float]
    ) -> None:
        left, top, width = at
        arrays = (self.stream.mean, self.stream.deviation, self.stream.low, self.stream.high)
        mean, deviation, low, high = (array[place].ravel() for array in arrays)
        uniform = self.stream.uniform[place].ravel()
        line = line_height(TEXT_SIZE)
        title = canvas.text(left, top + line / 2, meaning.name, TEXT_SIZE, INK)
        unit = "" if meaning.unit == "share" else meaning.unit
        canvas.text(left + title + 12, top + line / 2, unit, SMALL, FAINT)
        order = np.argsort(mean, kind="stable")
        order = order[np.isfinite(mean[order])]
        floor, roof = _limits(mean, deviation, uniform, meaning)
        base = top + line + 8 + self._PLOT

        def height(values: NDArray[np.float64]) -> NDArray[np.float64]:
            clipped = np.clip(values, floor, roof)
            return np.asarray(base - (clipped - floor) / (roof - floor) * self._PLOT)

        for value in dict.fromkeys((floor, max(floor, 0.0), roof)):
            y = float(height(np.array(value)))
            canvas.strokes(np.array([[(left, y), (left + width, y)]]), _LINE_COLOR, 0.5)
            text = f"{value:.3g}".replace("-", "−")
            canvas.text(left - 6, y, text, SMALL, FAINT, align="right")
        x = left + (np.arange(len(order)) + 0.5) * width / max(len(order), 1)
        rows = {(row.layer, row.head): row for row in self.stream.rows}
        colors = [role_color(rows[at]) for at in product(self.stream.layers, self.stream.heads)]
        shown = [colors[head] for head in order.tolist()]
        pale = [(*(round(255 - (255 - channel) * 0.4) for channel in one),) for one in shown]
        thick = min(max(72 / 200 * width / max(len(order), 1) * 0.8, 0.4), 4.0)
        spread = np.nan_to_num(deviation[order])
        canvas.strokes(_bars(x, height(mean[order] - spread), height(mean[order] + spread)), pale,
                       thick)  # fmt: skip
        ends = height(np.where(np.isfinite(low), low, mean)[order]) + 1.5
        tops = height(np.where(np.isfinite(high), high, mean)[order]) - 1.5
        canvas.strokes(_bars(x, ends, tops), shown, thick)
        even = np.pad(height(uniform[order]), 1, mode="edge")
        across = np.concatenate([[left], x, [left + width]])
        canvas.strokes(np.stack([across, even], axis=-1)[None], INK, 0.6,
                       linestyles=[(0, (4, 3))])  # fmt: skip


def _limits(
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    uniform: NDArray[np.float64],
    meaning: Meaning,
) -> tuple[float, float]:
    """From 0 up to a round number above all means and their spread; below 0 where means are."""
    spread = np.nan_to_num(deviation)
    reached = np.concatenate([mean + spread, uniform])
    highest = max(float(np.nanmax(reached)), 0.0)
    roof = 1.0 if meaning.unit == "share" and highest > 0.5 else round_up(highest)
    lowest = float(np.nanmin(mean - spread)) if np.nanmin(mean) < 0 else 0.0
    return -round_up(-lowest) if lowest < 0 else 0.0, roof


def _bars(
    x: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.stack([np.stack([x, start], axis=-1), np.stack([x, end], axis=-1)], axis=1)


CLASS_NAMES = {
    "special": "special tokens",
    "rank 1-10": "10 most frequent words",
    "rank 11-100": "to rank 100",
    "rank 101-1000": "to 1,000",
    "rank 1001-10000": "to 10,000",
    "rarer": "rarer words",
}


@dataclass(frozen=True, slots=True)
class ClassBars:
    """A bar for each layer, and one for uniform attention, divided by what the keys are."""

    stream: StreamReport
    left: int
    top: int
    width: int

    @property
    def _bar(self) -> int:
        return max(min(22, 300 // (len(self.stream.layers) + 1)), 5)

    @property
    def height(self) -> int:
        """Of the heading, the legend and the bars."""
        words = line_height(TEXT_SIZE) + 2 * line_height(NOTE_SIZE) + 12
        return int(words + (self._bar + 4) * (len(self.stream.layers) + 1) + 8)

    def draw(self, canvas: Canvas) -> None:
        """The heading, the legend, the bars."""
        line = line_height(NOTE_SIZE)
        y = self.top + points(0.6 * TEXT_SIZE)
        canvas.text(self.left, y, "attention by what the key is", TEXT_SIZE, INK)
        self._legend(canvas, y + 1.2 * line, line)
        start = y + 3.2 * line
        step = self._bar + 4
        names = [*self.stream.layers, "uniform"]
        shares = [
            *self.stream.class_shares.mean(axis=-1).T,
            self.stream.class_even.mean(axis=(1, 2)),
        ]
        thin = max(math.ceil(line / step), 1)
        for place, (name, of_layer) in enumerate(zip(names, shares, strict=True)):
            top = start + place * step + (6 if place == len(names) - 1 else 0)
            if place % thin == 0 or place == len(names) - 1:
                middle = top + self._bar / 2
                canvas.text(self.left - 10, middle, name, NOTE_SIZE, FAINT, align="right")
            self._one(canvas, top, of_layer)

    def _one(self, canvas: Canvas, top: float, shares: NDArray[np.float64]) -> None:
        ends = np.rint(np.concatenate([[0], shares.cumsum()]) * self.width) + self.left
        boxes: list[Box] = [(start, top, end - start, self._bar) for start, end in pairwise(ends)]
        colors = class_colors(self.stream.classes)
        canvas.boxes(boxes, colors, "class shares")
        if self._bar < points(1.1 * SMALL):
            return
        for (left, _, width, _), color, share in zip(boxes, colors, shares, strict=True):
            text = f"{share:.0%}"
            if width > canvas.face.width(text, SMALL) + 8:
                middle = left + width / 2, top + self._bar / 2
                canvas.text(*middle, text, SMALL, ink_on(color), align="center")

    def _legend(self, canvas: Canvas, y: float, line: float) -> None:
        side, classes = line * 0.62, self.stream.classes
        named = zip(classes, class_colors(classes), self.stream.class_even, strict=True)
        shown = [
            (name, CLASS_NAMES.get(name, name), color) for name, color, even in named if even.any()
        ]
        widths = (side + 30 + canvas.face.width(text, NOTE_SIZE) for _, text, _ in shown)
        places = in_lines(widths, self.width)
        for (name, text, color), (across, down) in zip(shown, places, strict=True):
            x, middle = self.left + across, y + down * line
            canvas.boxes([(x, middle - side / 2, side, side)], color, f"legend {name}")
            canvas.text(x + side + 8, middle, text, NOTE_SIZE, FAINT)


@dataclass(frozen=True, slots=True)
class RoleLegend:
    """The roles that heads have, with how many have each."""

    stream: StreamReport
    left: int
    top: int

    @property
    def entries(self) -> list[tuple[str, Color, int]]:
        """Role, colour and number of heads, the most frequent first."""
        roles = [row.roles[0].name if row.roles else "" for row in self.stream.rows]
        found = sorted({*roles} - {""}, key=lambda name: (-roles.count(name), name))
        named = [(name, ROLE_COLORS[name], roles.count(name)) for name in found]
        return named + ([("no clear role", NO_ROLE, roles.count(""))] if "" in roles else [])

    @property
    def height(self) -> int:
        """Of the heading and the entries."""
        return int(line_height(TEXT_SIZE) + line_height(TEXT_SIZE) * len(self.entries) + 12)

    def draw(self, canvas: Canvas) -> None:
        """A line a role."""
        y = self.top + points(0.6 * TEXT_SIZE)
        canvas.text(self.left, y, "heads by role", TEXT_SIZE, INK)
        line = line_height(TEXT_SIZE)
        for place, (name, color, count) in enumerate(self.entries, 1):
            middle = y + place * line + 4
            canvas.boxes([(self.left, middle - 8, 26, 16)], color, f"legend {name}")
            canvas.text(self.left + 38, middle, f"{name}  {count}", NOTE_SIZE, INK)
