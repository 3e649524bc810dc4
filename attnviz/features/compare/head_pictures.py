"""Every head over the steps of a training run: a small picture of entropy, drift and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.attention_map import AttentionMap
from attnviz.core.registry import PICTURES
from attnviz.features.compare.report import DRIFT, Comparison, History, Verdict, verdict_lines
from attnviz.renderers.colors import FAINT, INK, ROLE_COLORS, UNNAMED, Color, round_up, scale_of
from attnviz.renderers.figures import figure, fonts
from attnviz.renderers.figures.canvas import EDGE, Box, Canvas, full_canvas
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.printable import printable, short_paths, shorten

_PAPER: Color = (247, 248, 250)
_LINES: dict[str, Color] = {"entropy": INK, "score-max": (0, 114, 178), DRIFT: (200, 32, 64)}
_MARK: Color = (160, 74, 12)
_GAP, _BAND, _PAD = 14, 12, 8
_WIDEST, _NARROWEST, _ALL = 300, 110, 2200
"""Pixels of a head's picture at most and at least, and of all heads side by side if possible."""
_LONGEST_NAME = 28


@figure.own_settings()
def history_figure(run: History, other: History | None = None) -> Figure:
    """Small multiples: layers run down, heads across, steps from left to right in each.

    Lines of another run lie pale behind the first's; heads that only it has are left out.
    """
    runs = [run] if other is None else [run, other]
    rows = list(dict.fromkeys((stream, layer) for stream, layer, _ in run.heads))
    heads = list(dict.fromkeys(head for _, _, head in run.heads))
    several = len({stream for stream, _ in rows}) > 1
    short, common = short_paths([layer for _, layer in rows])
    sides = [
        shorten(printable(f"{stream} · {short[layer]}" if several else short[layer]), _LONGEST_NAME)
        for stream, layer in rows
    ]
    roof, words = _scales(runs)
    measures = list(words)
    roles = [role for role in ROLE_COLORS if any(role in of_step for of_step in run.roles)]
    ends = f"{run.steps[0]:,}", f"{run.steps[-1]:,}"
    layers = f"layers ({printable(common)})" if common else "layers"
    reading = f"{layers} run down, heads across; in each, steps run from left to right"
    notes = ["the band under each: the head's clearest role at a sample", *run.notes]
    if other is not None:
        notes.append(f"{run.run}: full lines; {other.run}: pale lines · {other.caption}")
    notes += (line.partition(" – ")[0] for line in verdict_lines(run, short))
    texts = [run.caption, reading, *notes, *sides, *heads, *words.values(), *roles, *ends, "no…"]
    face = fonts.typeface(texts)
    line = figure.line_height(figure.NOTE_SIZE)
    names = max(face.width(name, figure.NOTE_SIZE) for name in [*sides, "layer"]) + 14
    usual = min(max(_ALL // len(heads), _NARROWEST), _WIDEST) + _GAP
    width = figure.page_width(int(max(names + len(heads) * usual, 1000)), EDGE)
    cell = min(usual, int((width - names) / len(heads))) - _GAP
    if cell < _GAP:
        raise figure.no_room(f"{len(heads)} heads have no room")
    tall = int(0.62 * cell)
    legend = [(words[name], _LINES[name]) for name in measures]
    legend += [(role, ROLE_COLORS[role]) for role in roles] + [("no role", UNNAMED)]
    places = figure.flow_lines(
        (40 + face.width(text, figure.NOTE_SIZE) + 26 for text, _ in legend), width
    )
    head = figure.title_paragraphs(face, run.caption, reading, width)
    foot = figure.note_paragraphs(face, notes, width)
    start = EDGE + figure.height_of(head) + 0.8 * line
    top = start + (places[-1][1] + 3.6) * line
    high = tall + _BAND + _GAP
    canvas = full_canvas(face, width, head, foot, int(top + len(rows) * high + 2.2 * line))
    for number, ((text, color), (x, down)) in enumerate(zip(legend, places, strict=True)):
        middle = start + down * line
        thick = 5 if number < len(measures) else 18
        canvas.boxes([(EDGE + x, middle - thick / 2, 30, thick)], color, text)
        canvas.text(EDGE + x + 40, middle, text, figure.NOTE_SIZE, INK)
    left = EDGE + names
    canvas.name_heads((sides, heads), (left, top), (cell + _GAP, high), gap=_GAP + _BAND)
    for number, (stream, layer, name) in enumerate(run.heads):
        x = left + heads.index(name) * (cell + _GAP)
        y = top + rows.index((stream, layer)) * high
        _draw_head(canvas, runs, number, (x, y, cell, tall), roof)
    below = top + len(rows) * high - _GAP + 0.9 * line
    canvas.text(left, below, f"step {ends[0]}", figure.NOTE_SIZE, FAINT)
    canvas.text(left + cell, below, ends[1], figure.NOTE_SIZE, FAINT, align="right")
    return canvas.figure


def _draw_head(
    canvas: Canvas, runs: Sequence[History], number: int, box: Box, roof: Mapping[str, float]
) -> None:
    """A head's picture, with its lines in another run behind those of the first."""
    run, head = runs[0], runs[0].heads[number]
    x, y, wide, tall = box
    along = _along(run, wide)
    edges = np.concatenate([[0], (along[1:] + along[:-1]) / 2, [wide]])
    canvas.boxes([box], _PAPER, "head")
    band = [(x + one, y + tall, two - one, _BAND) for one, two in pairwise(edges)]
    roles = [ROLE_COLORS.get(of_step[number], UNNAMED) for of_step in run.roles]
    canvas.boxes(band, roles, "role")
    level = y + tall - _PAD / 2 - run.most[number] / roof["entropy"] * (tall - _PAD)
    starts = range(4, int(wide) - 4, 10)
    dashes = np.array([[[x + at, level], [x + at + 5, level]] for at in starts])
    canvas.strokes(dashes, FAINT, 1.0, label="uniform")
    for other in runs[1:]:
        if head in other.heads:
            _draw_lines(canvas, other, other.heads.index(head), box, roof, pale=True)
    _draw_lines(canvas, run, number, box, roof)
    marks = [one for one in run.verdicts if one.head == head and one.name != "settled"]
    for at, one in enumerate(marks):
        _draw_mark(canvas, run, one, box, at)


def _scales(runs: Sequence[History]) -> tuple[dict[str, float], dict[str, str]]:
    """The upper end of each measure that is known, and what its line is called."""
    measures = [
        name for name in _LINES if not all(np.isnan(one.values[name]).all() for one in runs)
    ]
    roof = {
        name: round_up(max(float(np.nan_to_num(one.values[name]).max()) for one in runs))
        for name in measures
    }
    roof["entropy"] = round_up(max(max(one.most) for one in runs))
    words = {
        "entropy": f"entropy, 0 (one-hot) to {roof['entropy']:g} nats; dashed: uniform",
        "score-max": f"largest score, 0 to {roof.get('score-max', 0):g}",
        DRIFT: f"drift from the sample before, 0 to {roof.get(DRIFT, 0):g} nats",
    }
    return roof, {name: words[name] for name in measures}


def _along(run: History, wide: float) -> NDArray[np.float64]:
    """Where the steps lie on a head's picture."""
    steps = np.array(run.steps, dtype=float)
    along: NDArray[np.float64] = (steps - steps[0]) / (np.ptp(steps) or 1) * (wide - 2 * _PAD)
    return along + _PAD


def _draw_lines(
    canvas: Canvas,
    run: History,
    number: int,
    box: Box,
    roof: Mapping[str, float],
    *,
    pale: bool = False,
) -> None:
    x, y, wide, tall = box
    along = _along(run, wide)
    for measure, full in _LINES.items():
        if measure not in roof:
            continue
        color: Color = tuple((one + 2 * 255) // 3 for one in full) if pale else full  # type: ignore[assignment]
        values = run.values[measure][:, number]
        finite = np.isfinite(values)
        heights = y + tall - _PAD / 2 - np.maximum(values, 0) / roof[measure] * (tall - _PAD)
        way = np.stack([x + along, heights], axis=-1)[finite]
        canvas.strokes(way[None], color, 1.6, label=f"{measure} beside" if pale else measure)
        if finite.sum() == 1:  # a line needs two points
            canvas.boxes([(*(way[0] - 4), 8, 8)], color, measure)


def _draw_mark(canvas: Canvas, run: History, one: Verdict, box: Box, at: int) -> None:
    """A line at the step since which a verdict holds, and its name."""
    x, y, wide, tall = box
    place = x + float(_along(run, wide)[run.steps.index(one.step)])
    canvas.boxes([(place - 1, y, 2, tall)], _MARK, one.name)
    text = f"{one.name} {one.step:,}"
    right = place > x + wide / 2
    height = y + (0.8 + at) * figure.line_height(figure.SMALLEST)
    room = canvas.face.width(text, figure.SMALLEST)
    if room < wide / 2:
        left = place - 5 - room if right else place + 5
        canvas.boxes([(left - 2, height - 9, room + 4, 18)], _PAPER, "label", zorder=3)
        canvas.text(left, height, text, figure.SMALLEST, _MARK)


@figure.own_settings()
def head_frames(maps: Mapping[int, AttentionMap], model: str, which: str) -> Figure:
    """One head at each step as a heat map, all on one scale; the last has all as its frames."""
    limits = max((scale_of(item) for item in maps.values()), key=lambda one: one[1])
    last = figure.ShownFigure()
    frames = []
    for step, item in maps.items():
        title = f"{model} · step {step:,}"
        last = heatmap(item, title=title, subtitle=which, limits=limits)  # type: ignore[assignment]
        frames.append(last)
    last.frames = frames
    return last


@figure.own_settings()
def draw_difference(comparison: Comparison, picture: str, subtitle: str) -> Figure:
    """B − A: every head, or the one that differs most as a heat map."""
    from attnviz.renderers.figures.figure import fit_width

    item, title = comparison.map, "B − A"
    if picture == "heatmap":
        sizes = np.nan_to_num(comparison.divergences, nan=-1.0)
        layer, head = np.unravel_index(int(sizes.argmax()), sizes.shape)
        title += f" · layer {item.layers[layer]} head {item.heads[head]}"
        if sizes.size > 1:
            subtitle = f"the head that differs most of {sizes.size}\n{subtitle}"
        item = item.part([item.layers[layer]], [item.heads[head]])
    return fit_width(PICTURES[picture].load(), item, title=title, subtitle=subtitle)
