"""Why a head looks there, which heads read which, and what restores an answer, as pictures."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from attnviz.core.answers import ContrastReport
from attnviz.core.effects import HeadAt
from attnviz.core.writers import LAYERS_READING, LayersReport, LinkReport, Side, WiringReport
from attnviz.renderers.colors import FAINT, INK, NO_ROLE, ROLE_COLORS, Color, color_of, ink_on
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.printable import nats, printable, shorten, two_digits, with_sign

READING = "blue raises the score, or the token's logit; orange lowers it; widths are proportional"
Group: TypeAlias = tuple[str, Sequence[tuple[str, float]]]  # a title, and names with their values
_WIDTH = 1500
_NARROW = 1000
_TOKENS = 6
_WIDEST = 24.0  # of a ribbon, pixels
_COLORS = color_of(-0.5, (-1.0, 1.0)), color_of(0.6, (-1.0, 1.0))


@sheet.own_settings()
def why_picture(report: LinkReport) -> Figure:
    """The largest writers of the query and of the key, the link, and the tokens it argues for.

    A narrow page has no room for the link between: bars stand below one another there.
    """
    width, row = sheet.page_width(_WIDTH, EDGE), sheet.points(1.75 * sheet.TEXT_SIZE)
    sides: list[Group] = [
        (
            f"{side} {end}".strip(),
            [(f"{one.writer} {one.role}".rstrip(), one.value) for one in report.shown_parts(own)],
        )
        for side, end, own in zip(
            ("query", "key"), report.ends, (report.query, report.key), strict=True
        )
    ]
    half = len(report.arguments) // 2
    pairs = [(one.token, one.logit) for one in report.arguments]
    groups: list[Group] = [
        ("argues for", pairs[:half][:_TOKENS]),
        ("argues against", pairs[half:][::-1][:_TOKENS]),
    ]
    narrow = width < _NARROW
    blocks = [*sides, *groups] if narrow else sides
    rows = sum(len(own) + 2.2 for _, own in blocks)
    height = (rows if narrow else max(rows, 2 * (_TOKENS + 2.2))) * row
    notes = [READING, *filter(None, [report.position_reason])]
    words = [name for name, _ in pairs] + [name for name, _ in sides]
    above = f"{with_sign(report.contrast)} above {report.against}"
    below = above if report.link is None else f"score {report.score:.2f}, {above}"
    if report.effect is not None:
        below += f" · without the link log p of {report.output} {nats(-report.effect)} nats"
    canvas, top = page_with_room(report.caption, below, words, notes, (width, height + EDGE))
    if narrow:
        for own in (sides, groups):
            top = _bars(canvas, own, (EDGE, top), row)
        return canvas.figure
    start, right = _names(canvas, sides, top, row), EDGE + 0.66 * width
    left = start + 0.45 * (right - start)
    nodes = [(left, top + height * share) for share in (0.27, 0.73)]
    _ribbons(canvas, sides, nodes, (start, top + 1.8 * row), row)
    _link(canvas, report, nodes, right)
    if report.arguments:
        _bars(canvas, groups, (right + 30, top), row)
    else:
        text = "no logits: nothing is predicted here"
        canvas.text(right + 30, top + height / 2, text, sheet.NOTE_SIZE, FAINT)
    return canvas.figure


@sheet.own_settings()
def layers_picture(report: LayersReport) -> Figure:
    """Log p of a prediction after each layer, with what would be predicted there, and the parts."""
    width, row = sheet.page_width(_WIDTH, EDGE), sheet.points(1.75 * sheet.TEXT_SIZE)
    chances = [(f"{one.layer or 'embedding'}: {one.likeliest}", one.log_p) for one in report.rows]
    kinds = ("attention", "feed_forward")
    parts: list[Group] = [
        (kind.replace("_", "-"), [(one.layer, getattr(one, kind)) for one in report.rows[1:]])
        for kind in kinds
    ]
    lens: list[Group] = [("log p after each layer: what it would predict", chances)]
    narrow, rows = width < _NARROW, len(chances) + 2.2
    height = row * (rows + 2 * (rows - 1) if narrow else max(rows, 2 * (rows - 1)))
    notes = [LAYERS_READING, *report.notes]
    below = f"logit {with_sign(report.logit)} above the mean of all choices"
    title = f"{report.caption}: {report.choice}"
    names = [name for name, _ in chances]
    canvas, top = page_with_room(title, below, names, notes, (width, height + EDGE))
    for groups, left in ((lens, EDGE), (parts, EDGE if narrow else EDGE + 0.55 * width)):
        end = None if narrow or left > EDGE else EDGE + 0.5 * width
        bottom = _bars(canvas, groups, (left, top), row, end)
        top = bottom if narrow else top
    return canvas.figure


def _names(canvas: Canvas, sides: Sequence[Group], top: float, row: float) -> float:
    """Write writers and their numbers; answers where ribbons begin."""
    names = [[shorten(printable(name), 38) for name, _ in own] for _, own in sides]
    widest = max(canvas.face.width(name, sheet.TEXT_SIZE) for own in names for name in own)
    number = canvas.face.width("+00.00", sheet.NOTE_SIZE)
    start = EDGE + widest + number + 34
    for (title, own), words in zip(sides, names, strict=True):
        canvas.text(EDGE, top + 0.5 * row, printable(title), sheet.TEXT_SIZE, INK, bold=True)
        top += 1.8 * row
        for (_, value), name in zip(own, words, strict=True):
            canvas.text(start - 12, top, with_sign(value), sheet.NOTE_SIZE, INK, align="right")
            canvas.text(start - number - 30, top, name, sheet.TEXT_SIZE, INK, align="right")
            top += row
        top += 0.4 * row
    return start


def _ribbons(
    canvas: Canvas,
    sides: Sequence[Group],
    nodes: Sequence[tuple[float, float]],
    corner: tuple[float, float],
    row: float,
) -> None:
    """Join each writer to its side's node; ribbons lie beside one another there."""
    most = max((abs(value) for _, own in sides for _, value in own), default=1.0) or 1.0
    start, y = corner
    for (_, own), (left, node) in zip(sides, nodes, strict=True):
        sizes = [max(_WIDEST * abs(value) / most, 0.6) for _, value in own]
        end = node - sum(sizes) / 2
        for (_, value), wide in zip(own, sizes, strict=True):
            look = {"linewidth": wide * 0.72, "capstyle": "butt", "alpha": 0.55}
            _curve(canvas, (start, y), (left, end + wide / 2), _COLORS[value > 0], **look)
            y, end = y + row, end + wide
        y += 2.2 * row


