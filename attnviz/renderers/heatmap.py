"""One matrix of weights as a heat map: rows are queries, columns keys, tokens on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.renderers.axis import TokenAxis, axes_of, label_angle, label_words, thinning_notes
from attnviz.renderers.blocks import strongest
from attnviz.renderers.colors import (
    INK,
    LABELLED,
    PAPER,
    SPECIAL,
    Limits,
    color_of,
    ink_on,
    limits_of,
)
from attnviz.renderers.figure import (
    LINE,
    TEXT_SIZE,
    Frame,
    framed,
    ink,
    missing_note,
    points,
)
from attnviz.renderers.fonts import DPI, Typeface, typeface

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.attention_map import AttentionMap

QUERY_AXIS, KEY_AXIS = "query (attends)", "key (attended)"
OUTPUT_AXES = "output", "what speaks for it"
_MOST_NUMBERS = 400
_SMALLEST_NUMBER, _LARGEST_NUMBER = 5.0, 8.0


def heatmap(
    attention_map: AttentionMap,
    *,
    title: str,
    subtitle: str = "",
    divided: tuple[int | None, int | None] = (None, None),
) -> Figure:
    """One matrix of weights as a heat map.

    Shares are coloured from 0 to 1, or to the next round number where none reaches a half;
    signed values around 0. Numbers stand in the cells while they fit. Labels that do not fit are
    thinned, a matrix too large for a pixel a weight is drawn by its strongest weights, and the
    picture says so.

    Args:
        attention_map: a map of one layer and one head.
        title: what was run.
        subtitle: more on it.
        divided: the first row and the first column of a second part, before which a line is drawn.

    Raises:
        ValueError: a map of several layers or heads.
    """
    if attention_map.weights.shape[:2] != (1, 1):
        raise ValueError(f"a heat map shows one head, not shape {attention_map.weights.shape}")
    weights = attention_map.weights[0, 0]
    sides = (attention_map.query_tokens, attention_map.key_tokens)
    words = (word for side in sides for token in side for word in label_words(token))
    face = typeface([title, subtitle, attention_map.unit, *words])
    rows, columns = axes_of(*sides, face)
    angle = label_angle(columns, face)
    turn = np.radians(angle)
    widest, line = columns.widest(face), points(LINE * columns.size)
    name_room = int(points(LINE * TEXT_SIZE)) + 8
    limits = limits_of(weights, attention_map.values)
    frame = Frame(
        title=title,
        subtitle=subtitle,
        notes=(*thinning_notes(rows, columns), *missing_note(face)),
        unit=attention_map.unit,
        limits=limits,
        face=face,
        left=int(rows.widest(face)) + rows.pad + 10 + name_room,
        top=int(widest * np.sin(turn) + line * np.cos(turn)) + columns.pad + 6 + name_room,
        right=int(widest * np.cos(turn)) if angle else 0,
    )
    image = np.clip(strongest(weights, rows.block, columns.block), *limits)
    figure, axes = framed(image, columns.pixels, rows.pixels, frame)
    axes.images[0].set_extent((-0.5, len(sides[1]) - 0.5, len(sides[0]) - 0.5, -0.5))
    label_axes(axes, rows, columns, angle, face)
    names = OUTPUT_AXES if attention_map.query_side == "output" else (QUERY_AXIS, KEY_AXIS)
    _name_axes(axes, rows, columns, frame, names)
    separate(axes, rows, columns)
    _divide(axes, rows, columns, divided)
    write_numbers(axes, weights, rows, columns, limits, face)
    return figure


def number(value: float, digits: int) -> str:
    """A weight as a cell shows it: .46 for 0.46, 0 for an exact 0, −.20 below 0."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1000:
        text = f"{size:.0e}".replace("e+0", "e")
    elif size >= 10:
        text = f"{size:.0f}"
    else:
        text = f"{size:.{digits}f}"
        text = text[1:] if text.startswith("0.") else text
        text = "1" if size <= 1 and text.startswith("1.") else text
    return f"−{text}" if value < 0 else text


