"""What a smaller cache costs over its size, and the keys that are gone struck out of a head."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.features.cache.report import CacheReport
from attnviz.renderers.colors import FAINT, HEAD_COLORS, Color
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, RULE, chart_page
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.page import reports
from attnviz.renderers.printable import nats, printable, shorten, two_digits

READING = (
    "nats a token that a rule adds to the loss, over the keys that a query sees; below 0 it helps"
)
_WIDE, _TALL, _ROW = 700, 520, 3
"""Pixels of a panel at most, and panels in a row."""
_STRUCK: Color = (200, 32, 64)
_BEST, _DOTS = "best", (3.0, 2.0)


@sheet.own_settings()
def cost_curves(report: CacheReport) -> Figure:
    """A panel for each kind of text, with a line for each rule and bars for intervals."""
    names, kinds = list(dict.fromkeys(one.name for one in report.rules)), list(report.full)
    headings = [
        f"{kind and printable(shorten(kind, 40)) + ' · '}loss with all keys {loss:.2f} nats"
        for kind, loss in report.full.items()
    ]
    notes = [report.prompt]
    if any(one.interval for one in report.rules):
        notes.append("bars: 95 % intervals of the means over texts")
    across = min(len(kinds), _ROW)
    down = -(-len(kinds) // across)
    room = sheet.page_width(across * _WIDE, EDGE), down * _TALL
    face, charts = chart_page(
        *(report.caption, READING, [*names, *headings], notes, room),
        nrows=down,
        ncols=across,
        sharex=True,
        sharey=True,
    )
    look = sheet.words(face, sheet.NOTE_SIZE)
    for chart, kind, heading in zip(charts.flat, kinds, headings, strict=False):
        chart.set_title(face.drawable(heading), loc="left", **sheet.words(face, sheet.TEXT_SIZE))
        chart.axhline(0, color=sheet.ink(FAINT), linewidth=0.8)
        chart.grid(axis="y", color=sheet.ink(RULE), linewidth=0.6)
        for name, color in zip(names, HEAD_COLORS * len(names), strict=False):
            own = [one for one in report.rules if (one.kind, one.name) == (kind, name)]
            own = sorted((one for one in own if isfinite(one.cost)), key=lambda one: one.held)
            costs = np.array([one.cost for one in own])
            ends = np.array([one.interval or (one.cost,) * 2 for one in own]).reshape(-1, 2).T
            chart.errorbar(
                [one.held for one in own],
                costs,
                np.where(np.isfinite(ends), np.abs(ends - costs), 0),
                # A bound is no rule that can be used.
                linestyle=(0, _DOTS) if _BEST in name.split("+") else "-",
                color=sheet.ink(color),
                marker="s",
                markersize=3,
                linewidth=2,
                elinewidth=1,
                clip_on=False,
                label=name,
            )
        chart.xaxis.set_major_formatter(PercentFormatter(1))
        chart.set(xlim=(0, 1))
        chart.set_xlabel("keys that a query sees", **look)
    for chart in charts[:, 0]:
        chart.set_ylabel("nats a token", **look)
    for chart in charts.flat[len(kinds) :]:
        chart.set_visible(False)
    charts[0, 0].legend(prop=face.font(sheet.NOTE_SIZE), loc="upper right", frameon=False)
    return charts[0, 0].figure  # type: ignore[no-any-return]


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


CACHE_TERMS = (
    "keys: share of the keys that a query still sees. attention: share of its attention, with all "
    "keys, that goes to these. nats a token: what log p of each token loses (natural logarithms; "
    "ln 2 = .69 nats is one bit). changed: share of tokens whose likeliest choice is another."
)


def cache_page(
    report: CacheReport, plot: bytes, heads: Sequence[tuple[str, bytes]], command: str
) -> str:
    """A page: the costs (SVG), a table of them, and for each rule a head with keys struck out."""
    table = reports.number_table(
        ("rule", "keys", "attention", "nats a token", "changed"),
        [
            (
                f"{one.kind} {one.rule}".strip(),
                *map(two_digits, (one.held, one.mass)),
                nats(one.cost),
                two_digits(one.changed),
            )
            for one in report.rules
        ],
    )
    body = reports.paragraphs([report.prompt, *report.notes])
    body += (reports.picture_tag(plot, "costs of each rule") if plot else "") + table
    body += f'<p class="faint">{CACHE_TERMS}</p>'
    for rule, picture in heads:
        image = reports.picture_tag(picture, f"keys that {rule} drops")
        body += f"<h2>{reports.escape_text(rule)}</h2>{image}"
    return reports.report_page(report.caption, body, command)
