"""The triangle of a reasoning: what hiding each sentence changes in each later one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.features.trace.anchors import Numbers, TracedSentence, TraceReport
from attnviz.features.trace.table import cells_of, headings_of, heads_line, readings_of
from attnviz.renderers.colors import FAINT, INK, PAPER, Color, colors_of, reach
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Canvas, page_with_room
from attnviz.renderers.page.reports import escape_text, paragraphs, picture_tag, report_page
from attnviz.renderers.printable import printable, shorten, two_digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure


READING = (
    "a row is a sentence, a column an earlier one; blue: hiding it changes what the model predicts "
    "in the row more than hiding others does (log KL less the row's mean), orange: less"
)
BARS = "bars: how much sentences at least 4 later look at it, by the receiver heads"
_LARGEST, _SIDE, _TEXT, _BARS = 26, 720, 420, 56
"""Pixels of a cell and of the triangle at most, of the texts beside it, and of the bars."""
_NAMED = 4  # texts beside the triangle at least
_STROKE: Color = (170, 175, 182)
_BAR: Color = (70, 110, 170)


@sheet.own_settings()
def triangle(report: TraceReport) -> Figure:
    """Sentences × sentences below the diagonal, the texts of those that stand out beside it."""
    count, line = len(report.sentences), sheet.line_height(sheet.NOTE_SIZE)
    full = sheet.page_width(_SIDE + _TEXT, EDGE)
    side = min(_LARGEST * count, full - min(_TEXT, full // 2))
    cell = side / count
    names = [printable(one.text) for one in report.sentences]
    room = full, side + _BARS + 1.6 * line
    matrix = report.matrix()
    most = reach(np.abs(matrix[np.isfinite(matrix)]).astype(np.float32)) or 1.0
    scale = f"the darkest colours stand for {two_digits(most)} more or less"
    canvas, top = page_with_room(printable(report.caption), READING, names, [BARS, scale], room)
    left = EDGE + 2.2 * line
    cell = min(cell, (full - left) / count)
    _cells(canvas, matrix, most, (left, top, cell * count))
    step = int(np.ceil(1.3 * line / cell))
    for number in range(0, count, step):
        middle = top + (number + 0.5) * cell
        canvas.text(left - 8, middle, str(number + 1), sheet.NOTE_SIZE, FAINT, align="right")
    _texts(canvas, report, (left, top, cell), EDGE + full)
    below = top + cell * count + 0.5 * line
    _bars(canvas, np.array([one.receiver for one in report.sentences]), (left, below, cell))
    return canvas.figure


def _cells(canvas: Canvas, matrix: Numbers, most: float, box: tuple[float, float, float]) -> None:
    left, top, side = box
    image = np.full((*matrix.shape, 3), PAPER, dtype=np.uint8)
    there = np.isfinite(matrix)
    image[there] = colors_of(np.nan_to_num(matrix).astype(np.float32), (-most, most))[there]
    place = (left, left + side, top + side, top)
    canvas.axes.imshow(
        image, extent=place, aspect="auto", interpolation="nearest", label="effects", zorder=0
    )
    edge = np.array(
        [[(left, top), (left, top + side)], [(left, top + side), (left + side, top + side)]]
    )
    canvas.strokes(edge, _STROKE, 0.8)


def _texts(
    canvas: Canvas, report: TraceReport, grid: tuple[float, float, float], right: float
) -> None:
    """The texts of sentences that stand out, at their rows right of the diagonal, the first first.

    What would touch another is left out.
    """
    left, top, cell = grid
    line = sheet.line_height(sheet.NOTE_SIZE)
    order = sorted(
        report.sentences,
        key=lambda own: (-len(own.marks), -np.nan_to_num(own.effect, posinf=0, neginf=0)),
    )
    last = list[float]()
    for place, one in enumerate(order):
        y = top + (one.number - 0.5) * cell
        stands_out = one.marks or (place < _NAMED and one.effect > 0)
        if not stands_out or any(abs(y - other) < 1.1 * line for other in last):
            continue
        last.append(y)
        x = left + one.number * cell
        canvas.strokes(np.array([[(x, y), (x + 14, y)]]), _STROKE, 0.8)
        words, bold = f"{one.number}  {printable(one.text)}", len(one.marks) > 1
        share = (right - x - 20) / canvas.face.width(words, sheet.NOTE_SIZE, bold=bold)
        if share < 1:  # letters of one text are about as wide as those of its beginning
            words = shorten(words, max(int(share * 0.95 * len(words)), 8))
        canvas.text(x + 20, y, words, sheet.NOTE_SIZE, INK, bold=bold)


def _bars(canvas: Canvas, scores: Numbers, grid: tuple[float, float, float]) -> None:
    """A bar under each column, as high as its receiver score."""
    left, top, cell = grid
    most = np.nanmax(scores) if np.isfinite(scores).any() else 0.0
    boxes = [
        (left + number * cell + 0.1 * cell, top, 0.8 * cell, _BARS * score / most)
        for number, score in enumerate(scores)
        if np.isfinite(score) and most > 0
    ]
    canvas.boxes(boxes, _BAR, "receiver scores")


LINKED = (
    "needs: the earlier sentences without which it changes most. changes: the later ones that "
    "change most without it."
)
LONGEST = 160  # characters of what stands there instead


def trace_page(report: TraceReport, picture: bytes, command: str) -> str:
    """The triangle, every sentence with its scores and links, the answer, and what these mean."""
    sentences = "".join(_sentence(report, one) for one in report.sentences)
    answer = f"<h2>Answer</h2><p>{escape_text(report.answer)}</p>" if report.answer else ""
    faint = [*readings_of(report), LINKED, *report.notes]
    body = picture_tag(picture, "what each sentence changes later")
    body += (
        f"<h2>Sentences</h2><ol>{sentences}</ol>{answer}<p>{escape_text(heads_line(report))}</p>"
    )
    return report_page(report.caption, body + paragraphs(faint, "faint"), command)


def _sentence(report: TraceReport, one: TracedSentence) -> str:
    """A sentence, bold where it stands out, with its scores, and links."""
    text = f"<b>{escape_text(one.text)}</b>" if one.marks else escape_text(one.text)
    names, (_, mark, *cells) = headings_of(report)[2:], cells_of(report, one)
    about = [f"{name} {escape_text(cell)}" for name, cell in zip(names, cells, strict=True)]
    for word, own in (("needs", one.needs), ("changes", one.changes)):
        links = [f'<a href="#sentence-{number}">{number}</a>' for number in own]
        about += [f"{word} {', '.join(links)}"] if links else []
    if one.resampling and one.resampling.instead:
        about.append(f"else “{escape_text(shorten(one.resampling.instead, LONGEST))}”")
    return (
        f'<li id="sentence-{one.number}">{mark and f"{mark} "}{text}<br>'
        f"<small>{' · '.join(about)}</small></li>"
    )
