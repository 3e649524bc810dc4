"""What a smaller cache costs over its size, and the keys that are gone struck out of a head."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.core.cache import CacheReport, RuleCost
from attnviz.renderers.colors import FAINT, HEAD_COLORS, INK, Color
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.figures.figure import (
    FREE,
    NOTE_SIZE,
    TEXT_SIZE,
    Fit,
    flow_lines,
    ink,
    line_height,
    own_settings,
    page_width,
)
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.printable import printable, shorten

READING = (
    "nats a token that a rule adds to the loss, over the keys that a query sees; below 0 it helps"
)
_WIDE, _TALL, _LEFT, _ROW = 620, 430, 96, 3
"""Pixels of a panel and of the room on its left, and panels in a row."""
_RULE: Color = (226, 229, 234)
_STRUCK: Color = (200, 32, 64)
_BEST, _DOTS = "best", (3.0, 2.0)


@own_settings()
def cost_curves(report: CacheReport) -> Figure:
    """A panel for each kind of text, with a line for each rule and bars for intervals."""
    kinds = list(report.full)
    names = list(dict.fromkeys(one.name for one in report.rules))
    colors = {name: HEAD_COLORS[n % len(HEAD_COLORS)] for n, name in enumerate(names)}
    ends = [0.0, *(x for one in report.rules for x in (one.cost, *(one.interval or ())))]
    ticks = np.asarray(MaxNLocator(6).tick_values(*_ends(ends)))
    line, across = line_height(NOTE_SIZE), min(len(kinds), _ROW)
    full = page_width(across * (_WIDE + _LEFT), EDGE)
    wide, rows = full // across - _LEFT, -(-len(kinds) // _ROW)
    headings = [
        f"{kind and printable(shorten(kind, 40)) + ' · '}loss with all keys {loss:.2f} nats"
        for kind, loss in report.full.items()
    ]
    notes = [report.prompt]
    if any(one.interval for one in report.rules):
        notes.append("bars: 95 % intervals of the means over texts")
    high = _TALL + 5.2 * line
    texts = [*names, *headings, "0123456789−.% nats a token keys that a query sees"]
    probe = page_with_room(report.caption, READING, texts, notes, (full, 1))[0]
    room = [60 + probe.face.width(name, NOTE_SIZE) + 24 for name in names]
    places = flow_lines(iter(room), full)
    legend = (places[-1][1] + 1.6) * line
    size = full, legend + rows * high
    canvas, top = page_with_room(report.caption, READING, texts, notes, size, 1.2 * line)
    for name, (x, down) in zip(names, places, strict=True):
        y = top + (down + 0.4) * line
        rule = np.array([[(EDGE + x, y), (EDGE + x + 44, y)]])
        canvas.strokes(rule, colors[name], 2.0, **_dashes(name))
        canvas.text(EDGE + x + 56, y, name, NOTE_SIZE, INK)
    for number, (kind, heading) in enumerate(zip(kinds, headings, strict=True)):
        left = EDGE + _LEFT + number % _ROW * (wide + _LEFT)
        upper = top + legend + number // _ROW * high + 1.8 * line
        own = [one for one in report.rules if one.kind == kind]
        canvas.text(left, upper - 1.1 * line, heading, TEXT_SIZE, INK, bold=True)
        _panel(canvas, own, (left, upper, wide - 20), ticks, colors)
    return canvas.figure


def _ends(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    return min(finite), max(max(finite), min(finite) + 0.01)


def _dashes(name: str) -> dict[str, object]:
    """A bound is no rule that can be used."""
    return {"linestyle": (0, _DOTS)} if _BEST in name.split("+") else {}


def _panel(
    canvas: Canvas,
    rules: Sequence[RuleCost],
    at: tuple[float, float, float],
    ticks: NDArray[np.float64],
    colors: dict[str, Color],
) -> None:
    left, top, width = at
    low, high = float(ticks[0]), float(ticks[-1])
    line = line_height(NOTE_SIZE)

    def height(value: float) -> float:
        return top + _TALL * (high - value) / (high - low)

    for tick in ticks:
        y, zero = height(tick), abs(tick) < 1e-9
        rule = np.array([[(left, y), (left + width, y)]])
        canvas.strokes(rule, FAINT if zero else _RULE, 0.8 if zero else 0.6)
        text = f"{0 if zero else tick:.4g}".replace("-", "−")
        canvas.text(left - 12, y, text, NOTE_SIZE, FAINT, align="right")
    for step in range(6):
        below = left + width * step / 5, top + _TALL + 0.8 * line
        canvas.text(*below, f"{step * 20}%", NOTE_SIZE, FAINT, align="center")
    below = left + width / 2, top + _TALL + 2 * line
    canvas.text(*below, "keys that a query sees", NOTE_SIZE, INK, align="center")
    for name in dict.fromkeys(one.name for one in rules):
        own = sorted((one for one in rules if one.name == name), key=lambda one: one.held)
        own = [one for one in own if math.isfinite(one.cost)]
        points = [(left + one.held * width, height(one.cost)) for one in own]
        if len(points) > 1:
            way = np.array([points])
            canvas.strokes(way, colors[name], 2.0, label=name, **_dashes(name))
        dots = [(x - 4, y - 4, 8.0, 8.0) for x, y in points]
        canvas.boxes(dots, colors[name], name)
        bars = [
            [(x, height(one.interval[0])), (x, height(one.interval[1]))]
            for one, (x, _) in zip(own, points, strict=True)
            if one.interval and all(map(math.isfinite, one.interval))
        ]
        if bars:
            canvas.strokes(np.array(bars), colors[name], 1.0, label=f"{name} interval")


@own_settings()
def struck_heatmap(
    item: AttentionMap, *, absent: NDArray[np.bool_], title: str, subtitle: str, fit: Fit = FREE
) -> Figure:
    """One head's weights with all keys; a stroke through each key that is gone for a query."""
    figure = heatmap(item, title=title, subtitle=subtitle, fit=fit)
    axes = figure.axes[0]
    queries, keys = np.nonzero(absent)
    ends = np.stack(
        [
            np.stack([keys - 0.34, queries + 0.34], axis=-1),
            np.stack([keys + 0.34, queries - 0.34], axis=-1),
        ],
        axis=1,
    )
    if len(ends):
        from matplotlib.collections import LineCollection

        strokes = LineCollection(list(ends), colors=[ink(_STRUCK)], linewidths=0.8, label="gone")
        axes.add_collection(strokes, autolim=False)
    return figure
