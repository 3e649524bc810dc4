"""What a smaller cache costs over its size, and the keys that are gone struck out of a head."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.features.cache.report import CacheReport
from attnviz.renderers.colors import FAINT, HEAD_COLORS, INK, Color
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, page_with_room
from attnviz.renderers.figures.fonts import typeface
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.printable import printable, shorten

READING = (
    "nats a token that a rule adds to the loss, over the keys that a query sees; below 0 it helps"
)
_WIDE, _TALL, _LEFT, _ROW = 620, 430, 96, 3
"""Pixels of a panel and of the room on its left, and panels in a row."""
_STRUCK: Color = (200, 32, 64)
_BEST, _DOTS = "best", (3.0, 2.0)


@sheet.own_settings()
def cost_curves(report: CacheReport) -> Figure:
    """A panel for each kind of text, with a line for each rule and bars for intervals."""
    kinds = list(report.full)
    names = list(dict.fromkeys(one.name for one in report.rules))
    looks: dict[str, dict[str, Any]] = {
        name: {
            "color": sheet.ink(HEAD_COLORS[number % len(HEAD_COLORS)]),
            # A bound is no rule that can be used.
            "linestyle": (0, _DOTS) if _BEST in name.split("+") else "-",
        }
        for number, name in enumerate(names)
    }
    ends = [x for one in report.rules for x in (one.cost, *(one.interval or ()))]
    low, high = min(0.0, *filter(isfinite, ends)), max(0.01, *filter(isfinite, ends))
    ticks = MaxNLocator(6).tick_values(low, high)
    line, across = sheet.line_height(sheet.NOTE_SIZE), min(len(kinds), _ROW)
    full = sheet.page_width(across * (_WIDE + _LEFT), EDGE)
    wide, rows = full // across - _LEFT, -(-len(kinds) // _ROW)
    headings = [
        f"{kind and printable(shorten(kind, 40)) + ' · '}loss with all keys {loss:.2f} nats"
        for kind, loss in report.full.items()
    ]
    notes = [report.prompt]
    if any(one.interval for one in report.rules):
        notes.append("bars: 95 % intervals of the means over texts")
    texts = [*names, *headings]
    room = [84 + typeface(texts).width(name, sheet.NOTE_SIZE) for name in names]
    places = sheet.flow_lines(room, full)
    legend, high = (places[-1][1] + 1.6) * line, _TALL + 5.2 * line
    size = full, legend + rows * high
    canvas, top = page_with_room(report.caption, READING, texts, notes, size, 1.2 * line)
    for name, (x, down) in zip(names, places, strict=True):
        y = top + (down + 0.4) * line
        canvas.axes.plot((EDGE + x, EDGE + x + 44), (y, y), linewidth=2, **looks[name])
        canvas.text(EDGE + x + 56, y, name, sheet.NOTE_SIZE, INK)
    for number, (kind, heading) in enumerate(zip(kinds, headings, strict=True)):
        left = EDGE + _LEFT + number % _ROW * (wide + _LEFT)
        upper = top + legend + number // _ROW * high + 1.8 * line
        canvas.text(left, upper - 1.1 * line, heading, sheet.TEXT_SIZE, INK, bold=True)
        box = (left, upper, wide - 20, _TALL)
        chart = canvas.chart(box, "keys that a query sees", (ticks[0], ticks[-1]))
        chart.set_yticks(ticks)
        chart.axhline(0, color=sheet.ink(FAINT), linewidth=0.8)
        for name, look in looks.items():
            own = [one for one in report.rules if (one.kind, one.name) == (kind, name)]
            own = sorted((one for one in own if isfinite(one.cost)), key=lambda one: one.held)
            shares, costs = [one.held for one in own], [one.cost for one in own]
            shape: dict[str, Any] = {
                "marker": "s",
                "markersize": 3,
                "clip_on": False,
                "label": name,
            }
            chart.plot(shares, costs, linewidth=2, **shape, **look)
            bars = [
                (one.held, *one.interval)
                for one in own
                if one.interval and all(map(isfinite, one.interval))
            ]
            for bar in bars:
                chart.vlines(*bar, color=look["color"], linewidth=1, label=f"{name} interval")
    return canvas.figure


@sheet.own_settings()
def struck_heatmap(item: AttentionMap, *, absent: NDArray[np.bool_], **how: Any) -> Figure:
    """One head's weights with all keys; a stroke through each key that is gone for a query."""
    figure = heatmap(item, **how)
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

        strokes = LineCollection(
            list(ends), colors=[sheet.ink(_STRUCK)], linewidths=0.8, label="gone"
        )
        axes.add_collection(strokes, autolim=False)
    return figure