def label_axes(axes: Axes, rows: TokenAxis, columns: TokenAxis, angle: int, face: Typeface) -> None:
    """Tokens beside the rows and above the columns."""
    upright = {"ha": "center", "va": "bottom"}
    turned = {"ha": "left", "va": "center", "rotation": angle, "rotation_mode": "anchor"}
    axes.xaxis.tick_top()
    for set_ticks, axis, looks in (
        (axes.set_yticks, rows, {}),
        (axes.set_xticks, columns, turned if angle else upright),
    ):
        words = [axis.texts[i] for i in axis.shown]
        font = face.font(axis.size)
        set_ticks(axis.shown, words, fontproperties=font, parse_math=False, **looks)
    sides: tuple[tuple[Literal["x", "y"], TokenAxis], ...] = (("y", rows), ("x", columns))
    for which, axis in sides:
        mark = 0.0 if axis.step == 1 else 2.5
        gap = axis.pad * 72 / DPI - mark
        axes.tick_params(axis=which, length=mark, width=0.5, pad=gap, color=ink(SPECIAL))
        texts = axes.get_yticklabels() if which == "y" else axes.get_xticklabels()
        for text, position in zip(texts, axis.shown, strict=True):
            token = axis.tokens[position]
            text.set_color(ink(LABELLED if token.label else SPECIAL if token.special else INK))
            if token.label:
                text.set_fontweight("bold")


def _name_axes(
    axes: Axes, rows: TokenAxis, columns: TokenAxis, frame: Frame, names: tuple[str, str]
) -> None:
    """Who attends and who is attended to, outside of the tokens."""
    looks: dict[str, Any] = {
        "fontproperties": frame.face.font(TEXT_SIZE),
        "color": ink(INK),
        "clip_on": False,
    }
    axes.text(
        0.5,
        1 + (frame.top - 2) / rows.pixels,
        names[1],
        transform=axes.transAxes,
        ha="center",
        va="top",
        **looks,
    )
    axes.text(
        -(frame.left - 2) / columns.pixels,
        0.5,
        names[0],
        transform=axes.transAxes,
        ha="left",
        va="center",
        rotation=90,
        **looks,
    )


def separate(axes: Axes, rows: TokenAxis, columns: TokenAxis) -> None:
    """Thin white lines between cells that are large enough to spare a pixel."""
    if min(rows.spacing, columns.spacing) < 16:
        return
    looks: dict[str, Any] = {"colors": ink(PAPER), "linewidth": 0.5}
    edges = [np.arange(1, len(axis.tokens)) - 0.5 for axis in (rows, columns)]
    axes.hlines(edges[0], -0.5, len(columns.tokens) - 0.5, **looks)
    axes.vlines(edges[1], -0.5, len(rows.tokens) - 0.5, **looks)


def _divide(
    axes: Axes, rows: TokenAxis, columns: TokenAxis, divided: tuple[int | None, int | None]
) -> None:
    """A thin dark line, a little beyond the cells, where a second part of the text begins."""
    looks: dict[str, Any] = {"color": ink(INK), "linewidth": 0.8, "clip_on": False}
    row, column = divided
    if row:
        axes.hlines(row - 0.5, -0.5, len(columns.tokens) - 0.5, gid="division", **looks)
    if column:
        axes.vlines(column - 0.5, -0.5, len(rows.tokens) - 0.5, gid="division", **looks)


def write_numbers(
    axes: Axes,
    weights: NDArray[np.float32],
    rows: TokenAxis,
    columns: TokenAxis,
    limits: Limits,
    face: Typeface,
) -> None:
    """Every weight in its cell, with as many digits as fit; nothing where none do."""
    if weights.size > _MOST_NUMBERS:
        return
    for digits in (3, 2, 1) if limits[1] < 0.1 else (2, 1):
        texts = [[number(float(weight), digits) for weight in row] for row in weights]
        widest = max(
            face.width(text, _LARGEST_NUMBER) for text in {t for row in texts for t in row}
        )
        size = min(
            _LARGEST_NUMBER,
            _LARGEST_NUMBER * 0.8 * columns.cell / widest,
            0.75 * rows.cell * 72 / DPI,
        )
        if size >= _SMALLEST_NUMBER:
            break
    else:
        return
    font = face.font(size)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            color = ink(ink_on(color_of(float(weights[i, j]), limits)))
            axes.text(
                j, i, text, fontproperties=font, color=color, ha="center", va="center_baseline"
            )
