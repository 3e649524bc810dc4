"""Effects of switching parts off: as bars, as a grid of heads, as a coloured text, as a curve."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnviz.core.effects import Effect
from attnviz.features.ablate.report import AblationReport
from attnviz.renderers.colors import (
    FAINT,
    INK,
    SIGNED_SHADES,
    UNNAMED,
    Color,
    Limits,
    color_of,
    colors_of,
    ink_on,
    round_up,
)
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Box, Canvas, chart_page, page_with_room
from attnviz.renderers.figures.fonts import typeface
from attnviz.renderers.printable import nats, shorten

READING = (
    "log p of the output with it minus log p without it, in nats: blue supports the output, "
    "orange hinders it"
)
MOST = 60  # the most bars of a picture, the largest effects first
_NAMED = 5
_WIDTH, _NARROWEST = 1500, 760
_CELL = (96, 52)
_LONGEST_NAME = 44
_COLORS = [sheet.ink(color_of(share, (-1.0, 1.0))) for share in (-0.5, 0.6)]  # below 0, above


@sheet.own_settings()
def effect_bars(report: AblationReport) -> Figure:
    """Every effect as a bar, the largest first, with its interval over texts."""
    effects = [one for one in (*report.every, *report.effect_sum) if not math.isnan(one.effect)]
    bars = sorted(effects, key=lambda one: -abs(one.effect))[:MOST]
    width = sheet.page_width(_WIDTH, EDGE)
    names = [shorten(one.label, min(_LONGEST_NAME, width // 26)) for one in bars]
    notes = [READING]
    if len(bars) < len(effects):
        notes.append(f"the {len(bars)} largest of {len(effects)}")
    if any(one.interval for one in bars):
        notes.append("lines: 95 % intervals of the means")
    if without := len(report.every) + len(report.effect_sum) - len(effects):
        notes.append(f"without a value, as nothing else was left to see: {without}")
    reading = [report.instead]
    if len(bars) > _NAMED:  # more than a reader takes in at once
        largest = (
            f"{name} {nats(one.effect)}" for one, name in zip(bars[:_NAMED], names, strict=False)
        )
        reading.append(f"largest: {', '.join(largest)}")
    below = "\n".join(filter(None, reading))
    room = width, sheet.points(1.7 * sheet.TEXT_SIZE) * len(bars) + EDGE
    face, [[chart]] = chart_page(report.caption, below, names, notes, room)
    effects_of = np.array([one.effect for one in bars])
    ends = np.array([one.interval or (one.effect,) * 2 for one in bars]).reshape(-1, 2).T
    bars_of = chart.barh(
        range(len(bars)),
        effects_of,
        0.6,
        xerr=np.abs(ends - effects_of),
        color=[_COLORS[int(effect > 0)] for effect in effects_of],
        error_kw={"elinewidth": 1.2, "ecolor": sheet.ink(INK)},
        label="effects",
    )
    texts = [nats(effect) for effect in effects_of]
    chart.bar_label(bars_of, texts, padding=4, **sheet.words(face, sheet.NOTE_SIZE, FAINT))
    chart.margins(x=0.08)
    chart.set(ylim=(len(bars) - 0.5, -0.5), xticks=[])
    drawable = [face.drawable(name) for name in names]
    chart.set_yticks(range(len(bars)), drawable, **sheet.words(face, sheet.TEXT_SIZE))
    for tick, one in zip(chart.get_yticklabels(), bars, strict=True):
        tick.set_fontweight("bold" if one.kind == "together" else "normal")
    chart.axvline(0, color=sheet.ink(FAINT), linewidth=0.6)
    return chart.figure  # type: ignore[no-any-return]


@sheet.own_settings()
def effect_grid(report: AblationReport) -> Figure:
    """Every head of every stream, coloured by its effect."""
    heads: dict[str, dict[tuple[str, int], Effect]] = {}
    for one in report.effects:
        if one.kind == "head":
            key = str(one.place["layer"]), int(one.place["head"])
            heads.setdefault(str(one.place["stream"]), {})[key] = one
    limits = _limits(report.effects)
    line = sheet.line_height(sheet.TEXT_SIZE)
    rows = {stream: list(dict.fromkeys(layer for layer, _ in own)) for stream, own in heads.items()}
    across = max(1 + max(head for _, head in own) for own in heads.values())
    width = min(_CELL[0], (sheet.page_width(_WIDTH, EDGE) - 120) / across)
    height = min(_CELL[1], max(width, 8))
    down = sum(3.6 * line + height * len(layers) for layers in rows.values()) + 2 * line
    room = sheet.page_width(int(max(110 + width * across, _NARROWEST)), EDGE), down + EDGE
    canvas, top = page_with_room(report.caption, report.instead, [*heads], [READING], room)
    for stream, layers in rows.items():
        canvas.text(EDGE, top + 0.5 * line, stream, sheet.TEXT_SIZE, INK, bold=True)
        left, upper = EDGE + 110, top + 2.9 * line
        names = [str(head) for head in range(across)]
        canvas.name_heads((layers, names), (left, upper), (width, height))
        for (layer, head), one in heads[stream].items():
            box = (left + head * width, upper + layers.index(layer) * height, width - 2, height - 2)
            _cell(canvas, box, one, limits)
        top = upper + height * len(layers) + 0.7 * line
    _ramp(canvas, EDGE + 110, top + 0.5 * line, limits)
    return canvas.figure


@sheet.own_settings()
def effect_words(report: AblationReport) -> Figure:
    """The text, each token on the colour of its effect."""
    sides: dict[str, list[Effect]] = {}
    for one in report.effects:
        if one.kind == "token":
            sides.setdefault(str(one.place["side"]), []).append(one)
    texts = {item.key_side: [token.text for token in item.key_tokens] for item in report.maps.maps}
    line, limits = sheet.points(2.9 * sheet.TEXT_SIZE), _limits(report.effects)
    face = typeface([word for words in texts.values() for word in words])
    places: list[tuple[Effect, str, float, float, float]] = []
    titles: list[tuple[str, float]] = []
    y = 0.0
    for side, own in sides.items():
        titles.append((side, y + line * 0.4))
        x, y = 0.0, y + line * 0.8
        for one in own:
            word = face.drawable(shorten(texts[side][int(one.place["position"])], 40))
            wide = max(face.width(word, sheet.TEXT_SIZE), face.width("+0.00", sheet.SMALLEST)) + 20
            if x + wide > sheet.page_width(_WIDTH, EDGE):
                x, y = 0.0, y + line
            places.append((one, word, x, y, wide))
            x += wide + 4
        y += line * 1.3
    words = [*(word for _, word, *_ in places), *sides]
    widest = int(max(*(x + size for _, _, x, _, size in places), _NARROWEST))
    room = sheet.page_width(widest, EDGE), y + 60 + EDGE
    canvas, top = page_with_room(report.caption, report.instead, words, [READING], room)
    for side, at in titles:
        canvas.text(EDGE, top + at, side, sheet.NOTE_SIZE, FAINT)
    for one, word, x, at, wide in places:
        box = (EDGE + x, top + at, wide, line - 8)
        ground = _color(one, limits)
        canvas.boxes([box], ground, one.label)
        middle = EDGE + x + wide / 2
        ink, effect = ink_on(ground), nats(one.effect)
        canvas.text(middle, top + at + line * 0.27, word, sheet.TEXT_SIZE, ink, align="center")
        canvas.text(middle, top + at + line * 0.63, effect, sheet.SMALLEST, ink, align="center")
    _ramp(canvas, EDGE, top + y + 20, limits)
    return canvas.figure


def _limits(effects: Sequence[Effect]) -> Limits:
    sizes = [abs(one.effect) for one in effects if not math.isnan(one.effect)]
    top = round_up(max(sizes, default=0.0))
    return -top, top


def _color(one: Effect, limits: Limits) -> Color:
    return UNNAMED if math.isnan(one.effect) else color_of(one.effect, limits)


def _cell(canvas: Canvas, box: Box, one: Effect, limits: Limits) -> None:
    ground = _color(one, limits)
    canvas.boxes([box], ground, one.label)
    effect = nats(one.effect)
    if canvas.face.width(effect, sheet.NOTE_SIZE) + 8 < box[2] and box[3] > sheet.points(
        sheet.NOTE_SIZE
    ):
        middle = box[0] + box[2] / 2, box[1] + box[3] / 2
        canvas.text(*middle, effect, sheet.NOTE_SIZE, ink_on(ground), align="center")


def _ramp(canvas: Canvas, left: float, middle: float, limits: Limits) -> None:
    height, unit = sheet.points(sheet.NOTE_SIZE), f"{nats(limits[1])} nats"
    values = np.linspace(*limits, len(SIGNED_SHADES) // 2, dtype=np.float32)
    start = left + canvas.text(left, middle, nats(limits[0]), sheet.NOTE_SIZE, FAINT) + 12
    room = canvas.axes.get_xlim()[1] - EDGE - start - 12 - canvas.face.width(unit, sheet.NOTE_SIZE)
    wide = min(3, room / len(values))
    boxes: list[Box] = [
        (start + place * wide, middle - height / 2, wide + 1, height)
        for place in range(len(values))
    ]
    colors = [(int(r), int(g), int(b)) for r, g, b in colors_of(values, limits)]
    canvas.boxes(boxes, colors, "scale")
    end = start + len(values) * wide + 12
    canvas.text(end, middle, unit, sheet.NOTE_SIZE, FAINT)
