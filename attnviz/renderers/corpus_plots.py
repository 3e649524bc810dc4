"""Every measure of all heads, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnviz.renderers.canvas import Canvas
from attnviz.renderers.colors import FAINT, INK, Color, round_up
from attnviz.renderers.corpus_profiles import SMALL, role_color
from attnviz.renderers.figure import LINE, TEXT_SIZE, points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.corpus_report import StreamReport
    from attnviz.measures import Meaning

_LINE_COLOR: Color = (205, 210, 217)


@dataclass(frozen=True, slots=True)
class MeasurePlots:
    """For each measure all heads in the order of their means, each with its interval and spread.

    Attributes:
        stream: whose heads they are.
        left: of the first plot.
        top: of the first plot's name.
        width: of all plots.
        columns: how many stand side by side.
    """

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
        return self._PLOT + int(points(LINE * TEXT_SIZE)) + 34

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
        line = points(LINE * TEXT_SIZE)
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
        colors = self._colors()
        shown = [colors[head] for head in order.tolist()]
        pale = [_pale(color) for color in shown]
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

    def _colors(self) -> list[Color]:
        rows = {(row.layer, row.head): row for row in self.stream.rows}
        return [
            role_color(rows[layer, head])
            for layer in self.stream.layers
            for head in self.stream.heads
        ]


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


def _pale(color: Color) -> Color:
    red, green, blue = (round(255 - (255 - channel) * 0.28) for channel in color)
    return red, green, blue
