"""Which positions of which layers restore an answer, as a picture."""

import numpy as np
from matplotlib.figure import Figure

from attnviz.features.explain.report import ContrastReport
from attnviz.renderers.colors import INK, color_of, ink_on
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, page_with_room
from attnviz.renderers.printable import shorten, two_digits

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
