"""Every head over the steps of a training run: a small picture of entropy, drift and role."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from attnviz.core.attention_map import AttentionMap
from attnviz.core.measures import DRIFT, History
from attnviz.renderers.colors import FAINT, INK, ROLE_COLORS, UNNAMED, Color, round_up, scale_of
from attnviz.renderers.figures import figure as sheet
from attnviz.renderers.figures.canvas import EDGE, Box, Canvas, full_canvas
from attnviz.renderers.figures.fonts import typeface
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.printable import printable, short_paths, shorten

_PAPER: Color = (247, 248, 250)
_LINES: dict[str, Color] = {"entropy": INK, DRIFT: (200, 32, 64)}
_GAP, _BAND, _PAD = 14, 12, 8
_WIDEST, _NARROWEST, _ALL = 300, 110, 2200
"""Pixels of a head's picture at most and at least, and of all heads side by side if possible."""
_LONGEST_NAME = 28


@sheet.own_settings()
def history_figure(found: History) -> Figure:
    """Small multiples: layers run down, heads across, steps from left to right in each."""
    rows = list(dict.fromkeys((stream, layer) for stream, layer, _ in found.heads))
    heads = list(dict.fromkeys(head for _, _, head in found.heads))
    several = len({stream for stream, _ in rows}) > 1
    short, common = short_paths([layer for _, layer in rows])
    named = [
        shorten(printable(f"{stream} · {short[layer]}" if several else short[layer]), _LONGEST_NAME)
        for stream, layer in rows
    ]
    roof = {name: round_up(float(np.nan_to_num(found.values[name]).max())) for name in _LINES}
    words = {"entropy": f"entropy, 0 to {roof['entropy']:g} nats"}
    words[DRIFT] = f"drift from the sample before, 0 to {roof[DRIFT]:g} nats"
    shown = [role for role in ROLE_COLORS if any(role in of_step for of_step in found.roles)]
    ends = f"{found.steps[0]:,}", f"{found.steps[-1]:,}"
    layers = f"layers ({printable(common)})" if common else "layers"
    reading = f"{layers} run down, heads across; in each, steps run from left to right"
    notes = ["the band under each: the head's clearest role at a sample", *found.notes]
    texts = [found.caption, reading, *notes, *named, *heads, *words.values(), *shown, *ends, "no…"]
    face = typeface(texts)
    line = sheet.line_height(sheet.NOTE_SIZE)
    names = max(face.width(name, sheet.NOTE_SIZE) for name in [*named, "layer"]) + 14
    usual = min(max(_ALL // len(heads), _NARROWEST), _WIDEST) + _GAP
    width = sheet.page_width(int(max(names + len(heads) * usual, 1000)), EDGE)
    cell = min(usual, int((width - names) / len(heads))) - _GAP
    if cell < _GAP:
        raise sheet.no_room(f"{len(heads)} heads have no room")
    tall = int(0.62 * cell)
    legend = [*((words[name], color) for name, color in _LINES.items())]
    legend += [(role, ROLE_COLORS[role]) for role in shown] + [("no role", UNNAMED)]
    places = sheet.flow_lines(
        (40 + face.width(text, sheet.NOTE_SIZE) + 26 for text, _ in legend), width
    )
    head = sheet.title_paragraphs(face, found.caption, reading, width)
    foot = sheet.note_paragraphs(face, notes, width)
    start = EDGE + sheet.height_of(head) + 0.8 * line
    top = start + (places[-1][1] + 3.6) * line
    high = tall + _BAND + _GAP
    canvas = full_canvas(face, width, head, foot, int(top + len(rows) * high + 2.2 * line))
    for number, ((text, color), (x, down)) in enumerate(zip(legend, places, strict=True)):
        middle = start + down * line
        thick = 5 if number < len(_LINES) else 18
        canvas.boxes([(EDGE + x, middle - thick / 2, 30, thick)], color, text)
        canvas.text(EDGE + x + 40, middle, text, sheet.NOTE_SIZE, INK)
    left = EDGE + names
    canvas.name_heads((named, heads), (left, top), (cell + _GAP, high), gap=_GAP + _BAND)
    for number, (stream, layer, name) in enumerate(found.heads):
        x = left + heads.index(name) * (cell + _GAP)
        y = top + rows.index((stream, layer)) * high
        _draw_head(canvas, found, number, (x, y, cell, tall), roof)
    below = top + len(rows) * high - _GAP + 0.9 * line
    canvas.text(left, below, f"step {ends[0]}", sheet.NOTE_SIZE, FAINT)
    canvas.text(left + cell, below, ends[1], sheet.NOTE_SIZE, FAINT, align="right")
    return canvas.figure


def _draw_head(
    canvas: Canvas, found: History, number: int, box: Box, roof: Mapping[str, float]
) -> None:
    x, y, wide, tall = box
    steps = np.array(found.steps, dtype=float)
    along = (steps - steps[0]) / (np.ptp(steps) or 1) * (wide - 2 * _PAD) + _PAD
    edges = np.concatenate([[0], (along[1:] + along[:-1]) / 2, [wide]])
    canvas.boxes([box], _PAPER, "head")
    band = [(x + one, y + tall, two - one, _BAND) for one, two in pairwise(edges)]
    roles = [ROLE_COLORS.get(of_step[number], UNNAMED) for of_step in found.roles]
    canvas.boxes(band, roles, "role")
    for measure, color in _LINES.items():
        values = found.values[measure][:, number]
        known = np.isfinite(values)
        heights = y + tall - _PAD / 2 - values / roof[measure] * (tall - _PAD)
        way = np.stack([x + along, heights], axis=-1)[known]
        canvas.strokes(way[None], color, 1.6, label=measure)
        if known.sum() == 1:  # a line needs two points
            canvas.boxes([(*(way[0] - 4), 8, 8)], color, measure)


@sheet.own_settings()
def head_frames(maps: Mapping[int, AttentionMap], model: str, which: str) -> Figure:
    """One head at each step as a heat map, all on one scale; the last has all as its frames."""
    limits = max((scale_of(item) for item in maps.values()), key=lambda one: one[1])
    last = sheet.ShownFigure()
    made = []
    for step, item in maps.items():
        title = f"{model} · step {step:,}"
        last = heatmap(item, title=title, subtitle=which, limits=limits)  # type: ignore[assignment]
        made.append(last)
    last.frames = made
    return last
