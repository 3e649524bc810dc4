"""The parts of a chat as bands: how long they are, and what each sentence and head gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.features.chat.report import TEMPLATE, ChatReport
from attnviz.features.chat.table import HEADS, notes_of, reading_line, times
from attnviz.renderers.colors import FAINT, HEAD_COLORS, INK, Color, ink_on
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.printable import printable, shorten, two_digits

READING = (
    "Each bar is the attention of a row, its bands what the parts get, in the order of the prompt; "
    "the first bar is an even look, in which a part is as wide as it is long"
)
ROWS = 60  # of the answer, at most
LONGEST, SHORTEST = 44, 8  # letters of a label
_WIDE, _ROOM, _BAR = 1500, 0.4, 1.5
"""Pixels of a page, the share of it that labels take, and a bar's height in lines of text."""
_GREY: Color = (205, 205, 205)


@sheet.own_settings()
def chat_picture(report: ChatReport) -> Figure:
    """A bar for each sentence, and for each head that differs most from the mean."""
    names = [printable(one.name) for one in report.parts]
    grounds = colors_of(report)
    rows = report.rows[:ROWS]
    bars = [("an even look", [one.even for one in report.parts])]
    bars += [(f"all {report.unit}", [one.share for one in report.parts])]
    blocks = [("", bars)]
    blocks += [(report.unit, [(_label(one.text), list(one.shares)) for one in rows])]
    if len(report.heads) > 1:
        heads = [(f"head {one.layer}.{one.head}", list(one.shares)) for one in report.heads]
        blocks += [("heads that differ most from the mean", heads[:HEADS])]
    legend = [
        f"{name} · {one.tokens:,} tokens · {times(one)} × even"
        for name, one in zip(names, report.parts, strict=True)
    ]
    notes = [*notes_of(report)]
    if len(report.rows) > ROWS:
        notes.append(f"{ROWS} of {len(report.rows):,} {report.unit} are drawn")
    line = sheet.line_height(sheet.NOTE_SIZE)
    full = sheet.page_width(_WIDE, EDGE)
    labels = [label for _, some in blocks for label, _ in some]
    face = typeface([*labels, *legend])
    letters = LONGEST
    while (left := _width(face, labels, letters)) > full * _ROOM and letters > SHORTEST:
        letters -= 1
    room = [face.width(face.drawable(one), sheet.NOTE_SIZE) + 60 for one in legend]
    places = sheet.flow_lines(room, full)
    down = (places[-1][1] + 1.8) * line
    height = down + sum((1.7 * bool(name) + len(some) * (_BAR + 0.35) + 0.6) * line
                        for name, some in blocks)  # fmt: skip
    title = f"{report.caption} · {report.heads_shown}"
    reading = f"What {reading_line(report).removesuffix(' …')}. {READING}"
    texts = [*labels, *legend, *(name for name, _ in blocks)]
    canvas, top = page_with_room(
        printable(title), printable(reading), texts, notes, (full, height), line
    )
    for (x, row), words, ground in zip(places, legend, grounds, strict=True):
        y = top + (row + 0.4) * line
        _band(canvas, (EDGE + x, y - 0.4 * line, 0.8 * line, 0.8 * line), ground)
        canvas.text(EDGE + x + line, y, words, sheet.NOTE_SIZE, INK)
    at = top + down
    for name, some in blocks:
        if name:
            canvas.text(EDGE, at + 0.7 * line, name, sheet.NOTE_SIZE, INK, bold=True)
            at += 1.7 * line
        for label, shares in some:
            middle = at + _BAR * line / 2
            words = shorten(label, letters)
            canvas.text(EDGE, middle, words, sheet.NOTE_SIZE, INK if name else FAINT)
            _draw_bar(canvas, (EDGE + left, at, full - left, _BAR * line), shares, grounds)
            at += (_BAR + 0.35) * line
        at += 0.6 * line
    return canvas.figure


def colors_of(report: ChatReport) -> list[Color]:
    """A colour for each part; what is in no message is grey."""
    return [
        _GREY if one.name == TEMPLATE else HEAD_COLORS[number % len(HEAD_COLORS)]
        for number, one in enumerate(report.parts)
    ]


def _label(text: str) -> str:
    return printable(" ".join(text.split()))


def _width(face: Typeface, labels: Sequence[str], letters: int) -> float:
    """Pixels that labels of so many letters at most take beside their bars."""
    words = (face.drawable(shorten(one, letters)) for one in labels)
    return max(face.width(one, sheet.NOTE_SIZE) for one in words) + 16


def _draw_bar(
    canvas: Canvas,
    box: tuple[float, float, float, float],
    shares: Sequence[float],
    grounds: Sequence[Color],
) -> None:
    """The bands of a bar, each with its share where it fits."""
    x, y, width, height = box
    for share, ground in zip(shares, grounds, strict=True):
        wide = share * width
        _band(canvas, (x, y, wide, height), ground)
        words = two_digits(share)
        if wide > canvas.face.width(words, sheet.NOTE_SIZE) + 6:
            middle = x + wide / 2, y + height / 2
            canvas.text(*middle, words, sheet.NOTE_SIZE, ink_on(ground), align="center")
        x += wide


def _band(canvas: Canvas, box: tuple[float, float, float, float], ground: Color) -> None:
    x, y, width, height = box
    look: dict[str, Any] = {"facecolor": sheet.ink(ground), "edgecolor": "white", "linewidth": 0.6}
    canvas.axes.add_patch(Rectangle((x, y), width, height, **look))