def _curve(
    canvas: Canvas, start: tuple[float, float], end: tuple[float, float], color: Color, **look: Any
) -> None:
    """A line that leaves and arrives level."""
    middle = (start[0] + end[0]) / 2
    path = Path(
        [start, (middle, start[1]), (middle, end[1]), end],
        [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
    )
    canvas.axes.add_patch(PathPatch(path, facecolor="none", edgecolor=sheet.ink(color), **look))


def _link(
    canvas: Canvas, report: LinkReport, nodes: Sequence[tuple[float, float]], right: float
) -> None:
    """The query, the key and the weight between them, and a way to the tokens."""
    (left, upper), (_, lower) = nodes
    middle, across = (upper + lower) / 2, left + 0.36 * (right - left)
    for end in nodes:
        canvas.strokes(np.array([[end, (across, middle)]]), INK, 1.4)
    for (x, y), name in zip(nodes, report.ends, strict=True):
        side = -1 if y < middle else 1
        label = shorten(printable(name), 22) if name else ("queries" if side < 0 else "keys")
        canvas.text(
            x + 10, y + side * sheet.points(sheet.TEXT_SIZE), label, sheet.TEXT_SIZE, INK, bold=True
        )
    size = sheet.points(sheet.TEXT_SIZE)
    head = f"{report.head.layer}.{report.head.head}"
    weight = f"weight {two_digits(report.weight)}" if report.link else ""
    tip = right - 12
    arrow = [[(tip, middle), (tip - 12, middle + side * 8)] for side in (-1, 1)]
    canvas.strokes(np.array([[(across, middle), (tip, middle)], *arrow]), INK, 1.4)
    canvas.boxes([(across - 4, middle - 4, 8, 8)], INK, "link")
    canvas.text(across + 14, middle - size, f"head {head}", sheet.TEXT_SIZE, INK, bold=True)
    canvas.text(across + 14, middle + size, weight, sheet.TEXT_SIZE, FAINT)


def _bars(
    canvas: Canvas,
    groups: Sequence[Group],
    corner: tuple[float, float],
    row: float,
    end: float | None = None,
) -> float:
    """Write groups of names with their values as bars on one scale; answers where they end.

    `end` is their right edge, by default the page's.
    """
    left, top = corner
    face, most = canvas.face, 18 if left > EDGE else 30
    names = [[shorten(printable(name), most) for name, _ in own] for _, own in groups]
    room = max((face.width(name, sheet.TEXT_SIZE) for own in names for name in own), default=0) + 16
    width = (end or canvas.axes.get_xlim()[1] - EDGE) - left - 90 - room
    largest = max((abs(value) for _, own in groups for _, value in own), default=1.0) or 1.0
    for (title, own), words in zip(groups, names, strict=True):
        canvas.text(left, top + 0.5 * row, printable(title), sheet.TEXT_SIZE, INK, bold=True)
        top += 1.8 * row
        for (name, value), short in zip(own, words, strict=True):
            canvas.text(left, top, short, sheet.TEXT_SIZE, INK)
            wide = width * abs(value) / largest
            box = (left + room, top - row * 0.3, wide, row * 0.6)
            canvas.boxes([box], _COLORS[value > 0], name)
            canvas.text(left + room + wide + 10, top, with_sign(value), sheet.NOTE_SIZE, FAINT)
            top += row
        top += 0.4 * row
    return top


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
        _curve(canvas, start, (end[0], end[1] + lift), COLORS[one.side], **look)
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
        name = f"{at.layer}.{at.head}"
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


CONTRAST_READING = (
    "share of the first text's answer that comes back where all heads of a layer put out at one "
    "position what they put out for the first text; blue restores it, orange does the opposite"
)
_CELL, _LONGEST, _LIMITS = (74, 40), 20, (-1.0, 1.0)


@sheet.own_settings()
def contrast_picture(report: ContrastReport) -> Figure:
    """A row for each position and a column for each layer of each stream."""
    columns = [*dict.fromkeys((one.stream, one.layer) for one in report.layers)]
    streams = [*dict.fromkeys(stream for stream, _ in columns)]
    tokens = {
        stream: {one.position: one.token for one in report.layers if one.stream == stream}
        for stream in streams
    }
    names = [shorten(name, _LONGEST) for own in tokens.values() for name in own.values()]
    line, (wide, high) = sheet.line_height(sheet.TEXT_SIZE), _CELL
    several = len(streams) > 1
    strongest = (
        (f"{one.stream} " if several else "") + f"{one.layer}.{one.head} {two_digits(one.share)}"
        for one in report.heads[:4]
    )
    heads = f"heads that restore most: {', '.join(strongest)}"
    layers = {stream: [layer for own, layer in columns if own == stream] for stream in streams}
    most = max(len(own) for own in layers.values())
    down = sum(2.4 * line + high * len(own) for own in tokens.values())
    room = sheet.page_width(int(max(240 + wide * most, 760)), EDGE), down + EDGE
    caption = f"from “{report.answers[1]}” to “{report.answers[0]}” · {report.provenance.title}"
    canvas, top = page_with_room(caption, heads, names, [CONTRAST_READING], room)
    titles = [f"{stream} layer" for stream in streams]
    left = EDGE + max(canvas.face.width(name, sheet.TEXT_SIZE) for name in [*names, *titles]) + 34
    for stream in streams:
        canvas.text(EDGE, top + 0.6 * line, f"{stream} layer", sheet.TEXT_SIZE, INK)
        for number, layer in enumerate(layers[stream]):
            x = left + (number + 0.5) * wide
            canvas.text(x, top + 0.6 * line, layer, sheet.TEXT_SIZE, INK, align="center")
        upper = top + 1.3 * line
        for row, (position, token) in enumerate(tokens[stream].items()):
            y = upper + row * high
            name = shorten(token, _LONGEST)
            canvas.text(left - 12, y + high / 2, name, sheet.TEXT_SIZE, INK, align="right")
            for one in report.layers:
                if (one.stream, one.position) == (stream, position):
                    x = left + layers[stream].index(one.layer) * wide
                    color = color_of(float(np.clip(one.share, *_LIMITS)), _LIMITS)
                    canvas.boxes([(x, y, wide - 2, high - 2)], color, f"{token} {one.layer}")
                    text = two_digits(one.share).replace("-", "−")
                    middle = x + wide / 2, y + high / 2
                    canvas.text(*middle, text, sheet.SMALLEST, ink_on(color), align="center")
        top = upper + high * len(tokens[stream]) + 0.9 * line
    return canvas.figure
