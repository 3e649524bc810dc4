"""The parts of a chat as bands: how long they are, and what each sentence and head gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attnviz.features.chat.report import BEGINNING, TEMPLATE, ChatReport
from attnviz.features.chat.table import HEADS, notes_of, reading_line, times
from attnviz.renderers.colors import FAINT, HEAD_COLORS, INK, Color, ink_on
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, chart_page
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.figures.fonts import Typeface, typeface
from attnviz.renderers.page.reports import escape_text, number_table, picture_tag, report_page
from attnviz.renderers.printable import printable, shorten, two_digits

READING = (
    "Each bar is the attention of a row, its bands what the parts get, in the order of the prompt; "
    "the first bar is an even look, in which a part is as wide as it is long"
)
ROWS = 60  # of the answer, at most
LONGEST, SHORTEST = 44, 8  # letters of a label
_WIDE, _ROOM, _BAR = 1500, 0.4, 1.5
"""Pixels of a page, the share of it that labels take, and a bar's height in lines of text."""
_EDGES: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
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
    blocks += [
        (report.unit, [(printable(" ".join(one.text.split())), list(one.shares)) for one in rows])
    ]
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
    line, full = sheet.line_height(sheet.NOTE_SIZE), sheet.page_width(_WIDE, EDGE)
    labels = [label for _, some in blocks for label, _ in some]
    face = typeface([*labels, *legend])
    letters = LONGEST
    while (left := _width(face, labels, letters)) > full * _ROOM and letters > SHORTEST:
        letters -= 1
    columns = max(int(full / _width(face, [f"{one}xxxx" for one in legend], LONGEST)), 1)
    above = (-(-len(legend) // columns) + 1) * 1.5 * line
    tall = [len(some) for _, some in blocks]
    title = f"{report.caption} · {report.heads_shown}"
    reading = f"What {reading_line(report).removesuffix(' …')}. {READING}"
    face, charts = chart_page(
        *(printable(title), printable(reading), [*labels, *legend], notes),
        (full, above + sum(tall) * _BAR * line + len(blocks) * 2 * line),
        nrows=len(blocks),
        height_ratios=tall,
    )
    for chart, (name, some) in zip(charts.flat, blocks, strict=True):
        shares = np.array([own for _, own in some])
        starts = np.cumsum(shares, axis=1) - shares
        for number, (ground, words) in enumerate(zip(grounds, legend, strict=True)):
            look: dict[str, Any] = {"color": sheet.ink(ground), "label": words}
            bars = chart.barh(
                range(len(some)), shares[:, number], 0.8, starts[:, number], **look, **_EDGES
            )
            numbers = [two_digits(share) for share in shares[:, number]]
            fits = [
                text if share * (full - left) > face.width(text, sheet.NOTE_SIZE) + 6 else ""
                for share, text in zip(shares[:, number], numbers, strict=True)
            ]
            inside = sheet.words(face, sheet.NOTE_SIZE, ink_on(ground))
            chart.bar_label(bars, fits, label_type="center", **inside)
        chart.set(xlim=(0, 1), ylim=(len(some) - 0.5, -0.5), xticks=[])
        short = [face.drawable(shorten(label, letters)) for label, _ in some]
        color = INK if name else FAINT
        chart.set_yticks(range(len(some)), short, **sheet.words(face, sheet.NOTE_SIZE, color))
        chart.set_title(name, loc="left", **sheet.words(face, sheet.NOTE_SIZE, bold=True))
    key = charts[0, 0].legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        prop=face.font(sheet.NOTE_SIZE),
        handlelength=0.8,
        borderaxespad=0.8,
    )
    for text in key.get_texts():
        text.set_parse_math(False)
    return charts[0, 0].figure  # type: ignore[no-any-return]


def colors_of(report: ChatReport) -> list[Color]:
    """A colour for each part; what is in no message is grey."""
    return [
        _GREY if one.name == TEMPLATE else HEAD_COLORS[number % len(HEAD_COLORS)]
        for number, one in enumerate(report.parts)
    ]


def _width(face: Typeface, labels: Sequence[str], letters: int) -> float:
    """Pixels that labels of so many letters at most take beside their bars."""
    words = (face.drawable(shorten(one, letters)) for one in labels)
    return max(face.width(one, sheet.NOTE_SIZE) for one in words) + 16


PAGE_HEADS = 32  # that a page lists
PAGE_TERMS = (
    "Shares are of a row's attention. × even: the share over what an even look at all that a row "
    "sees would give the part. difference: half the sum of the differences from the mean of heads."
)


def chat_page(report: ChatReport, command: str) -> str:
    """The picture (SVG), then the messages, the rows and the heads with their shares."""
    names = [one.name for one in report.parts]
    messages = "".join(
        f"<p><b>{escape_text(one.name)}</b> · {one.tokens:,} tokens · {two_digits(one.share)} · "
        f"{times(one)} × even<br>{escape_text(one.text)}"
        f"{'…' if len(one.text) >= BEGINNING else ''}</p>"
        for one in report.parts
    )
    rows = [(" ".join(one.text.split()), *map(two_digits, one.shares)) for one in report.rows]
    heads = [
        (f"{one.layer}.{one.head}", two_digits(one.difference), *map(two_digits, one.shares))
        for one in report.heads[:PAGE_HEADS]
    ]
    body = f"<p>{escape_text(reading_line(report))} {escape_text(report.heads_shown)}</p>"
    body += picture_tag(
        figure_bytes(chat_picture(report), ".svg"), "the parts of the chat as bands"
    )
    body += f"<h2>What {escape_text(report.unit)} look at</h2>"
    body += number_table((report.unit, *names), rows)
    body += f"<h2>Parts</h2>{messages}"
    body += "<h2>Heads that differ most from the mean</h2>"
    body += number_table(("head", "difference", *names), heads)
    body += f'<p class="faint">{PAGE_TERMS}</p>'
    return report_page(report.caption, body, command)
