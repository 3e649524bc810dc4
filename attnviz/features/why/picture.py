"""Why a head looks there, which heads read which, and what restores an answer, as pictures."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from attnviz.core.writers import LAYERS_READING, LayersReport, LinkReport
from attnviz.renderers.colors import FAINT, INK, color_of
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
            canvas.curve((start, y), (left, end + wide / 2), _COLORS[value > 0], **look)
            y, end = y + row, end + wide
        y += 2.2 * row


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
