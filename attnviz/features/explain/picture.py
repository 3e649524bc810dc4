"""Which positions of which layers restore an answer, as a picture."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnviz.features.explain.report import ContrastReport, Restored
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, chart_page
from attnviz.renderers.figures.heatmap import write_cells
from attnviz.renderers.page.reports import number_table, paragraphs, picture_tag, report_page
from attnviz.renderers.printable import shorten, two_digits

CONTRAST_READING = (
    "share of the first text's answer that comes back where all heads of a layer put out at one "
    "position what they put out for the first text; blue restores it, orange does the opposite"
)
_CELL, _LONGEST, _LIMITS = (74, 40), 20, (-1.0, 1.0)


@sheet.own_settings()
def contrast_picture(report: ContrastReport) -> Figure:
    """A row for each position and a column for each layer of each stream."""
    streams = [*dict.fromkeys(one.stream for one in report.layers)]
    cells = {stream: [one for one in report.layers if one.stream == stream] for stream in streams}
    layers = {stream: [*dict.fromkeys(one.layer for one in cells[stream])] for stream in streams}
    tokens = {
        stream: {one.position: shorten(one.token, _LONGEST) for one in cells[stream]}
        for stream in streams
    }
    strongest = (
        (f"{one.stream} " if len(streams) > 1 else "")
        + f"{one.layer}.{one.head} {two_digits(one.share)}"
        for one in report.heads[:4]
    )
    heads = f"heads that restore most: {', '.join(strongest)}"
    names = [name for own in tokens.values() for name in own.values()]
    down, across = len(names), max(map(len, layers.values()))
    above = 3 * sheet.line_height(sheet.TEXT_SIZE)
    wide = sheet.page_width(int(max(240 + _CELL[0] * across, 760)), EDGE)
    room = wide, _CELL[1] * down + above * len(streams)
    caption = f"from “{report.answers[1]}” to “{report.answers[0]}” · {report.provenance.title}"
    tall = [len(tokens[stream]) for stream in streams]
    face, charts = chart_page(
        *(caption, heads, names, [CONTRAST_READING], room), nrows=len(streams), height_ratios=tall
    )
    look = sheet.words(face, sheet.TEXT_SIZE)
    for chart, stream in zip(charts.flat, streams, strict=True):
        positions = [*tokens[stream]]
        shares = np.full((len(positions), len(layers[stream])), np.nan)
        for one in cells[stream]:
            shares[positions.index(one.position), layers[stream].index(one.layer)] = one.share
        sheet.draw_image(chart, np.clip(shares, *_LIMITS), _LIMITS, aspect=_CELL[1] / _CELL[0])
        chart.set_anchor("W")
        for side, count in zip((chart.xaxis, chart.yaxis), shares.T.shape, strict=True):
            side.set_ticks(np.arange(1, count) - 0.5, minor=True)
        chart.grid(which="minor", color="white", linewidth=1)
        chart.xaxis.tick_top()
        chart.set_xticks(range(len(layers[stream])), layers[stream], **look)
        chart.set_yticks(range(len(positions)), map(face.drawable, tokens[stream].values()), **look)
        chart.set_title(f"{stream} layer", loc="left", **look)
        texts = [[two_digits(x).replace("-", "−") for x in row] for row in shares]
        write_cells(chart, np.clip(shares, *_LIMITS), texts, _LIMITS, face.font(sheet.SMALLEST))
    return charts[0, 0].figure  # type: ignore[no-any-return]


_LISTED = 15
"""Parts in a table of a page."""


def contrast_page(
    report: ContrastReport, lines: Sequence[str], picture: bytes, command: str
) -> str:
    """A page: lines, the picture (SVG) of layers by positions, and what restores most."""
    body = paragraphs([*lines, *report.notes])
    body += picture_tag(picture, "layers by positions")
    for name, own in (
        ("Heads at every position", report.heads),
        ("Heads at one position", report.rows),
        ("Links", report.links),
    ):
        body += f"<h2>{name}</h2>{_restored_table(own)}" if own else ""
    return report_page(report.caption, body, command)


def _restored_table(parts: Sequence[Restored]) -> str:
    """A row for each part, the first fifteen, with its share and its estimate."""
    rows = [
        (
            one.name(),
            two_digits(one.share),
            "" if one.estimate is None else two_digits(one.estimate),
        )
        for one in parts[:_LISTED]
    ]
    more = f'<p class="faint">and {len(parts) - _LISTED:,} more</p>' if len(parts) > _LISTED else ""
    return number_table(("part", "share", "estimate"), rows) + more
