"""Why a head looks there, and what would be predicted after each layer, as pictures."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from attnviz.features.why.layers import blocks_of, lens_notes
from attnviz.features.why.report import LENS_READING, LayersReport, LensColumn
from attnviz.features.writers.report import LinkReport
from attnviz.renderers.colors import FAINT, INK, Color, color_of, ink_on
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.figures.fonts import typeface
from attnviz.renderers.printable import nats, printable, shorten, two_digits, with_sign

READING = "blue raises the score, or the token's logit; orange lowers it; widths are proportional"
Group: TypeAlias = tuple[str, Sequence[tuple[str, float]]]  # a title, and names with their values
_WIDTH = 1500
_NARROW = 1000
_TOKENS = 6
_LETTERS = 12  # of a token in the lens
_LEAST = 760  # pixels that a heading needs
_SETTLED: Color = (178, 64, 0)
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
    """A column for each position and a row for each layer, in each cell the likeliest token.

    As many columns stand beside one another as fit, then more below. A line goes along the first
    layers from which a column's choice stays on top.
    """
    line, high = sheet.line_height(sheet.NOTE_SIZE), 2.1 * sheet.points(sheet.NOTE_SIZE)
    layers = [cell.layer or "none" for cell in report.columns[0].cells]
    words = [cell.top[0][0] for one in report.columns for cell in one.cells]
    words += [text for one in report.columns for text in (one.token, one.choice)]
    visible, face = [*map(printable, words)], typeface([*words, *layers])
    short = {face.drawable(shorten(word, _LETTERS)) for word in visible}
    wide = max(face.width(word, sheet.NOTE_SIZE) for word in short) + 20
    left = EDGE + face.width("after layer", sheet.NOTE_SIZE) + 14
    width = sheet.page_width(_WIDTH, EDGE)
    across = max(min(int((width - left + EDGE) / wide), len(report.columns)), 1)
    least = min(left - EDGE + across * wide + 4, width)
    width = max(int(least), min(width, _LEAST))
    blocks = blocks_of(report.columns, across)
    tall = 2.9 * line + high * len(layers)
    notes = [*lens_notes(report, "orange line:"), *report.notes]
    room = width, tall * len(blocks) + 1.6 * line
    canvas, top = page_with_room(report.caption, LENS_READING, [*words, *layers], notes, room)
    y = top + 0.2 * line
    start = EDGE + canvas.text(EDGE, y, "probability 0", sheet.NOTE_SIZE, FAINT) + 10
    steps = 40
    boxes = [(start + 4 * n, y - 8, 4, 16) for n in range(steps)]
    canvas.boxes(boxes, [color_of(n / (steps - 1)) for n in range(steps)], "scale")
    canvas.text(start + 4 * steps + 10, y, "1", sheet.NOTE_SIZE, FAINT)
    top += 1.9 * line
    for columns in blocks:
        _lens(canvas, columns, (left, top + 1.6 * line), (wide, high))
        canvas.text(left - 14, top, "token", sheet.NOTE_SIZE, FAINT, align="right")
        canvas.text(left - 14, top + line, "after layer", sheet.NOTE_SIZE, FAINT, align="right")
        top += tall
    return canvas.figure


def _lens(
    canvas: Canvas,
    columns: Sequence[LensColumn],
    corner: tuple[float, float],
    cell: tuple[float, float],
) -> None:
    """The cells of some columns under their tokens, beside the names of layers."""
    (left, top), (wide, high) = corner, cell
    for number, one in enumerate(columns[0].cells):
        y = top + (number + 0.5) * high
        canvas.text(left - 14, y, one.layer or "none", sheet.NOTE_SIZE, FAINT, align="right")
    for place, column in enumerate(columns):
        x = left + place * wide
        name = shorten(printable(column.token), _LETTERS)
        above = top - sheet.line_height(sheet.NOTE_SIZE) * 1.1
        canvas.text(x + wide / 2, above, name, sheet.NOTE_SIZE, INK, align="center", bold=True)
        for number, own in enumerate(column.cells):
            token, p = own.top[0]
            ground, y = color_of(p), top + number * high
            canvas.boxes([(x, y, wide - 2, high - 2)], ground, f"{column.position} {own.layer}")
            middle = x + wide / 2 - 1, y + high / 2 - 1
            words = shorten(printable(token), _LETTERS)
            canvas.text(*middle, words, sheet.NOTE_SIZE, ink_on(ground), align="center")
        if column.settled is not None:
            number = [own.layer for own in column.cells].index(column.settled)
            y = top + number * high - 1
            canvas.strokes(np.array([[(x - 1, y), (x + wide - 1, y)]]), _SETTLED, 2.6)


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
    head = str(report.head)
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
