"""Which heads read which heads, as lines between layers."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attnviz.core.effects import HeadAt
from attnviz.core.writers import Side
from attnviz.features.wiring.report import WiringReport
from attnviz.renderers.colors import FAINT, INK, NO_ROLE, ROLE_COLORS, Color
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.printable import printable

_WIDTH = 1500
MOST = 8, 14  # strongest lines of each side: in a model of at most 24 heads, in a larger one
LEAST = 0.02  # weaker ones are not drawn
COLORS: dict[Side, Color] = {"query": (0, 114, 178), "key": (213, 94, 0), "value": (0, 158, 115)}
"""Okabe and Ito's blue, vermilion and bluish green (2008)."""
WIRING_READING = "a line: the head at its right end reads what the one at its left end wrote"
_WIDEST_LINE = 12.0


@sheet.own_settings()
def wiring_picture(report: WiringReport) -> Figure:
    """Layers from left to right, in each its heads; the strongest lines, three colours."""
    width, line = sheet.page_width(_WIDTH, EDGE), sheet.line_height(sheet.TEXT_SIZE)
    most = MOST[len(report.heads) > 24]
    # By side: a value's loss is no share of attention, so values have a scale of their own.
    every = [[one for one in report.wires if one.side == side][:most] for side in COLORS]
    wires = sorted((w for own in every for w in own if w.moved >= LEAST), key=lambda w: -w.moved)
    columns = _columns(report)
    tallest = max(len(heads) for _, heads in columns)
    step = min(
        max(2.6 * sheet.points(sheet.TEXT_SIZE), 720 / tallest), 4.4 * sheet.points(sheet.TEXT_SIZE)
    )
    notes = [
        f"{len(wires)} of {len(report.wires):,} pairs, the strongest of each side; width: "
        "the share of attention that moves without it, or of the output's size that a value loses"
    ]
    words = [role.label for role in report.roles.values()]
    room = width, step * tallest + 3.4 * line + EDGE
    canvas, top = page_with_room(report.caption, WIRING_READING, words, notes, room)
    ends = {at for one in wires for at in (one.head, one.writer)}
    roles = {report.roles[at].label: report.roles[at].name for at in report.heads
             if at in ends and at in report.roles}  # fmt: skip
    _wiring_legend(canvas, EDGE, top + 0.4 * line, roles)
    top += 3 * line
    apart = width / len(columns)
    places: dict[HeadAt, tuple[float, float]] = {}
    for number, (title, heads) in enumerate(columns):
        x = EDGE + (number + 0.42) * apart
        canvas.text(x, top - 1.0 * line, title, sheet.NOTE_SIZE, FAINT, align="center")
        first = top + (tallest - len(heads)) * step / 2
        for row, at in enumerate(heads):
            places[at] = x, first + (row + 0.5) * step
    for one in reversed(wires):
        start, end = places[one.writer], places[one.head]
        lift = (tuple(COLORS).index(one.side) - 1) * 5
        wide = max(_WIDEST_LINE * one.moved, 0.5)
        look = {"linewidth": wide, "capstyle": "round", "alpha": 0.62}
        canvas.curve(start, (end[0], end[1] + lift), COLORS[one.side], **look)
    _dots(canvas, report, places, ends, apart)
    return canvas.figure


def _columns(report: WiringReport) -> list[tuple[str, list[HeadAt]]]:
    """Each layer's title and heads: an encoder before a decoder, whose cross-attention follows."""
    streams = list(dict.fromkeys(at.stream for at in report.heads))
    streams.sort(key=lambda name: name != "encoder")
    own = [name for name in streams if name != "cross"]
    columns = []
    for stream in own:
        both = (stream, "cross") if "cross" in streams and stream == own[-1] else (stream,)
        layers = dict.fromkeys(at.layer for at in report.heads if at.stream == stream)
        for layer in layers:
            for name in both:
                heads = [at for at in report.heads if (at.stream, at.layer) == (name, layer)]
                title = f"layer {layer}" if len(streams) == 1 else f"{name} {layer}"
                columns.append((title, heads))
    return columns


def _dots(
    canvas: Canvas,
    report: WiringReport,
    places: Mapping[HeadAt, tuple[float, float]],
    ends: set[HeadAt],
    apart: float,
) -> None:
    """A dot a head, in its role's colour; its name, and its role if there is room."""
    for at, (x, y) in places.items():
        role = report.roles.get(at)
        color = ROLE_COLORS.get(role.name, NO_ROLE) if role else NO_ROLE
        size = 64 if at in ends else 16
        rim = {"linewidths": 0.8, "edgecolors": "white"}
        canvas.axes.scatter([x], [y], s=size, color=sheet.ink(color), zorder=3, **rim)  # type: ignore[arg-type]
        if at not in ends:
            continue
        name = str(at)
        label = f"{name} {printable(role.label)}" if role else name
        label = label if canvas.face.width(label, sheet.SMALLEST) < 0.9 * apart else name
        canvas.text(
            x, y - sheet.points(sheet.TEXT_SIZE) * 0.85, label, sheet.SMALLEST, INK, align="center"
        )


def _wiring_legend(canvas: Canvas, left: float, y: float, roles: Mapping[str, str]) -> None:
    """The colours of lines, then those of roles, by label."""
    for side, color in COLORS.items():
        canvas.strokes(np.array([[(left, y), (left + 36, y)]]), color, 4.0)
        left += 46 + canvas.text(left + 46, y, f"into its {side}", sheet.NOTE_SIZE, INK) + 26
    for label, name in roles.items():
        wide = canvas.face.width(label, sheet.NOTE_SIZE)
        if left + wide + 60 > canvas.axes.get_xlim()[1] - EDGE:
            break
        canvas.axes.scatter([left + 8], [y], s=48, color=sheet.ink(ROLE_COLORS.get(name, NO_ROLE)))
        left += 22 + canvas.text(left + 22, y, label, sheet.NOTE_SIZE, INK) + 20
